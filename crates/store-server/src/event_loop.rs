//! The loop: one thread that serves all clients.

use std::io;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use mio::{Events, Interest, Poll, Token, Waker};
use store_engine::{
    Engine, NextTick, Origin, Outcome, SaveFailure, SaveJob, ServerRequest, ServerState, SessionId,
    session_flag,
};
use store_persist::aof::AppendError;
use store_resp::{Limits, Parsed, ProtocolError, Request};

use crate::busy::Attending;
use crate::client::{Client, Fate, ReadOutcome};
use crate::clock::{Clock, thread_cpu};
use crate::listen::Listener;
use crate::persistence::snapshot::{Generations, Saver};
use crate::persistence::{FileEvent, Loader, Persistence, Step};
use crate::server::{Log, LogLevel, StartError};
use crate::stream::Stream;

/// Token of the waker.
pub(crate) const WAKER: Token = Token(usize::MAX);
/// Clients have their slot as token, listeners these.
pub(crate) const LISTENER_BASE: usize = usize::MAX / 2;
/// Events taken from the system at once.
pub(crate) const EVENTS_MAX: usize = 1024;
/// Clients accepted per listener and turn, so that those connected are served meanwhile.
pub(crate) const ACCEPTS_MAX: usize = 256;
/// Read at once per client and turn; larger requests take several turns, so that no client
/// keeps the others waiting.
const READ_LEN: usize = 64 * 1024;
/// Requests of one client parsed ahead, so that their memory is fetched while others run.
const BATCH_MAX: usize = 16;
/// A turn that has lasted this long leaves the other clients to the next one, so that replies
/// are written and timers kept.
const TURN_US_MAX: u64 = 2000;
/// Quick requests run between two looks at the clock: a few microseconds.
const QUICK_MAX: usize = 64;
/// Processor time is asked for once per so much time in turns, since asking costs a system
/// call; the longest turn may be told this much too long.
const TURN_GROUP_US: u64 = 500;
/// What clients may have in flight before they have authenticated.
const UNAUTHENTICATED_INPUT_MAX: usize = 1024 * 1024;
const UNAUTHENTICATED_OUTPUT_MAX: usize = 1024 * 1024;
/// How long a client may take to authenticate.
const AUTHENTICATION_MS_MAX: u64 = 60_000;
/// Between looks for clients that idle or stall.
const CLIENT_CHECK_MS: u64 = 1000;

/// What the handle tells the loop.
pub(crate) enum Message {
    /// Stop.
    Stop,
    /// Serve this end of a socket pair.
    Attach(UnixStream),
    /// Something became of a file.
    File(FileEvent),
}

/// Told once: data is loaded and clients are served, or why not.
pub(crate) type Ready = Sender<Result<(), StartError>>;

/// What the loop shares with its handle and helpers.
pub(crate) struct Ties {
    pub(crate) waker: Arc<Waker>,
    pub(crate) generations: Generations,
    pub(crate) is_forced: Arc<AtomicBool>,
}

/// A parsed request that waits for its turn in the batch.
struct Pending {
    start: usize,
    end: usize,
    spans: Range<usize>,
}

/// Why no more requests were gathered.
enum Gathered {
    /// The batch is full, or what follows must wait.
    Full,
    /// What follows from `start` on is no whole request.
    Incomplete { start: usize },
    /// What follows is no request at all.
    Malformed(ProtocolError),
}

