//! One connection that this server opens.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::PeerRead;
use crate::listen::tune;
use crate::stream::Stream;
use crate::tls::TlsDialer;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// What is set aside for output when nothing waits.
const OUTPUT_KEPT: usize = 64 * 1024;
/// Peers that vanished are noticed after about so long.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How long a handshake of TLS may take once there is a connection. A port that speaks none says
/// nothing to it, as a rule.
const HANDSHAKE_MAX_MS: u64 = 10_000;

/// What came of looking at a socket.
pub(super) enum Progress {
    /// It has just become open.
    Opened,
    /// An event tells how it goes on.
    Waits,
}

enum State {
    /// A thread looks up the name.
    Resolving,
    /// The system connects; the others are tried when it fails, or takes more than its share of
    /// the time that is left.
    Connecting { stream: Stream, others: VecDeque<SocketAddr>, next_at_ms: u64 },
    /// By `secure_until_ms` a handshake must be done, where there is one.
    Open { stream: Stream, secure_until_ms: u64 },
}

pub(super) struct Connection {
    state: State,
    /// Until when it must be open.
    ends_at_ms: u64,
    tls: Option<TlsDialer>,
    /// What the socket has not taken yet, behind `written`.
    output: Vec<u8>,
    written: usize,
    pub(super) may_read: bool,
    /// Whether the peer may have ended: that event comes once, possibly together with the last
    /// bytes, and the end is found by reading behind them.
    pub(super) may_have_ended: bool,
}

impl Connection {
    pub(super) fn new(ends_at_ms: u64, tls: Option<TlsDialer>) -> Self {
        Self {
            state: State::Resolving,
            ends_at_ms,
            tls,
            output: Vec::new(),
            written: 0,
            may_read: false,
            may_have_ended: false,
        }
    }

    /// A connection that the other side opened.
    pub(super) fn adopt(
        registry: &Registry,
        token: Token,
        now_ms: u64,
        mut stream: Stream,
    ) -> io::Result<Self> {
        stream.register(registry, token, Interest::READABLE | Interest::WRITABLE)?;
        let secure_until_ms = now_ms.saturating_add(HANDSHAKE_MAX_MS);
        let state = State::Open { stream, secure_until_ms };
        Ok(Self { state, may_read: true, ..Self::new(u64::MAX, None) })
    }

    /// Its addresses are known: begins with the first. Fails when none is left to try.
    pub(super) fn begin(
        &mut self,
        registry: &Registry,
        token: Token,
        now_ms: u64,
        addresses: Vec<SocketAddr>,
    ) -> io::Result<()> {
        let others = addresses.into_iter().take(ADDRESSES_MAX).collect();
        let nothing = io::Error::other("the name has no address");
        self.try_next(registry, token, now_ms, others, nothing)
    }

