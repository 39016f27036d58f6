//! The client's side: replies out of bytes.
//!
//! A server that was taken over or swapped controls every byte here, so nesting is capped and
//! memory is never reserved because a header says so.

use crate::number::parse_integer;

/// Replies nested deeper than this are refused: no command of Redis comes near.
const DEPTH_MAX: usize = 32;
/// One string longer than this is refused, as `proto-max-bulk-len` is by default.
const BULK_MAX: i64 = 512 * 1024 * 1024;
/// One aggregate longer than this is refused.
const AGGREGATE_MAX: i64 = i32::MAX as i64;
/// Header lines, simple strings and errors end within this many bytes.
const LINE_MAX: usize = 64 * 1024;

/// One reply of a server. Its `Debug` form shows strings as text.
#[derive(Clone, PartialEq)]
pub enum Reply {
    /// `+`
    Simple(String),
    /// `-`, and `!` of RESP3.
    Error(String),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Vec<u8>),
    /// `$-1`, `*-1` and `_`. The first two differ only in RESP2, where `NullArray` tells.
    Null,
    /// `*-1`
    NullArray,
    /// `*`
    Array(Vec<Reply>),
    /// `%`
    Map(Vec<(Reply, Reply)>),
    /// `~`
    Set(Vec<Reply>),
    /// `>`
    Push(Vec<Reply>),
    /// `,` kept as text, since texts are what must be equal.
    Double(String),
    /// `(`
    BigNumber(String),
    /// `#`
    Boolean(bool),
    /// `=`: three letters of kind, and the text.
    Verbatim(String, Vec<u8>),
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reply::Simple(text) => write!(f, "+{text}"),
            Reply::Error(text) => write!(f, "-{text}"),
            Reply::Integer(number) => write!(f, ":{number}"),
            Reply::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Reply::Null => write!(f, "null"),
            Reply::NullArray => write!(f, "null array"),
            Reply::Array(items) => f.debug_list().entries(items).finish(),
            Reply::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(k, v)| (k, v))).finish(),
            Reply::Set(items) => f.debug_set().entries(items).finish(),
            Reply::Push(items) => f.debug_tuple("push").field(items).finish(),
            Reply::Double(text) => write!(f, ",{text}"),
            Reply::BigNumber(text) => write!(f, "({text}"),
            Reply::Boolean(value) => write!(f, "#{value}"),
            Reply::Verbatim(kind, text) => write!(f, "={kind}:\"{}\"", text.escape_ascii()),
        }
    }
}

/// These bytes are no reply: close the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// Nested past `DEPTH_MAX`.
    #[error("reply is nested deeper than {DEPTH_MAX}")]
    TooDeep,
    /// A type byte that RESP does not have.
    #[error("unknown reply type {0:#04x}")]
    UnknownType(u8),
    /// A length or number that is none.
    #[error("malformed header line")]
    Header,
    /// A line without end.
    #[error("line longer than {LINE_MAX} bytes")]
    LineTooLong,
    /// A string not followed by a line end.
    #[error("string without line end")]
    Unterminated,
}

/// Parses replies out of a buffer that grows.
#[derive(Debug, Default)]
pub struct ReplyParser;

impl ReplyParser {
    /// The reply at the front of `bytes` and its length, or `None` while bytes are missing.
    ///
    /// Fails when the bytes cannot become a reply.
    pub fn parse(&self, bytes: &[u8]) -> Result<Option<(Reply, usize)>, ReplyError> {
        let mut cursor = Cursor { bytes, at: 0 };
        match cursor.reply(0) {
            Ok(reply) => Ok(Some((reply, cursor.at))),
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Malformed(error)) => Err(error),
        }
    }
}

enum Stop {
    Incomplete,
    Malformed(ReplyError),
}

