//! The handle of a running server, and how to start one.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use mio::{Poll, Waker};
use store_engine::{
    ClusterState, Config, ConfigError, Engine, Identity, LogLevel, ShutdownOptions, parse_arguments,
};
use store_persist::disk::Disk;
use store_sentinel::Configuration;

use crate::allocator::{Allocator, SystemAllocator};
use crate::clock::{Clock, Running};
use crate::cluster::{self, ClusterStart};
use crate::event_loop::{EventLoop, Message, Shared, WAKER};
use crate::listen::{ListenError, Listener, listen_unix};
use crate::persistence::snapshot::{Generations, remove_leftovers};
use crate::persistence::{
    DataFolders, FileDisk, History, KnownDisk, Loader, Mailbox, Persistence, dir, persists,
    snapshot_path,
};
use crate::process::Process;
use crate::sentinel::SentinelStart;
use crate::sockets::{OpenError, Ports, Sockets};
use crate::tls::TlsError;

/// Where log lines go.
pub(crate) type Log = Box<dyn FnMut(LogLevel, &str) + Send>;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The ACL file is invalid.
    #[error("{0}")]
    Acl(String),
    /// A socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The server cannot be a node of a cluster.
    #[error("{0}")]
    Cluster(String),
    /// The data cannot be loaded, or its files not written.
    #[error("{0}")]
    Data(String),
    /// A certificate, a key or another TLS setting cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The system refuses an event queue or a thread.
    #[error("cannot set up the event loop: {0}")]
    System(#[from] io::Error),
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Listen(error) => Self::Listen(error),
            OpenError::Tls(error) => Self::Tls(error),
        }
    }
}

/// Which port a server listens on, at the addresses of `bind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortChoice {
    Nowhere,
    /// One that the system chooses.
    Any,
    /// That of the settings, where 0 means none.
    Configured,
}

impl PortChoice {
    fn port(self, configured: u16) -> Option<u16> {
        match self {
            PortChoice::Nowhere => None,
            PortChoice::Any => Some(0),
            PortChoice::Configured => Some(configured).filter(|port| *port > 0),
        }
    }
}

/// Settings of a server before it starts. By default it listens on no address and is reached with
/// [`Server::connect`].
pub struct ServerBuilder {
    config: Config,
    tcp: PortChoice,
    tls: PortChoice,
    unix_socket: Option<PathBuf>,
    seed: Option<u64>,
    config_file: String,
    log: Log,
    on_listening: Box<dyn FnOnce(Option<u16>)>,
    known_scripts: Option<Vec<String>>,
    errors: Option<ConfigError>,
    disk: Arc<dyn Disk>,
    is_vouched_for: bool,
    /// Whether data is looked for in `dir` even if none is to be kept.
    reads_files: bool,
    folders: DataFolders,
    allocator: Arc<dyn Allocator>,
    sentinel: Option<SentinelStart>,
}

