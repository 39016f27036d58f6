//! The socket, encrypted or not.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tenure::backend::redis::{Endpoint, TlsFiles};

use super::target::Target;

/// A connected socket.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects, within the target's patience.
    pub(super) fn open(target: &Target) -> io::Result<Self> {
        let stream = match &target.place {
            Endpoint::Tcp { host, port, tls: None } => {
                Self::Tcp(dial(host, *port, target.connect_within)?)
            }
            Endpoint::Unix { path } => Self::Unix(UnixStream::connect(path)?),
            Endpoint::Tcp { host, port, tls: Some(tls) } => {
                let socket = dial(host, *port, target.connect_within)?;
                encrypt(host, tls, socket, target.connect_within)?
            }
        };
        stream.set_read_timeout(target.answer_within)?;
        Ok(stream)
    }

    fn set_read_timeout(&self, patience: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(patience),
            Self::Unix(stream) => stream.set_read_timeout(patience),
            Self::Tls(stream) => stream.sock.set_read_timeout(patience),
        }
    }

    pub(super) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nonblocking(nonblocking),
            Self::Unix(stream) => stream.set_nonblocking(nonblocking),
            Self::Tls(stream) => stream.sock.set_nonblocking(nonblocking),
        }
    }

    /// Whether encrypted bytes wait to be sent.
    pub(super) fn wants_write(&self) -> bool {
        matches!(self, Self::Tls(stream) if stream.conn.wants_write())
    }
}

/// Tries every address of the host.
fn dial(host: &str, port: u16, within: Duration) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the host has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, within) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn encrypt(host: &str, tls: &TlsFiles, socket: TcpStream, within: Duration) -> io::Result<Stream> {
    let config = tls.client_config().map_err(io::Error::other)?;
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(session, socket);
    // A peer that takes the connection and says nothing must not hold us.
    stream.sock.set_read_timeout(Some(within))?;
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(Stream::Tls(Box::new(stream)))
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.flush(),
            Self::Unix(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
            Self::Tls(stream) => stream.sock.as_fd(),
        }
    }
}
