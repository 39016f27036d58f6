//! Clients that come: over a listener, or handed in by the program.
//!
//! The loop accepts them, and so does whoever serves clients while a script runs.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use mio::{Interest, Registry, Token};
use store_engine::{Busy, Engine, LogLevel, Origin, ServerState, Session, SessionId};

use crate::client::{Client, CloseState};
use crate::clients::Clients;
use crate::listen::Listener;
use crate::sockets::ListenerChange;
use crate::stream::Stream;
use crate::tls::TlsSlot;
use crate::unauthenticated::{UnauthenticatedClients, is_new};

/// Clients have their slot as token, listeners these.
pub(crate) const LISTENER_BASE: usize = usize::MAX / 2;
/// Clients accepted per listener and turn, so that those connected are served meanwhile.
const ACCEPTS_MAX: usize = 256;
/// Between attempts to accept clients when there are no descriptors for them.
const AGAIN_MS: u64 = 100;
/// Between two lines of the log about that.
const TOLD_EVERY_MS: u64 = 10_000;
/// How long a client may take to agree on TLS.
const HANDSHAKE_MS_MAX: u64 = 10_000;

/// The engine, or what is open of it while a script runs.
pub(crate) trait SessionTable {
    fn state(&self) -> &ServerState;
    fn open_session(&mut self, now_us: u64, origin: Origin) -> SessionId;
    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session>;
    /// Whether clients that are told to go are gone soon. While a script runs nobody is.
    fn closes_clients(&self) -> bool;
}

impl SessionTable for Engine {
    fn state(&self) -> &ServerState {
        self.state()
    }

    fn open_session(&mut self, now_us: u64, origin: Origin) -> SessionId {
        self.open_session(now_us, origin)
    }

    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.session_mut(id)
    }

    fn closes_clients(&self) -> bool {
        true
    }
}

impl SessionTable for Busy<'_> {
    fn state(&self) -> &ServerState {
        self.state()
    }

    fn open_session(&mut self, now_us: u64, origin: Origin) -> SessionId {
        self.open_session(now_us, origin)
    }

    fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.session_mut(id)
    }

    fn closes_clients(&self) -> bool {
        false
    }
}

/// Where accepted clients go.
pub(crate) struct Admission<'a, T> {
    pub(crate) registry: &'a Registry,
    pub(crate) clients: &'a mut Clients,
    pub(crate) sessions: &'a mut T,
    pub(crate) now_us: u64,
}

/// Listens, and takes in who comes.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<Listener>,
    next_listener: usize,
    tls: TlsSlot,
    /// Clients that have yet to agree on TLS.
    handshakes: Handshakes,
    unauthenticated: UnauthenticatedClients,
    /// Listeners that may have more clients.
    to_accept: Vec<usize>,
    /// Listeners that could not be accepted from, and when to try again.
    stalled: Vec<usize>,
    again_at_ms: Option<u64>,
    /// When the log was last told so.
    told_at_ms: Option<u64>,
    /// For the loop: clients that were refused, and lines for the log.
    rejected: u64,
    notes: Vec<(LogLevel, String)>,
}

impl Acceptor {
    pub(crate) fn new(tls: TlsSlot) -> Self {
        Self {
            listeners: Vec::new(),
            next_listener: 0,
            tls,
            handshakes: Handshakes::default(),
            unauthenticated: UnauthenticatedClients::default(),
            to_accept: Vec::new(),
            stalled: Vec::new(),
            again_at_ms: None,
            told_at_ms: None,
            rejected: 0,
            notes: Vec::new(),
        }
    }

    /// Begins to accept from a listener.
    pub(crate) fn listen(&mut self, registry: &Registry, mut listener: Listener) -> io::Result<()> {
        listener.number = self.next_listener;
        self.next_listener += 1;
        listener.register(registry, Token(LISTENER_BASE + listener.number))?;
        self.listeners.push(listener);
        Ok(())
    }

    /// Listens where changed settings say.
    pub(crate) fn change_listeners(&mut self, registry: &Registry, change: ListenerChange) {
        self.listeners
            .retain(|listener| listener.is_unix() || change.kept.contains(&listener.address));
        for listener in change.new {
            if let Err(error) = self.listen(registry, listener) {
                self.note(LogLevel::Warning, format!("Registering listener: {error}"));
            }
        }
    }

    /// Whether some listener may have more clients right now.
    pub(crate) fn has_more(&self) -> bool {
        !self.to_accept.is_empty()
    }

