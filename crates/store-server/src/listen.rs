//! Sockets that wait for clients.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UnixListener};
use mio::{Interest, Registry, Token};
use rustix::fs::{FlockOperation, Mode, chmod, flock};
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket,
    socket_with,
};
use store_engine::{Config, Origin};
use store_persist::disk::folder_of;

use crate::stream::Stream;
use crate::tls::TlsSlot;

/// Why the server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// An address cannot be listened on; most often the port is taken.
    #[error("cannot listen on {address}: {source}{}", next_step(source))]
    Tcp {
        /// The address.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// A unix socket cannot be created.
    #[error("cannot listen on unix socket {}: {source}", path.display())]
    Unix {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// What a person can do about it.
fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program listens there: end it, or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => "; set `bind` to an address of this machine",
        io::ErrorKind::PermissionDenied => "; ports below 1024 are root's: choose another port",
        _ => "",
    }
}

/// Where to listen, and what is spoken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    Tls(SocketAddr),
    Unix(PathBuf),
}

/// One socket that waits for clients.
#[derive(Debug)]
pub(crate) struct Listener {
    /// As it was bound: with the port that the system chose, if it was to.
    pub(crate) address: ListenAddress,
    /// By which the loop knows it.
    pub(crate) number: usize,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(mio::net::TcpListener),
    /// With the file it was bound to: another that has its name by now is not ours to remove.
    Unix(UnixListener, Option<(u64, u64)>),
}

impl Listener {
    /// The next client that waits. `WouldBlock` when there is none.
    pub(crate) fn accept(
        &self,
        keepalive: Duration,
        tls: &TlsSlot,
    ) -> io::Result<(Stream, Origin)> {
        self.accept_as(keepalive, Some(tls).filter(|_| self.is_tls()))
    }

    fn is_tls(&self) -> bool {
        matches!(self.address, ListenAddress::Tls(_))
    }

