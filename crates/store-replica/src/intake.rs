//! What the primary sends after PSYNC: lines, a payload, then the stream cut at request ends.
//!
//! ```text
//! Lines ─► PayloadHead ─► Payload ─► Held ─► Stream
//!   └────────────── +CONTINUE ─────────────────┘
//! ```
//! Bytes come in as they arrive. Read is not applied: the offset moves when the caller says that a
//! request was applied, and within a transaction not before its EXEC.

use store_resp::{Limits, Parsed, Request, RequestParser};

use crate::history::ID_LEN;
use crate::output::LinkFault;
use crate::stream::KEPT_MAX;

/// A line of the handshake is no longer than this.
const LINE_MAX: usize = 16 * 1024;
/// One argument in the stream: as Redis's `proto-max-bulk-len` at most, under 4 GiB.
const BULK_MAX: i64 = 0xfff0_0000;
/// Applied bytes are cut off the front of the buffer once there are so many.
const APPLIED_MAX: usize = 64 * 1024;

/// Whether the requests of the stream just applied are inside MULTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// EXEC is still to come: nothing since MULTI counts as applied.
    Open,
    /// Everything up to here has been applied.
    Closed,
}

#[derive(Debug)]
enum Stage {
    Lines,
    PayloadHead,
    PayloadByLength {
        left: u64,
    },
    PayloadByMark {
        mark: [u8; ID_LEN],
    },
    /// The payload is being loaded: what follows it waits.
    Held,
    Stream,
}

/// Something that [`Intake::next_part`] found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// An empty line: the primary lives.
    Newline,
    /// A line of the handshake.
    Line(Vec<u8>),
    /// The head of the payload.
    PayloadBegins,
    /// The primary's error in place of a payload.
    PayloadRefused(Vec<u8>),
    /// Some of the payload.
    Payload(Vec<u8>),
    /// All of it came.
    PayloadEnds,
}

/// The bytes cannot be what a primary sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MalformedStream;

#[derive(Debug)]
pub(crate) struct Intake {
    stage: Stage,
    buffer: Vec<u8>,
    /// Where the first byte stands that was not applied.
    unapplied: usize,
    /// Where the request begins that is parsed next.
    next: usize,
    /// The length of the request that was handed out and not answered for.
    handed_out: usize,
    /// Whether the last look found no whole request.
    is_at_end: bool,
    parser: RequestParser,
}