/// Everything the server thread owns.
pub(crate) struct EventLoop {
    pub(crate) poll: Poll,
    pub(crate) engine: Engine,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) messages: Receiver<Message>,
    pub(crate) log: Log,
    pub(crate) persistence: Persistence,
    /// Why the server ends, when nobody asked it to.
    failure: Option<String>,
    /// By slot. Boxed, since they are taken out while their requests run.
    clients: Vec<Option<Box<Client>>>,
    clock: Clock,
    /// The clock when it was last read.
    now_us: u64,
    turn_started_us: u64,
    /// Scratch for reads, shared by all clients.
    buffer: Vec<u8>,
    /// Scratch for the requests of one client that are run at once.
    batch: Vec<Pending>,
    /// Clients with output to write at the end of the turn.
    to_write: Vec<usize>,
    /// Clients whose streams may have more, and whose turn is over.
    to_read: Vec<usize>,
    to_close: Vec<usize>,
    /// Listeners that may have more clients.
    to_accept: Vec<usize>,
    next_client_check_ms: u64,
    /// Processor time of the thread when it was last asked for, and time in turns since.
    cpu_before: Duration,
    unmeasured_us: u64,
    saver: Saver,
    ties: Ties,
    is_stopping: bool,
    /// Whether SHUTDOWN has seen to what is to be saved.
    is_settled: bool,
}

impl EventLoop {
    pub(crate) fn new(
        poll: Poll,
        engine: Engine,
        listeners: Vec<Listener>,
        messages: Receiver<Message>,
        log: Log,
        persistence: Persistence,
        ties: Ties,
    ) -> io::Result<Self> {
        let saver = Saver::new(ties.generations.clone());
        let mut event_loop = Self {
            poll,
            engine,
            listeners,
            messages,
            log,
            persistence,
            failure: None,
            clients: Vec::new(),
            clock: Clock::new(),
            now_us: 0,
            turn_started_us: 0,
            buffer: vec![0; READ_LEN],
            batch: Vec::new(),
            to_write: Vec::new(),
            to_read: Vec::new(),
            to_close: Vec::new(),
            to_accept: Vec::new(),
            next_client_check_ms: 0,
            cpu_before: Duration::ZERO,
            unmeasured_us: 0,
            saver,
            ties,
            is_stopping: false,
            is_settled: false,
        };
        for (index, listener) in event_loop.listeners.iter_mut().enumerate() {
            let token = Token(LISTENER_BASE + index);
            let registry = event_loop.poll.registry();
            match listener {
                Listener::Tcp(socket) => registry.register(socket, token, Interest::READABLE)?,
                Listener::Unix(socket, _) => {
                    registry.register(socket, token, Interest::READABLE)?
                }
            }
        }
        Ok(event_loop)
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
        let _ = ready.send(Ok(()));
        while !self.is_stopping || !self.may_end() {
            self.serve(&mut events, self.sleep_max())?;
        }
        self.finish()
    }

    fn serve(&mut self, events: &mut Events, sleep_max: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(events, sleep_max) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        self.clock.follow_wall_clock();
        self.now_us = self.clock.now_us();
        self.turn_started_us = self.now_us;
        self.turn(events);
        self.measure_turn(self.now_us - self.turn_started_us);
        Ok(())
    }

    /// Loads data in slices, and answers clients between them. The inner result says why the
    /// data cannot be served.
    fn load(
        &mut self,
        loader: Option<Loader>,
        events: &mut Events,
    ) -> io::Result<Result<(), String>> {
        let Some(mut loader) = loader else { return Ok(Ok(())) };
        let loaded = loop {
            if self.is_stopping {
                return Ok(Err("stopped while data was loaded".to_owned()));
            }
            let clock = &self.clock;
            let step = loader.step(&mut self.engine, &|| clock.now_us());
            for (level, line) in std::mem::take(&mut loader.notes) {
                (self.log)(level, &line);
            }
            match step {
                Ok(Step::Done(loaded)) => break loaded,
                Ok(Step::More) => self.serve(events, Some(Duration::ZERO))?,
                Err(reason) => return Ok(Err(reason)),
            }
        };
        let now_ms = self.clock.now_us() / 1000;
        let opened = self.persistence.open(now_ms, &mut self.engine, loaded);
        self.write_notes();
        Ok(opened)
    }

    /// Nothing follows: what is to be kept is made durable.
    fn finish(&mut self) -> io::Result<()> {
        let closed = match self.failure.take() {
            Some(reason) => Err(reason),
            None => self.persistence.close(&mut self.engine).map_err(|error| error.to_string()),
        };
        self.write_notes();
        closed.map_err(|reason| {
            (self.log)(LogLevel::Warning, &reason);
            io::Error::other(reason)
        })
    }