    /// The same, encrypted or not, whatever was spoken here before.
    pub(crate) fn accept_as(
        &self,
        keepalive: Duration,
        tls: Option<&TlsSlot>,
    ) -> io::Result<(Stream, Origin)> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                tune(&stream, keepalive);
                let origin = origin(&stream, peer);
                match tls {
                    Some(tls) => {
                        let origin = Origin { is_encrypted: true, ..origin };
                        Ok((Stream::Tls(Box::new(tls.receive(stream)?)), origin))
                    }
                    None => Ok((Stream::Tcp(stream), origin)),
                }
            }
            Socket::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                let ListenAddress::Unix(path) = &self.address else {
                    return Err(io::ErrorKind::Unsupported.into());
                };
                let name = format!("{}:0", path.display());
                let origin = Origin {
                    address: name.clone(),
                    local_address: name,
                    descriptor: i64::from(stream.as_raw_fd()),
                    is_local: true,
                    is_unix: true,
                    is_encrypted: false,
                };
                Ok((Stream::Unix(stream), origin))
            }
        }
    }

    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.address, ListenAddress::Unix(_))
    }

    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match &mut self.socket {
            Socket::Tcp(socket) => socket.register(registry, token, Interest::READABLE),
            Socket::Unix(socket, _) => socket.register(registry, token, Interest::READABLE),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (ListenAddress::Unix(path), Socket::Unix(_, identity)) =
            (&self.address, &self.socket)
            && identity_of(path) == *identity
        {
            // Somebody else may remove it in this moment, which is fine.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn origin(stream: &TcpStream, peer: SocketAddr) -> Origin {
    let local = stream.local_addr().map(|local| local.to_string());
    Origin {
        address: peer.to_string(),
        local_address: local.unwrap_or_default(),
        descriptor: i64::from(stream.as_raw_fd()),
        is_local: peer.ip().to_canonical().is_loopback(),
        is_unix: false,
        is_encrypted: false,
    }
}

/// Replies are small and awaited: send at once. Peers that vanished are noticed by keepalive.
pub(crate) fn tune(stream: &TcpStream, keepalive: Duration) {
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

/// One word of `bind`.
struct Bound {
    ip: IpAddr,
    /// Whether it is fine when the machine has no such address.
    is_optional: bool,
}

/// The addresses of `bind`.
fn bound(config: &Config) -> Result<Vec<Bound>, ListenError> {
    let parse = |word: &str| {
        let (name, is_optional) = match word.strip_prefix('-') {
            Some(name) => (name, true),
            None => (word, false),
        };
        let host = match name {
            "*" => "0.0.0.0",
            "::*" => "::",
            other => other,
        };
        let ip = host.parse().map_err(|error| ListenError::Tcp {
            address: host.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidInput, error),
        })?;
        Ok(Bound { ip, is_optional })
    };
    config.settings().listen.addresses.iter().map(|name| parse(name)).collect()
}

/// Listens on every address of `bind` at `port`, but for places that are `taken` by ourselves;
/// with port 0 the system chooses one for all. Returns the places that were taken, and sockets.
pub(crate) fn listen_tcp(
    config: &Config,
    port: u16,
    address_at: fn(SocketAddr) -> ListenAddress,
    taken: &[ListenAddress],
) -> Result<(Vec<ListenAddress>, Vec<Listener>), ListenError> {
    let (mut kept, mut listeners) = (Vec::new(), Vec::new());
    let mut port = port;
    for Bound { ip, is_optional } in bound(config)? {
        let address = address_at(SocketAddr::new(ip, port));
        if taken.contains(&address) {
            kept.push(address);
            continue;
        }
        match listen_on(config, SocketAddr::new(ip, port)) {
            Ok((socket, address)) => {
                port = address.port();
                let socket = Socket::Tcp(socket);
                listeners.push(Listener { address: address_at(address), number: 0, socket });
            }
            Err(_) if is_optional => {}
            Err(source) => {
                let address = SocketAddr::new(ip, port).to_string();
                return Err(ListenError::Tcp { address, source });
            }
        }
    }
    Ok((kept, listeners))
}

fn listen_on(
    config: &Config,
    address: SocketAddr,
) -> io::Result<(mio::net::TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    // Listening again only changes the backlog.
    listen(&listener, config.settings().listen.backlog)?;
    let address = listener.local_addr()?;
    Ok((mio::net::TcpListener::from_std(listener), address))
}

/// Listens at a path that only its owner may use, unless `unixsocketperm` says otherwise: the
/// mode is set before anybody can connect.
pub(crate) fn listen_unix(config: &Config, path: &Path) -> Result<Listener, ListenError> {
    const OWNER_ONLY: u32 = 0o600;
    let fail = |source: io::Error| ListenError::Unix { path: path.to_owned(), source };
    let mode = config.settings().listen.unix_socket_mode.unwrap_or(OWNER_ONLY);
    // Another server that looks at sockets in this folder waits until ours is bound.
    let _lock = lock_folder(folder_of(path)).map_err(fail)?;
    remove_dead_socket(path).map_err(fail)?;
    let prepare = || -> rustix::io::Result<_> {
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        chmod(path, Mode::from_raw_mode(mode))?;
        listen(&listener, config.settings().listen.backlog)?;
        Ok(listener)
    };
    let listener = prepare().map_err(|error| fail(error.into()))?;
    let listener = std::os::unix::net::UnixListener::from(listener);
    listener.set_nonblocking(true).map_err(fail)?;
    let socket = Socket::Unix(UnixListener::from_std(listener), identity_of(path));
    Ok(Listener { address: ListenAddress::Unix(path.to_owned()), number: 0, socket })
}

/// Locks a folder for a moment. Whoever holds it longer than a start takes is no server of ours,
/// and is not waited for.
fn lock_folder(folder: &Path) -> io::Result<std::fs::File> {
    const TRIES_MAX: usize = 100;
    const BETWEEN_TRIES: Duration = Duration::from_millis(10);
    let file = std::fs::File::open(folder)?;
    for _ in 0..TRIES_MAX {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(BETWEEN_TRIES),
            // A file system without locks has none to wait for.
            _ => break,
        }
    }
    Ok(file)
}

/// Removes a socket that a killed server left. Fails when a server listens there, or when it is
/// no socket at all: then it is somebody's file.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        let text = "a file that is no socket has this name: remove it, or choose another name";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    // Without waiting: a server that is stopped, with a full queue, is there all the same.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&probe, &SocketAddrUnix::new(path)?) {
        Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path),
        Err(rustix::io::Errno::NOENT) => Ok(()),
        _ => {
            let text = "another server listens there: stop it, or choose another name";
            Err(io::Error::new(io::ErrorKind::AddrInUse, text))
        }
    }
}

/// Which file a path stands for.
fn identity_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
