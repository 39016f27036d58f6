//! Finds requests in a buffer that grows. In: the bytes not yet consumed; out: argument spans.

use std::ops::Range;

use crate::inline::split_quoted;
use crate::large::LargeArgs;
use crate::number::parse_integer;
use crate::request::{OwnedRequest, Request, Span};

/// A header line or an inline request longer than this is refused, as Redis does.
const LINE_MAX: usize = 64 * 1024;
/// What a client may send before it has authenticated (SCENARIOS 10).
const UNAUTHENTICATED_ARGS_MAX: i64 = 10;
const UNAUTHENTICATED_BULK_MAX: i64 = 16 * 1024;
/// Arguments from this length on get a buffer of their own, as in Redis.
const LARGE_MIN: usize = 32 * 1024;
/// Bytes of one request, arguments with a buffer of their own aside: a span counts in 32 bits.
const REQUEST_MAX: usize = u32::MAX as usize;
/// Reserve for spans at most this many at once, whatever a header says.
const SPANS_RESERVED_MAX: i64 = 64;

/// What a client may send, by what the server knows of it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Whether the client has proved who it is, or need not.
    pub authenticated: bool,
    /// `proto-max-bulk-len`: bytes of one argument. The caller keeps it under 4 GiB.
    pub bulk_max: i64,
    /// Arguments of one request: a header naming more is refused before anything is buffered.
    pub args_max: i64,
}

impl Limits {
    /// As in Redis 7.0, whose files and streams have such requests. What the arguments may take
    /// together is bounded by the buffer of the client.
    pub const ARGS_MAX: i64 = i32::MAX as i64;
}

impl Default for Limits {
    fn default() -> Self {
        Self { authenticated: true, bulk_max: 512 * 1024 * 1024, args_max: Self::ARGS_MAX }
    }
}

/// What [`RequestParser::parse`] found at the front of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// Not enough yet: call again with the same bytes and more behind them.
    Incomplete,
    /// `consumed` bytes that ask for nothing: an empty line or an empty array.
    Empty {
        /// Bytes to drop.
        consumed: usize,
    },
    /// A whole request; read it with [`RequestParser::request`] before dropping `consumed` bytes.
    Request {
        /// Bytes to drop once the request is done.
        consumed: usize,
    },
}

/// The client does not speak RESP: answer with this text, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// No line end within `LINE_MAX`.
    #[error("too big inline request")]
    InlineTooBig,
    /// The client speaks TLS to a port that does not. Waiting for the end of its line, as Redis
    /// does, would keep it waiting, too.
    #[error("this port does not speak TLS")]
    Encrypted,
    /// A quote that opens does not close.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// No line end behind `*`.
    #[error("too big mbulk count string")]
    ArrayHeaderTooBig,
    /// No number behind `*`, or too large a one.
    #[error("invalid multibulk length")]
    ArrayLength,
    /// Too many arguments for a client that has not authenticated.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedArrayLength,
    /// No line end behind `$`.
    #[error("too big bulk count string")]
    BulkHeaderTooBig,
    /// Something else than `$` where an argument must begin.
    #[error("expected '$', got '{}'", in_line(*.0))]
    ExpectedBulk(u8),
    /// No number behind `$`, or too large a one.
    #[error("invalid bulk length")]
    BulkLength,
    /// More bytes than [`Request`] can tell apart.
    #[error("too big request")]
    RequestTooBig,
    /// Too long an argument for a client that has not authenticated.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulkLength,
}

/// Where the parser is in the request at the front of the buffer.
///
/// ```text
/// Start ──'*'──► Header of argument ──'$'──► Body of argument, or LargeBody ──┐
///   ▲                   ▲                                                      │
///   └── last argument ──┴──────────────────── more arguments ──────────────────┘
/// ```
#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Start,
    ArgumentHeader,
    ArgumentBody {
        len: usize,
    },
    /// The argument goes to a buffer of its own; then comes its line end.
    LargeBody,
    /// The request was handed out; the next call begins anew.
    Done,
}

/// Parses requests one by one, remembering how far it came when bytes are missing, so that a
/// large request arriving in small pieces is read once.
#[derive(Debug, Default)]
pub struct RequestParser {
    state: State,
    /// Spans of the requests found since [`clear`](Self::clear), and of the one begun.
    spans: Vec<Span>,
    /// Where those of the current request begin.
    first_span: usize,
    /// Next byte to look at, counted from the front of the request.
    position: usize,
    args_left: usize,
    /// Inline requests are unquoted, so they need bytes of their own.
    inline: Option<OwnedRequest>,
    /// Boxed, since few clients send any.
    large: Option<Box<LargeArgs>>,
    takes_large: bool,
}

