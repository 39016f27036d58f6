//! Sockets that wait for clients.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mio::net::{TcpStream, UnixListener};
use rustix::fs::{Mode, chmod};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
use store_engine::{Config, Origin};

use crate::stream::Stream;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// An address that cannot be bound; most often the port is taken.
    #[error("cannot listen on {address}: {source}")]
    Tcp {
        /// What was to be bound.
        address: String,
        /// Why not.
        source: io::Error,
    },
    /// A path where no socket can be made.
    #[error("cannot listen on unix socket {}: {source}", path.display())]
    Unix {
        /// What was to be made.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// One socket that waits for clients.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(mio::net::TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// The next client that waits. `WouldBlock` when there is none.
    pub(crate) fn accept(&self, keepalive: Duration) -> io::Result<(Stream, Origin)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                tune(&stream, keepalive);
                let local = stream.local_addr().map(|local| local.to_string());
                let origin = Origin {
                    address: peer.to_string(),
                    local_address: local.unwrap_or_default(),
                    descriptor: i64::from(stream.as_raw_fd()),
                    is_local: peer.ip().to_canonical().is_loopback(),
                    is_unix: false,
                };
                Ok((Stream::Tcp(stream), origin))
            }
            Listener::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                let name = format!("{}:0", path.display());
                let origin = Origin {
                    address: name.clone(),
                    local_address: name,
                    descriptor: i64::from(stream.as_raw_fd()),
                    is_local: true,
                    is_unix: true,
                };
                Ok((Stream::Unix(stream), origin))
            }
        }
    }

    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Listener::Unix(..) => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Somebody else may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Replies are small and awaited: send at once. Peers that vanished are noticed by keepalive.
fn tune(stream: &TcpStream, keepalive: Duration) {
    // Failing costs speed only.
    let _ = stream.set_nodelay(true);
    if keepalive.is_zero() {
        return;
    }
    let probe = (keepalive / 3).max(Duration::from_secs(1));
    let _ = set_socket_keepalive(stream, true);
    let _ = set_tcp_keepidle(stream, keepalive);
    let _ = set_tcp_keepintvl(stream, probe);
    let _ = set_tcp_keepcnt(stream, 3);
}

/// Listens on every address of `bind` at `port`; with port 0 the system chooses one for all.
pub(crate) fn listen_tcp(config: &Config, port: u16) -> Result<Vec<Listener>, ListenError> {
    let mut listeners = Vec::new();
    let mut port = port;
    for word in config.text("bind").split_whitespace() {
        let (name, is_optional) = match word.strip_prefix('-') {
            Some(name) => (name, true),
            None => (word, false),
        };
        match listen_on(config, name, port) {
            Ok(listener) => {
                port = listener.port().unwrap_or(port);
                listeners.push(listener);
            }
            Err(_) if is_optional => {}
            Err(error) => return Err(error),
        }
    }
    Ok(listeners)
}

fn listen_on(config: &Config, name: &str, port: u16) -> Result<Listener, ListenError> {
    let host = match name {
        "*" => "0.0.0.0",
        "::*" => "::",
        other => other,
    };
    let fail = |source| ListenError::Tcp { address: format!("{host}:{port}"), source };
    let address = host
        .parse()
        .map(|ip| SocketAddr::new(ip, port))
        .map_err(|error| fail(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    let listener = TcpListener::bind(address).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    // Listening again only changes the backlog.
    let backlog = config.number("tcp-backlog") as i32;
    listen(&listener, backlog).map_err(|error| fail(error.into()))?;
    Ok(Listener::Tcp(mio::net::TcpListener::from_std(listener)))
}

/// Listens at a path that only its owner may use, unless `unixsocketperm` says otherwise: the
/// mode is set before anybody can connect.
pub(crate) fn listen_unix(config: &Config, path: &Path) -> Result<Listener, ListenError> {
    const OWNER_ONLY: u32 = 0o600;
    let fail = |source: io::Error| ListenError::Unix { path: path.to_owned(), source };
    let mode = match u32::from_str_radix(config.text("unixsocketperm"), 8) {
        Ok(mode) if mode != 0 => mode,
        _ => OWNER_ONLY,
    };
    // A socket left by a server that was killed.
    let _ = std::fs::remove_file(path);
    let prepare = || -> rustix::io::Result<_> {
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        chmod(path, Mode::from_raw_mode(mode))?;
        listen(&listener, config.number("tcp-backlog") as i32)?;
        Ok(listener)
    };
    let listener = prepare().map_err(|error| fail(error.into()))?;
    let listener = std::os::unix::net::UnixListener::from(listener);
    listener.set_nonblocking(true).map_err(fail)?;
    Ok(Listener::Unix(UnixListener::from_std(listener), path.to_owned()))
}
