//! Which members of a sorted set: ranges of ranks, scores or texts.

use std::ops::Range;

use store_types::number::parse_f64;
use store_types::{MemberBound, ScoreBound, SortedSet};

use super::super::collection::index_range;
use super::super::prelude::*;

/// A range as a request gives it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Span<'a> {
    /// From rank to rank, both included, counted from the end when negative.
    Ranks(i64, i64),
    /// Between two places among the scores.
    Scores(ScoreBound, ScoreBound),
    /// Between two places among members of one score.
    Members(MemberBound<'a>, MemberBound<'a>),
}

impl<'a> Span<'a> {
    pub(super) fn parse_ranks(first: &[u8], last: &[u8]) -> Result<Self, CommandError> {
        Ok(Self::Ranks(integer(first)?, integer(last)?))
    }

    pub(super) fn parse_scores(min: &[u8], max: &[u8]) -> Result<Self, CommandError> {
        let error = CommandError::text("ERR min or max is not a float");
        let (Some((min, without_min)), Some((max, without_max))) =
            (score_limit(min), score_limit(max))
        else {
            return Err(error);
        };
        let min = if without_min { ScoreBound::After(min) } else { ScoreBound::At(min) };
        let max = if without_max { ScoreBound::At(max) } else { ScoreBound::After(max) };
        Ok(Self::Scores(min, max))
    }

    pub(super) fn parse_members(min: &'a [u8], max: &'a [u8]) -> Result<Self, CommandError> {
        let error = CommandError::text("ERR min or max not valid string range item");
        let min = match min {
            [b'(', member @ ..] => MemberBound::After(member),
            [b'[', member @ ..] => MemberBound::At(member),
            _ => open_end(min).ok_or(error.clone())?,
        };
        let max = match max {
            [b'(', member @ ..] => MemberBound::At(member),
            [b'[', member @ ..] => MemberBound::After(member),
            _ => open_end(max).ok_or(error)?,
        };
        Ok(Self::Members(min, max))
    }

    /// The ranks in `set`; with `reverse`, the request's own ranks count from the highest.
    pub(super) fn ranks(self, set: &SortedSet, reverse: bool) -> Range<usize> {
        let (start, end) = match self {
            Self::Ranks(first, last) => {
                let range = index_range(first, last, set.len());
                if !reverse {
                    return range;
                }
                (set.len() - range.end, set.len() - range.start)
            }
            Self::Scores(min, max) => (set.count_below(min), set.count_below(max)),
            Self::Members(min, max) => (set.count_before(min), set.count_before(max)),
        };
        start..end.max(start)
    }
}

/// `-` and `+`.
fn open_end<'a>(text: &[u8]) -> Option<MemberBound<'a>> {
    match text {
        b"-" => Some(MemberBound::First),
        b"+" => Some(MemberBound::Last),
        _ => None,
    }
}

/// A score and whether it is itself left out (`(1.5`), read as C's `strtod` reads it: blanks may
/// come first, nothing at all is zero, and too large is infinite.
fn score_limit(text: &[u8]) -> Option<(f64, bool)> {
    let (without, text) = match text {
        [b'(', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    if text.is_empty() {
        return Some((0.0, without));
    }
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let blanks = text.iter().take_while(|byte| is_blank(byte)).count();
    let number = &text[blanks..];
    let beyond = || {
        let value = std::str::from_utf8(number).ok()?.parse::<f64>().ok()?;
        (!value.is_nan()).then_some(value)
    };
    parse_f64(number).or_else(beyond).map(|score| (score, without))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_scores_are_read_as_strtod_reads_them() {
        for (text, limit) in [
            ("1.5", Some((1.5, false))),
            ("(1.5", Some((1.5, true))),
            ("(", Some((0.0, true))),
            ("", Some((0.0, false))),
            (" 2", Some((2.0, false))),
            ("-inf", Some((f64::NEG_INFINITY, false))),
            ("1e999", Some((f64::INFINITY, false))),
            ("1e-999", Some((0.0, false))),
            ("nan", None),
            (" ", None),
            ("2 ", None),
            ("((2", None),
        ] {
            assert_eq!(score_limit(text.as_bytes()), limit, "{text:?}");
        }
    }
}
