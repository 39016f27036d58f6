//! A client's byte stream, whatever carries it.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags};

use crate::tls::TlsStream;

/// A connected stream in non-blocking mode.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Boxed, since it is much larger than the others.
    Tls(Box<TlsStream>),
}

impl Stream {
    /// Whether the client has yet to prove that it speaks TLS.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.is_handshaking())
    }

    /// Whether the next read has an answer without an event.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_ended())
    }

    /// Reads once onto the end of `buffer`, as far as there is room, without clearing it first.
    /// `None` for streams that cannot do it.
    pub(crate) fn read_onto(&self, buffer: &mut Vec<u8>) -> Option<io::Result<usize>> {
        let spare = rustix::buffer::spare_capacity(buffer);
        match self {
            Stream::Tcp(stream) => Some(rustix::io::read(stream, spare).map_err(Into::into)),
            Stream::Unix(stream) => Some(rustix::io::read(stream, spare).map_err(Into::into)),
            Stream::Tls(_) => None,
        }
    }

    /// Whether small writes may wait a little for others, to make fewer packets.
    pub(crate) fn gather_writes(&self, gathers: bool) {
        let socket = match self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => stream.socket(),
            Stream::Unix(_) => return,
        };
        // Worth no more than a try: bytes arrive either way.
        let _ = socket.set_nodelay(!gathers);
    }

    /// Whether bytes that were taken wait inside.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.has_unsent())
    }
}

/// Straight to the system: the C library's calls also look whether their thread is to be cancelled,
/// which is a fortieth of what a small request costs.
#[inline]
fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (_, count) = rustix::net::recv(socket, buffer, RecvFlags::empty())?;
    Ok(count)
}

/// As [`receive`]. A client that is gone is an error, no signal.
#[inline]
fn send(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)?)
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => receive(stream, buffer),
            Stream::Unix(stream) => receive(stream, buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => send(stream, bytes),
            Stream::Unix(stream) => send(stream, bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(slices),
            Stream::Unix(stream) => stream.write_vectored(slices),
            Stream::Tls(stream) => stream.write(slices.first().map_or(&[], |slice| slice)),
        }
    }

    /// Sends what waits inside. `WouldBlock` when the socket takes no more.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Ok(()),
            Stream::Tls(stream) => stream.send(),
        }
    }
}

impl Stream {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
            Stream::Tls(stream) => stream.socket_mut(),
        }
    }
}

impl Source for Stream {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.source().register(registry, token, interest)
    }

    fn reregister(
        &mut self,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        self.source().reregister(registry, token, interest)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.source().deregister(registry)
    }
}
