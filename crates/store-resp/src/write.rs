//! Writes replies into an output buffer, in RESP2 or RESP3.

use std::ops::Range;
use std::sync::Arc;

use crate::number::{DoubleText, format_integer};
use crate::output::{Output, SHARED_MIN};

/// Which generation of RESP a client asked for with HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every client speaks without asking.
    #[default]
    Resp2,
    /// With maps, sets, doubles, nulls and pushes of their own.
    Resp3,
}

/// An output buffer and the protocol in which replies are written to it.
///
/// Aggregates are written header first: `array(2)` and then two replies. Where the count is
/// not known before, [`begin`](Self::begin) and [`end_array`](Self::end_array) wrap them.
#[derive(Debug, Default)]
pub struct ReplyWriter {
    output: Output,
    protocol: Protocol,
    /// Whether large strings may be shared: what is written goes to a client.
    shares: bool,
}

/// Where an aggregate of yet unknown length began.
#[derive(Debug)]
#[must_use]
pub struct Begun(usize);

impl ReplyWriter {
    /// An empty buffer.
    pub fn new(protocol: Protocol) -> Self {
        Self { output: Output::default(), protocol, shares: false }
    }

    /// Goes on at the end of `buffer`, in one piece: nothing is shared.
    pub fn onto(mut buffer: Vec<u8>, protocol: Protocol) -> Self {
        let mut output = Output::default();
        output.lend(&mut buffer);
        Self { output, protocol, shares: false }
    }

    /// Goes on at the end of what waits for a client; large strings are shared.
    #[inline]
    pub fn onto_output(output: Output, protocol: Protocol) -> Self {
        Self { output, protocol, shares: true }
    }

    /// The buffer with all replies of a writer that shares nothing.
    pub fn into_bytes(mut self) -> Vec<u8> {
        debug_assert!(!self.shares);
        std::mem::take(self.output.bytes_mut())
    }

    /// What waits for the client, with all replies.
    #[inline]
    pub fn into_output(self) -> Output {
        self.output
    }

    /// What waits for the client so far.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Whether large strings are shared instead of copied.
    #[inline]
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// All that was written so far, but for strings that are shared.
    pub fn as_bytes(&self) -> &[u8] {
        self.output.bytes()
    }

    /// Where the next reply begins.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a position, not a container")]
    pub fn len(&self) -> usize {
        self.output.position()
    }

    /// Bytes that nobody has read yet, of this reply and of those before it.
    pub fn unread(&self) -> usize {
        self.output.unread()
    }

    /// Takes back everything behind `len`.
    pub fn truncate(&mut self, len: usize) {
        self.output.truncate(len);
    }

    /// Puts whole frames before what was written from `at` on.
    pub fn insert_at(&mut self, at: usize, frames: &[u8]) {
        self.output.insert_at(at, frames);
    }

    /// Appends whole frames that were written elsewhere.
    pub fn raw(&mut self, frames: &[u8]) {
        self.output.bytes_mut().extend_from_slice(frames);
    }

    /// The protocol in force.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Whether RESP3 is in force.
    #[inline]
    pub fn is_resp3(&self) -> bool {
        self.protocol == Protocol::Resp3
    }