impl RequestParser {
    /// A parser that puts large arguments into buffers of their own when they are not whole in
    /// the bytes at hand. Whoever uses it asks [`take_taken`](Self::take_taken) after each batch.
    pub fn taking_large() -> Self {
        Self { takes_large: true, ..Self::default() }
    }

    /// How many of the last bytes given to [`parse`](Self::parse) it has taken into a large
    /// argument: they must be dropped before it is called again.
    pub fn take_taken(&mut self) -> usize {
        self.large.as_mut().map_or(0, |large| std::mem::take(&mut large.taken))
    }

    /// The large argument that is not whole yet, to be read straight into; see
    /// [`LargeArgs::body_mut`].
    #[inline]
    pub fn large_mut(&mut self) -> Option<&mut LargeArgs> {
        self.large.as_deref_mut().filter(|large| large.missing() > 0)
    }

    /// Bytes of large arguments that are here, and the memory set aside for them.
    pub fn large_bytes(&self) -> (usize, usize) {
        self.large.as_ref().map_or((0, 0), |large| large.bytes())
    }

    /// Looks for a request at the front of `bytes`.
    ///
    /// Fails when the bytes cannot become a request; the connection is of no use after that.
    #[inline]
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Parsed, ProtocolError> {
        if matches!(self.state, State::Start | State::Done) {
            self.first_span = self.spans.len();
            self.state = State::Start;
            if let Some(large) = &mut self.large {
                large.begin_request();
            }
            match bytes.first() {
                None => return Ok(Parsed::Incomplete),
                Some(b'*') => {}
                Some(_) => return self.parse_inline(bytes),
            }
            if let Some(parsed) = self.parse_array_header(bytes, limits)? {
                return Ok(parsed);
            }
        }
        self.parse_arguments(bytes, limits)
    }

    /// The request that the last [`parse`](Self::parse) found in `bytes`.
    #[inline]
    pub fn request<'a>(&'a self, bytes: &'a [u8]) -> Request<'a> {
        self.request_at(bytes, self.last_spans())
    }

    /// Where the spans of the request just found stand, for [`request_at`](Self::request_at).
    #[inline]
    pub fn last_spans(&self) -> Range<usize> {
        self.first_span..self.spans.len()
    }

    /// A request found since the last [`clear`](Self::clear), by its spans. `bytes` begins
    /// where the request did. An inline request must be read before the next is parsed.
    #[inline]
    pub fn request_at<'a>(&'a self, bytes: &'a [u8], spans: Range<usize>) -> Request<'a> {
        match &self.inline {
            Some(request) if spans.is_empty() => request.as_request(),
            _ => {
                let large = self.large.as_ref().map_or(&[][..], |large| large.whole());
                Request::new(bytes, &self.spans[spans], large)
            }
        }
    }

    /// Forgets the requests found so far; one that is incomplete goes on.
    #[inline]
    pub fn clear(&mut self) {
        if matches!(self.state, State::Start | State::Done) {
            self.spans.clear();
            self.large = None;
        } else {
            self.spans.drain(..self.first_span);
            if let Some(large) = &mut self.large {
                let forgotten = large.forget_before();
                self.spans.iter_mut().for_each(|span| span.renumber(forgotten));
            }
        }
        self.first_span = 0;
    }

    /// Forgets everything: the next call of [`parse`](Self::parse) begins a request. Bytes that
    /// it took in the last call, and that were not dropped yet, are parsed again.
    pub fn reset(&mut self) {
        self.state = State::Start;
        self.clear();
    }

    /// Bytes that the request at the front is known to need, for sizing the buffer.
    pub fn bytes_wanted(&self) -> usize {
        match self.state {
            State::ArgumentBody { len } => self.position + len + 2,
            _ => 0,
        }
    }

