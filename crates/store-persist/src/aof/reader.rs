//! Bytes to requests, with the place of the first byte that makes no sense.

use std::io::{self, Read};
use std::path::Path;

use store_resp::{Limits, Parsed, Request, RequestParser};
use store_types::crc64::crc64;

use super::encode::{Increment, SUM_BEGIN, SUM_MARK};

/// Read at once.
const CHUNK_LEN: usize = 256 * 1024;
/// One argument is shorter than what spans can count.
const LIMITS: Limits = Limits {
    authenticated: true,
    bulk_max: 4 * 1024 * 1024 * 1024 - 64 * 1024,
    args_max: Limits::ARGS_MAX,
};
/// Longer rests are not looked through for zeros.
const TORN_MAX: usize = 64 * 1024 * 1024;
/// A line that begins with `#`.
const ANNOTATION_MAX: usize = 1024;
/// What an RDB file begins with.
const RDB_MAGIC: &[u8] = b"REDIS";

/// What is wrong with a file of requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AofError {
    /// It cannot be read.
    #[error("cannot be read at offset {at}: {error}")]
    Read {
        /// Where.
        at: u64,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It ends in the middle of a request or transaction, as after a crash.
    #[error("ends at offset {at} in the middle of {inside}; it is whole up to offset {valid_len}")]
    Truncated {
        /// Where it ends, or where zeros begin that go on to the end.
        at: u64,
        /// All before this is whole.
        valid_len: u64,
        /// What is cut.
        inside: &'static str,
    },
    /// The file before it is not what it continues.
    #[error(
        "continues the increment with the number {} that had {} bytes, and it has {found} now: \
         changes are missing there", before.sequence, before.len
    )]
    Discontinued {
        /// What it was.
        before: Increment,
        /// Its bytes now.
        found: u64,
    },
    /// It has bytes that no server wrote.
    #[error("makes no sense at offset {at}: {why}; it is whole up to offset {valid_len}")]
    Malformed {
        /// Where.
        at: u64,
        /// All before this is whole.
        valid_len: u64,
        /// What is wrong.
        why: String,
    },
}

impl AofError {
    /// The length up to which the file is whole.
    pub fn valid_len(&self) -> Option<u64> {
        match self {
            Self::Read { .. } | Self::Discontinued { .. } => None,
            Self::Truncated { valid_len, .. } | Self::Malformed { valid_len, .. } => {
                Some(*valid_len)
            }
        }
    }
}

/// Whether a file begins as a snapshot does.
pub fn has_preamble(first_bytes: &[u8]) -> bool {
    first_bytes.starts_with(RDB_MAGIC)
}

/// Whether a file is a snapshot, at least at its front: it begins as one, or is named as one. A
/// base that is empty or zeros must not pass for requests that a crash cut off.
pub fn is_snapshot(path: &Path, first_bytes: &[u8]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    has_preamble(first_bytes) || name.ends_with(".base.rdb")
}

/// Reads requests one by one.
#[derive(Debug)]
pub struct CommandReader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Where the next entry begins in the buffer, and in the file.
    start: usize,
    offset: u64,
    /// Length of the request found last, at `start`.
    found_len: usize,
    parser: RequestParser,
    has_ended: bool,
    in_transaction: bool,
    /// Behind the last entry that stands outside of a transaction.
    valid_len: u64,
    /// Checksum since the last line that had one, and where that line ended; none before the
    /// first.
    sum: Option<u64>,
    summed_len: u64,
    requests: u64,
    timestamp: Option<u64>,
    /// The increment in front of it.
    before: Vec<Increment>,
}

impl<R: Read> CommandReader<R> {
    /// Reads from `source`, whose first byte is at `offset` in its file.
    pub fn new(source: R, offset: u64) -> Self {
        Self {
            source,
            buffer: Vec::new(),
            start: 0,
            offset,
            found_len: 0,
            parser: RequestParser::default(),
            has_ended: false,
            in_transaction: false,
            valid_len: offset,
            sum: None,
            summed_len: offset,
            requests: 0,
            timestamp: None,
            before: Vec::new(),
        }
    }

    /// The file stands behind this increment: one that says that it continues another length of
    /// it is refused.
    #[must_use]
    pub fn behind(mut self, before: &[Increment]) -> Self {
        self.before = before.to_vec();
        self
    }