    /// Changes the protocol of what comes next.
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.output.bytes_mut().extend_from_slice(b"+OK\r\n");
    }

    /// A simple string. The text must not contain line ends.
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']));
        self.line(b'+', text.as_bytes());
    }

    /// An error. Line ends in the text become spaces, so that it stays one frame.
    pub fn error(&mut self, text: &[u8]) {
        self.output.bytes_mut().push(b'-');
        let clean = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
        self.output.bytes_mut().extend(text.iter().map(clean));
        self.output.bytes_mut().extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// The count of something.
    #[inline]
    pub fn count(&mut self, value: usize) {
        self.integer(value as i64);
    }

    /// A string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.output.bytes_mut().reserve(bytes.len() + 32);
        self.header(b'$', bytes.len() as i64);
        self.output.bytes_mut().extend_from_slice(bytes);
        self.output.bytes_mut().extend_from_slice(b"\r\n");
    }

    /// A string that somebody else keeps, or a part of it: shared if that is worth it.
    pub fn bulk_shared(&mut self, text: &Arc<Vec<u8>>, range: Range<usize>) {
        if !self.shares || range.len() < SHARED_MIN {
            return self.bulk(&text[range]);
        }
        self.header(b'$', range.len() as i64);
        self.output.push_shared(Arc::clone(text), range);
        self.output.extend_from_slice(b"\r\n");
    }

    /// A string, or null.
    #[inline]
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// An integer in the clothes of a string, as INCRBY's stored value is read by GET.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(format_integer(value, &mut [0; 20]));
    }

    /// A number with a fraction: a double in RESP3, a string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = DoubleText::new(value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// An integer of any size given by its digits: a string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// True or false: 1 or 0 in RESP2.
    pub fn boolean(&mut self, value: bool) {
        match self.protocol {
            Protocol::Resp2 => self.integer(i64::from(value)),
            Protocol::Resp3 => {
                self.output.bytes_mut().extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" })
            }
        }
    }

    /// Text for humans, of a kind named by three letters (`txt`, `mkd`): a string in RESP2.
    pub fn verbatim(&mut self, kind: &str, text: &[u8]) {
        debug_assert_eq!(kind.len(), 3);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.output.bytes_mut().extend_from_slice(kind.as_bytes());
                self.output.bytes_mut().push(b':');
                self.output.bytes_mut().extend_from_slice(text);
                self.output.bytes_mut().extend_from_slice(b"\r\n");
            }
        }
    }

    /// Nothing, where a string might have been.
    #[inline]
    pub fn null(&mut self) {
        self.output.bytes_mut().extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Nothing, where an array might have been.
    pub fn null_array(&mut self) {
        self.output.bytes_mut().extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// An array of the next `len` replies.
    #[inline]
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// A map of the next `len` pairs: a flat array in RESP2.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', 2 * len as i64),
            Protocol::Resp3 => self.header(b'%', len as i64),
        }
    }

    /// A set of the next `len` replies: an array in RESP2.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len as i64),
            Protocol::Resp3 => self.header(b'~', len as i64),
        }
    }

    /// An out-of-band message of the next `len` replies: an array in RESP2.
    pub fn push(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', len as i64),
            Protocol::Resp3 => self.header(b'>', len as i64),
        }
    }

    /// Begins an aggregate whose length is known only at its end.
    pub fn begin(&self) -> Begun {
        Begun(self.output.position())
    }

    /// Makes an array of the `len` replies written since `begun`.
    pub fn end_array(&mut self, begun: Begun, len: usize) {
        self.end(begun, |header| header.array(len));
    }

    /// Makes a map of the `len` pairs written since `begun`.
    pub fn end_map(&mut self, begun: Begun, len: usize) {
        self.end(begun, |header| header.map(len));
    }

    /// Makes a set of the `len` replies written since `begun`.
    pub fn end_set(&mut self, begun: Begun, len: usize) {
        self.end(begun, |header| header.set(len));
    }

    fn end(&mut self, Begun(at): Begun, write: impl FnOnce(&mut ReplyWriter)) {
        let mut header = ReplyWriter::new(self.protocol);
        write(&mut header);
        self.insert_at(at, header.as_bytes());
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.output.bytes_mut().reserve(text.len() + 3);
        self.output.bytes_mut().push(kind);
        self.output.bytes_mut().extend_from_slice(text);
        self.output.bytes_mut().extend_from_slice(b"\r\n");
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        match value {
            0..=9 => {
                self.output.bytes_mut().extend_from_slice(&[kind, b'0' + value as u8, b'\r', b'\n'])
            }
            10..=99 => {
                let (tens, ones) = (b'0' + (value / 10) as u8, b'0' + (value % 10) as u8);
                self.output.bytes_mut().extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
            }
            _ => self.line(kind, format_integer(value, &mut [0; 20])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut ReplyWriter)) -> String {
        let mut reply = ReplyWriter::new(protocol);
        write(&mut reply);
        String::from_utf8(reply.into_bytes()).unwrap()
    }

    #[test]
    fn every_type_has_its_form_in_both_protocols() {
        type Write = fn(&mut ReplyWriter);
        let cases: &[(Write, &str, &str)] = &[
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.map(1), "*2\r\n", "%1\r\n"),
            (|r| r.set(12), "*12\r\n", "~12\r\n"),
            (|r| r.push(123), "*123\r\n", ">123\r\n"),
            (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
            (|r| r.big_number("12"), "$2\r\n12\r\n", "(12\r\n"),
            (|r| r.verbatim("txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|r| r.integer(-7), ":-7\r\n", ":-7\r\n"),
            (|r| r.bulk_integer(100), "$3\r\n100\r\n", "$3\r\n100\r\n"),
        ];
        for (write, resp2, resp3) in cases {
            assert_eq!(written(Protocol::Resp2, write), *resp2);
            assert_eq!(written(Protocol::Resp3, write), *resp3);
        }
    }

    #[test]
    fn an_error_text_cannot_leave_its_frame() {
        let text = written(Protocol::Resp2, |r| r.error(b"ERR a\r\n+OK\r\n"));
        assert_eq!(text, "-ERR a  +OK  \r\n");
    }

    #[test]
    fn a_length_may_come_last() {
        let text = written(Protocol::Resp3, |r| {
            r.array(2);
            let begun = r.begin();
            r.integer(1);
            r.integer(2);
            r.end_set(begun, 2);
            r.ok();
        });
        assert_eq!(text, "*2\r\n~2\r\n:1\r\n:2\r\n+OK\r\n");
    }
}