impl Intake {
    pub(crate) fn new() -> Self {
        Self {
            stage: Stage::Lines,
            buffer: Vec::new(),
            unapplied: 0,
            next: 0,
            handed_out: 0,
            is_at_end: true,
            parser: RequestParser::default(),
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that wait.
    pub(crate) fn pending(&self) -> usize {
        self.buffer.len() - self.unapplied
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held)
    }

    /// A payload follows.
    pub(crate) fn expect_payload(&mut self) {
        self.stage = Stage::PayloadHead;
    }

    /// The stream follows.
    pub(crate) fn expect_stream(&mut self) {
        self.buffer.drain(..self.next);
        (self.unapplied, self.next, self.handed_out) = (0, 0, 0);
        self.parser = RequestParser::default();
        self.stage = Stage::Stream;
    }

    /// The next thing before the stream; `None` when more bytes are needed.
    pub(crate) fn next_part(&mut self) -> Result<Option<Part>, MalformedStream> {
        match self.stage {
            Stage::Lines => self.line(),
            Stage::PayloadHead => self.payload_head(),
            Stage::PayloadByLength { left } => Ok(self.payload_by_length(left)),
            Stage::PayloadByMark { mark } => Ok(self.payload_by_mark(&mark)),
            Stage::Held | Stage::Stream => Ok(None),
        }
    }

    fn line(&mut self) -> Result<Option<Part>, MalformedStream> {
        // What a port says that speaks TLS has no lines, and is noticed by its first byte.
        let is_text = |byte: &u8| byte.is_ascii_graphic() || b"\r\n".contains(byte);
        if !self.buffer.first().is_none_or(is_text) {
            return Err(MalformedStream);
        }
        let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') else {
            return if self.buffer.len() > LINE_MAX { Err(MalformedStream) } else { Ok(None) };
        };
        let mut line: Vec<u8> = self.buffer.drain(..=end).collect();
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(if line.is_empty() { Part::Newline } else { Part::Line(line) }))
    }

    fn payload_head(&mut self) -> Result<Option<Part>, MalformedStream> {
        let line = match self.line()? {
            Some(Part::Line(line)) => line,
            other => return Ok(other),
        };
        if line.first() == Some(&b'-') {
            return Ok(Some(Part::PayloadRefused(line)));
        }
        let size = line.strip_prefix(b"$").ok_or(MalformedStream)?;
        self.stage = match size.strip_prefix(b"EOF:") {
            Some(mark) => {
                Stage::PayloadByMark { mark: mark.try_into().map_err(|_| MalformedStream)? }
            }
            None => {
                let left = store_resp::parse_integer(size).ok_or(MalformedStream)?;
                Stage::PayloadByLength { left: u64::try_from(left).map_err(|_| MalformedStream)? }
            }
        };
        Ok(Some(Part::PayloadBegins))
    }

    fn payload_by_length(&mut self, left: u64) -> Option<Part> {
        if left == 0 {
            self.stage = Stage::Held;
            return Some(Part::PayloadEnds);
        }
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
        if len == 0 {
            return None;
        }
        self.stage = Stage::PayloadByLength { left: left - len as u64 };
        Some(Part::Payload(self.buffer.drain(..len).collect()))
    }

    /// Nothing follows the mark before our first ACK, so it is what the received bytes end with.
    fn payload_by_mark(&mut self, mark: &[u8; ID_LEN]) -> Option<Part> {
        let before = self.buffer.len().checked_sub(ID_LEN)?;
        if before > 0 {
            return Some(Part::Payload(self.buffer.drain(..before).collect()));
        }
        if self.buffer != mark {
            return None;
        }
        self.buffer.clear();
        self.stage = Stage::Held;
        Some(Part::PayloadEnds)
    }

    /// Whether what waits is the beginning of something longer.
    pub(crate) fn needs_more(&self) -> bool {
        self.handed_out == 0 && self.is_at_end
    }

    /// Looks for the next request of the stream, for [`found_request`](Self::found_request). One
    /// that says it has more than `bytes_max` bytes is not waited for.
    pub(crate) fn find_request(&mut self, bytes_max: usize) -> Result<(), LinkFault> {
        if !matches!(self.stage, Stage::Stream) || self.handed_out > 0 {
            return Ok(());
        }
        self.parser.clear();
        let limits = of_primary(BULK_MAX.min(i64::try_from(bytes_max).unwrap_or(BULK_MAX)));
        loop {
            let bytes = &self.buffer[self.next..];
            // Inline requests are none that a primary sends.
            if bytes.first().is_some_and(|byte| !b"*\r\n".contains(byte)) {
                return Err(LinkFault::Protocol);
            }
            match self.parser.parse(bytes, &limits) {
                Ok(Parsed::Request { consumed }) => {
                    self.handed_out = consumed;
                    self.is_at_end = false;
                    return Ok(());
                }
                // It counts in the offset, as it does for Redis.
                Ok(Parsed::Empty { consumed }) => self.next += consumed,
                Ok(Parsed::Incomplete) => {
                    self.is_at_end = true;
                    return Ok(());
                }
                Err(_) => {
                    let args_max = Limits::ARGS_MAX;
                    let wide = Limits { authenticated: true, bulk_max: BULK_MAX, args_max };
                    let is_long = RequestParser::default().parse(bytes, &wide).is_ok();
                    return Err(if is_long { LinkFault::TooLong } else { LinkFault::Protocol });
                }
            }
        }
    }

    /// The request that was found and not answered for.
    pub(crate) fn found_request(&self) -> Option<Request<'_>> {
        (self.handed_out > 0).then(|| self.parser.request(&self.buffer[self.next..]))
    }

    /// The request that was handed out is done. What now counts as applied is given to `keep`.
    pub(crate) fn applied(&mut self, transaction: Transaction, keep: impl FnOnce(&[u8])) {
        assert!(self.handed_out > 0, "a request is applied once, after it was handed out");
        self.next += std::mem::take(&mut self.handed_out);
        if transaction == Transaction::Open {
            return;
        }
        let applied = &self.buffer[self.unapplied..self.next];
        let was_large = applied.len() > KEPT_MAX;
        keep(applied);
        self.unapplied = self.next;
        if self.unapplied == self.buffer.len() {
            self.buffer.clear();
            (self.unapplied, self.next) = (0, 0);
        } else if self.unapplied > APPLIED_MAX {
            self.buffer.drain(..self.unapplied);
            (self.unapplied, self.next) = (0, 0);
        }
        if was_large {
            self.buffer.shrink_to(KEPT_MAX);
            self.parser = RequestParser::default();
        }
    }
}

