//! Lengths of time as people write them: `250ms`, `10s`, `1h30m`.

use std::time::Duration;

use crate::timing::TIME_UNITS;

/// Understood beside the units in which times are written.
const WEEK: (&str, u64) = ("w", 7 * 86_400_000);

/// Why a text is not a length of time. The message says what to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct DurationError(#[from] DurationFault);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum DurationFault {
    /// A number alone: seconds or milliseconds?
    #[error("{text:?} has no unit: write {text}s or {text}ms")]
    NoUnit {
        /// What was given.
        text: String,
    },
    /// Not of the form number, unit, number, unit…
    #[error(
        "{text:?} is not a duration: write for example 250ms, 10s or 1h30m (w, d, h, m, s, ms)"
    )]
    Malformed {
        /// What was given.
        text: String,
    },
    /// More than 2^64 milliseconds.
    #[error("{text:?} is too long to count")]
    TooLong {
        /// What was given.
        text: String,
    },
}

/// Reads a length of time: whole numbers, each with its unit (`w`, `d`, `h`, `m`, `s`, `ms`).
///
/// ```
/// # use std::time::Duration;
/// # use tenure_core::duration::parse_duration;
/// assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5_400)));
/// assert!(parse_duration("10").unwrap_err().to_string().contains("write 10s or 10ms"));
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let malformed = || DurationError(DurationFault::Malformed { text: shortened(text) });
    let too_long = || DurationError(DurationFault::TooLong { text: shortened(text) });
    let mut rest = text.trim();
    if !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DurationFault::NoUnit { text: shortened(rest) }.into());
    }
    let mut millis = 0_u64;
    loop {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_where(after, |c| c.is_ascii_digit());
        if number.is_empty() {
            return Err(malformed());
        }
        let number: u64 = number.parse().map_err(|_| too_long())?;
        let mut units = [WEEK].into_iter().chain(TIME_UNITS);
        let (_, size) = units.find(|(name, _)| *name == unit).ok_or_else(malformed)?;
        let part = number.checked_mul(size).ok_or_else(too_long)?;
        millis = millis.checked_add(part).ok_or_else(too_long)?;
        rest = after;
        if rest.is_empty() {
            return Ok(Duration::from_millis(millis));
        }
    }
}

fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// An error quotes what was given, but not a page of it.
fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 40;
    match text.char_indices().nth(SHOWN_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::duration_text;

    #[test]
    fn what_is_written_is_read_back() {
        for millis in [0, 1, 250, 1_000, 10_500, 5_400_000, 86_400_000, 90_061_001] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse_duration(&duration_text(duration)), Ok(duration));
        }
        assert_eq!(duration_text(Duration::from_millis(90_061_001)), "1d1h1m1s1ms");
        assert_eq!(parse_duration("1w2d"), parse_duration("9d"));
    }

    #[test]
    fn anything_else_is_refused_and_quoted() {
        for text in ["", " ", "s", "10 s", "10S", "-1s", "1.5s", "10sec", "ms10", "10s5", "½s"] {
            let error = parse_duration(text).unwrap_err();
            assert!(
                matches!(error, DurationError(DurationFault::Malformed { .. })),
                "{text:?}: {error}"
            );
        }
        for text in ["18446744073709551616ms", "99999999999999999d", "18446744073709551615ms1ms"] {
            let error = parse_duration(text).unwrap_err();
            assert!(
                matches!(error, DurationError(DurationFault::TooLong { .. })),
                "{text:?}: {error}"
            );
        }
        assert_eq!(
            parse_duration("10").unwrap_err().to_string(),
            "\"10\" has no unit: write 10s or 10ms"
        );
        assert!(parse_duration(&"x".repeat(1_000)).unwrap_err().to_string().len() < 200);
    }
}
