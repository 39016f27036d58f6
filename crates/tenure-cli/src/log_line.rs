//! Log lines in the form that tools which start redis-server wait for.

use store_server::LogLevel;
use tenure_core::calendar::Calendar;

use crate::clock;

/// Whose log it is, which the letter behind the process id tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Store,
    Sentinel,
}

/// `1234:M 15 Nov 2026 07:49:00.123 * Ready to accept connections`, in UTC.
pub(crate) fn format(role: Role, level: LogLevel, text: &str) -> String {
    let mark = match level {
        LogLevel::Debug => '.',
        LogLevel::Verbose => '-',
        LogLevel::Notice => '*',
        LogLevel::Warning => '#',
    };
    let moment = moment(clock::unix_ms());
    let role = match role {
        Role::Store => 'M',
        Role::Sentinel => 'X',
    };
    format!("{}:{role} {moment} {mark} {}", std::process::id(), on_one_line(text))
}

/// Whatever a client made us log stays one line.
pub(crate) fn on_one_line(text: &str) -> String {
    tenure_core::text::plain(text, usize::MAX, '?')
}

fn moment(unix_ms: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let at = Calendar::at(unix_ms);
    let month = MONTHS[at.month as usize - 1];
    format!("{:02} {month} {} {}", at.day, at.year, at.time())
}

/// The same moment as programs like it: `2026-11-15T07:49:00.123Z`.
pub(crate) fn iso_moment(unix_ms: u64) -> String {
    Calendar::at(unix_ms).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_milliseconds() {
        assert_eq!(moment(1_794_728_940_123), "15 Nov 2026 07:49:00.123");
        assert_eq!(iso_moment(1_794_728_940_123), "2026-11-15T07:49:00.123Z");
    }
}
