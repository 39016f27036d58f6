//! Opening connections: a stream, then the client library on it, then the first words.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo, RedisError, Value,
};
use socket2::{SockRef, TcpKeepalive};
use tenure_core::timing::whole_millis;
use tenure_core::{StoreError, StoreErrorKind};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::error;
use super::guard::{Backlog, Breach, Guarded};
use super::sentinel::{SentinelAddress, Sentinels};
use super::text::cleaned;
use super::tls::Tls;
use super::url::{Endpoint, Login, RedisUrl};
use tenure_backend::ConnectError;

/// How long opening a connection may take, first answer included.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// A silent peer is asked for a sign of life after this long, so that a dead one is noticed.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// Whether the stream that is being opened leads somewhere: then an answer is missing.
    static CONNECTED: Arc<AtomicBool>;
}

/// A stream to a store.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for S {}

/// The future of a fresh stream.
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens streams to one store. Implement it for tunnels, proxies or streams inside a process.
pub trait Connector: Send + Sync + 'static {
    /// Opens a new stream. Called again for every reconnect, so it should resolve names each time.
    fn connect(&self) -> Dialing;

    /// Where the streams lead, for display. Must not contain a secret.
    fn describe(&self) -> String {
        "own connector".into()
    }

    /// Where the latest stream leads, for error messages. Override this if that is not always the
    /// same place.
    fn place(&self) -> String {
        self.describe()
    }

    /// Changes whenever streams should be opened again because the store has moved. `None` if a
    /// broken stream is the only sign of that.
    fn moved(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

impl<F, Opening> Connector for F
where
    F: Fn() -> Opening + Send + Sync + 'static,
    Opening: Future<Output = io::Result<Box<dyn Stream>>> + Send + 'static,
{
    fn connect(&self) -> Dialing {
        Box::pin(self())
    }
}

/// How to reach the store.
#[derive(Clone)]
pub(super) enum Route {
    Streams { connector: Arc<dyn Connector>, login: Login },
    Client(redis::Client),
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl Route {
    /// The route to an address. Reads the files it names.
    pub(super) fn to(url: &RedisUrl) -> Result<Self, ConnectError> {
        Ok(Route::Streams { connector: Arc::new(Address::new(url)?), login: url.login.clone() })
    }

    /// The route to whichever primary sentinels name. Must be called inside a runtime.
    pub(super) fn by_sentinels(address: SentinelAddress) -> Result<Self, ConnectError> {
        let sentinels = Sentinels::start(address)?;
        let login = sentinels.login();
        Ok(Route::Streams { connector: Arc::new(sentinels), login })
    }

    /// Changes when connections should be made again, where somebody tells.
    pub(super) fn moved(&self) -> Option<watch::Receiver<u64>> {
        match self {
            Route::Streams { connector, .. } => connector.moved(),
            Route::Client(_) => None,
        }
    }

    /// Where it leads, without secrets.
    pub(super) fn describe(&self) -> String {
        match self {
            Route::Streams { connector, .. } => connector.describe(),
            Route::Client(client) => client.get_connection_info().addr().to_string(),
        }
    }

    /// Where the latest connection leads, without secrets.
    fn place(&self) -> String {
        match self {
            Route::Streams { connector, .. } => connector.place(),
            Route::Client(_) => self.describe(),
        }
    }

    /// A connection for requests, checked by a first exchange.
    pub(super) async fn open(&self) -> Result<Line, StoreError> {
        let opening = async {
            let mut line = self.open_unchecked().await?;
            line.greet().await.map_err(|error| self.at_first_words(error))?;
            Ok(line)
        };
        self.in_time(opening).await
    }

    /// Gives up what takes too long, and tells where it was that something failed.
    pub(super) async fn in_time<T>(
        &self,
        opening: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let opened = self.within(DIAL_TIMEOUT, opening).await;
        opened.map_err(|error| error::at(&self.place(), error))
    }

    /// Gives up what takes longer than `limit`.
    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        opening: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let connected = Arc::new(AtomicBool::new(false));
        let opening = CONNECTED.scope(Arc::clone(&connected), opening);
        // The task that keeps a connection must outlive a connector of the application.
        let opening = AssertUnwindSafe(opening).catch_unwind();
        match tokio::time::timeout(limit, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) => Err(StoreError::unreachable("what opens the connection panicked")),
            Err(_) => Err(self.too_slow(limit, connected.load(Ordering::Relaxed))),
        }
    }

    /// A server that takes the connection and ends it at the first words wants other words.
    fn at_first_words(&self, error: StoreError) -> StoreError {
        match error.kind() {
            // Sentinels that still name it will name another.
            StoreErrorKind::WrongNode if self.moved().is_some() => {
                let what = format!("{}: it is a replica that the sentinels name", self.describe());
                StoreError::not_now(what)
                    .with_next_step("wait: they name the new primary when the failover is over")
            }
            StoreErrorKind::Unreachable if !self.is_encrypted() => {
                StoreError::unreachable(format!("{} at the first request", error.message()))
                    .with_next_step("if this port speaks TLS, write rediss://")
            }
            _ => error,
        }
    }

    fn is_encrypted(&self) -> bool {
        self.describe().starts_with("rediss")
    }

    fn too_slow(&self, limit: Duration, connected: bool) -> StoreError {
        let limit = whole_millis(limit);
        let silence = match connected {
            true => format!("connected, but no answer within {limit:?}"),
            false => format!("no connection within {limit:?}"),
        };
        if self.moved().is_some() {
            return StoreError::unreachable(silence).with_next_step(
                "wait until the sentinels promote a replica, or check the network from here",
            );
        }
        let why = match self.is_encrypted() {
            _ if connected => "the server is busy or stopped: wait, or look at it there",
            // A plain Redis takes the handshake for a request that has not ended yet.
            true => "the host is silent, a firewall drops what is sent, or the port has no TLS",
            false => "the host is silent, or a firewall drops what is sent to it",
        };
        StoreError::unreachable(silence).with_next_step(why)
    }

    /// A connection on which nothing was asked yet.
    pub(super) async fn open_unchecked(&self) -> Result<Line, StoreError> {
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_connection_timeout(Some(DIAL_TIMEOUT));
        let opened = match self {
            Route::Streams { connector, login } => {
                let breach = Breach::default();
                let stream = dialled(connector.as_ref()).await?;
                let stream = Guarded::new(stream, Arc::clone(&breach));
                let info = connection_info(login);
                let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
                let (connection, driver) = made.map_err(|error| known_or(&breach, &error))?;
                Ok(Line::new(connection, self.place(), breach, Some(Driver::start(driver))))
            }
            Route::Client(client) => {
                let made = client.get_multiplexed_async_connection_with_config(&config).await;
                let place = self.describe();
                made.map(|connection| Line::new(connection, place, Breach::default(), None))
            }
        };
        opened.map_err(|error| error::from_connection(&error))
    }

    /// A connection on which messages come beside the answers, into `pushes`.
    pub(super) async fn open_for_pushes(
        &self,
        backlog: Arc<Backlog>,
        pushes: mpsc::UnboundedSender<PushInfo>,
    ) -> Result<Line, StoreError> {
        let Route::Streams { connector, login } = self else {
            return Err(StoreError::unexpected("only addresses lead to a cluster"));
        };
        let opening = async {
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let config = config.set_push_sender(pushes);
            let stream = Guarded::with_backlog(dialled(connector.as_ref()).await?, backlog);
            let info = connection_info(login).set_protocol(ProtocolVersion::RESP3);
            let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
            let (connection, driver) = made.map_err(|error| error::from_connection(&error))?;
            let driver = Some(Driver::start(driver));
            Ok(Line::new(connection, self.describe(), Breach::default(), driver))
        };
        self.in_time(opening).await
    }

    /// A connection for messages.
    pub(super) async fn listen(&self, backlog: Arc<Backlog>) -> Result<PubSub, StoreError> {
        let opening = async {
            let opened = match self {
                Route::Streams { connector, login } => {
                    let stream = dialled(connector.as_ref()).await?;
                    let stream = Guarded::with_backlog(stream, backlog);
                    PubSub::new(&connection_info(login), stream).await
                }
                Route::Client(client) => client.get_async_pubsub().await,
            };
            opened.map_err(|error| error::from_connection(&error))
        };
        self.in_time(opening).await
    }
}