    fn write_notes(&mut self) {
        for (level, line) in self.persistence.take_notes() {
            (self.log)(level, &line);
        }
    }

    /// Saves what is to be saved. False when that fails and the server goes on for it.
    fn may_end(&mut self) -> bool {
        if self.is_settled || self.failure.is_some() {
            return true;
        }
        let Err(reason) = self.engine.save_before_end(self.clock.now_us(), false) else {
            return true;
        };
        let is_forced = self.ties.is_forced.load(Ordering::SeqCst);
        let fate = if is_forced { "its data is lost" } else { "it cannot end" };
        let line = format!("The server cannot save, so {fate}: {reason}");
        (self.log)(LogLevel::Warning, &line);
        self.is_stopping = is_forced;
        is_forced
    }

    fn measure_turn(&mut self, wall_us: u64) {
        self.unmeasured_us += wall_us;
        if self.unmeasured_us < TURN_GROUP_US {
            return;
        }
        let cpu = thread_cpu();
        let turn_us = (cpu - self.cpu_before).as_micros() as u64;
        (self.cpu_before, self.unmeasured_us) = (cpu, 0);
        let measured = self.engine.measured_mut();
        measured.longest_turn_us = measured.longest_turn_us.max(turn_us);
    }

    /// How long nothing can be due.
    fn sleep_max(&self) -> Option<Duration> {
        let is_walking = self.persistence.is_busy() || self.saver.is_busy();
        if !self.to_read.is_empty() || !self.to_accept.is_empty() || is_walking {
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
        let wake_at = [engine_at, check_at, files_at].into_iter().flatten().min()?;
        Some(Duration::from_millis(wake_at.saturating_sub(now_ms)))
    }

    /// Whether any rule about idle or stalled clients is in force.
    fn checks_clients(&self) -> bool {
        let config = self.engine.config();
        let has_clients = self.engine.state().sessions.count() > 0;
        has_clients && (config.tuned().idle_seconds_max > 0 || self.engine.needs_login())
    }

    fn turn(&mut self, events: &Events) {
        for slot in std::mem::take(&mut self.to_read) {
            if let Some(client) = self.clients[slot].as_mut() {
                client.waits_to_read = false;
            }
            self.read_in_turn(slot);
        }
        for listener in std::mem::take(&mut self.to_accept) {
            self.accept(listener);
        }
        for event in events {
            match event.token() {
                WAKER => self.take_messages(),
                Token(index) if index >= LISTENER_BASE => self.accept(index - LISTENER_BASE),
                Token(slot) => {
                    if event.is_writable() {
                        self.resume_writing(slot);
                    }
                    let is_ended = event.is_read_closed() || event.is_error();
                    if event.is_readable() || is_ended {
                        self.read_in_turn(slot);
                    }
                    if is_ended {
                        // Last bytes and end come as one event: the end is read in the next turn.
                        self.read_later(slot);
                    }
                }
            }
        }
        self.measure_requests(None);
        self.engine.sample_rates(self.now_us);
        if self.is_tick_due(self.now_us) {
            self.engine.tick(self.now_us);
        }
        self.check_clients(self.now_us / 1000);
        loop {
            self.apply_effects();
            self.engine.end_turn();
            if self.engine.effects().is_fetched() {
                break;
            }
        }
        // A snapshot that began in this turn has got its file by now.
        self.walk();
        self.make_durable();
        self.write_clients();
        self.close_clients();
        self.now_us = self.clock.now_us();
    }

    /// What replies promise is kept before they leave; when it cannot be, they do not leave.
    #[inline]
    fn make_durable(&mut self) {
        let kept = self.persistence.before_replies(self.now_us / 1000, &mut self.engine);
        if let Err(error) = kept {
            self.end_for(&error);
        }
        if self.persistence.has_notes() {
            self.write_notes();
        }
    }

    #[cold]
    fn end_for(&mut self, error: &AppendError) {
        self.failure = Some(format!(
            "Can't recover from AOF write error when the AOF fsync policy is 'always': {error}. \
             Exiting: free the disk and start again"
        ));
        self.is_stopping = true;
        self.to_write.clear();
    }

    /// Goes on with the snapshot, if one is being saved.
    fn walk(&mut self) {
        let clock = &self.clock;
        let Some(result) = self.saver.turn(&mut self.engine, || clock.now_us()) else { return };
        match &result {
            Ok(bytes) => {
                (self.log)(LogLevel::Notice, &format!("DB saved on disk, bytes={bytes}"));
                (self.log)(LogLevel::Notice, "Background saving terminated with success");
            }
            Err(SaveFailure::Cancelled) => {
                (self.log)(LogLevel::Notice, "Background saving cancelled");
            }
            Err(SaveFailure::Failed(reason)) => {
                (self.log)(LogLevel::Warning, &format!("Background saving error: {reason}"));
            }
        }
        self.engine.finish_save(self.now_us, result.map(drop));
    }

    fn is_tick_due(&self, now_us: u64) -> bool {
        match self.engine.next_tick() {
            NextTick::Soon => true,
            NextTick::At(at) => at <= now_us / 1000,
            NextTick::Never => false,
        }
    }

    fn take_messages(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Stop => self.is_stopping = true,
                Message::File(event) => self.persistence.handle_event(self.now_us / 1000, event),
                Message::Attach(stream) => {
                    let origin = Origin { is_local: true, is_unix: true, ..Origin::default() };
                    let stream = mio::net::UnixStream::from_std(stream);
                    self.open(Stream::Unix(stream), origin);
                }
            }
        }
    }

    fn accept(&mut self, index: usize) {
        let keepalive = self.engine.config().number("tcp-keepalive") as u64;
        for _ in 0..ACCEPTS_MAX {
            match self.listeners[index].accept(Duration::from_secs(keepalive)) {
                Ok((stream, origin)) => self.open(stream, origin),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        // Most likely out of descriptors: the others are served meanwhile, and
                        // the next client that comes makes us look again.
                        (self.log)(LogLevel::Warning, &format!("Accepting client: {error}"));
                        return;
                    }
                },
            }
        }
        self.to_accept.push(index);
    }

    fn open(&mut self, mut stream: Stream, origin: Origin) {
        if let Some(refusal) = refusal(self.engine.state(), &origin) {
            self.engine.measured_mut().rejected_connections += 1;
            // A client that is refused may not read; it is not worth waiting for.
            let _ = io::Write::write(&mut stream, refusal.as_bytes());
            return;
        }
        let session = self.engine.open_session(self.now_us, origin);
        let slot = session.slot();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(slot), interest) {
            (self.log)(LogLevel::Warning, &format!("Registering client: {error}"));
            self.engine.close_session(session);
            return;
        }
        if self.clients.len() <= slot {
            self.clients.resize_with(slot + 1, || None);
        }
        self.clients[slot] = Some(Box::new(Client::new(stream, session)));
    }

    /// Reads from a client, unless the turn has lasted long enough.
    fn read_in_turn(&mut self, slot: usize) {
        if self.now_us - self.turn_started_us > TURN_US_MAX {
            self.read_later(slot);
        } else {
            self.read_client(slot);
        }
    }

    fn read_later(&mut self, slot: usize) {
        if let Some(client) = self.clients.get_mut(slot).and_then(Option::as_mut)
            && !client.waits_to_read
        {
            client.waits_to_read = true;
            self.to_read.push(slot);
        }
    }

    fn read_client(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(slot).and_then(Option::as_mut) else { return };
        if client.fate == Fate::Closes {
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        match client.read(&mut buffer) {
            ReadOutcome::Bytes(count) => {
                let may_read = client.may_read;
                let measured = self.engine.measured_mut();
                measured.input_bytes += count as u64;
                measured.reads += 1;
                self.take_input(slot, &buffer[..count]);
                if may_read {
                    self.read_later(slot);
                }
            }
            ReadOutcome::Nothing => {}
            ReadOutcome::Ended => self.doom(slot, Fate::Closes),
        }
        self.buffer = buffer;
    }

    /// Runs the requests in `bytes`, or in what the client sent before and `bytes`.
    fn take_input(&mut self, slot: usize, bytes: &[u8]) {
        let Some(mut client) = self.clients[slot].take() else { return };
        if client.input.is_empty() {
            let consumed = self.run_requests(&mut client, bytes);
            client.input.extend_from_slice(&bytes[consumed..]);
        } else {
            let wanted = client.parser.bytes_wanted();
            client.input.reserve(bytes.len().max(wanted.saturating_sub(client.input.len())));
            client.input.extend_from_slice(bytes);
            self.run_waiting(&mut client);
        }
        if !client.input.is_empty() {
            self.check_input(&mut client);
        }
        self.clients[slot] = Some(client);
    }

    /// Runs the requests in what the client sent before.
    fn run_waiting(&mut self, client: &mut Client) {
        let input = std::mem::take(&mut client.input);
        let consumed = self.run_requests(client, &input);
        client.input = input;
        client.drop_consumed(consumed);
    }

    /// Runs requests until one is incomplete or the session cannot go on. Returns how many
    /// bytes are done with.
    fn run_requests(&mut self, client: &mut Client, bytes: &[u8]) -> usize {
        let Some(session) = self.engine.session_mut(client.session) else { return bytes.len() };
        if session.has(session_flag::BLOCKED) {
            return 0;
        }
        let mut consumed = 0;
        while client.fate == Fate::Lives {
            let end = self.gather(client, bytes, consumed);
            let ran = self.run_batch(client, bytes, &mut consumed);
            if self.is_past_hard_limit(client) {
                (self.log)(LogLevel::Warning, "Closing client that asks for more than it reads");
                client.fate = Fate::Closes;
                self.to_close.push(client.session.slot());
                return bytes.len();
            }
            match (ran, end) {
                (Outcome::Blocked | Outcome::Postponed, _) => {
                    client.parser.reset();
                    break;
                }
                // What else it sent does not matter any more.
                (Outcome::Closing, _) => {
                    consumed = bytes.len();
                    break;
                }
                (Outcome::Ready | Outcome::Rest, Gathered::Full) => client.parser.clear(),
                (Outcome::Ready | Outcome::Rest, Gathered::Incomplete { start }) => {
                    client.parser.clear();
                    consumed = start;
                    break;
                }
                (Outcome::Ready | Outcome::Rest, Gathered::Malformed(error)) => {
                    self.refuse(client, error);
                    consumed = bytes.len();
                }
            }
        }
        self.want_write(client);
        consumed
    }

    /// Whether replies that wait for the client are beyond its hard limit: asked after each
    /// batch, since one read can ask for any amount of them.
    fn is_past_hard_limit(&mut self, client: &Client) -> bool {
        let limits = self.engine.config().tuned().output_limits;
        let Some(session) = self.engine.session_mut(client.session) else { return false };
        let unread = session.output.len() - client.written;
        let hard = match session.has(session_flag::SUBSCRIBED) {
            _ if session.has(session_flag::NEEDS_AUTH) => UNAUTHENTICATED_OUTPUT_MAX,
            true => limits[2].hard,
            false => limits[0].hard,
        };
        hard > 0 && unread > hard
    }

    /// Parses the next requests of a client, as many as are run at once.
    fn gather(&mut self, client: &mut Client, bytes: &[u8], start: usize) -> Gathered {
        self.batch.clear();
        let authenticated = self.is_authenticated(client.session);
        let bulk_max = self.engine.config().tuned().bulk_max;
        let limits = Limits { authenticated, bulk_max };
        let mut at = start;
        while self.batch.len() < BATCH_MAX {
            let rest = &bytes[at..];
            // The parser keeps one inline request, so such a one runs alone.
            let is_inline = !rest.is_empty() && rest[0] != b'*';
            if is_inline && !self.batch.is_empty() {
                break;
            }
            match client.parser.parse(rest, &limits) {
                Ok(Parsed::Incomplete) => return Gathered::Incomplete { start: at },
                Ok(Parsed::Empty { consumed }) => at += consumed,
                Ok(Parsed::Request { consumed }) => {
                    let spans = client.parser.last_spans();
                    self.batch.push(Pending { start: at, end: at + consumed, spans });
                    at += consumed;
                    // Logging in changes what the next request may be.
                    if is_inline || !authenticated {
                        break;
                    }
                }
                Err(error) => return Gathered::Malformed(error),
            }
        }
        Gathered::Full
    }

    /// Runs the gathered requests, as far as the session goes along.
    fn run_batch(&mut self, client: &mut Client, bytes: &[u8], consumed: &mut usize) -> Outcome {
        let id = client.session;
        let batch = std::mem::take(&mut self.batch);
        let parser = &client.parser;
        let request =
            |pending: &Pending| parser.request_at(&bytes[pending.start..], pending.spans.clone());
        if batch.len() > 1 {
            self.engine.prefetch(id, batch.iter().map(request));
        }
        let mut outcome = Outcome::Ready;
        for pending in &batch {
            let request = request(pending);
            outcome = match may_run_script(request) {
                true => self.execute_attended(id, request),
                false => self.engine.execute(self.now_us, id, request),
            };
            if outcome == Outcome::Postponed {
                // Its bytes stay, and are read again when the session is resumed.
                *consumed = pending.start;
                break;
            }
            if outcome == Outcome::Rest {
                std::thread::sleep(Duration::from_micros(self.engine.effects().rest_us));
                outcome = Outcome::Ready;
            }
            *consumed = pending.end;
            if !self.engine.was_quick(request) || self.engine.unmeasured() == QUICK_MAX {
                self.measure_requests(Some((id, request)));
            }
            if outcome != Outcome::Ready {
                break;
            }
        }
        self.batch = batch;
        outcome
    }

    /// Runs a request that may take long, serving other clients meanwhile.
    fn execute_attended(&mut self, id: SessionId, request: Request<'_>) -> Outcome {
        let mut attending = Attending {
            poll: &mut self.poll,
            clients: &mut self.clients,
            listeners: &self.listeners,
            messages: &self.messages,
            clock: &self.clock,
            to_read: &mut self.to_read,
            to_write: &mut self.to_write,
            to_close: &mut self.to_close,
            to_accept: &mut self.to_accept,
            persistence: &mut self.persistence,
            may_write: true,
            is_stopping: &mut self.is_stopping,
            scratch: None,
        };
        self.engine.execute_attended(self.now_us, id, request, &mut attending)
    }

    /// Reads the clock, and charges the time since it was last read to what ran meanwhile.
    fn measure_requests(&mut self, last: Option<(SessionId, Request<'_>)>) {
        let before = std::mem::replace(&mut self.now_us, self.clock.now_us());
        self.engine.finish(last, self.now_us - before);
    }

    fn is_authenticated(&mut self, id: SessionId) -> bool {
        let session = self.engine.session_mut(id);
        session.is_some_and(|session| !session.has(session_flag::NEEDS_AUTH))
    }

    fn refuse(&mut self, client: &mut Client, error: ProtocolError) {
        if let Some(session) = self.engine.session_mut(client.session) {
            session.output.extend(format!("-ERR Protocol error: {error}\r\n").into_bytes());
        }
        client.fate = Fate::ClosesAfterOutput;
    }

    fn want_write(&mut self, client: &mut Client) {
        if !client.wants_write {
            client.wants_write = true;
            self.to_write.push(client.session.slot());
        }
    }

    /// Closes a client that sends more than it may without asking for anything.
    fn check_input(&mut self, client: &mut Client) {
        let input_max = match self.is_authenticated(client.session) {
            true => self.engine.config().query_buffer_max(),
            false => UNAUTHENTICATED_INPUT_MAX,
        };
        if client.input.len() > input_max {
            let text = "Closing client that reached max query buffer length";
            (self.log)(LogLevel::Warning, text);
            client.fate = Fate::Closes;
            self.to_close.push(client.session.slot());
        }
    }

    fn resume_writing(&mut self, slot: usize) {
        let Some(mut client) = self.clients.get_mut(slot).and_then(Option::take) else { return };
        self.want_write(&mut client);
        self.clients[slot] = Some(client);
    }

    /// Does what the engine asks for, until it asks for nothing more.
    fn apply_effects(&mut self) {
        while !self.engine.effects().is_fetched() {
            let effects = self.engine.effects();
            let written = std::mem::take(&mut effects.written_sessions);
            let resumed = std::mem::take(&mut effects.resumed_sessions);
            let requests = std::mem::take(&mut effects.requests);
            if !effects.units.is_empty() {
                self.persistence.take_units(self.now_us / 1000, &effects.units);
                effects.units.clear();
            }
            for id in written {
                if self.client_of(id).is_some() {
                    self.resume_writing(id.slot());
                }
            }
            for request in requests {
                self.apply(request);
            }
            for id in resumed {
                if self.client_of(id).is_some()
                    && let Some(mut client) = self.clients[id.slot()].take()
                {
                    self.run_waiting(&mut client);
                    self.clients[id.slot()] = Some(client);
                }
            }
        }
    }

    fn client_of(&self, id: SessionId) -> Option<&Client> {
        let client = self.clients.get(id.slot())?.as_ref()?;
        (client.session == id).then_some(client)
    }

    fn apply(&mut self, request: ServerRequest) {
        match request {
            ServerRequest::Close(id) if self.client_of(id).is_some() => {
                self.doom(id.slot(), Fate::Closes);
            }
            ServerRequest::CloseAfterOutput(id) if self.client_of(id).is_some() => {
                self.doom(id.slot(), Fate::ClosesAfterOutput);
            }
            ServerRequest::Close(_) | ServerRequest::CloseAfterOutput(_) => {}
            ServerRequest::Shutdown => (self.is_stopping, self.is_settled) = (true, true),
            ServerRequest::SaveStarted(job) => self.begin_save(*job),
            ServerRequest::SaveCancelled => _ = self.ties.generations.advance(),
            ServerRequest::Log(text) => (self.log)(LogLevel::Notice, &text),
            // Other settings of ours are asked for when they are needed.
            ServerRequest::SettingsChanged | ServerRequest::RewriteAof => {
                self.persistence.apply(&request, self.now_us / 1000, &mut self.engine);
            }
        }
    }

    fn begin_save(&mut self, job: SaveJob) {
        let line = format!("Background saving started, file={}", job.path.display());
        (self.log)(LogLevel::Notice, &line);
        let waker = self.ties.waker.clone();
        // A loop that cannot be woken looks once its clients have something to say.
        self.saver.begin(job, &mut self.engine, move || _ = waker.wake());
    }

    fn doom(&mut self, slot: usize, fate: Fate) {
        if let Some(mut client) = self.clients.get_mut(slot).and_then(Option::take) {
            client.fate = fate;
            match fate {
                Fate::Closes => self.to_close.push(slot),
                _ => self.want_write(&mut client),
            }
            self.clients[slot] = Some(client);
        }
    }

    fn write_clients(&mut self) {
        let (mut written, mut writes) = (0, 0);
        let mut to_write = std::mem::take(&mut self.to_write);
        for slot in to_write.drain(..) {
            let Some(client) = self.clients[slot].as_mut() else { continue };
            client.wants_write = false;
            let Some(session) = self.engine.session_mut(client.session) else { continue };
            match client.write(&mut session.output) {
                Ok(count) => {
                    written += count as u64;
                    writes += 1;
                }
                Err(_) => client.fate = Fate::Closes,
            }
            session.output_written = client.written;
            let left = session.output.len() - client.written;
            if left > 0 {
                self.check_output(slot, left);
            } else if client.fate == Fate::ClosesAfterOutput {
                client.fate = Fate::Closes;
            }
            if self.clients[slot].as_ref().is_some_and(|client| client.fate == Fate::Closes) {
                self.to_close.push(slot);
            }
        }
        // Nothing above asks for more writes, so the list comes back with its memory.
        self.to_write = to_write;
        let measured = self.engine.measured_mut();
        measured.output_bytes += written;
        measured.writes += writes;
    }

    /// Closes a client that does not read what it asked for.
    fn check_output(&mut self, slot: usize, left: usize) {
        let now_ms = self.now_us / 1000;
        let limits = self.engine.config().tuned().output_limits;
        let Some(client) = self.clients[slot].as_mut() else { return };
        let Some(session) = self.engine.session_mut(client.session) else { return };
        let limit = limits[if session.has(session_flag::SUBSCRIBED) { 2 } else { 0 }];
        let over_soft = limit.soft > 0 && left > limit.soft;
        let since = match client.over_soft_since_ms {
            _ if !over_soft => None,
            Some(since) => Some(since),
            None => Some(now_ms),
        };
        client.over_soft_since_ms = since;
        let soft_ms = limit.soft_seconds * 1000;
        let is_over = limit.hard > 0 && left > limit.hard
            || since.is_some_and(|since| now_ms - since >= soft_ms)
            || session.has(session_flag::NEEDS_AUTH) && left > UNAUTHENTICATED_OUTPUT_MAX;
        if is_over {
            client.fate = Fate::Closes;
            let text = "Closing client that does not read its replies";
            (self.log)(LogLevel::Warning, text);
        }
    }

    /// Closes clients that idle for too long, or do not authenticate.
    fn check_clients(&mut self, now_ms: u64) {
        if now_ms < self.next_client_check_ms || !self.checks_clients() {
            return;
        }
        self.next_client_check_ms = now_ms + CLIENT_CHECK_MS;
        let idle_ms_max = self.engine.config().tuned().idle_seconds_max * 1000;
        for slot in 0..self.clients.len() {
            let Some(client) = &self.clients[slot] else { continue };
            let Some(session) = self.engine.session_mut(client.session) else { continue };
            let waits = session.has(session_flag::BLOCKED | session_flag::SUBSCRIBED)
                || session.has(session_flag::MONITOR);
            let idle_ms = now_ms.saturating_sub(session.asked_at_ms);
            let age_ms = now_ms.saturating_sub(session.opened_at_ms);
            let idles = idle_ms_max > 0 && idle_ms > idle_ms_max && !waits;
            let stalls = session.has(session_flag::NEEDS_AUTH) && age_ms > AUTHENTICATION_MS_MAX;
            if idles || stalls {
                self.doom(slot, Fate::Closes);
            }
        }
    }

    fn close_clients(&mut self) {
        for slot in std::mem::take(&mut self.to_close) {
            if let Some(mut client) = self.clients[slot].take() {
                // It is closed next; deregistering cannot matter.
                let _ = self.poll.registry().deregister(&mut client.stream);
                self.engine.close_session(client.session);
            }
        }
    }
}

/// Whether a request may run a script: EVAL, EXEC, FCALL, FUNCTION and others of these letters.
/// The rest is spared the preparations.
#[inline]
fn may_run_script(request: Request<'_>) -> bool {
    matches!(request.arg(0).first(), Some(b'e' | b'E' | b'f' | b'F'))
}

/// What a client is told that may not come in.
pub(crate) fn refusal(state: &ServerState, origin: &Origin) -> Option<&'static str> {
    if state.sessions.count() >= state.config.tuned().clients_max {
        return Some("-ERR max number of clients reached\r\n");
    }
    let is_open = state.config.is_on("protected-mode") && !state.needs_login();
    (is_open && !origin.is_local).then_some(
        "-DENIED Redis is running in protected mode because no password is set for the \
         default user and it was reached from another machine. Set requirepass, bind to \
         loopback only, or turn protected-mode off.\r\n",
    )
}
