//! One connection: requests out, replies in, in order.

use std::io::{self, Read, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use store_resp::{Protocol, Reply, ReplyParser};

use super::error::ClientError;
use super::frame::Framer;
use super::stream::Stream;
use super::target::Target;
use super::terminal::Interrupt;
use crate::output::plain;

/// Bytes read at once.
const READ_MAX: usize = 64 * 1024;
/// A reply longer than this is refused: it would not fit on any screen, and a server that was
/// swapped for a hostile one must not take all memory.
const REPLY_MAX: usize = 2 * 1024 * 1024 * 1024;

/// A connection that has logged in and chosen its database.
pub(super) struct Connection {
    pub(super) stream: Stream,
    /// Received, from `taken` on not yet handed out.
    received: Vec<u8>,
    taken: usize,
    framer: Framer,
    /// Whether what was received so far is not yet a reply: a port that expects TLS sends none.
    is_unanswered: bool,
}

/// The first byte of a TLS alert: how a port that expects TLS answers a plain request.
const TLS_ALERT: u8 = 0x15;

impl Connection {
    /// Connects, says HELLO, logs in and selects the database.
    pub(super) fn open(target: &Target) -> Result<Self, ClientError> {
        let place = || target.name();
        let stream = Stream::open(target)
            .map_err(|error| ClientError::Unreachable { place: place(), why: error.to_string() })?;
        let mut connection = Self {
            stream,
            received: Vec::new(),
            taken: 0,
            framer: Framer::default(),
            is_unanswered: true,
        };
        connection.greet(target)?;
        Ok(connection)
    }

    fn greet(&mut self, target: &Target) -> Result<(), ClientError> {
        let login = &target.login;
        let password = login.password.as_ref().map(|password| password.reveal());
        let user = login.user.as_deref();
        match (target.protocol, password) {
            (Protocol::Resp3, Some(password)) => {
                let user = user.unwrap_or("default");
                self.must("HELLO", &["HELLO", "3", "AUTH", user, password])?;
            }
            (Protocol::Resp3, None) => self.must("HELLO", &["HELLO", "3"])?,
            (Protocol::Resp2, Some(password)) => match user {
                Some(user) => self.must("AUTH", &["AUTH", user, password])?,
                None => self.must("AUTH", &["AUTH", password])?,
            },
            (Protocol::Resp2, None) => {}
        }
        match login.database {
            0 => Ok(()),
            database => self.must("SELECT", &["SELECT", &database.to_string()]),
        }
    }

    fn must(&mut self, step: &'static str, words: &[&str]) -> Result<(), ClientError> {
        self.send(words)?;
        match self.receive(None)? {
            Reply::Error(text) => Err(ClientError::Refused { step, text: plain(&text) }),
            _ => Ok(()),
        }
    }

    /// Sends one request.
    pub(super) fn send<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<(), ClientError> {
        let mut bytes = Vec::new();
        encode(&mut bytes, words);
        let sent = self.stream.write_all(&bytes).and_then(|()| self.stream.flush());
        sent.map_err(|error| ClientError::Lost(error.to_string()))
    }

    /// Sends one request and waits for its reply, which must not be a push.
    pub(super) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Result<Reply, ClientError> {
        self.send(words)?;
        loop {
            let reply = self.receive(None)?;
            if !matches!(reply, Reply::Push(_)) {
                return Ok(reply);
            }
        }
    }

    /// Waits for the next reply or push; with `interrupt`, until Ctrl-C.
    pub(super) fn receive(&mut self, interrupt: Option<&Interrupt>) -> Result<Reply, ClientError> {
        loop {
            if self.is_unanswered && self.received.first() == Some(&TLS_ALERT) {
                return Err(ClientError::Encrypted);
            }
            if let Some(len) = self.framer.advance(&self.received[self.taken..])? {
                let frame = &self.received[self.taken..self.taken + len];
                let (reply, _) = ReplyParser.parse(frame)?.expect("the framer found its end");
                self.take(len);
                return Ok(reply);
            }
            if let Some(interrupt) = interrupt {
                self.wait_readable(interrupt)?;
            }
            self.read_more()?;
        }
    }

    /// Whether a reply to the next request could still come: false once the other side has closed.
    pub(super) fn is_alive(&mut self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut wanted = [PollFd::new(&self.stream, PollFlags::IN)];
        match poll(&mut wanted, Some(&now)) {
            Ok(0) => true,
            Ok(_) => self.read_more().is_ok(),
            Err(_) => false,
        }
    }

    /// Hands out the frames that are complete, as bytes, and forgets them.
    pub(super) fn take_frames(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), ClientError> {
        while let Some(len) = self.framer.advance(&self.received[self.taken..])? {
            each(&self.received[self.taken..self.taken + len]);
            self.take(len);
        }
        Ok(())
    }

    /// Reads once. Fails at the end of the stream, and with `WouldBlock` where the stream does not
    /// block and has nothing.
    pub(super) fn read_once(&mut self) -> io::Result<usize> {
        let filled = self.received.len();
        if filled - self.taken > REPLY_MAX {
            return Err(io::Error::other(format!("a reply is longer than {REPLY_MAX} bytes")));
        }
        self.received.resize(filled + READ_MAX, 0);
        let outcome = self.stream.read(&mut self.received[filled..]);
        self.received.truncate(filled + *outcome.as_ref().unwrap_or(&0));
        match outcome {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the store closed it")),
            other => other,
        }
    }

    fn read_more(&mut self) -> Result<(), ClientError> {
        loop {
            match self.read_once() {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // So says the system of a time-out that was set.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(ClientError::Silent);
                }
                Err(error) => return Err(self.lost(&error)),
            }
        }
    }

    /// A server that ends the connection at the first words may want other words.
    fn lost(&self, error: &io::Error) -> ClientError {
        let is_plain = matches!(self.stream, Stream::Tcp(_));
        ClientError::Lost(match self.is_unanswered && is_plain {
            true => format!("{error}; if this port speaks TLS, write rediss:// or add --tls"),
            false => error.to_string(),
        })
    }

    fn wait_readable(&self, interrupt: &Interrupt) -> Result<(), ClientError> {
        loop {
            let mut wanted = [
                PollFd::new(&self.stream, PollFlags::IN),
                PollFd::new(interrupt.descriptor(), PollFlags::IN),
            ];
            match poll(&mut wanted, None) {
                Ok(_) if !wanted[1].revents().is_empty() => return Err(ClientError::Interrupted),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(ClientError::Lost(error.to_string())),
            }
        }
    }

    fn take(&mut self, len: usize) {
        self.is_unanswered = false;
        self.taken += len;
        if self.taken == self.received.len() {
            self.received.clear();
            self.taken = 0;
            // One large reply must not hold its memory for the rest of a long session.
            self.received.shrink_to(READ_MAX);
        } else if self.taken > self.received.len() / 2 {
            self.received.drain(..self.taken);
            self.taken = 0;
        }
    }
}

/// Appends a request in RESP.
pub(super) fn encode<W: AsRef<[u8]>>(bytes: &mut Vec<u8>, words: &[W]) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
}