/// What a primary has accepted is taken, whatever clients may send here, up to `bytes_max`.
fn of_primary(bytes_max: i64) -> Limits {
    /// `$0`, and nothing behind it.
    const ARGUMENT_MIN: i64 = 6;
    let args_max = Limits::ARGS_MAX.min(bytes_max / ARGUMENT_MIN);
    Limits { authenticated: true, bulk_max: bytes_max, args_max }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &str = "f7a1c09be2d84635f1e0a9c8b7d6e5f4a3b2c1d0";

    fn payload(text: &str, piece: usize) -> (Vec<u8>, bool, Intake) {
        let mut intake = Intake::new();
        intake.expect_payload();
        let (mut bytes, mut is_whole) = (Vec::new(), false);
        for piece in text.as_bytes().chunks(piece) {
            intake.push(piece);
            while let Some(part) = intake.next_part().unwrap() {
                match part {
                    Part::Payload(part) => bytes.extend(part),
                    Part::PayloadEnds => is_whole = true,
                    _ => {}
                }
            }
        }
        (bytes, is_whole, intake)
    }

    #[test]
    fn a_payload_is_found_however_it_is_cut() {
        // Its content may look like the mark's beginning.
        let content = format!("REDIS{}x123{}", &MARK[..39], &MARK[..20]);
        let by_mark = format!("\n\n$EOF:{MARK}\r\n{content}{MARK}");
        let by_length = format!("\n${}\r\n{content}*1\r\n", content.len());
        for piece in 1..by_mark.len() {
            let (bytes, is_whole, _) = payload(&by_mark, piece);
            assert!(is_whole && bytes == content.as_bytes(), "pieces of {piece}");
            let (bytes, is_whole, intake) = payload(&by_length, piece);
            assert!(is_whole && bytes == content.as_bytes(), "pieces of {piece}");
            assert_eq!(intake.buffer, b"*1\r\n", "the stream waits");
        }
    }

    #[test]
    fn a_payload_that_is_cut_off_never_ends() {
        let (_, is_whole, _) = payload(&format!("$EOF:{MARK}\r\nREDIS{}", &MARK[..39]), 7);
        assert!(!is_whole);
        let (_, is_whole, _) = payload("$5\r\nREDI", 3);
        assert!(!is_whole);
        let (bytes, is_whole, _) = payload("$0\r\n", 3);
        assert!(is_whole && bytes.is_empty());
    }

    #[test]
    fn heads_that_no_primary_sends_are_refused() {
        for head in ["$-1\r\n", "$x\r\n", "$EOF:short\r\n", "+OK\r\n", "$99999999999999999999\r\n"]
        {
            let mut intake = Intake::new();
            intake.expect_payload();
            intake.push(head.as_bytes());
            assert_eq!(intake.next_part(), Err(MalformedStream), "{head:?}");
        }
        let mut intake = Intake::new();
        intake.push(&[b'x'; LINE_MAX + 1]);
        assert_eq!(intake.next_part(), Err(MalformedStream), "a line without an end");
        let mut intake = Intake::new();
        intake.push(b"\x15\x03\x01");
        assert_eq!(intake.next_part(), Err(MalformedStream), "the first bytes of an alert of TLS");
    }

    #[test]
    fn a_transaction_counts_when_it_is_whole() {
        let mut intake = Intake::new();
        intake.expect_stream();
        intake.push(b"*1\r\n$5\r\nMULTI\r\n*1\r\n$1\r\na\r\n*1\r\n$4\r\nEXEC\r\n*1\r\n$1\r\n");
        let mut kept = Vec::new();
        for (name, transaction) in [
            (&b"MULTI"[..], Transaction::Open),
            (b"a", Transaction::Open),
            (b"EXEC", Transaction::Closed),
        ] {
            intake.find_request(1000).unwrap();
            assert_eq!(intake.found_request().unwrap().arg(0), name);
            intake.applied(transaction, |bytes| kept.push(bytes.len()));
        }
        assert_eq!(kept, [15 + 11 + 14]);
        intake.find_request(1000).unwrap();
        assert!(intake.found_request().is_none(), "the last one is not whole");
        assert_eq!(intake.pending(), 8);
    }

    #[test]
    fn what_a_large_transaction_took_is_given_back() {
        let mut intake = Intake::new();
        intake.expect_stream();
        for transaction in [Transaction::Open, Transaction::Closed] {
            let many = "$1\r\na\r\n".repeat(1_048_577);
            intake.push(format!("*1048577\r\n{many}").as_bytes());
            intake.find_request(64 * KEPT_MAX).unwrap();
            let request = intake.found_request().expect("as many words as Redis takes");
            assert_eq!(request.len(), 1_048_577);
            let mut len = 0;
            intake.applied(transaction, |bytes| len = bytes.len());
            assert_eq!(len > 0, transaction == Transaction::Closed);
        }
        assert_eq!(intake.pending(), 0);
        assert!(intake.buffer.capacity() <= KEPT_MAX, "{} are kept", intake.buffer.capacity());
    }

    #[test]
    fn words_without_lengths_are_nonsense() {
        let mut intake = Intake::new();
        intake.expect_stream();
        intake.push(b"\nSET a b\r\n");
        assert_eq!(intake.find_request(1000), Err(LinkFault::Protocol));
    }

    #[test]
    fn a_request_that_says_how_long_it_is_is_not_waited_for() {
        for (heads, fault) in [
            ("*2\r\n$3\r\nDEL\r\n$1001\r\n", LinkFault::TooLong),
            ("*2\r\n$3\r\nDEL\r\n$-7\r\n", LinkFault::Protocol),
            ("*167\r\n", LinkFault::TooLong),
            ("*2147483648\r\n", LinkFault::Protocol),
        ] {
            let mut intake = Intake::new();
            intake.expect_stream();
            intake.push(heads.as_bytes());
            assert_eq!(intake.find_request(1000), Err(fault), "{heads}");
        }
    }
}