impl From<ReplyError> for Stop {
    fn from(error: ReplyError) -> Self {
        Stop::Malformed(error)
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        if depth > DEPTH_MAX {
            return Err(ReplyError::TooDeep.into());
        }
        let kind = *self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        if !b"+-:$*%~>,(#=_!|".contains(&kind) {
            return Err(ReplyError::UnknownType(kind).into());
        }
        let line = self.line()?;
        Ok(match kind {
            b'+' => Reply::Simple(text(line)),
            b'-' => Reply::Error(text(line)),
            b',' => Reply::Double(text(line)),
            b'(' => Reply::BigNumber(text(line)),
            b'_' => Reply::Null,
            b'#' => Reply::Boolean(line == b"t"),
            b':' => Reply::Integer(parse_integer(line).ok_or(ReplyError::Header)?),
            b'$' | b'=' | b'!' => self.string(kind, line)?,
            b'*' if line == b"-1" => Reply::NullArray,
            b'*' => Reply::Array(self.replies(line, 1, depth)?),
            b'~' => Reply::Set(self.replies(line, 1, depth)?),
            b'>' => Reply::Push(self.replies(line, 1, depth)?),
            b'%' => Reply::Map(pairs(self.replies(line, 2, depth)?)),
            // Attributes tell about the reply that follows them.
            _ => {
                self.replies(line, 2, depth)?;
                self.reply(depth + 1)?
            }
        })
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at + 1..];
        let within = &rest[..rest.len().min(LINE_MAX)];
        match within.windows(2).position(|pair| pair == b"\r\n") {
            Some(end) => {
                self.at += 1 + end + 2;
                Ok(&rest[..end])
            }
            None if rest.len() >= LINE_MAX => Err(ReplyError::LineTooLong.into()),
            None => Err(Stop::Incomplete),
        }
    }

    fn string(&mut self, kind: u8, line: &[u8]) -> Result<Reply, Stop> {
        if line == b"-1" {
            return Ok(Reply::Null);
        }
        let len = parse_integer(line)
            .filter(|len| (0..=BULK_MAX).contains(len))
            .ok_or(ReplyError::Header)? as usize;
        let rest = &self.bytes[self.at..];
        if rest.len() < len + 2 {
            return Err(Stop::Incomplete);
        }
        if &rest[len..len + 2] != b"\r\n" {
            return Err(ReplyError::Unterminated.into());
        }
        self.at += len + 2;
        let body = &rest[..len];
        Ok(match kind {
            b'$' => Reply::Bulk(body.to_vec()),
            b'!' => Reply::Error(text(body)),
            _ => match body {
                [a, b, c, b':', words @ ..] => Reply::Verbatim(text(&[*a, *b, *c]), words.to_vec()),
                _ => return Err(ReplyError::Header.into()),
            },
        })
    }

    fn replies(&mut self, line: &[u8], times: i64, depth: usize) -> Result<Vec<Reply>, Stop> {
        let len = parse_integer(line)
            .filter(|len| (0..=AGGREGATE_MAX / times).contains(len))
            .ok_or(ReplyError::Header)?;
        let mut replies = Vec::new();
        for _ in 0..len * times {
            replies.push(self.reply(depth + 1)?);
        }
        Ok(replies)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn pairs(replies: Vec<Reply>) -> Vec<(Reply, Reply)> {
    let mut replies = replies.into_iter();
    let mut pairs = Vec::new();
    while let (Some(key), Some(value)) = (replies.next(), replies.next()) {
        pairs.push((key, value));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, ReplyError> {
        ReplyParser.parse(bytes)
    }

    #[test]
    fn replies_of_both_protocols_are_read() {
        let bytes = b"*3\r\n%1\r\n+a\r\n:1\r\n~1\r\n#t\r\n=6\r\ntxt:hi\r\n$-1\r\n";
        let (reply, used) = parse(bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len() - 5);
        let Reply::Array(items) = reply else { panic!("not an array") };
        assert_eq!(items[0], Reply::Map(vec![(Reply::Simple("a".into()), Reply::Integer(1))]));
        assert_eq!(items[2], Reply::Verbatim("txt".into(), b"hi".to_vec()));
        assert_eq!(parse(&bytes[used..]).unwrap().unwrap().0, Reply::Null);
        for cut in 0..used {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut}");
        }
    }

    #[test]
    fn hostile_frames_are_refused_or_wait_without_memory() {
        assert_eq!(parse(&b"*1\r\n".repeat(100_000)), Err(ReplyError::TooDeep));
        for header in [&b"*-2\r\n"[..], b"$-2\r\n", b"$+5\r\n", b"$ 5\r\n", b":1e3\r\n"] {
            assert_eq!(parse(header), Err(ReplyError::Header), "{header:?}");
        }
        assert_eq!(parse(b"$536870913\r\n"), Err(ReplyError::Header));
        assert_eq!(parse(b"%4611686018427387904\r\n"), Err(ReplyError::Header));
        assert_eq!(parse(b"*2147483647\r\n"), Ok(None));
        assert_eq!(parse(b"$1\r\nabc"), Err(ReplyError::Unterminated));
        assert_eq!(parse(b"\0"), Err(ReplyError::UnknownType(0)));
    }
}
