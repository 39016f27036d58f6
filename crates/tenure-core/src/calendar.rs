//! Days since 1970 as dates, in UTC.

use std::fmt;

const DAY_MS: u64 = 86_400_000;

/// A moment as a calendar date and a time of day, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    /// The year.
    pub year: u64,
    /// From 1 to 12.
    pub month: u64,
    /// From 1 to 31.
    pub day: u64,
    /// Milliseconds since midnight.
    pub of_day_ms: u64,
}

impl Calendar {
    /// The moment this many milliseconds after the beginning of 1970.
    pub const fn at(unix_ms: u64) -> Self {
        let (year, month, day) = date(unix_ms / DAY_MS);
        Calendar { year, month, day, of_day_ms: unix_ms % DAY_MS }
    }

    /// The time of the day: `07:49:00.123`.
    pub fn time(self) -> String {
        let ms = self.of_day_ms;
        let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
        let ms = ms % 1000;
        format!("{hours:02}:{minutes:02}:{seconds:02}.{ms:03}")
    }
}

/// In ISO 8601: `2026-11-15T07:49:00.123Z`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}T{}Z", self.year, self.month, self.day, self.time())
    }
}

/// Year, month and day of a day since 1970, by counting in years that begin in March, so that
/// the leap day comes last.
const fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_MARCH_OF_YEAR_0: u64 = 719_468;
    const DAYS_PER_400_YEARS: u64 = 146_097;
    let days = days + DAYS_FROM_MARCH_OF_YEAR_0;
    let (era, of_era) = (days / DAYS_PER_400_YEARS, days % DAYS_PER_400_YEARS);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + (month <= 2) as u64, month, day)
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
        assert_eq!(Calendar::at(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Calendar::at(951_782_400_000).to_string(), "2000-02-29T00:00:00.000Z");
        assert_eq!(Calendar::at(1_794_728_940_123).to_string(), "2026-11-15T07:49:00.123Z");
    }
}