/// An open connection for requests. Dropping it closes it, whatever is still on its way.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) connection: MultiplexedConnection,
    /// The server's run id when the connection began; empty where it may not be asked.
    pub(super) seen_run: String,
    /// What people should know about this server.
    pub(super) warning: Option<String>,
    place: String,
    breach: Breach,
    driver: Option<Driver>,
}

impl Line {
    fn new(
        connection: MultiplexedConnection,
        place: String,
        breach: Breach,
        driver: Option<Driver>,
    ) -> Self {
        let (seen_run, warning) = (String::new(), None);
        Line { connection, seen_run, warning, place, breach, driver }
    }

    /// Waits until the connection has ended, whether or not anything was asked on it.
    pub(super) async fn ended(&mut self) -> StoreError {
        match &mut self.driver {
            Some(driver) => {
                // Nothing is ever sent: it is dropped when the task ends.
                let _ = (&mut driver.ended).await;
            }
            None => std::future::pending().await,
        }
        self.failure(&closed())
    }

    /// What an exchange on this line failed of.
    pub(super) fn failure(&self, error: &RedisError) -> StoreError {
        let failure = known_or(&self.breach, error);
        let is_unknown = failure.next_step().is_none();
        let failure = match failure.kind() {
            StoreErrorKind::Unreachable if is_unknown => failure.with_next_step(self.remedy()),
            _ => failure,
        };
        error::at(&self.place, failure)
    }