    /// Returns early with a result unless arguments follow.
    fn parse_array_header(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<Parsed>, ProtocolError> {
        let Some((count, next)) = header(bytes, 0) else {
            return over_line_max(bytes, 0, ProtocolError::ArrayHeaderTooBig)
                .map(|()| Some(Parsed::Incomplete));
        };
        let count = count.filter(|c| *c <= limits.args_max).ok_or(ProtocolError::ArrayLength)?;
        if count > UNAUTHENTICATED_ARGS_MAX && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedArrayLength);
        }
        if count <= 0 {
            return Ok(Some(Parsed::Empty { consumed: next }));
        }
        self.spans.reserve(count.min(SPANS_RESERVED_MAX) as usize);
        self.args_left = count as usize;
        self.position = next;
        self.state = State::ArgumentHeader;
        Ok(None)
    }

    fn parse_arguments(&mut self, bytes: &[u8], limits: &Limits) -> Result<Parsed, ProtocolError> {
        loop {
            let len = match self.state {
                State::ArgumentBody { len } => len,
                State::LargeBody => match self.parse_large(bytes) {
                    Some(next) if self.end_argument(next) => {
                        return Ok(Parsed::Request { consumed: next });
                    }
                    Some(_) => continue,
                    None => return Ok(Parsed::Incomplete),
                },
                _ => {
                    let Some(len) = self.parse_bulk_header(bytes, limits)? else {
                        return Ok(Parsed::Incomplete);
                    };
                    len
                }
            };
            // Like Redis, take any two bytes for the line end behind an argument.
            let next = self.position + len + 2;
            if next > bytes.len() {
                self.state = State::ArgumentBody { len };
                if self.takes_large && len >= LARGE_MIN {
                    self.large.get_or_insert_default().begin(len);
                    self.state = State::LargeBody;
                    continue;
                }
            }
            if next > REQUEST_MAX {
                return Err(ProtocolError::RequestTooBig);
            }
            if next > bytes.len() {
                return Ok(Parsed::Incomplete);
            }
            self.spans.push(Span::new(self.position, len));
            if self.end_argument(next) {
                return Ok(Parsed::Request { consumed: next });
            }
        }
    }

    /// An argument ends before `next`. True when it was the last.
    #[inline]
    fn end_argument(&mut self, next: usize) -> bool {
        self.position = next;
        self.args_left -= 1;
        let is_last = self.args_left == 0;
        self.state = if is_last { State::Done } else { State::ArgumentHeader };
        is_last
    }

    /// Takes what is here of a large argument. Returns where its line end ends, once it is whole.
    #[cold]
    fn parse_large(&mut self, bytes: &[u8]) -> Option<usize> {
        let large = self.large.as_mut()?;
        let rest = bytes.get(self.position..).unwrap_or_default();
        self.position += large.take(rest)?;
        let next = self.position + 2;
        if next > bytes.len() {
            return None;
        }
        self.spans.push(Span::large(large.finish()));
        Some(next)
    }

    /// The length of the next argument; `position` moves to its first byte.
    #[inline]
    fn parse_bulk_header(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<usize>, ProtocolError> {
        let Some((len, next)) = header(bytes, self.position) else {
            over_line_max(bytes, self.position, ProtocolError::BulkHeaderTooBig)?;
            return Ok(None);
        };
        let kind = bytes[self.position];
        if kind != b'$' {
            return Err(ProtocolError::ExpectedBulk(kind));
        }
        let len = len
            .filter(|len| (0..=limits.bulk_max).contains(len))
            .ok_or(ProtocolError::BulkLength)?;
        if len > UNAUTHENTICATED_BULK_MAX && !limits.authenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        self.position = next;
        Ok(Some(len as usize))
    }

    fn parse_inline(&mut self, bytes: &[u8]) -> Result<Parsed, ProtocolError> {
        const TLS_HANDSHAKE: &[u8] = &[0x16, 3];
        if bytes.starts_with(TLS_HANDSHAKE) {
            return Err(ProtocolError::Encrypted);
        }
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            over_line_max(bytes, 0, ProtocolError::InlineTooBig)?;
            return Ok(Parsed::Incomplete);
        };
        if end > LINE_MAX {
            return Err(ProtocolError::InlineTooBig);
        }
        let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
        let words = split_quoted(line).ok_or(ProtocolError::UnbalancedQuotes)?;
        let consumed = end + 1;
        if words.is_empty() {
            return Ok(Parsed::Empty { consumed });
        }
        self.inline = Some(OwnedRequest::from_args(words.iter().map(Vec::as_slice)));
        self.state = State::Done;
        Ok(Parsed::Request { consumed })
    }
}

/// A line end would end the error's own line.
fn in_line(byte: u8) -> char {
    if matches!(byte, b'\r' | b'\n') { ' ' } else { char::from(byte) }
}

/// The argument behind the name of the request at the front of `bytes`, mostly a key, when it is
/// plain to see. A hint for fetching memory ahead: nothing is checked.
///
/// ```
/// # use store_resp::glimpse_key;
/// assert_eq!(glimpse_key(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"), Some(&b"key"[..]));
/// assert_eq!(glimpse_key(b"*1\r\n$4\r\nPING\r\n"), None);
/// ```
#[inline]
pub fn glimpse_key(bytes: &[u8]) -> Option<&[u8]> {
    let (_, name_at) = header(bytes, 0)?;
    let (name_len, start) = header(bytes, name_at)?;
    let name_len = usize::try_from(name_len?).ok().filter(|len| *len < bytes.len())?;
    let (key_len, start) = header(bytes, start + name_len + 2)?;
    let key_len = usize::try_from(key_len?).ok()?;
    bytes.get(start..)?.get(..key_len)
}