    /// Goes on to the next request, which [`request`](Self::request) then gives. False at the
    /// end of the file.
    pub fn advance(&mut self) -> Result<bool, AofError> {
        self.consume(self.found_len);
        self.found_len = 0;
        loop {
            if self.start == self.buffer.len() && !self.fill(0)? {
                return self.finish();
            }
            match self.buffer[self.start] {
                b'*' => {
                    self.find_request()?;
                    return Ok(true);
                }
                b'#' => self.pass_annotation()?,
                _ => return Err(self.judge("neither a request nor a line with # begins here")),
            }
        }
    }

    /// The request that [`advance`](Self::advance) found.
    pub fn request(&self) -> Request<'_> {
        self.parser.request(&self.buffer[self.start..])
    }

    /// Where the current request begins in the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How far the file is whole: behind the last request that is no part of an open
    /// transaction, once the next [`advance`](Self::advance) was asked for.
    pub fn valid_len(&self) -> u64 {
        self.valid_len
    }

    /// Requests found so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The unix second of the last `#TS:` line.
    pub fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }

    /// Up to where checksums cover the file; its beginning when there are none.
    pub fn summed_len(&self) -> u64 {
        self.summed_len
    }

    fn finish(&mut self) -> Result<bool, AofError> {
        if self.in_transaction {
            let (at, valid_len) = (self.offset, self.valid_len);
            return Err(AofError::Truncated { at, valid_len, inside: "a transaction" });
        }
        Ok(false)
    }

    /// Reads more behind what is there, `wanted` bytes in all if that is known. False at the end
    /// of the file.
    fn fill(&mut self, wanted: usize) -> Result<bool, AofError> {
        if self.has_ended {
            return Ok(false);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let before = self.buffer.len();
        // A length in the file is not believed before its bytes came: at most twice what is there.
        let more = wanted.saturating_sub(before).clamp(CHUNK_LEN, CHUNK_LEN.max(before));
        self.buffer.resize(before + more, 0);
        let mut filled = before;
        while filled < self.buffer.len() {
            match self.source.read(&mut self.buffer[filled..]) {
                Ok(0) => {
                    self.has_ended = true;
                    break;
                }
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = self.offset + filled as u64;
                    self.buffer.truncate(filled);
                    return Err(AofError::Read { at, error });
                }
            }
        }
        self.buffer.truncate(filled);
        Ok(filled > before)
    }

    fn find_request(&mut self) -> Result<(), AofError> {
        self.parser.clear();
        loop {
            match self.parser.parse(&self.buffer[self.start..], &LIMITS) {
                Ok(Parsed::Request { consumed }) => {
                    self.found_len = consumed;
                    break;
                }
                Ok(Parsed::Empty { .. }) => return Err(self.judge("a request without words")),
                Ok(Parsed::Incomplete) => {
                    let wanted = self.parser.bytes_wanted();
                    if !self.fill(wanted)? {
                        return Err(self.cut("a request"));
                    }
                }
                Err(error) => return Err(self.judge(&error.to_string())),
            }
        }
        if self.has_stray_byte() {
            return Err(self.judge("an argument is longer than its length"));
        }
        self.requests += 1;
        Ok(())
    }

    /// Whether a line end is missing behind an argument: the parser takes any two bytes there.
    fn has_stray_byte(&self) -> bool {
        let bytes = &self.buffer[self.start..self.start + self.found_len];
        let mut at = line_end(bytes, 0).unwrap_or(0);
        for arg in self.request().args_from(0) {
            at = line_end(bytes, at).unwrap_or(at) + arg.len();
            if bytes.get(at..at + 2) != Some(b"\r\n") {
                return true;
            }
            at += 2;
        }
        false
    }

    /// The request at `start` is done with: what follows from it for transactions and checksums.
    fn consume(&mut self, len: usize) {
        if len == 0 {
            return;
        }
        let request = self.parser.request(&self.buffer[self.start..]);
        let name = request.arg(0);
        if name.eq_ignore_ascii_case(b"MULTI") {
            self.in_transaction = true;
        } else if name.eq_ignore_ascii_case(b"EXEC") {
            self.in_transaction = false;
        }
        self.parser.clear();
        self.pass(len);
    }

    fn pass(&mut self, len: usize) {
        let bytes = &self.buffer[self.start..self.start + len];
        self.sum = self.sum.map(|sum| crc64(sum, bytes));
        self.start += len;
        self.offset += len as u64;
        if !self.in_transaction {
            self.valid_len = self.offset;
        }
    }

    fn pass_annotation(&mut self) -> Result<(), AofError> {
        let len = loop {
            let bytes = &self.buffer[self.start..];
            match line_end(bytes, 0) {
                Some(end) if end <= ANNOTATION_MAX => break end,
                None if bytes.len() <= ANNOTATION_MAX => {
                    if !self.fill(0)? {
                        return Err(self.cut("a line with #"));
                    }
                }
                _ => return Err(self.judge("a line with # that is too long")),
            }
        };
        let line = &self.buffer[self.start..self.start + len];
        if let Some(text) = line.strip_prefix(SUM_MARK) {
            let text = text.strip_suffix(b"\r\n").unwrap_or(text);
            if let Some(behind) = text.strip_prefix(SUM_BEGIN) {
                if !behind.is_empty() {
                    self.check_before(Increment::parse(behind))?;
                }
                self.sum = None;
            } else if let Some(sum) = self.sum
                && format!("{sum:016x}").as_bytes() != text
            {
                let why = format!(
                    "the checksum of what begins at offset {} is wrong: bytes have changed",
                    self.summed_len
                );
                let (at, valid_len) = (self.offset, self.summed_len);
                return Err(AofError::Malformed { at, valid_len, why });
            }
            self.pass(len);
            self.sum = Some(0);
            self.summed_len = self.offset;
            return Ok(());
        }
        if let Some(text) = line.strip_prefix(b"#TS:") {
            let number = std::str::from_utf8(text.trim_ascii()).ok();
            self.timestamp = number.and_then(|number| number.parse().ok());
        } else if self.sum.is_some() {
            // Perhaps it was a checksum once.
            return Err(self.judge("a line with # that nobody writes beside checksums"));
        }
        self.pass(len);
        Ok(())
    }

    /// The file says what it continues.
    fn check_before(&mut self, said: Option<Increment>) -> Result<(), AofError> {
        let Some(said) = said else { return Err(self.judge("a line with # that nobody writes")) };
        match self.before.iter().find(|before| before.sequence == said.sequence) {
            Some(found) if found.len != said.len => {
                Err(AofError::Discontinued { before: said, found: found.len })
            }
            // Those that a rewrite has replaced are gone.
            _ => Ok(()),
        }
    }

    fn cut(&self, inside: &'static str) -> AofError {
        let at = self.offset + (self.buffer.len() - self.start) as u64;
        AofError::Truncated { at, valid_len: self.valid_len, inside }
    }

    /// What does not make sense was changed, or is what a crash left: the length of a file can
    /// reach the disk before its bytes do, and what is missing then is zeros up to the end.
    fn judge(&mut self, why: &str) -> AofError {
        while self.buffer.len() - self.start < TORN_MAX && matches!(self.fill(0), Ok(true)) {}
        let rest = &self.buffer[self.start..];
        let written = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if self.has_ended && written < rest.len() && is_begun(&rest[..written]) {
            let at = self.offset + written as u64;
            return AofError::Truncated {
                at,
                valid_len: self.valid_len,
                inside: "what was written",
            };
        }
        let (at, valid_len) = (self.offset, self.valid_len);
        AofError::Malformed { at, valid_len, why: why.to_owned() }
    }
}

