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
    /// More elements than whoever asked can use.
    #[error("reply has too many elements")]
    TooManyElements,
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

/// Finds the end of a reply in a buffer that grows, and looks at every element once: parsing the
/// whole buffer with every read would take a time that grows with the square of its length.
#[derive(Debug)]
pub struct ReplyScanner {
    elements_max: u64,
    elements: u64,
    /// What lies before was looked at.
    at: usize,
    /// How many elements each aggregate lacks, the outermost first.
    open: Vec<u64>,
    #[cfg(test)]
    looks: usize,
}

impl ReplyScanner {
    /// Replies with more elements are refused, by what their headers say.
    pub fn new(elements_max: u64) -> Self {
        Self {
            elements_max,
            elements: 0,
            at: 0,
            open: Vec::new(),
            #[cfg(test)]
            looks: 0,
        }
    }

    /// The length of the reply at the front of `bytes`, or `None` while bytes are missing: call it
    /// again with the same bytes and more. After a length it begins anew.
    ///
    /// Fails when the bytes cannot become a reply.
    pub fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, ReplyError> {
        loop {
            let mut cursor = Cursor { bytes, at: self.at };
            #[cfg(test)]
            (self.looks += 1);
            let inner = match cursor.skip() {
                Ok(inner) => inner,
                Err(Stop::Incomplete) => return Ok(None),
                Err(Stop::Malformed(error)) => return Err(error),
            };
            self.at = cursor.at;
            self.elements = self.elements.saturating_add(inner);
            if self.elements > self.elements_max {
                return Err(ReplyError::TooManyElements);
            }
            if inner > 0 {
                self.open.push(inner);
            } else {
                self.end_element();
            }
            if self.open.len() > DEPTH_MAX {
                return Err(ReplyError::TooDeep);
            }
            if self.open.is_empty() {
                let len = self.at;
                *self = Self::new(self.elements_max);
                return Ok(Some(len));
            }
        }
    }

    /// An element is whole, and so is every aggregate that it was the last of.
    fn end_element(&mut self) {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
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
        let kind = self.kind()?;
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

    fn kind(&self) -> Result<u8, Stop> {
        let kind = *self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        match b"+-:$*%~>,(#=_!|".contains(&kind) {
            true => Ok(kind),
            false => Err(ReplyError::UnknownType(kind).into()),
        }
    }

    /// Passes over one element without its inner ones. How many of them follow.
    fn skip(&mut self) -> Result<u64, Stop> {
        let kind = self.kind()?;
        let line = self.line()?;
        let times = match kind {
            b'$' | b'=' | b'!' if line != b"-1" => {
                self.body(line)?;
                return Ok(0);
            }
            b'*' if line == b"-1" => return Ok(0),
            b'*' | b'~' | b'>' => 1,
            b'%' | b'|' => 2,
            _ => return Ok(0),
        };
        let len = aggregate_len(line, times)? as u64;
        // Attributes are followed by the reply that they tell about.
        Ok(len * times as u64 + u64::from(kind == b'|'))
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
        let body = self.body(line)?;
        Ok(match kind {
            b'$' => Reply::Bulk(body.to_vec()),
            b'!' => Reply::Error(text(body)),
            _ => match body {
                [a, b, c, b':', words @ ..] => Reply::Verbatim(text(&[*a, *b, *c]), words.to_vec()),
                _ => return Err(ReplyError::Header.into()),
            },
        })
    }

    /// The string that a header announced.
    fn body(&mut self, line: &[u8]) -> Result<&'a [u8], Stop> {
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
        Ok(&rest[..len])
    }

    fn replies(&mut self, line: &[u8], times: i64, depth: usize) -> Result<Vec<Reply>, Stop> {
        let len = aggregate_len(line, times)?;
        let mut replies = Vec::new();
        for _ in 0..len * times {
            replies.push(self.reply(depth + 1)?);
        }
        Ok(replies)
    }
}

fn aggregate_len(line: &[u8], times: i64) -> Result<i64, ReplyError> {
    let len = parse_integer(line).filter(|len| (0..=AGGREGATE_MAX / times).contains(len));
    len.ok_or(ReplyError::Header)
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
    fn the_end_that_is_found_byte_by_byte_is_where_a_parse_ends() {
        let replies: [&[u8]; 8] = [
            b"+PONG\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"$-1\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"*3\r\n%1\r\n+a\r\n:1\r\n~1\r\n#t\r\n=6\r\ntxt:hi\r\n",
            b"|1\r\n+a\r\n*1\r\n:1\r\n*2\r\n*0\r\n_\r\n",
            b">2\r\n!3\r\nERR\r\n,1.5\r\n",
        ];
        for reply in replies {
            let mut scanner = ReplyScanner::new(100);
            for cut in 0..reply.len() {
                assert_eq!(scanner.find_end(&reply[..cut]), Ok(None), "{reply:?} at {cut}");
            }
            let more = [reply, b"+more\r\n"].concat();
            assert_eq!(scanner.find_end(&more), Ok(Some(reply.len())));
            assert_eq!(parse(&more).unwrap().unwrap().1, reply.len());
            assert_eq!((scanner.at, scanner.open.len()), (0, 0), "it begins anew");
        }
    }

    #[test]
    fn every_element_is_looked_at_once_however_many_reads_there_are() {
        let count = 10_000;
        let mut bytes = format!("*{}\r\n", count + 1).into_bytes();
        bytes.extend(b":1\r\n".repeat(count));
        let mut scanner = ReplyScanner::new(1_000_000);
        let reads = bytes.len().div_ceil(100);
        for read in 1..=reads {
            let end = bytes.len().min(read * 100);
            assert_eq!(scanner.find_end(&bytes[..end]), Ok(None));
        }
        assert!(scanner.looks <= count + 1 + reads, "{} looks", scanner.looks);
    }

    #[test]
    fn too_many_elements_are_refused_by_the_header_alone() {
        let mut scanner = ReplyScanner::new(4_096);
        assert_eq!(scanner.find_end(b"*4096\r\n"), Ok(None));
        assert_eq!(scanner.find_end(b"*4096\r\n*1\r\n"), Err(ReplyError::TooManyElements));
        let mut scanner = ReplyScanner::new(4_096);
        assert_eq!(scanner.find_end(b"%2049\r\n"), Err(ReplyError::TooManyElements));
        let mut scanner = ReplyScanner::new(4_096);
        assert_eq!(scanner.find_end(&b"*1\r\n".repeat(100)), Err(ReplyError::TooDeep));
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