/// The number in a header line such as `$12\r\n` at `start`, and where the next line begins.
/// Outer `None`: the line is not complete. Inner `None`: there is no number in it.
#[inline]
fn header(bytes: &[u8], start: usize) -> Option<(Option<i64>, usize)> {
    let digits = bytes.get(start + 1..)?;
    // Nearly every header has one or two digits; read them without searching for the line end.
    match digits {
        [a @ b'0'..=b'9', b'\r', _, ..] => return Some((Some(i64::from(a - b'0')), start + 4)),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', _, ..] => {
            return Some((Some(i64::from(a - b'0') * 10 + i64::from(b - b'0')), start + 5));
        }
        _ => {}
    }
    let within = &digits[..digits.len().min(LINE_MAX)];
    let end = within.iter().position(|byte| *byte == b'\r')?;
    let next = start + 1 + end + 2;
    (next <= bytes.len()).then(|| (parse_integer(&digits[..end]), next))
}

/// Fails when the unfinished line at `start` is already longer than any line may be.
fn over_line_max(bytes: &[u8], start: usize, error: ProtocolError) -> Result<(), ProtocolError> {
    if bytes.len() - start.min(bytes.len()) > LINE_MAX { Err(error) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All requests in `bytes`, fed in pieces of `step` bytes.
    fn parse_all(bytes: &[u8], step: usize, limits: &Limits) -> Result<Vec<String>, ProtocolError> {
        let mut parser = RequestParser::default();
        let (mut start, mut end) = (0, 0);
        let mut requests = Vec::new();
        loop {
            match parser.parse(&bytes[start..end], limits)? {
                Parsed::Incomplete if end == bytes.len() => return Ok(requests),
                Parsed::Incomplete => end = (end + step).min(bytes.len()),
                Parsed::Empty { consumed } => start += consumed,
                Parsed::Request { consumed } => {
                    requests.push(format!("{:?}", parser.request(&bytes[start..end])));
                    start += consumed;
                    if requests.len() % 3 != 0 {
                        parser.clear();
                    }
                }
            }
        }
    }

    fn fails(bytes: &[u8], limits: &Limits) -> String {
        parse_all(bytes, bytes.len(), limits).unwrap_err().to_string()
    }

    #[test]
    fn requests_are_found_however_the_bytes_are_cut() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING \"a b\"\r\n*0\r\n\r\n*-1\r\n\
            *1\r\n$12\r\nabcdefghijkl\r\n*3\r\n$1\r\na\r\n$0\r\n\r\n$1\r\nc\r\n";
        let whole = parse_all(bytes, bytes.len(), &Limits::default()).unwrap();
        assert_eq!(whole.len(), 4);
        assert_eq!(whole[1], r#"["PING", "a b"]"#);
        for step in 1..bytes.len() {
            assert_eq!(parse_all(bytes, step, &Limits::default()).unwrap(), whole, "step {step}");
        }
    }

    #[test]
    fn several_requests_can_be_read_after_they_were_found() {
        let bytes = b"*1\r\n$1\r\na\r\n*2\r\n$1\r\nb\r\n$1\r\nc\r\n*1\r\n$5\r\nxx";
        let mut parser = RequestParser::default();
        let mut found = Vec::new();
        let mut at = 0;
        while let Parsed::Request { consumed } =
            parser.parse(&bytes[at..], &Limits::default()).unwrap()
        {
            found.push((at, parser.last_spans()));
            at += consumed;
        }
        let texts: Vec<String> = found
            .into_iter()
            .map(|(start, spans)| format!("{:?}", parser.request_at(&bytes[start..], spans)))
            .collect();
        assert_eq!(texts, [r#"["a"]"#, r#"["b", "c"]"#]);
        parser.clear();
        let rest = b"*1\r\n$5\r\nxxyyy\r\n";
        assert!(matches!(parser.parse(rest, &Limits::default()), Ok(Parsed::Request { .. })));
        assert_eq!(format!("{:?}", parser.request(rest)), r#"["xxyyy"]"#);
    }

    /// Feeds `bytes` as the server does: what was taken is dropped, and so are whole requests.
    fn parse_taking_large(bytes: &[u8], step: usize) -> Vec<Vec<Vec<u8>>> {
        let mut parser = RequestParser::taking_large();
        let (mut input, mut requests) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(step) {
            input.extend_from_slice(piece);
            let mut at = 0;
            while let Parsed::Request { consumed } =
                parser.parse(&input[at..], &Limits::default()).unwrap()
            {
                let request = parser.request(&input[at..]);
                let owned = request.to_owned();
                assert_eq!(format!("{request:?}"), format!("{:?}", owned.as_request()));
                requests.push(request.args_from(0).map(<[u8]>::to_vec).collect());
                at += consumed;
                if requests.len() % 2 == 0 {
                    parser.clear();
                }
            }
            parser.clear();
            let taken = parser.take_taken();
            input.truncate(input.len() - taken);
            input.drain(..at);
            assert!(input.len() < LARGE_MIN + 2 * step + 100, "large arguments are not kept twice");
        }
        assert!(input.is_empty());
        requests
    }

    #[test]
    fn large_arguments_are_found_however_the_bytes_are_cut() {
        let (one, two) = (vec![b'1'; LARGE_MIN], vec![b'2'; 3 * LARGE_MIN + 7]);
        let bulk =
            |text: &[u8]| [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat();
        let requests: Vec<Vec<&[u8]>> = vec![
            vec![b"SET", b"a", &one, b"EX", b"9"],
            vec![b"PING"],
            vec![b"MSET", b"a", &two, b"b", b"small", b"c", &one],
            vec![b"SET", b"b", &two],
            vec![b"PING"],
        ];
        let mut bytes = Vec::new();
        for words in &requests {
            bytes.extend(format!("*{}\r\n", words.len()).into_bytes());
            words.iter().for_each(|word| bytes.extend(bulk(word)));
        }
        for step in [1000, 4096, 16_383, 65_536, 100_003, bytes.len()] {
            assert_eq!(parse_taking_large(&bytes, step), requests, "step {step}");
        }
    }

    #[test]
    fn malformed_frames_are_named_as_redis_names_them() {
        let limits = Limits::default();
        for (bytes, text) in [
            (&b"*a\r\n"[..], "invalid multibulk length"),
            (b"*+1\r\n", "invalid multibulk length"),
            (b"*2147483648\r\n", "invalid multibulk length"),
            (b"*1\r\n\r\n$4\r\n", "expected '$', got ' '"),
            (b"*1\r\n:1\r\n", "expected '$', got ':'"),
            (b"*1\r\n$-1\r\n", "invalid bulk length"),
            (b"*1\r\n$ 5\r\n", "invalid bulk length"),
            (b"*1\r\n$536870913\r\n", "invalid bulk length"),
            (b"set \"a\r\n", "unbalanced quotes in request"),
        ] {
            assert_eq!(fails(bytes, &limits), text);
        }
        let long = |first: &[u8]| [first, &[b'1'; LINE_MAX + 1]].concat();
        assert_eq!(fails(&long(b"*"), &limits), "too big mbulk count string");
        assert_eq!(fails(&long(b"*1\r\n$"), &limits), "too big bulk count string");
        assert_eq!(fails(&long(b"x"), &limits), "too big inline request");
    }

    #[test]
    fn a_client_that_has_not_authenticated_gets_small_limits() {
        let limits = Limits { authenticated: false, ..Limits::default() };
        assert_eq!(fails(b"*11\r\n", &limits), "unauthenticated multibulk length");
        assert_eq!(fails(b"*1\r\n$16385\r\n", &limits), "unauthenticated bulk length");
        assert!(parse_all(b"*10\r\n$16384\r\n", 4, &limits).unwrap().is_empty());
    }

    #[test]
    fn a_header_alone_reserves_nothing_large() {
        let mut parser = RequestParser::default();
        parser.parse(b"*2147483647\r\n", &Limits::default()).unwrap();
        assert!(parser.spans.capacity() <= 2 * SPANS_RESERVED_MAX as usize);
    }

    #[test]
    fn a_request_that_is_too_long_to_be_told_apart_is_refused_before_it_is_there() {
        let limits = Limits { bulk_max: 1 << 40, ..Limits::default() };
        let bytes = b"*2\r\n$4294967296\r\n";
        let error = RequestParser::default().parse(bytes, &limits).unwrap_err();
        assert_eq!(error, ProtocolError::RequestTooBig);
        let parsed = RequestParser::default().parse(b"*2\r\n$4294901760\r\n", &limits);
        assert_eq!(parsed, Ok(Parsed::Incomplete));
    }
}
