//! The loop: one thread that serves all clients.
//!
//! ```text
//!         ┌──────────────────────────── a turn ───────────────────────────┐
//! poll ─► │ accept ─► read ─► run (parse, Engine::execute) ─► timers ─►    │ ─► poll
//!         │ effects (what the engine asks for) ─► files ─► write ─► close  │
//!         └───────────────────────────────────────────────────────────────┘
//! ```
//! One file per stage. A turn is bounded: clients whose turn did not come are read first in the
//! next one. A few clients are read from before the first of them is served, so that the memory
//! their requests need is fetched meanwhile; large replies leave before the turn ends.

mod accept;
mod close;
mod cluster;
mod effects;
mod ending;
mod evict;
mod files;
mod link;
mod migrate;
mod payload;
mod peers;
mod read;
mod replicas;
mod replicate;
mod run;
mod save;
mod sentinel;
mod shrink;
mod wait;
mod write;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

use mio::{Events, Poll, Token, Waker};
use store_engine::{Engine, LogLevel, NextTick};

pub(crate) use files::Ready;

use crate::acceptor::{Acceptor, LISTENER_BASE};
use crate::allocator::Allocator;
use crate::clients::Clients;
use crate::clock::{Clock, Running, thread_cpu};
use crate::cluster::{ClusterDriver, ClusterStart, Written as NodesWritten};
use crate::freeing::FreeingThread;
use crate::listen::Listener;
use crate::migration::{MigrationDriver, ValueDone};
use crate::peers::{BUS_BASE, PEER_BASE, Peers, Resolved};
use crate::persistence::snapshot::{Generations, Saver};
use crate::persistence::{FileEvent, Loader, Mailbox, Persistence};
use crate::replication::{IncomingEvent, ReplicationDriver, tell_facts};
use crate::sentinel::{SentinelDriver, SentinelStart, Written};
use crate::server::{Log, StartError, StopSignal};
use crate::sockets::Sockets;
use read::Arrival;
use run::Pending;
use shrink::Shrinking;
use wait::{Gap, SpinBackoff};

/// Token of the waker.
pub(crate) const WAKER: Token = Token(usize::MAX);
/// Events taken from the system at once.
pub(crate) const EVENTS_MAX: usize = 1024;
/// Processor time is asked for once per so much time in turns, since asking costs a system
/// call; the longest turn may be told this much too long.
const TURN_GROUP_US: u64 = 500;
/// What clients may have in flight before they have authenticated.
const UNAUTHENTICATED_INPUT_MAX: usize = 1024 * 1024;
const UNAUTHENTICATED_OUTPUT_MAX: usize = 1024 * 1024;

/// What the handle tells the loop.
pub(crate) enum Message {
    /// Stop, for this signal if it was one.
    Stop(Option<StopSignal>),
    /// Serve this end of a socket pair.
    Attach(UnixStream),
    /// Say that the loop turns.
    AreYouAlive(SyncSender<()>),
    /// Something became of a file.
    File(FileEvent),
    /// The name of a peer was looked up.
    Resolved(Resolved),
    /// Something became of the payload that a primary sends.
    Payload(IncomingEvent),
    /// The file of a sentinel was written, or cannot be.
    SentinelFile(Written),
    /// A large value was encoded or decoded.
    Value(ValueDone),
    /// nodes.conf was written, or cannot be.
    NodesFile(NodesWritten),
}

/// What the loop shares with its handle and its helpers.
pub(crate) struct Shared {
    pub(crate) sockets: Sockets,
    pub(crate) waker: Arc<Waker>,
    /// By which threads tell the loop what they found.
    pub(crate) mailbox: Mailbox,
    pub(crate) generations: Generations,
    pub(crate) is_forced: Arc<AtomicBool>,
    pub(crate) allocator: Arc<dyn Allocator>,
}

