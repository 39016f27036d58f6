//! Names of stream entries: milliseconds and a sequence number.

use crate::number::{parse_i64, push_i64};

/// The name of an entry. Later entries have higher names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Unix milliseconds, as a rule.
    pub ms: u64,
    /// Tells entries of one millisecond apart.
    pub seq: u64,
}

impl StreamId {
    /// `0-0`, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The highest of all.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };
    /// Longer texts are no names.
    const TEXT_MAX: usize = 127;

    /// A name of its two numbers.
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// Reads `ms-seq`, or `ms` alone, which then gets `missing_seq`.
    ///
    /// ```
    /// # use store_types::StreamId;
    /// assert_eq!(StreamId::parse(b"5-1", 0), Some(StreamId::new(5, 1)));
    /// assert_eq!(StreamId::parse(b"5", 7), Some(StreamId::new(5, 7)));
    /// ```
    pub fn parse(text: &[u8], missing_seq: u64) -> Option<Self> {
        if text.len() > Self::TEXT_MAX {
            return None;
        }
        match text.iter().position(|&byte| byte == b'-') {
            Some(dash) => {
                Some(Self::new(parse_number(&text[..dash])?, parse_number(&text[dash + 1..])?))
            }
            None => Some(Self::new(parse_number(text)?, missing_seq)),
        }
    }

    /// Reads `ms-*`: the milliseconds, for a sequence number to be chosen.
    pub fn parse_open(text: &[u8]) -> Option<u64> {
        parse_number(text.strip_suffix(b"-*").filter(|ms| ms.len() <= Self::TEXT_MAX - 2)?)
    }

    /// The next higher name, unless this is the highest.
    pub fn next(self) -> Option<Self> {
        match (self.ms, self.seq) {
            (u64::MAX, u64::MAX) => None,
            (ms, u64::MAX) => Some(Self::new(ms + 1, 0)),
            (ms, seq) => Some(Self::new(ms, seq + 1)),
        }
    }

    /// The next lower name, unless this is the lowest.
    pub fn previous(self) -> Option<Self> {
        match (self.ms, self.seq) {
            (0, 0) => None,
            (ms, 0) => Some(Self::new(ms - 1, u64::MAX)),
            (ms, seq) => Some(Self::new(ms, seq - 1)),
        }
    }

    /// Sixteen bytes that sort as the names do.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }

    /// The reverse of [`Self::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self::new((number >> 64) as u64, number as u64)
    }

    /// Appends `ms-seq` to `out`.
    pub fn write_to(self, out: &mut Vec<u8>) {
        push_u64(out, self.ms);
        out.push(b'-');
        push_u64(out, self.seq);
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", self.ms, self.seq)
    }
}

fn push_u64(out: &mut Vec<u8>, value: u64) {
    match i64::try_from(value) {
        Ok(value) => push_i64(out, value),
        Err(_) => out.extend_from_slice(value.to_string().as_bytes()),
    }
}

/// A part of a name, as Redis reads it: what it writes itself, or whatever C's `strtoull` takes.
fn parse_number(text: &[u8]) -> Option<u64> {
    if let Some(value) = parse_i64(text) {
        return u64::try_from(value).ok();
    }
    let text = text.trim_ascii_start();
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0_u64;
    for &digit in digits {
        let digit = char::from(digit).to_digit(10)?;
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_read_as_redis_reads_them() {
        assert_eq!(StreamId::parse(b"0-0", 9), Some(StreamId::MIN));
        assert_eq!(StreamId::parse(b"007-01", 9), Some(StreamId::new(7, 1)));
        assert_eq!(
            StreamId::parse(b"18446744073709551615-18446744073709551615", 0),
            Some(StreamId::MAX)
        );
        for refused in ["", "-", "5-", "-5", "5-1-1", "a", "5-a", "18446744073709551616", "1 "] {
            assert_eq!(StreamId::parse(refused.as_bytes(), 0), None, "{refused:?}");
        }
        assert_eq!(StreamId::parse_open(b"12-*"), Some(12));
        assert_eq!(StreamId::parse_open(b"12-3"), None);
    }

    proptest! {
        #[test]
        fn names_survive_text_and_bytes_and_keep_their_order(ms: u64, seq: u64, other: u64) {
            let id = StreamId::new(ms, seq);
            let mut text = Vec::new();
            id.write_to(&mut text);
            prop_assert_eq!(StreamId::parse(&text, 0), Some(id));
            prop_assert_eq!(StreamId::from_bytes(id.to_bytes()), id);
            let second = StreamId::new(other, seq);
            prop_assert_eq!(id.cmp(&second), id.to_bytes().cmp(&second.to_bytes()));
            prop_assert_eq!(id.next().and_then(StreamId::previous), id.next().map(|_| id));
        }
    }
}