    /// Tries one address after the other until the system begins to connect. Fails with the last
    /// reason.
    fn try_next(
        &mut self,
        registry: &Registry,
        token: Token,
        now_ms: u64,
        mut others: VecDeque<SocketAddr>,
        mut reason: io::Error,
    ) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        while let Some(address) = others.pop_front() {
            let begun = TcpStream::connect(address).and_then(|mut stream| {
                stream.register(registry, token, interest)?;
                Ok(Stream::Tcp(stream))
            });
            match begun {
                Ok(stream) => {
                    let left_ms = self.ends_at_ms.saturating_sub(now_ms);
                    let next_at_ms = now_ms + left_ms / (others.len() as u64 + 1);
                    self.state = State::Connecting { stream, others, next_at_ms };
                    return Ok(());
                }
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }

    /// When it is to be looked at though nothing happened; never once it is open.
    pub(super) fn wakes_at_ms(&self) -> Option<u64> {
        match &self.state {
            State::Resolving => Some(self.ends_at_ms),
            State::Connecting { next_at_ms, .. } => Some(*next_at_ms),
            State::Open { stream, secure_until_ms } => {
                stream.is_handshaking().then_some(*secure_until_ms)
            }
        }
    }

    /// The time of an attempt is over: the next address, if there is one and time is left.
    pub(super) fn give_up_address(
        &mut self,
        registry: &Registry,
        token: Token,
        now_ms: u64,
    ) -> io::Result<()> {
        let too_late = io::Error::from(io::ErrorKind::TimedOut);
        match std::mem::replace(&mut self.state, State::Resolving) {
            State::Resolving => Err(too_late),
            State::Connecting { mut stream, others, .. } => {
                let _ = stream.deregister(registry);
                match now_ms < self.ends_at_ms {
                    true => self.try_next(registry, token, now_ms, others, too_late),
                    false => Err(too_late),
                }
            }
            State::Open { stream, .. } if stream.is_handshaking() => {
                Err(unencrypted("it says nothing to a handshake of TLS"))
            }
            open @ State::Open { .. } => {
                self.state = open;
                Ok(())
            }
        }
    }

    /// Looks whether the socket is open by now, and sends what waits.
    pub(super) fn advance(
        &mut self,
        registry: &Registry,
        token: Token,
        now_ms: u64,
    ) -> io::Result<Progress> {
        match std::mem::replace(&mut self.state, State::Resolving) {
            State::Resolving => Ok(Progress::Waits),
            open @ State::Open { .. } => {
                self.state = open;
                self.flush()?;
                Ok(Progress::Waits)
            }
            State::Connecting { mut stream, others, next_at_ms } => match is_connected(&stream) {
                Ok(false) => {
                    self.state = State::Connecting { stream, others, next_at_ms };
                    Ok(Progress::Waits)
                }
                Ok(true) => {
                    let stream = self.encrypt(stream)?;
                    let secure_until_ms = now_ms.saturating_add(HANDSHAKE_MAX_MS);
                    self.state = State::Open { stream, secure_until_ms };
                    self.may_read = true;
                    self.flush()?;
                    Ok(Progress::Opened)
                }
                Err(error) => {
                    let _ = stream.deregister(registry);
                    self.try_next(registry, token, now_ms, others, error)?;
                    Ok(Progress::Waits)
                }
            },
        }
    }

    /// The handshake goes on with what is written and read.
    fn encrypt(&self, stream: Stream) -> io::Result<Stream> {
        match (&self.tls, stream) {
            (Some(tls), Stream::Tcp(socket)) => Ok(Stream::Tls(Box::new(tls.dial(socket)?))),
            (_, stream) => Ok(stream),
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    pub(super) fn is_readable(&self) -> bool {
        self.may_read && self.is_open()
    }

    /// The hosts of this end and of the other, by number.
    pub(super) fn hosts(&self) -> Option<(String, String)> {
        let socket = match &self.state {
            State::Open { stream: Stream::Tcp(socket), .. } => socket,
            State::Open { stream: Stream::Tls(stream), .. } => stream.socket(),
            _ => return None,
        };
        let host = |at: SocketAddr| at.ip().to_canonical().to_string();
        Some((host(socket.local_addr().ok()?), host(socket.peer_addr().ok()?)))
    }

    /// Bytes that the socket has not taken.
    pub(super) fn unsent(&self) -> usize {
        self.output.len() - self.written
    }

    /// Bytes set aside for them.
    pub(super) fn output_capacity(&self) -> usize {
        self.output.capacity()
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.extend_from_slice(bytes);
        self.flush()
    }

    /// Gives the socket what it takes; an event tells when it takes more.
    fn flush(&mut self) -> io::Result<()> {
        let State::Open { stream, .. } = &mut self.state else { return Ok(()) };
        while self.written < self.output.len() {
            match stream.write(&self.output[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.output.shrink_to(OUTPUT_KEPT);
        self.written = 0;
        match stream.flush() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }

    /// Reads once. Fails when the peer is gone.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<PeerRead> {
        let State::Open { stream, .. } = &mut self.state else { return Ok(PeerRead::Nothing) };
        let is_handshaking = stream.is_handshaking();
        loop {
            return match stream.read(buffer) {
                Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    // A socket that gave less than it could is empty, and an event tells of more.
                    // TLS may hold more itself.
                    let is_plain = matches!(stream, Stream::Tcp(_));
                    self.may_read = count == buffer.len() || !is_plain || self.may_have_ended;
                    Ok(PeerRead::Bytes(count))
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.may_read = false;
                    Ok(PeerRead::Nothing)
                }
                Err(error) if is_handshaking && error.kind() == io::ErrorKind::InvalidData => {
                    Err(unencrypted(&error.to_string()))
                }
                Err(error) => Err(error),
            };
        }
    }

    pub(super) fn close(self, registry: &Registry) {
        if let State::Connecting { mut stream, .. } | State::Open { mut stream, .. } = self.state {
            // It is closed next; deregistering cannot matter.
            let _ = stream.deregister(registry);
        }
    }
}

/// A port that speaks no TLS, or none that is understood here.
fn unencrypted(what: &str) -> io::Error {
    let text =
        format!("{what}. If its port speaks no TLS, take the one that does, or turn TLS off");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Whether the system has connected a socket. Fails with why it cannot.
fn is_connected(stream: &Stream) -> io::Result<bool> {
    let Stream::Tcp(stream) = stream else { return Ok(true) };
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => {
            tune(stream, KEEPALIVE);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
        Err(error) => Err(error),
    }
}
