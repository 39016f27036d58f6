//! Opening a connection to the server that takes writes.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_backend::ConnectError;
use tenure_core::{StoreError, StoreErrorKind};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use crate::address::{PostgresHost, PostgresUrl, Verify};
use crate::error;
use crate::session::{Notifications, Session};
use crate::text::cleaned;
use crate::tls::Tls;

/// How long opening a connection to one host may take, unless the address says otherwise.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// The oldest server whose functions are all there, as it counts its versions.
const VERSION_MIN: i32 = 130_000;

/// A stream of bytes in both directions.
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// The way to the servers of one address.
#[derive(Clone)]
pub(crate) struct Route {
    url: PostgresUrl,
    tls: Tls,
}

/// An open stream, and what is known about its other end.
struct Opened {
    stream: Stream,
    peer: Peer,
}

/// How to tell whether a pooler is between the server and us.
enum Peer {
    /// The port from which this stream comes: the server sees another one behind a pooler.
    Port(u16),
    /// Whether a program called `postgres` listens on the unix socket.
    Program { is_postgres: bool },
}

impl Route {
    /// Reads the files that the address names. Fails when one is missing or unusable.
    pub(crate) fn to(url: PostgresUrl) -> Result<Self, ConnectError> {
        let tls = Tls::new(&url.tls)?;
        Ok(Route { url, tls })
    }

    pub(crate) fn url(&self) -> &PostgresUrl {
        &self.url
    }

    /// Opens a connection to the first of the hosts that takes writes.
    pub(crate) async fn open(&self, notifications: Notifications) -> Result<Session, StoreError> {
        let timeout = self.url.connect_timeout.unwrap_or(DIAL_TIMEOUT);
        let mut worst: Option<StoreError> = None;
        for host in &self.url.hosts {
            let opening = self.open_at(host, notifications.clone());
            let error = match tokio::time::timeout(timeout, opening).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(error)) => error,
                Err(_) => StoreError::unreachable(format!("no connection within {timeout:?}"))
                    .with_next_step("the host is silent, or a firewall drops what is sent to it"),
            };
            let error = error.at(&host.to_string());
            if worst.as_ref().is_none_or(|worst| weight(&error) > weight(worst)) {
                worst = Some(error);
            }
        }
        Err(worst.unwrap_or_else(|| StoreError::unreachable("the address names no host")))
    }

    async fn open_at(
        &self,
        host: &PostgresHost,
        notifications: Notifications,
    ) -> Result<Session, StoreError> {
        let opened = open_stream(host).await.map_err(|error| error::from_io(&error))?;
        let (name, ssl_mode) = match (host, self.url.tls.verify) {
            (PostgresHost::Unix { .. }, _) => ("", SslMode::Disable),
            (PostgresHost::Tcp { host, .. }, Verify::Plain) => (host.as_str(), SslMode::Disable),
            (PostgresHost::Tcp { host, .. }, Verify::Prefer) => (host.as_str(), SslMode::Prefer),
            (PostgresHost::Tcp { host, .. }, _) => (host.as_str(), SslMode::Require),
        };
        let mut config = Config::new();
        config.user(&self.url.user).dbname(&self.url.database).ssl_mode(ssl_mode);
        config.application_name(&self.url.application_name);
        if let Some(password) = &self.url.password {
            config.password(password.reveal());
        }
        let connected = config.connect_raw(opened.stream, self.tls.to(name)).await;
        let (client, connection) =
            connected.map_err(|error| error::from_connection(&error, &self.url))?;
        let mut session = Session::start(client, connection, notifications);
        let server = session.ask_server().await.map_err(|error| error.explained(&self.url))?;
        session.is_direct = match opened.peer {
            Peer::Port(port) => server.client_port == Some(i32::from(port)),
            Peer::Program { is_postgres } => is_postgres,
        };
        self.check(&server)?;
        Ok(session)
    }

    /// Refuses a server on which elections cannot be kept.
    fn check(&self, server: &ServerFacts) -> Result<(), StoreError> {
        if server.version < VERSION_MIN {
            let what = format!("it is PostgreSQL {}", server.version / 10_000);
            return Err(StoreError::wrong_address(what).with_next_step("13 or newer is needed"));
        }
        if server.encoding != "UTF8" {
            let (encoding, database) = (cleaned(&server.encoding), cleaned(&self.url.database));
            let what = format!("the database {database} has the encoding {encoding}");
            let step = "name a database with UTF8: CREATE DATABASE tenure ENCODING 'UTF8' TEMPLATE template0";
            return Err(StoreError::wrong_address(what).with_next_step(step));
        }
        if server.is_standby {
            return Err(standby(server.upstream.as_deref()));
        }
        if server.is_read_only {
            let user = crate::text::quoted_name(&self.url.user);
            let step = format!("run ALTER ROLE {user} SET default_transaction_read_only = off");
            let what = "transactions of this login are read-only";
            return Err(StoreError::denied(what).with_next_step(step));
        }
        Ok(())
    }
}

/// What a server says about itself.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    pub(crate) version: i32,
    pub(crate) encoding: String,
    pub(crate) is_standby: bool,
    pub(crate) is_read_only: bool,
    pub(crate) client_port: Option<i32>,
    /// From where a standby gets its data, if this login may know.
    pub(crate) upstream: Option<String>,
}

/// The error for a server that takes no writes, with the one that does if that is known.
pub(crate) fn standby(upstream: Option<&str>) -> StoreError {
    let step = match upstream {
        Some(place) => format!(
            "name the primary in the store's address (this one follows {}), or wait until this one \
             is promoted",
            cleaned(place)
        ),
        None => "name the primary in the store's address, or all of its servers: \
                 postgres://USER@HOST1,HOST2/DATABASE"
            .to_owned(),
    };
    StoreError::wrong_node("it is a read-only standby").with_next_step(step)
}

/// Which of several errors tells most.
fn weight(error: &StoreError) -> u8 {
    match error.kind() {
        StoreErrorKind::Denied | StoreErrorKind::WrongAddress => 3,
        StoreErrorKind::WrongNode => 1,
        _ => 2,
    }
}

async fn open_stream(host: &PostgresHost) -> io::Result<Opened> {
    match host {
        PostgresHost::Tcp { host, port } => {
            let stream = open_tcp(host, *port).await?;
            stream.set_nodelay(true)?;
            let peer = Peer::Port(stream.local_addr()?.port());
            Ok(Opened { stream: Stream::Tcp(stream), peer })
        }
        PostgresHost::Unix { folder, port } => {
            let stream = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?;
            let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
            let peer = Peer::Program { is_postgres: pid.is_some_and(is_postgres) };
            Ok(Opened { stream: Stream::Unix(stream), peer })
        }
    }
}

/// Whether this process is a server, as far as the system tells.
fn is_postgres(pid: i32) -> bool {
    let name = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"));
    name.is_ok_and(|name| ["postgres", "postmaster"].contains(&name.trim()))
}

async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = None;
    for address in looked_up(host, port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::other("the name of the host has no address")))
}

/// The addresses of a host. In a thread of its own: where none can be started the runtime's own
/// would panic, and this is an error.
async fn looked_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, found) = oneshot::channel();
    let name = host.to_owned();
    std::thread::Builder::new().name("tenure-lookup".into()).spawn(move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Whoever asked may be gone.
        let _ = sender.send(found);
    })?;
    found.await.unwrap_or_else(|_| Err(io::Error::other("the lookup of the host failed")))
}