impl ServerBuilder {
    /// Uses these settings instead of the defaults. With the defaults of redis.conf, a server saves
    /// snapshots to the current folder from time to time; a builder without settings saves nothing.
    /// If you pass settings, an existing snapshot is loaded even if none is to be made, as in
    /// Redis.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self.reads_files = true;
        self
    }

    /// Changes one setting by its name in redis.conf. If it is wrong, [`start`](Self::start) fails.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        let args = [format!("--{name}"), value.to_owned()];
        self.config.forget_save_lines();
        if let Err(error) = parse_arguments(&mut self.config, &args) {
            self.errors.get_or_insert(error);
        }
        self
    }

    /// Keeps data in this existing folder: writes are appended to a file, made durable once a
    /// second, and loaded at the next start. The setting `appendfsync` changes how often they are
    /// made durable.
    pub fn persist(self, dir: impl AsRef<Path>) -> Self {
        let dir = dir.as_ref().display().to_string();
        self.setting("dir", &dir).setting("appendonly", "yes")
    }

    /// Declares that no election can have a lease that the data does not contain when this server
    /// starts with new data: call it if you know that this is the first start.
    pub fn vouch_for_history(mut self) -> Self {
        self.is_vouched_for = true;
        self
    }

    /// Keeps data on this disk instead of the machine's, to test what a crash leaves.
    pub fn disk(mut self, disk: impl Disk + 'static) -> Self {
        self.disk = Arc::new(disk);
        self.folders = DataFolders::simulated();
        self
    }

    /// Listens on a port that the system chooses; [`Server::port`] returns it.
    pub fn any_port(mut self) -> Self {
        self.tcp = PortChoice::Any;
        self
    }

    /// Listens for TLS on a port that the system chooses; [`Server::tls_port`] returns it. The
    /// settings `tls-cert-file` and `tls-key-file` name the certificate. Needs the feature `tls`.
    pub fn any_tls_port(mut self) -> Self {
        self.tls = PortChoice::Any;
        self
    }

    /// Listens on the addresses in the settings `port`, `tls-port`, `bind` and `unixsocket`.
    pub fn listen_as_configured(mut self) -> Self {
        self.tcp = PortChoice::Configured;
        self.tls = PortChoice::Configured;
        self.unix_socket = self.config.settings().listen.unix_socket.clone();
        self
    }

    /// Listens on a unix socket that only its owner may use.
    pub fn unix_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.unix_socket = Some(path.into());
        self
    }

    /// The seed for hashing and random choices, for runs that can be repeated.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Runs only scripts with these digests (forty hexadecimal digits each), and no functions. For
    /// a store with one purpose: whoever reaches it cannot make it run other code.
    pub fn only_scripts<D: Into<String>>(mut self, digests: impl IntoIterator<Item = D>) -> Self {
        self.known_scripts = Some(digests.into_iter().map(Into::into).collect());
        self
    }

    /// The file that the settings came from, for INFO and CONFIG REWRITE.
    pub fn config_file(mut self, path: &Path) -> Self {
        self.config_file = path.display().to_string();
        self
    }

    /// Watches servers as a sentinel instead of keeping data: `configuration` is what the file at
    /// `path` says. The file is rewritten whenever something changes that must not be forgotten.
    /// `config` has its other lines; nothing is loaded or saved.
    pub fn sentinel(mut self, path: &Path, configuration: Configuration, config: Config) -> Self {
        self.config = config;
        self = self.setting("save", "").setting("appendonly", "no").config_file(path);
        self.sentinel = Some(SentinelStart { path: path.to_owned(), configuration });
        self
    }

    /// The allocator of this program, which is told to return memory. By default it is that of the
    /// C library.
    pub fn allocator(mut self, allocator: impl Allocator + 'static) -> Self {
        self.allocator = Arc::new(allocator);
        self
    }

    /// Calls `log` for each log line, on the server's thread.
    pub fn log(mut self, log: impl FnMut(LogLevel, &str) + Send + 'static) -> Self {
        self.log = Box::new(log);
        self
    }

    /// Calls `tell` with the port, if there is one, once clients can connect and before data is
    /// loaded.
    pub fn on_listening(mut self, tell: impl FnOnce(Option<u16>) + 'static) -> Self {
        self.on_listening = Box::new(tell);
        self
    }

    fn wanted_ports(&self) -> Ports {
        let listen = &self.config.settings().listen;
        Ports { tcp: self.tcp.port(listen.port), tls: self.tls.port(listen.tls_port) }
    }

    fn identity(&mut self, ports: Ports, history: History) -> Identity {
        Identity {
            tcp_port: ports.tcp.or(ports.tls).unwrap_or(0),
            config_file: std::mem::take(&mut self.config_file),
            is_sentinel: self.sentinel.is_some(),
            history_complete: history.is_complete(),
            ..identity_of_process()
        }
    }

    /// The node of a cluster that the server is to be, if it is.
    fn prepare_node(
        &self,
        sockets: &Sockets,
        running: &Running,
    ) -> Result<Option<(ClusterStart, ClusterState)>, StartError> {
        if !self.config.settings().cluster.is_enabled || self.sentinel.is_some() {
            return Ok(None);
        }
        let is_any = self.tcp == PortChoice::Any || self.tls == PortChoice::Any;
        cluster::prepare(&self.config, sockets, is_any, running).map(Some)
    }

    /// Listens, starts the server's thread, and returns once data is loaded. Clients that connect
    /// earlier are told to wait.
    ///
    /// Fails if a setting is wrong, a socket cannot be opened or the data is invalid.
    pub fn start(mut self) -> Result<Server, StartError> {
        if let Some(error) = self.errors {
            return Err(error.into());
        }
        let wanted = self.wanted_ports();
        let folders = self.folders.clone();
        own_folders(&folders, &self.config).map_err(StartError::Data)?;
        let sockets = Sockets::default();
        let mut listeners = sockets.open(&self.config, wanted)?;
        let ports = sockets.ports();
        if let Some(path) = &self.unix_socket {
            listeners.push(listen_unix(&self.config, path)?);
        }
        let running = Running::begin();
        let node = self.prepare_node(&sockets, &running)?;
        let history = history_of(self.is_vouched_for, &listeners);
        let identity = self.identity(ports, history);
        (self.on_listening)(ports.tcp.or(ports.tls));
        let seed = self.seed.map_or_else(random_seed, Ok)?;
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let (messages, received) = channel();
        remove_leftovers_of(&self.config, &*self.disk);
        let generations = Generations::default();
        let disk = Arc::new(KnownDisk::new(self.disk, folders.clone()));
        let process = Process::new(&sockets, disk.clone(), &generations, &folders, &self.allocator);
        process.prepare(&self.config, &mut self.log);
        let mailbox = Mailbox { messages: messages.clone(), waker: Arc::clone(&waker) };
        let files = mailbox.clone();
        let persistence = Persistence::new(disk.clone(), folders, &self.config, files, history);
        let has_files = self.reads_files || persists(&self.config);
        let loader = has_files.then(|| Loader::find(disk, &self.config)).transpose();
        let loader = loader.map_err(StartError::Data)?;
        let mut engine = Engine::new(self.config, identity, seed, Box::new(process));
        if let Some(digests) = &self.known_scripts {
            engine.allow_only_scripts(digests.iter().map(String::as_str));
        }
        engine.load_acl_file().map_err(StartError::Acl)?;
        let node = node.map(|(start, state)| {
            engine.join_cluster(state);
            start
        });
        let is_forced = Arc::new(AtomicBool::new(false));
        let shared = Shared {
            sockets,
            waker: waker.clone(),
            mailbox,
            generations,
            is_forced: is_forced.clone(),
            allocator: self.allocator,
        };
        let mut event_loop =
            EventLoop::new(poll, engine, listeners, received, self.log, persistence, shared)?;
        if let Some(start) = node {
            event_loop.drive_cluster(start, running);
        }
        if let Some(start) = self.sentinel {
            event_loop.watch_as(start)?;
        }
        let (thread, started) = spawn(event_loop, loader)?;
        let stopper = Stopper { messages, waker, is_forced };
        let server = Server { stopper, thread: Some(thread), ports, unix_socket: self.unix_socket };
        match started.recv() {
            Ok(result) => result.map(|()| server),
            // It ended without a word: a panic, or the event queue.
            Err(_) => Err(server.wait().err().unwrap_or_else(|| io::Error::other("gone")).into()),
        }
    }
}