/// Whether bytes are the beginning of an entry, and no more than that.
fn is_begun(bytes: &[u8]) -> bool {
    match bytes.first() {
        None => true,
        Some(b'#') => line_end(bytes, 0).is_none(),
        Some(_) => RequestParser::default().parse(bytes, &LIMITS) == Ok(Parsed::Incomplete),
    }
}

/// Behind the line end at or after `from`.
fn line_end(bytes: &[u8], from: usize) -> Option<usize> {
    let at = bytes.get(from..)?.iter().position(|byte| *byte == b'\n')?;
    Some(from + at + 1)
}

#[cfg(test)]
mod tests {
    use store_resp::OwnedRequest;

    use super::*;
    use crate::aof::Encoder;

    /// A sealed file of these units, and where each ends.
    fn file(units: &[&[&str]]) -> (Vec<u8>, Vec<u64>) {
        let (mut encoder, mut bytes, mut ends) = (Encoder::new(), Vec::new(), Vec::new());
        Encoder::begin(&mut bytes);
        for unit in units {
            let from = bytes.len();
            let owned: Vec<OwnedRequest> = unit
                .iter()
                .map(|line| OwnedRequest::from_args(line.split(' ').map(str::as_bytes)))
                .collect();
            encoder.add(owned.iter().map(|request| (0, request.as_request())), &mut bytes);
            Encoder::seal(&mut bytes, from);
            ends.push(bytes.len() as u64);
        }
        (bytes, ends)
    }

