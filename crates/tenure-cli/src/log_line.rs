//! Log lines in the form that tools which start redis-server wait for.

use store_server::LogLevel;

use crate::clock;

/// `1234:M 15 Nov 2026 07:49:00.123 * Ready to accept connections`, in UTC.
pub(crate) fn format(level: LogLevel, text: &str) -> String {
    let mark = match level {
        LogLevel::Debug => '.',
        LogLevel::Verbose => '-',
        LogLevel::Notice => '*',
        LogLevel::Warning => '#',
    };
    let moment = moment(clock::unix_ms());
    format!("{}:M {moment} {mark} {}", std::process::id(), on_one_line(text))
}

/// Whatever a client made us log stays one line.
pub(crate) fn on_one_line(text: &str) -> String {
    tenure_core::text::plain(text, usize::MAX, '?')
}

fn moment(unix_ms: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (year, month, day) = date(days);
    let month = MONTHS[month as usize - 1];
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    let ms = ms % 1000;
    format!("{day:02} {month} {year} {hours:02}:{minutes:02}:{seconds:02}.{ms:03}")
}

/// The same moment as programs like it: `2026-11-15T07:49:00.123Z`.
pub(crate) fn iso_moment(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (year, month, day) = date(days);
    let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    let ms = ms % 1000;
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970, by counting in years that begin in March, so that
/// the leap day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_MARCH_OF_YEAR_0: u64 = 719_468;
    const DAYS_PER_400_YEARS: u64 = 146_097;
    let days = days + DAYS_FROM_MARCH_OF_YEAR_0;
    let (era, of_era) = (days / DAYS_PER_400_YEARS, days % DAYS_PER_400_YEARS);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_around_leap_days() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_772, (2026, 11, 15)),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn a_moment_has_milliseconds() {
        assert_eq!(moment(1_794_728_940_123), "15 Nov 2026 07:49:00.123");
        assert_eq!(iso_moment(1_794_728_940_123), "2026-11-15T07:49:00.123Z");
    }
}