type LoopThread = JoinHandle<io::Result<()>>;

/// Starts the thread. The receiver hears when data is loaded.
fn spawn(
    mut event_loop: EventLoop,
    loader: Option<Loader>,
) -> io::Result<(LoopThread, Receiver<Result<(), StartError>>)> {
    let (ready, started) = channel();
    let thread = std::thread::Builder::new()
        .name("tenure-store".to_owned())
        .spawn(move || event_loop.run(loader, &ready))?;
    Ok((thread, started))
}

/// A running server. Dropping it stops it and waits for its thread.
pub struct Server {
    stopper: Stopper,
    thread: Option<LoopThread>,
    ports: Ports,
    unix_socket: Option<PathBuf>,
}

impl Server {
    /// Settings for a server that listens on no address and saves nothing.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            config: in_memory(),
            tcp: PortChoice::Nowhere,
            tls: PortChoice::Nowhere,
            unix_socket: None,
            seed: None,
            config_file: String::new(),
            log: Box::new(|_, _| {}),
            on_listening: Box::new(|_| {}),
            known_scripts: None,
            errors: None,
            disk: Arc::new(FileDisk),
            is_vouched_for: false,
            reads_files: false,
            folders: DataFolders::default(),
            allocator: Arc::new(SystemAllocator),
            sentinel: None,
        }
    }

    /// The TCP port that it listens on, if any.
    pub fn port(&self) -> Option<u16> {
        self.ports.tcp
    }

    /// The TLS port that it listens on, if any.
    pub fn tls_port(&self) -> Option<u16> {
        self.ports.tls
    }

    /// The unix socket, if it listens on one.
    pub fn unix_socket(&self) -> Option<&Path> {
        self.unix_socket.as_deref()
    }

    /// A private connection to the server: one end of a socket pair.
    ///
    /// Fails if the system has no descriptor left.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        theirs.set_nonblocking(true)?;
        self.stopper.tell(Message::Attach(theirs))?;
        Ok(ours)
    }

    /// A handle that can stop the server from any thread.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// A handle that finds out from any thread whether the server's loop still turns.
    pub fn liveness(&self) -> Liveness {
        Liveness { stopper: self.stopper(), unanswered: None }
    }

    /// Waits until the server is stopped by SHUTDOWN or a [`Stopper`].
    ///
    /// Fails if its event queue failed.
    pub fn wait(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopper.is_forced.store(true, Ordering::SeqCst);
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            // A failed loop has nothing left to stop; a panic has printed itself.
            let _ = thread.join();
        }
    }
}