    /// What to do about a connection that has ended; another one is opened in any case.
    fn remedy(&self) -> &'static str {
        match SentinelAddress::is_meant(&self.place) {
            true => "wait until the sentinels promote a replica, or start the primary again",
            false => "start the store again if it is down; its log says why it ended this",
        }
    }

    /// Asks who the server is: proves that it answers, lets us in and is no replica.
    async fn greet(&mut self) -> Result<(), StoreError> {
        let mut pipeline = redis::Pipeline::new();
        for section in ["server", "replication", "memory"] {
            pipeline.cmd("INFO").arg(section);
        }
        let replies = self.connection.send_packed_commands(&pipeline, 0, pipeline.len()).await;
        // Whoever opens the line adds the place.
        for reply in replies.map_err(|error| known_or(&self.breach, &error))? {
            let text = match reply {
                Value::BulkString(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Value::VerbatimString { text, .. } => text,
                Value::ServerError(error) => match error.code() {
                    // May not ask: scripts will tell what they may not do.
                    "NOPERM" => continue,
                    _ => return Err(error::from_reply(&error)),
                },
                _ => return Err(StoreError::unexpected("no text in answer to INFO")),
            };
            if field(&text, "redis_mode").is_some_and(|mode| mode == "sentinel") {
                // Whoever opens the line adds the place.
                return Err(StoreError::wrong_address("it is a sentinel, which keeps no data")
                    .with_next_step("write redis+sentinel://host:port/master-name"));
            }
            if field(&text, "role").is_some_and(|role| role == "slave") {
                let of = field(&text, "master_host").zip(field(&text, "master_port"));
                let of = of.map(|(host, port)| format!(" of {}:{port}", cleaned(host)));
                let what = format!("it is a replica{}", of.unwrap_or_default());
                return Err(StoreError::wrong_node(what).with_next_step(error::REPLICA_REMEDY));
            }
            self.warning = self.warning.take().or_else(|| eviction(&text));
            let run = field(&text, "tenure_incarnation").or_else(|| field(&text, "run_id"));
            self.seen_run = run.map_or(std::mem::take(&mut self.seen_run), str::to_owned);
        }
        Ok(())
    }
}

