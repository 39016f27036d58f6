//! Ids among the arguments, and as text.

use store_types::StreamId;
use store_types::number::IntText;

use super::super::prelude::*;

const INVALID: CommandError =
    CommandError::text("ERR Invalid stream ID specified as stream command argument");

/// Parses `ms-seq`, or `ms` alone, which then gets `missing_seq`.
pub(super) fn parse(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    StreamId::parse(text, missing_seq).ok_or(INVALID)
}

/// Parses an id, or `-` and `+` for the least and the greatest.
pub(super) fn parse_or_extreme(text: &[u8], missing_seq: u64) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => parse(text, missing_seq),
    }
}

/// Parses where an interval begins; `(` leaves the id itself out.
pub(super) fn parse_start(text: &[u8]) -> Result<StreamId, CommandError> {
    let error = CommandError::text("ERR invalid start ID for the interval");
    match text {
        [b'(', id @ ..] if !id.is_empty() => parse(id, 0)?.next().ok_or(error),
        _ => parse_or_extreme(text, 0),
    }
}

/// Parses where an interval ends; `(` leaves the id itself out.
pub(super) fn parse_end(text: &[u8]) -> Result<StreamId, CommandError> {
    let error = CommandError::text("ERR invalid end ID for the interval");
    match text {
        [b'(', id @ ..] if !id.is_empty() => parse(id, u64::MAX)?.previous().ok_or(error),
        _ => parse_or_extreme(text, u64::MAX),
    }
}

/// All the ids from argument `first` on: none is acted on unless all make sense.
pub(super) fn parse_all(request: Request<'_>, first: usize) -> Result<Vec<StreamId>, CommandError> {
    request.args_from(first).map(|text| parse(text, 0)).collect()
}

/// Two numbers of twenty digits and the dash between them.
const TEXT_MAX: usize = 41;

/// The text of an id, without an allocation.
pub(super) struct IdText {
    bytes: [u8; TEXT_MAX],
    len: usize,
}

impl IdText {
    pub(super) fn new(id: StreamId) -> Self {
        let mut text = Self { bytes: [0; TEXT_MAX], len: 0 };
        text.push_number(id.ms);
        text.push(b"-");
        text.push_number(id.seq);
        text
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push_number(&mut self, number: u64) {
        match i64::try_from(number) {
            Ok(number) => self.push(IntText::new(number).as_bytes()),
            Err(_) => self.push(number.to_string().as_bytes()),
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_size_have_their_text() {
        for id in [StreamId::MIN, StreamId::new(5, 10), StreamId::MAX] {
            assert_eq!(IdText::new(id).as_bytes(), id.to_string().as_bytes());
        }
    }

    #[test]
    fn an_interval_cannot_begin_behind_all_ids_or_end_before_all() {
        assert_eq!(parse_start(b"(5-1").unwrap(), StreamId::new(5, 2));
        assert_eq!(parse_end(b"(5").unwrap(), StreamId::new(5, u64::MAX - 1));
        assert!(parse_start(b"(18446744073709551615-18446744073709551615").is_err());
        assert!(parse_end(b"(0-0").is_err());
        assert!(parse_start(b"(-").is_err());
        assert!(parse_start(b"(").is_err());
    }
}
