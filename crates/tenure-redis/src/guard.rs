//! A stream that lets through only replies of a sane shape.
//!
//! The client library reads what a server sends into memory before anybody can judge it. This
//! guard counts along, byte by byte of the framing and without copying, and breaks the connection
//! when a reply is nested too deeply, promises too much or is no RESP at all. It also holds back a
//! flood of messages until those before have been looked at.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tenure_core::StoreError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::error;

/// The deepest nesting of a reply; ours need four.
const DEPTH_MAX: usize = 16;
/// The longest single text, in bytes: a member's record with all its metadata quoted is 13 KiB.
const TEXT_LEN_MAX: u64 = 256 * 1024;
/// The longest header or error line, in bytes.
const LINE_LEN_MAX: usize = 16 * 1024;
/// The longest list: a thousand members are far below.
const LIST_LEN_MAX: u64 = 16 * 1024;
/// The longest reply, in bytes: a thousand members with full metadata.
const REPLY_LEN_MAX: u64 = 24 * 1024 * 1024;
/// The first byte of a TLS alert: how a port that expects TLS answers a plain request.
const TLS_ALERT: u8 = 0x15;
/// The first bytes of values.
const KINDS: &[u8] = b"+-:_,#($=!*~>%";
/// How many bytes of messages may wait to be looked at.
const BACKLOG_MAX: usize = 1024 * 1024;

/// How much was read since its consumer last caught up.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: AtomicUsize,
    reader: AtomicWaker,
}

impl Backlog {
    /// Tells that everything read so far has been looked at.
    pub(super) fn caught_up(&self) {
        if self.bytes.swap(0, Ordering::AcqRel) > BACKLOG_MAX {
            self.reader.wake();
        }
    }
}

/// Why the stream broke, once it has and the reason is known: the client library only tells that
/// the connection ended.
pub(super) type Breach = Arc<OnceLock<StoreError>>;

/// A stream with the guard in front of its reading side.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    framing: Framing,
    breach: Breach,
    backlog: Option<Arc<Backlog>>,
}

impl<S> Guarded<S> {
    /// Guards replies to requests: each is awaited, so none can pile up.
    pub(super) fn new(stream: S, breach: Breach) -> Self {
        Guarded { stream, framing: Framing::default(), breach, backlog: None }
    }

    /// Guards messages, which come unasked.
    pub(super) fn with_backlog(stream: S, backlog: Arc<Backlog>) -> Self {
        let (framing, breach) = (Framing::default(), Breach::default());
        Guarded { stream, framing, breach, backlog: Some(backlog) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(backlog) = &self.backlog
            && backlog.bytes.load(Ordering::Acquire) > BACKLOG_MAX
        {
            backlog.reader.register(context.waker());
            // Looked at again after registering: it may have caught up in between.
            if backlog.bytes.load(Ordering::Acquire) > BACKLOG_MAX {
                return Poll::Pending;
            }
        }
        let before = buffer.filled().len();
        if let Err(error) = std::task::ready!(Pin::new(&mut self.stream).poll_read(context, buffer))
        {
            if let Some(reason) = error::of_encryption(&error) {
                let _ = self.breach.set(reason);
            }
            return Poll::Ready(Err(error));
        }
        let fresh = &buffer.filled()[before..];
        if let Some(backlog) = &self.backlog {
            backlog.bytes.fetch_add(fresh.len(), Ordering::AcqRel);
        }
        let is_alert = self.framing.is_between_values() && fresh.first() == Some(&TLS_ALERT);
        match self.framing.advance(fresh) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(what) => {
                let breach = match is_alert {
                    true => StoreError::wrong_address("this port speaks TLS only")
                        .with_next_step(error::TLS_REMEDY),
                    false => {
                        let what = format!("the server broke the protocol: {what}");
                        StoreError::unexpected(what).with_next_step(error::FOREIGN_REMEDY)
                    }
                };
                let what = breach.message().to_owned();
                let _ = self.breach.set(breach);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, what)))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Where in a reply the stream stands.
///
/// ```text
/// Line ── text header ──► Text(left) ── end ──► Line of the next value
///   └── list header ──► one level deeper, Line of its first value
/// ```
#[derive(Debug, Default)]
struct Framing {
    line: Vec<u8>,
    text_left: Option<u64>,
    /// How many values each open list still waits for.
    open_lists: Vec<u64>,
    reply_len: u64,
}

impl Framing {
    fn advance(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let used = match self.text_left {
                Some(left) => self.skip_text(left, bytes),
                None => self.read_line(bytes)?,
            };
            self.reply_len += used as u64;
            if self.reply_len > REPLY_LEN_MAX {
                return Err(format!("a reply longer than {REPLY_LEN_MAX} bytes"));
            }
            if self.is_between_values() && self.open_lists.is_empty() {
                self.reply_len = 0;
            }
            bytes = &bytes[used..];
        }
        Ok(())
    }

    fn is_between_values(&self) -> bool {
        self.line.is_empty() && self.text_left.is_none()
    }

    fn skip_text(&mut self, left: u64, bytes: &[u8]) -> usize {
        let used = left.min(bytes.len() as u64);
        self.text_left = Some(left - used).filter(|left| *left > 0);
        if self.text_left.is_none() {
            self.end_value();
        }
        used as usize
    }