/// A server that makes room by forgetting may forget who leads.
fn eviction(info: &str) -> Option<String> {
    let is_bounded = field(info, "maxmemory").is_some_and(|bytes| bytes != "0");
    let policy = field(info, "maxmemory_policy").filter(|policy| *policy != "noeviction");
    policy.filter(|_| is_bounded).map(|policy| {
        let policy = cleaned(policy);
        format!(
            "the store evicts keys when memory is full ({policy}): set maxmemory-policy noeviction"
        )
    })
}

fn closed() -> RedisError {
    RedisError::from(io::Error::new(io::ErrorKind::ConnectionReset, "closed by the other side"))
}

/// The task that moves bytes; ended with its connection.
#[derive(Debug)]
struct Driver {
    task: AbortHandle,
    ended: oneshot::Receiver<()>,
}

impl Driver {
    fn start(driver: impl Future<Output = ()> + Send + 'static) -> Self {
        let (running, ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let _running: oneshot::Sender<()> = running;
            driver.await;
        });
        Driver { task: task.abort_handle(), ended }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

async fn dialled(connector: &dyn Connector) -> Result<Box<dyn Stream>, StoreError> {
    let stream = connector.connect().await.map_err(|error| error::from_dial(&error))?;
    // Nobody asks where no time is kept.
    let _ = CONNECTED.try_with(|connected| connected.store(true, Ordering::Relaxed));
    Ok(stream)
}

/// Why a connection broke, rather than that it did.
fn known_or(breach: &Breach, error: &RedisError) -> StoreError {
    breach.get().cloned().unwrap_or_else(|| error::from_connection(error))
}

fn connection_info(login: &Login) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(ProtocolVersion::RESP2)
        .set_db(i64::from(login.database))
        .set_skip_set_lib_name();
    if let Some(user) = &login.user {
        info = info.set_username(user);
    }
    if let Some(password) = &login.password {
        info = info.set_password(password.reveal());
    }
    info
}

/// The connector behind an address.
struct Address {
    shown: String,
    socket: Socket,
}

#[derive(Clone)]
enum Socket {
    Tcp { host: String, port: u16 },
    Tls { host: String, port: u16, tls: Tls },
    Unix { path: PathBuf },
}

impl Address {
    fn new(url: &RedisUrl) -> Result<Self, ConnectError> {
        let socket = match url.place.clone() {
            Endpoint::Tcp { host, port, tls: None } => Socket::Tcp { host, port },
            Endpoint::Tcp { host, port, tls: Some(tls) } => {
                let tls = Tls::new(&host, &tls)?;
                Socket::Tls { host, port, tls }
            }
            Endpoint::Unix { path } => Socket::Unix { path },
        };
        Ok(Address { shown: url.to_string(), socket })
    }
}

impl Connector for Address {
    fn connect(&self) -> Dialing {
        let socket = self.socket.clone();
        Box::pin(async move { socket.open().await })
    }

    fn describe(&self) -> String {
        self.shown.clone()
    }
}

impl Socket {
    async fn open(self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Socket::Tcp { host, port } => Box::new(tcp(&host, port).await?),
            Socket::Tls { host, port, tls } => {
                Box::new(tls.encrypt(tcp(&host, port).await?).await?)
            }
            Socket::Unix { path } => Box::new(UnixStream::connect(path).await?),
        })
    }
}

/// A fresh stream to an address.
pub(super) async fn open_stream(url: &RedisUrl) -> io::Result<Box<dyn Stream>> {
    let address = Address::new(url).map_err(io::Error::other)?;
    address.socket.open().await
}

async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = store_client::connect_tcp(host, port).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}