/// Everything the server thread owns.
pub(crate) struct EventLoop {
    pub(crate) poll: Poll,
    pub(crate) engine: Engine,
    pub(crate) messages: Receiver<Message>,
    sink: Log,
    /// `loglevel`: what matters less is not logged.
    log_level: LogLevel,
    clients: Clients,
    acceptor: Acceptor,
    clock: Clock,
    /// The clock when it was last read.
    now_us: u64,
    turn_started_us: u64,
    /// What was read and is to be run next, in order.
    arrivals: Vec<Arrival>,
    /// Scratch for reads, shared by all clients.
    read_buffers: Vec<Vec<u8>>,
    /// Scratch for large replies, lent to one client after the other.
    spare_output: Vec<u8>,
    /// Scratch for the requests of one client that are run at once.
    batch: Vec<Pending>,
    next_client_check_ms: u64,
    freeing: FreeingThread,
    shrinking: Shrinking,
    /// Whether some client has more unread output than it may have for long.
    watches_output: bool,
    /// Processor time of the thread when it was last asked for, and time in turns since.
    cpu_before: Duration,
    unmeasured_us: u64,
    spin_backoff: SpinBackoff,
    saver: Saver,
    persistence: Persistence,
    replication: ReplicationDriver,
    /// Keys that move to other servers.
    migrations: MigrationDriver,
    /// Only where this is a sentinel.
    sentinel: Option<SentinelDriver>,
    /// Only where this is a node of a cluster.
    cluster: Option<ClusterDriver>,
    /// What became of nodes.conf.
    nodes_written: Vec<NodesWritten>,
    /// Why the server ends, when nobody asked it to.
    failure: Option<String>,
    /// Connections to other servers.
    peers: Peers,
    /// A clock that nobody sets, for their time-outs.
    running: Running,
    shared: Shared,
    is_stopping: bool,
    /// Whether it goes on only until a rewrite has ended, and has said so.
    waits_for_rewrite: bool,
    /// The signal it stops for, if it was one.
    stop_signal: Option<StopSignal>,
    /// Whether SHUTDOWN has seen to what is to be saved.
    is_settled: bool,
}

impl EventLoop {
    pub(crate) fn new(
        poll: Poll,
        mut engine: Engine,
        listeners: Vec<Listener>,
        messages: Receiver<Message>,
        log: Log,
        persistence: Persistence,
        shared: Shared,
    ) -> io::Result<Self> {
        let replication = ReplicationDriver::new(&engine, shared.sockets.ports())?;
        tell_facts(&replication, &mut engine);
        let log_level = engine.config().settings().logs.level;
        let mut event_loop = Self {
            poll,
            engine,
            messages,
            sink: log,
            log_level,
            clients: Clients::default(),
            acceptor: Acceptor::new(shared.sockets.tls.clone()),
            clock: Clock::new(),
            now_us: 0,
            turn_started_us: 0,
            arrivals: Vec::new(),
            read_buffers: Vec::new(),
            spare_output: Vec::new(),
            batch: Vec::new(),
            next_client_check_ms: 0,
            freeing: FreeingThread::new(Arc::clone(&shared.allocator)),
            shrinking: Shrinking::at_start(),
            watches_output: false,
            cpu_before: Duration::ZERO,
            unmeasured_us: 0,
            spin_backoff: SpinBackoff::default(),
            saver: Saver::new(persistence.disk.clone(), shared.generations.clone()),
            persistence,
            replication,
            migrations: MigrationDriver::new(shared.mailbox.clone(), Arc::clone(&shared.allocator)),
            sentinel: None,
            cluster: None,
            nodes_written: Vec::new(),
            failure: None,
            peers: Peers::new(shared.mailbox.clone()),
            running: Running::begin(),
            shared,
            is_stopping: false,
            waits_for_rewrite: false,
            stop_signal: None,
            is_settled: false,
        };
        for listener in listeners {
            event_loop.acceptor.listen(event_loop.poll.registry(), listener)?;
        }
        Ok(event_loop)
    }

    /// It is a sentinel. Fails when another one has its file, or there is no randomness.
    pub(crate) fn watch_as(&mut self, start: SentinelStart) -> io::Result<()> {
        let sockets = &self.shared.sockets;
        let ports = sockets.ports();
        // Others reach it as it reaches them.
        let port = match self.engine.config().settings().tls.encrypts_replication {
            true => ports.tls.or(ports.tcp),
            false => ports.tcp.or(ports.tls),
        };
        let mailbox = self.shared.mailbox.clone();
        let sentinel = SentinelDriver::new(start, port.unwrap_or(0), mailbox)?;
        let line = format!("Sentinel ID is {}", sentinel.machine.id());
        self.log(LogLevel::Warning, &line);
        self.sentinel = Some(sentinel);
        Ok(())
    }