    /// Looks at all listeners next, whether an event told of clients there or not.
    pub(crate) fn look_everywhere(&mut self) {
        self.to_accept.extend(self.listeners.iter().map(|listener| listener.number));
    }

    /// Accepts from listeners that had more clients than one turn takes.
    pub(crate) fn accept_more<T: SessionTable>(&mut self, to: &mut Admission<'_, T>) {
        for number in std::mem::take(&mut self.to_accept) {
            self.accept(number, to);
        }
    }

    /// Looks again at listeners that could not be accepted from.
    pub(crate) fn accept_again<T: SessionTable>(&mut self, to: &mut Admission<'_, T>) {
        if self.again_at_ms.is_some_and(|at| at <= to.now_us / 1000) {
            self.again_at_ms = None;
            for number in std::mem::take(&mut self.stalled) {
                self.accept(number, to);
            }
        }
    }

    /// Accepts the clients that wait at a listener, unless it was closed meanwhile.
    pub(crate) fn accept<T: SessionTable>(&mut self, number: usize, to: &mut Admission<'_, T>) {
        let keepalive = to.sessions.state().config.settings().clients.keepalive;
        for _ in 0..ACCEPTS_MAX {
            let listener = self.listeners.iter().find(|listener| listener.number == number);
            let Some(listener) = listener else { return };
            match listener.accept(keepalive, &self.tls) {
                Ok((stream, origin)) => self.open(stream, origin, to),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return self.stall(number, &error, to.now_us / 1000),
                },
            }
        }
        self.to_accept.push(number);
    }

    /// Most likely we are out of descriptors. The others are served meanwhile; no event tells
    /// when there are descriptors again, so we look again after a while.
    fn stall(&mut self, number: usize, error: &io::Error, now_ms: u64) {
        let is_told = |at: u64| now_ms < at.saturating_add(TOLD_EVERY_MS);
        if !self.told_at_ms.is_some_and(is_told) {
            self.told_at_ms = Some(now_ms);
            let text = format!("Accepting client: {error}: it is tried again until it works");
            self.note(LogLevel::Warning, text);
        }
        self.stalled.push(number);
        self.again_at_ms = Some(now_ms + AGAIN_MS);
    }

    /// Takes in one end of a socket pair.
    pub(crate) fn attach<T: SessionTable>(
        &mut self,
        stream: UnixStream,
        to: &mut Admission<'_, T>,
    ) {
        let descriptor = i64::from(stream.as_raw_fd());
        let origin = Origin { is_local: true, is_unix: true, descriptor, ..Origin::default() };
        self.open(Stream::Unix(mio::net::UnixStream::from_std(stream)), origin, to);
    }

    fn open<T: SessionTable>(
        &mut self,
        mut stream: Stream,
        origin: Origin,
        to: &mut Admission<'_, T>,
    ) {
        let is_handshaking = stream.is_handshaking();
        let is_newcomer = is_handshaking || !origin.is_unix && to.sessions.state().needs_login();
        let refusal = match refusal(to.sessions.state(), &origin) {
            refusal if is_newcomer => self.make_room(refusal, &origin, to),
            refusal => refusal,
        };
        if let Some(refusal) = refusal.filter(|it| it.is_immediate() || !is_handshaking) {
            self.rejected += 1;
            // A client that is refused may not read; it is not worth waiting for.
            let _ = io::Write::write(&mut stream, refusal.text().as_bytes());
            return;
        }
        let from = is_newcomer.then(|| origin.clone());
        let session = to.sessions.open_session(to.now_us, origin);
        let slot = session.slot();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registered = to.registry.register(&mut stream, Token(slot), interest);
        to.clients.add(Box::new(Client::new(stream, session)));
        if let Err(error) = registered {
            self.note(LogLevel::Warning, format!("Registering client: {error}"));
            return to.clients.close_later(slot, CloseState::Now);
        }
        if let Some(session) = to.sessions.session_mut(session) {
            to.clients.count_memory(session);
        }
        if let Some(origin) = &from {
            self.unauthenticated.add(session, origin);
        }
        if is_handshaking {
            self.handshakes.add(to.now_us / 1000, session);
        }
        if let Some(refusal) = refusal {
            // The reason can be told once both sides agree on TLS.
            if let Some(session) = to.sessions.session_mut(session) {
                session.output.extend_from_slice(refusal.text().as_bytes());
            }
            to.clients.close_later(slot, CloseState::AfterOutput);
        }
    }

    /// A newcomer comes: another one goes for it if there is no room. Returns why it may not come
    /// in all the same.
    fn make_room<T: SessionTable>(
        &mut self,
        refusal: Option<Refusal>,
        origin: &Origin,
        to: &mut Admission<'_, T>,
    ) -> Option<Refusal> {
        let is_new = |id| is_new(to.sessions.state(), to.clients, id);
        let goes = match refusal {
            Some(Refusal::TooManyClients) if !to.sessions.closes_clients() => None,
            Some(Refusal::TooManyClients) => self.unauthenticated.oldest(is_new),
            _ => self.unauthenticated.make_room(origin, is_new),
        };
        let Some(goes) = goes else { return refusal };
        to.clients.close_later(goes.slot(), CloseState::Now);
        refusal.filter(|it| *it != Refusal::TooManyClients)
    }

    /// Closes clients that take too long to agree on TLS.
    pub(crate) fn check_handshakes(&mut self, now_ms: u64, clients: &mut Clients) {
        while let Some(id) = self.handshakes.pop_overdue(now_ms) {
            if clients.of(id).is_some_and(|client| client.stream.is_handshaking()) {
                let text = "Closing client that did not finish its handshake";
                self.note(LogLevel::Verbose, text.to_owned());
                clients.close_later(id.slot(), CloseState::Now);
            }
        }
    }

    /// When something is to be looked at again, unix milliseconds.
    pub(crate) fn wakes_at_ms(&self) -> Option<u64> {
        self.handshakes.next_at_ms().into_iter().chain(self.again_at_ms).min()
    }

    /// The wall clock was set.
    pub(crate) fn clock_stepped(&mut self, step_ms: i64) {
        self.handshakes.clock_stepped(step_ms);
        // This comes too early at the worst.
        self.again_at_ms = self.again_at_ms.map(|_| 0);
    }

    fn note(&mut self, level: LogLevel, text: String) {
        self.notes.push((level, text));
    }

    /// How many clients were refused since the last call.
    pub(crate) fn take_rejected(&mut self) -> u64 {
        std::mem::take(&mut self.rejected)
    }

    /// Lines for the log.
    pub(crate) fn take_notes(&mut self) -> Vec<(LogLevel, String)> {
        std::mem::take(&mut self.notes)
    }
}