    fn read(bytes: &[u8]) -> (Vec<String>, Result<u64, AofError>) {
        let mut reader = CommandReader::new(bytes, 0);
        let mut lines = Vec::new();
        loop {
            match reader.advance() {
                Ok(true) => lines.push(
                    reader
                        .request()
                        .args_from(0)
                        .map(|arg| String::from_utf8_lossy(arg).into_owned())
                        .collect::<Vec<_>>()
                        .join(" "),
                ),
                Ok(false) => return (lines, Ok(reader.valid_len())),
                Err(error) => return (lines, Err(error)),
            }
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let (bytes, _) = file(&[&["SET a 1"], &["INCR a", "INCR b"]]);
        let (lines, end) = read(&bytes);
        assert_eq!(lines, ["SELECT 0", "SET a 1", "MULTI", "INCR a", "INCR b", "EXEC"]);
        assert_eq!(end.unwrap(), bytes.len() as u64);
    }

    #[test]
    fn wherever_a_file_is_cut_whole_units_are_left() {
        let (bytes, ends) = file(&[&["SET a 1"], &["INCR a", "INCR b"], &["SET c 3"]]);
        for len in 0..bytes.len() {
            let (_, end) = read(&bytes[..len]);
            let valid = match end {
                Ok(valid) => valid,
                Err(AofError::Truncated { valid_len, .. }) => valid_len,
                Err(error) => panic!("cut at {len}: {error}"),
            };
            assert!(valid <= len as u64);
            // No transaction is taken in part, and no whole unit is lost.
            let (lines, again) = read(&bytes[..valid as usize]);
            assert!(again.is_ok(), "cut at {len}, then at {valid}");
            let opened = lines.iter().filter(|line| *line == "MULTI").count();
            let closed = lines.iter().filter(|line| *line == "EXEC").count();
            assert_eq!(opened, closed, "cut at {len}");
            let whole = ends.iter().filter(|end| **end <= len as u64).max();
            assert!(whole.is_none_or(|whole| *whole <= valid), "cut at {len}");
        }
    }

    #[test]
    fn zeros_behind_a_cut_are_a_cut() {
        let (bytes, _) = file(&[&["SET a 1"], &["SET c 3"]]);
        for len in 1..bytes.len() {
            let mut torn = bytes[..len].to_vec();
            torn.resize(len + 700, 0);
            let (_, end) = read(&torn);
            let error = end.unwrap_err();
            assert!(matches!(error, AofError::Truncated { .. }), "cut at {len}: {error}");
            assert!(error.valid_len().unwrap() <= len as u64);
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let (bytes, _) = file(&[&["SET token 1763"], &["INCR a", "INCR b"], &["SET c 3"]]);
        let first_covered = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for at in first_covered..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let (_, end) = read(&changed);
                // Hexadecimal digits of a checksum have one form.
                assert!(end.is_err(), "bit {bit} of byte {at} went unnoticed");
            }
        }
    }

    #[test]
    fn files_without_checksums_are_read_and_their_damage_is_told_with_its_place() {
        let good = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n#TS:1700000000\r\n".to_vec();
        let mut reader = CommandReader::new(&good[..], 0);
        assert!(reader.advance().unwrap() && !reader.advance().unwrap());
        assert_eq!(reader.timestamp(), Some(1_700_000_000));
        for bad in ["x", "*0\r\n", "*1\r\n:4\r\n", "*1\r\n$1\r\nab\r\n", "*x\r\n"] {
            let bytes = [&good[..], bad.as_bytes(), b"*1\r\n$4\r\nPING\r\n"].concat();
            let (_, end) = read(&bytes);
            let Err(AofError::Malformed { at, valid_len, .. }) = end else { panic!("{bad:?}") };
            assert_eq!((at, valid_len), (good.len() as u64, good.len() as u64), "{bad:?}");
        }
    }

    #[test]
    fn a_length_in_the_file_reserves_no_memory() {
        let (_, end) = read(b"*2\r\n$3\r\nGET\r\n$4000000000\r\nabc");
        assert!(matches!(end, Err(AofError::Truncated { valid_len: 0, .. })), "{end:?}");
    }
}
