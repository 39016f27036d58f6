//! Where a sidecar listens: an address, a socket file, or both.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::error::SidecarError;

/// Only the user that the sidecar runs as may connect to its socket file.
const SOCKET_MODE: u32 = 0o600;

/// Where to listen, as it was configured: `127.0.0.1:8420`, `unix:/run/tenure.sock`, or both with a
/// comma between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) file: Option<PathBuf>,
}

impl Endpoints {
    pub(crate) fn parse(given: &str) -> Result<Self, SidecarError> {
        let wrong = || SidecarError::Address { given: given.to_owned() };
        let mut endpoints = Endpoints::default();
        for part in given.split(',').map(str::trim) {
            let is_second = match part.strip_prefix("unix:") {
                Some("") => return Err(wrong()),
                Some(path) => endpoints.file.replace(path.into()).is_some(),
                None => endpoints.address.replace(part.parse().map_err(|_| wrong())?).is_some(),
            };
            if is_second {
                return Err(wrong());
            }
        }
        Ok(endpoints)
    }

    pub(crate) async fn listen(self) -> Result<Listening, SidecarError> {
        let tcp = match self.address {
            None => None,
            Some(address) => {
                let listener = TcpListener::bind(address).await;
                Some(listener.map_err(|source| SidecarError::Listen { address, source })?)
            }
        };
        let file = self.file.map(|file| {
            SocketFile::listen(&file).map_err(|source| SidecarError::ListenFile { file, source })
        });
        Ok(Listening { tcp, file: file.transpose()? })
    }
}

/// What is listened on; at least one of the two is there.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) tcp: Option<TcpListener>,
    pub(crate) file: Option<SocketFile>,
}

impl Listening {
    /// The next caller, and its address unless it came through the file.
    pub(crate) async fn accept(&self) -> io::Result<(Stream, Option<IpAddr>)> {
        let of_address = async {
            match &self.tcp {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        let of_file = async {
            match &self.file {
                Some(file) => file.listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = of_address => {
                accepted.map(|(stream, address)| (Stream::Tcp(stream), Some(address.ip())))
            }
            accepted = of_file => accepted.map(|(stream, _)| (Stream::Unix(stream), None)),
        }
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        match &self.tcp {
            Some(listener) => listener.local_addr(),
            None => {
                Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "it listens on a file only"))
            }
        }
    }
}

/// A socket file that is listened on, and removed with this.
#[derive(Debug)]
pub(crate) struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    /// Makes the file under another name, so that nobody else can ever connect, and so that the
    /// file of a sidecar that was killed is replaced without a gap.
    fn listen(path: &Path) -> io::Result<Self> {
        refuse_used(path)?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let beside = path.with_file_name(name);
        let listener = UnixListener::bind(&beside)?;
        let moved = std::fs::set_permissions(&beside, PermissionsExt::from_mode(SOCKET_MODE))
            .and_then(|()| std::fs::rename(&beside, path))
            .and_then(|()| std::fs::symlink_metadata(path));
        let metadata = moved.inspect_err(|_| {
            let _ = std::fs::remove_file(&beside);
        })?;
        let inode = (metadata.dev(), metadata.ino());
        Ok(SocketFile { listener, path: path.to_owned(), inode })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses a file that somebody listens on, or that is no socket.
fn refuse_used(path: &Path) -> io::Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !metadata.file_type().is_socket() {
        let why = "something else is there, which is left alone";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path);
        // Another sidecar may have taken its place.
        if now.is_ok_and(|now| (now.dev(), now.ino()) == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A connection from either.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Whether it cannot have come from another machine.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Stream::Unix(_))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_file_at_the_most() {
        let parse =
            |given| Endpoints::parse(given).map(|p| (p.address.is_some(), p.file.is_some()));
        assert_eq!(parse("127.0.0.1:8420").unwrap(), (true, false));
        assert_eq!(parse("unix:/run/t.sock").unwrap(), (false, true));
        assert_eq!(parse("[::1]:8420, unix:/run/t.sock").unwrap(), (true, true));
        for wrong in ["", "localhost", "unix:", "unix:/a,unix:/b", "127.0.0.1:1,127.0.0.1:2", ","] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