/// Clients that may not have agreed on TLS yet, in the order they came.
#[derive(Debug, Default)]
struct Handshakes(VecDeque<(u64, SessionId)>);

impl Handshakes {
    fn add(&mut self, now_ms: u64, id: SessionId) {
        self.0.push_back((now_ms + HANDSHAKE_MS_MAX, id));
    }

    fn pop_overdue(&mut self, now_ms: u64) -> Option<SessionId> {
        let (deadline_ms, id) = *self.0.front()?;
        (deadline_ms <= now_ms).then(|| {
            self.0.pop_front();
            id
        })
    }

    fn clock_stepped(&mut self, step_ms: i64) {
        self.0.iter_mut().for_each(|(at, _)| *at = at.saturating_add_signed(step_ms));
    }

    /// When the next one is to be looked at, unix milliseconds.
    fn next_at_ms(&self) -> Option<u64> {
        self.0.front().map(|(deadline_ms, _)| *deadline_ms)
    }
}

/// Why a client may not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    TooManyClients,
    ProtectedMode,
}

impl Refusal {
    /// What the client is told.
    fn text(self) -> &'static str {
        match self {
            Refusal::TooManyClients => "-ERR max number of clients reached\r\n",
            Refusal::ProtectedMode => {
                "-DENIED Redis is running in protected mode because no password is set for the \
                 default user and it was reached from another machine. Set requirepass, bind to \
                 loopback only, or turn protected-mode off.\r\n"
            }
        }
    }

    /// Whether not even a handshake is worth its while.
    fn is_immediate(self) -> bool {
        self == Refusal::TooManyClients
    }
}

/// Whether a client may not come in.
fn refusal(state: &ServerState, origin: &Origin) -> Option<Refusal> {
    if state.sessions.count() >= state.config.settings().clients.count_max {
        return Some(Refusal::TooManyClients);
    }
    let is_open = state.config.settings().clients.protected_mode && !state.needs_login();
    (is_open && !origin.is_local).then_some(Refusal::ProtectedMode)
}