    /// It is a node of a cluster, as the engine knows.
    /// As the machine has been told the time by `running`, it goes on with that.
    pub(crate) fn drive_cluster(&mut self, start: ClusterStart, running: Running) {
        self.running = running;
        if let Some(state) = self.engine.cluster() {
            let found = match start.is_new {
                true => "No cluster configuration found",
                false => "Node configuration loaded",
            };
            let line = format!("{found}, I'm {}", state.machine.me().id);
            self.log(LogLevel::Notice, &line);
        }
        let driver = ClusterDriver::new(start, self.shared.mailbox.clone());
        self.cluster = Some(driver);
    }

    /// Loads data, then serves until told to stop. Fails when the system's event queue does, or
    /// when what was promised cannot be kept.
    pub(crate) fn run(&mut self, loader: Option<Loader>, ready: &Ready) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.cpu_before = thread_cpu();
        if let Err(reason) = self.load(loader, &mut events)? {
            // Whoever waits for the start is told; nobody else is there to be.
            let _ = ready.send(Err(StartError::Data(reason)));
            return Ok(());
        }
        if let Err(reason) = self.start_cluster() {
            let _ = ready.send(Err(StartError::Data(reason)));
            return Ok(());
        }
        self.follow_configured();
        let _ = ready.send(Ok(()));
        while !self.is_stopping || !self.may_end() {
            self.serve(&mut events)?;
        }
        self.finish()
    }

    fn serve(&mut self, events: &mut Events) -> io::Result<()> {
        let gap = match self.wait(events) {
            Ok(gap) => gap,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        self.begin_turn(gap);
        self.turn(events);
        Ok(())
    }

    /// Reads the clock for a turn, and where no time lies between it and the turn before, for the
    /// end of that one, too: to read it takes as long as a hundred instructions.
    fn begin_turn(&mut self, gap: Gap) {
        let (now_us, step_us) = self.clock.follow_wall_clock();
        if gap == Gap::None {
            self.end_turn_at(now_us.saturating_add_signed(step_us.saturating_neg()));
        }
        self.now_us = now_us;
        if step_us != 0 {
            self.clock_stepped(step_us);
        }
        self.turn_started_us = self.now_us;
    }

    /// The turn is over, and another one does not begin at once.
    fn end_turn(&mut self) {
        self.now_us = self.clock.now_us();
        self.end_turn_at(self.now_us);
    }

    fn end_turn_at(&mut self, now_us: u64) {
        self.measure_turn(now_us.saturating_sub(self.turn_started_us));
    }

    /// The wall clock was set. Keys end by it; whoever waits is to wait as long as before.
    #[cold]
    fn clock_stepped(&mut self, step_us: i64) {
        let step_ms = step_us / 1000;
        self.engine.clock_stepped(step_us);
        self.persistence.clock_stepped(step_ms);
        self.acceptor.clock_stepped(step_ms);
        // These come too early at the worst.
        self.next_client_check_ms = 0;
        self.shrinking.clock_stepped();
        for client in self.clients.iter_mut() {
            let since = client.over_soft_since_ms.as_mut();
            since.into_iter().for_each(|at| *at = at.saturating_add_signed(step_ms));
        }
    }

    fn measure_turn(&mut self, wall_us: u64) {
        self.unmeasured_us += wall_us;
        if self.unmeasured_us < TURN_GROUP_US {
            return;
        }
        let cpu = thread_cpu();
        // Between turns the system does work for others on our account, and within them it lets
        // others run: the turns took no more than either clock says.
        let cpu_us = (cpu - self.cpu_before).as_micros() as u64;
        let turn_us = cpu_us.min(self.unmeasured_us);
        (self.cpu_before, self.unmeasured_us) = (cpu, 0);
        let measured = self.engine.measured_mut();
        measured.longest_turn_us = measured.longest_turn_us.max(turn_us);
    }

    /// How long nothing can be due.
    fn sleep_max(&self) -> Option<Duration> {
        let is_walking =
            self.persistence.is_busy() || self.saver.is_busy() || self.replication.is_busy();
        if !self.clients.to_read.is_empty() || self.acceptor.has_more() || is_walking {
            return Some(Duration::ZERO);
        }
        let now_ms = self.now_us / 1000;
        let engine_at = match self.engine.next_tick() {
            NextTick::Soon => Some(now_ms),
            NextTick::At(at) => Some(at),
            NextTick::Never => None,
        };
        let check_at = self.checks_clients().then_some(self.next_client_check_ms);
        let files_at = self.persistence.wakes_at_ms();
        let accept_at = self.acceptor.wakes_at_ms();
        let shrink_at = self.shrinking.next_at_ms();
        let moments = [engine_at, check_at, files_at, accept_at, shrink_at];
        let wake_at = moments.into_iter().flatten().min();
        let by_wall_clock = wake_at.map(|at| at.saturating_sub(now_ms));
        let sentinel = self.sentinel_wait_ms();
        let moves = self.migrations.wakes_at_ms();
        let moves = moves.map(|at| at.saturating_sub(self.running.millis()));
        let cluster = self.cluster_wait_ms();
        let (peers, link) = (self.peers_wait_ms(), self.replication.wakes_in_ms());
        let waits = [by_wall_clock, peers, link, sentinel, cluster, moves];
        let wait_ms = waits.into_iter().flatten().min()?;
        Some(Duration::from_millis(wait_ms))
    }

    fn turn(&mut self, events: &Events) {
        self.tell_cluster_time();
        if let Some((objects, bytes)) = self.freeing.take_freed() {
            self.engine.note_freed(objects, bytes);
        }
        self.note_hang_ups(events);
        for slot in std::mem::take(&mut self.clients.to_read) {
            if let Some(client) = self.clients.get_mut(slot) {
                client.waits_to_read = false;
            }
            self.read_in_turn(slot);
        }
        if self.acceptor.has_more() {
            self.admit(Acceptor::accept_more);
        }
        for event in events {
            match event.token() {
                WAKER => self.take_messages(),
                Token(index) if index >= PEER_BASE => self.take_peer_event(event),
                Token(index) if index >= BUS_BASE => self.take_bus_event(index - BUS_BASE),
                Token(index) if index >= LISTENER_BASE => {
                    self.admit(|acceptor, to| acceptor.accept(index - LISTENER_BASE, to));
                }
                Token(slot) => {
                    if event.is_writable() && self.awaits_room(slot) {
                        self.clients.write_later(slot);
                    }
                    let is_ended = event.is_read_closed() || event.is_error();
                    if event.is_readable() || is_ended {
                        self.read_at_event(slot, is_ended);
                    }
                }
            }
        }
        self.run_arrivals();
        self.measure_requests(None);
        self.engine.sample_rates(self.now_us);
        if self.is_tick_due(self.now_us) {
            self.engine.tick(self.now_us);
            self.engine.finish_tick(self.clock.now_us() - self.now_us);
        }
        self.turn_peers();
        self.check_acceptor();
        self.check_clients(self.now_us / 1000);
        loop {
            self.apply_effects();
            self.engine.end_turn();
            self.finish_cluster_turn();
            if self.replication.is_active() {
                self.turn_replication();
            }
            if self.engine.is_fetched() {
                break;
            }
        }
        // A snapshot that began in this turn has got its file by now.
        self.walk();
        self.walk_payload();
        self.make_durable();
        self.write_out();
        self.evict_clients();
        self.close_clients();
        self.shrink(self.now_us / 1000);
    }

    /// Goes on with listeners and handshakes whose time has come.
    fn check_acceptor(&mut self) {
        let now_ms = self.now_us / 1000;
        if self.acceptor.wakes_at_ms().is_some_and(|at| at <= now_ms) {
            self.admit(Acceptor::accept_again);
            self.acceptor.check_handshakes(now_ms, &mut self.clients);
            self.follow_acceptor();
        }
    }

    fn log(&mut self, level: LogLevel, text: &str) {
        if level >= self.log_level {
            (self.sink)(level, text);
        }
    }

    fn is_tick_due(&self, now_us: u64) -> bool {
        match self.engine.next_tick() {
            NextTick::Soon => true,
            NextTick::At(at) => at <= now_us / 1000,
            NextTick::Never => false,
        }
    }
}