/// A signal that asks the process, and so the server, to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl StopSignal {
    /// How the server is to end then.
    pub(crate) fn shutdown_options(self, config: &Config) -> ShutdownOptions {
        match self {
            Self::Interrupt => config.settings().process.on_interrupt,
            Self::Terminate => config.settings().process.on_terminate,
        }
    }
}

/// Stops a server. Can be cloned and sent to other threads.
#[derive(Clone)]
pub struct Stopper {
    messages: Sender<Message>,
    waker: Arc<Waker>,
    /// Whether the server ends even if it cannot save.
    is_forced: Arc<AtomicBool>,
}

impl Stopper {
    /// Asks the server to stop. Does nothing if it has stopped already. A server that cannot save
    /// although its settings ask for it logs that and goes on, as with SHUTDOWN.
    pub fn stop(&self) {
        // A closed channel means that the loop is gone.
        let _ = self.tell(Message::Stop(None));
    }

    /// Asks the server to stop because of a signal; the settings `shutdown-on-sigint` and
    /// `shutdown-on-sigterm` say how.
    pub fn stop_on(&self, signal: StopSignal) {
        // A closed channel means that the loop is gone.
        let _ = self.tell(Message::Stop(Some(signal)));
    }

    fn tell(&self, message: Message) -> io::Result<()> {
        self.messages.send(message).map_err(|_| io::Error::other("the server has stopped"))?;
        self.waker.wake()
    }
}

/// Asks a server's loop for a sign of life: for a watchdog.
pub struct Liveness {
    stopper: Stopper,
    /// The question that was not answered yet: a loop that hangs is not asked again.
    unanswered: Option<Receiver<()>>,
}

impl Liveness {
    /// Whether the loop answers within this time. It does while a script is busy (see
    /// `busy-reply-threshold`), and not while one command, or a disk, holds it up. No client is
    /// needed for it, so it does not depend on passwords and limits.
    pub fn answers_within(&mut self, limit: Duration) -> bool {
        let answered = match self.unanswered.take() {
            Some(answered) => answered,
            None => {
                let (answer, answered) = sync_channel(1);
                if self.stopper.tell(Message::AreYouAlive(answer)).is_err() {
                    return false;
                }
                answered
            }
        };
        let outcome = answered.recv_timeout(limit);
        if outcome == Err(RecvTimeoutError::Timeout) {
            self.unanswered = Some(answered);
        }
        outcome.is_ok()
    }
}

/// A program that starts a store does not expect files of it unless it asks for them.
fn in_memory() -> Config {
    let mut config = Config::default();
    let save = Config::find("save").expect("it is in the table");
    config.set(save, &[""]).expect("no save points is a value");
    config
}

/// What is known about leases that the data does not have.
fn history_of(is_vouched_for: bool, listeners: &[Listener]) -> History {
    match (is_vouched_for, listeners.is_empty()) {
        (true, _) => History::Complete,
        // Whoever could have been told of leases that are forgotten lives in this process.
        (false, true) => History::Unheard,
        (false, false) => History::Unknown,
    }
}

/// Makes sure that no other server writes where this one is about to read and write.
fn own_folders(folders: &DataFolders, config: &Config) -> Result<(), String> {
    if persists(config) {
        folders.own(&dir(config))?;
    }
    let append = &config.settings().append.file;
    match append.is_wanted {
        true => folders.own_directory(&append.layout.folder()),
        false => Ok(()),
    }
}

fn remove_leftovers_of(config: &Config, disk: &dyn Disk) {
    if let Some(path) = snapshot_path(config).filter(|_| persists(config)) {
        remove_leftovers(disk, &path);
    }
}

fn identity_of_process() -> Identity {
    let started_at_ms = Clock::new().now_us() / 1000;
    Identity {
        process_id: std::process::id(),
        system: system(),
        executable: executable(),
        started_at_ms,
        incarnation_since_ms: started_at_ms,
        ..Identity::default()
    }
}

fn system() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

fn executable() -> String {
    std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default()
}

fn random_seed() -> io::Result<u64> {
    let mut bytes = [0; 8];
    io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}
