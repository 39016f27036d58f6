//! Finds where a reply ends, reading every byte once however it arrives.
//!
//! `ReplyParser` starts again whenever bytes are missing, which is quadratic for a reply of many
//! elements. This keeps count of the elements still open, so that the parser runs once per reply,
//! and bulk input need not build replies at all.

use store_resp::{ReplyError, parse_integer};

/// As deep as the parser of replies goes.
const DEPTH_MAX: usize = 32;
/// Header lines end within this many bytes, as for the parser of replies.
const LINE_MAX: usize = 64 * 1024;
/// One string is at most this long, as for the parser of replies.
const BULK_MAX: i64 = 512 * 1024 * 1024;
/// One aggregate is at most this long, as for the parser of replies.
const AGGREGATE_MAX: i64 = i32::MAX as i64;

/// How far the reply at the front of a growing buffer is known.
#[derive(Debug, Default)]
pub(super) struct Framer {
    /// The next byte to look at.
    at: usize,
    /// Elements still missing, per open aggregate, the innermost last.
    open: Vec<i64>,
}

impl Framer {
    /// The length of the reply at the front of `bytes`, or `None` while bytes are missing. The next
    /// call after a length begins a new reply.
    ///
    /// Fails when the bytes cannot become a reply.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, ReplyError> {
        loop {
            let Some((kind, line)) = header(&bytes[self.at.min(bytes.len())..])? else {
                return Ok(None);
            };
            let next = self.at + 1 + line.len() + 2;
            let elements = match kind {
                b'$' | b'=' | b'!' => match body(line)? {
                    Some(len) if bytes.len() < next + len + 2 => return Ok(None),
                    Some(len) => {
                        self.at = next + len + 2;
                        0
                    }
                    None => self.leaf(next),
                },
                b'*' if line == b"-1" => self.leaf(next),
                b'*' | b'~' | b'>' => self.aggregate(next, count(line, 1)?),
                b'%' => self.aggregate(next, count(line, 2)? * 2),
                // Attributes belong to the reply that follows them.
                b'|' => self.aggregate(next, count(line, 2)? * 2 + 1),
                b'+' | b'-' | b':' | b',' | b'(' | b'_' | b'#' => self.leaf(next),
                other => return Err(ReplyError::UnknownType(other)),
            };
            if elements > 0 {
                if self.open.len() >= DEPTH_MAX {
                    return Err(ReplyError::TooDeep);
                }
                self.open.push(elements);
            } else if self.close() {
                return Ok(Some(std::mem::take(&mut self.at)));
            }
        }
    }

    fn leaf(&mut self, next: usize) -> i64 {
        self.aggregate(next, 0)
    }

    fn aggregate(&mut self, next: usize, elements: i64) -> i64 {
        self.at = next;
        elements
    }

    /// Counts one finished element; true when the whole reply is finished with it.
    fn close(&mut self) -> bool {
        while let Some(missing) = self.open.last_mut() {
            *missing -= 1;
            if *missing > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

/// The type byte and the rest of a header line, without its end.
fn header(bytes: &[u8]) -> Result<Option<(u8, &[u8])>, ReplyError> {
    let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
    let within = &rest[..rest.len().min(LINE_MAX)];
    match within.windows(2).position(|pair| pair == b"\r\n") {
        Some(end) => Ok(Some((*kind, &rest[..end]))),
        None if rest.len() >= LINE_MAX => Err(ReplyError::LineTooLong),
        None => Ok(None),
    }
}

/// The length of a string; `None` for a null.
fn body(line: &[u8]) -> Result<Option<usize>, ReplyError> {
    if line == b"-1" {
        return Ok(None);
    }
    let len = parse_integer(line).filter(|len| (0..=BULK_MAX).contains(len));
    len.map(|len| Some(len as usize)).ok_or(ReplyError::Header)
}

fn count(line: &[u8], times: i64) -> Result<i64, ReplyError> {
    let count = parse_integer(line).filter(|len| (0..=AGGREGATE_MAX / times).contains(len));
    count.ok_or(ReplyError::Header)
}

#[cfg(test)]
mod tests {
    use store_resp::ReplyParser;

    use super::*;

    const REPLIES: &[u8] = b"+OK\r\n-ERR x\r\n:1\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*0\r\n\
        *2\r\n*1\r\n:1\r\n$0\r\n\r\n%2\r\n+a\r\n:1\r\n+b\r\n~1\r\n,1.5\r\n_\r\n#t\r\n\
        =6\r\ntxt:hi\r\n(123\r\n>2\r\n+message\r\n+x\r\n|1\r\n+ttl\r\n:5\r\n*1\r\n:9\r\n!3\r\nERR\r\n";

    /// The lengths of all replies, found while the bytes come in pieces of `step`.
    fn lengths(step: usize) -> Vec<usize> {
        let (mut framer, mut found) = (Framer::default(), Vec::new());
        let (mut start, mut end) = (0, 0);
        loop {
            match framer.advance(&REPLIES[start..end]).unwrap() {
                Some(len) => {
                    found.push(len);
                    start += len;
                }
                None if end == REPLIES.len() => return found,
                None => end = (end + step).min(REPLIES.len()),
            }
        }
    }

    #[test]
    fn replies_end_where_the_parser_says_however_the_bytes_are_cut() {
        let mut expected = Vec::new();
        let mut rest = REPLIES;
        while let Some((_, len)) = ReplyParser.parse(rest).unwrap() {
            expected.push(len);
            rest = &rest[len..];
        }
        assert_eq!(expected.len(), 16);
        for step in 1..REPLIES.len() {
            assert_eq!(lengths(step), expected, "step {step}");
        }
    }

    #[test]
    fn hostile_frames_are_refused() {
        let refused = |bytes: &[u8]| Framer::default().advance(bytes).unwrap_err();
        assert_eq!(refused(&b"*1\r\n".repeat(100_000)), ReplyError::TooDeep);
        for bytes in [&b"*-2\r\n"[..], b"$-2\r\n", b"$536870913\r\n", b"%4611686018427387904\r\n"] {
            assert_eq!(refused(bytes), ReplyError::Header);
        }
        assert_eq!(refused(b"HTTP/1.1 400\r\n"), ReplyError::UnknownType(b'H'));
        assert_eq!(refused(&[b'+'; LINE_MAX + 2]), ReplyError::LineTooLong);
    }
}