    fn read_line(&mut self, bytes: &[u8]) -> Result<usize, String> {
        // Before the line is whole: what is no RESP may never end one.
        if let Some(other) = bytes.first().filter(|kind| !KINDS.contains(kind))
            && self.line.is_empty()
        {
            return Err(format!("a value of kind {:?}", char::from(*other)));
        }
        let used = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        if self.line.len() + used > LINE_LEN_MAX {
            return Err(format!("a line longer than {LINE_LEN_MAX} bytes"));
        }
        self.line.extend_from_slice(&bytes[..used]);
        if self.line.last() == Some(&b'\n') {
            let line = std::mem::take(&mut self.line);
            self.end_line(line.strip_suffix(b"\r\n").ok_or("a line without its end")?)?;
            self.line = line;
            self.line.clear();
        }
        Ok(used)
    }

    fn end_line(&mut self, line: &[u8]) -> Result<(), String> {
        let (kind, rest) = line.split_first().ok_or("an empty line")?;
        match kind {
            b'+' | b'-' | b':' | b'_' | b',' | b'#' | b'(' => self.end_value(),
            b'$' | b'=' | b'!' => match length(rest, TEXT_LEN_MAX)? {
                None => self.end_value(),
                Some(len) => self.text_left = Some(len + 2),
            },
            b'*' | b'~' | b'>' => self.open_list(length(rest, LIST_LEN_MAX)?)?,
            b'%' => self.open_list(length(rest, LIST_LEN_MAX / 2)?.map(|pairs| pairs * 2))?,
            other => return Err(format!("a value of kind {:?}", char::from(*other))),
        }
        Ok(())
    }

    fn open_list(&mut self, len: Option<u64>) -> Result<(), String> {
        match len {
            None | Some(0) => self.end_value(),
            Some(_) if self.open_lists.len() == DEPTH_MAX => {
                return Err(format!("lists nested deeper than {DEPTH_MAX}"));
            }
            Some(len) => self.open_lists.push(len),
        }
        Ok(())
    }

    fn end_value(&mut self) {
        while let Some(left) = self.open_lists.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open_lists.pop();
        }
    }
}

/// The length in a header: `-1` means "nothing", anything but plain digits is refused.
fn length(digits: &[u8], max: u64) -> Result<Option<u64>, String> {
    if digits == b"-1" {
        return Ok(None);
    }
    let is_plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let parsed = std::str::from_utf8(digits).ok().filter(|_| is_plain);
    match parsed.and_then(|digits| digits.parse::<u64>().ok()) {
        Some(len) if len <= max => Ok(Some(len)),
        _ => Err(format!("a length that is no number up to {max}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` in slices of `size`.
    fn verdict(bytes: &[u8], size: usize) -> Result<(), String> {
        let mut framing = Framing::default();
        bytes.chunks(size).try_for_each(|chunk| framing.advance(chunk))?;
        let is_done = framing.open_lists.is_empty() && framing.text_left.is_none();
        if is_done && framing.line.is_empty() { Ok(()) } else { Err("unfinished".into()) }
    }

    #[test]
    fn honest_replies_pass_however_they_are_sliced() {
        let replies: &[u8] =
            b"+OK\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n*2\r\n$3\r\na\r\n\r\n*2\r\n:1\r\n\
            -ERR x\r\n%1\r\n+k\r\n#t\r\n>2\r\n+a\r\n,1.5\r\n_\r\n(12\r\n=5\r\ntxt:a\r\n";
        for size in 1..=replies.len() {
            assert_eq!(verdict(replies, size), Ok(()), "slices of {size}");
        }
    }

    #[test]
    fn hostile_framing_is_refused_before_it_is_buffered() {
        let deep = b"*1\r\n".repeat(100_000);
        let cases: [&[u8]; 21] = [
            &deep,
            b"*2147483647\r\n",
            b"*9223372036854775807\r\n",
            b"*-2\r\n",
            b"%4611686018427387904\r\n",
            b"$536870913\r\n",
            b"$99999999999999999999\r\n",
            b"$-2\r\n",
            b"$+5\r\n",
            b"$ 5\r\n",
            b"*1e3\r\n",
            b"+OK\n",
            b"\n",
            b"\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"|1\r\n",
            b"\x16\x03\x01\n\r\n",
            b"\x15\x03\x03\x00\x02\x02\x0a",
            b"!-7\r\n",
            b"~x\r\n",
            b">\r\n",
        ];
        for bytes in cases {
            for size in [1, 3, 4096] {
                let start = &bytes[..bytes.len().min(40)];
                let verdict = verdict(bytes, size);
                assert!(verdict.is_err_and(|e| e != "unfinished"), "{start:?} in slices of {size}");
            }
        }
        let endless_line = vec![b'+'; LINE_LEN_MAX + 1];
        assert!(verdict(&endless_line, 100).is_err());
    }

    #[test]
    fn a_reply_that_never_ends_is_cut_off() {
        let mut framing = Framing::default();
        let mut fed = framing.advance(b"*16384\r\n");
        let text = format!("$262144\r\n{}\r\n", "x".repeat(262_144));
        let mut count = 0;
        while fed.is_ok() && count < 16_384 {
            fed = framing.advance(text.as_bytes());
            count += 1;
        }
        assert!(fed.is_err() && count < 100, "{count} texts let through");
    }
}
