//! Clients that come: over a listener, or handed in by the program.

use std::collections::VecDeque;
use std::io;

use mio::{Interest, Token};
use store_engine::{LogLevel, Origin, ServerState, SessionId};

use super::{EventLoop, LISTENER_BASE, Message};
use crate::client::{Client, Fate};
use crate::listen::Listener;
use crate::newcomers::is_new;
use crate::stream::Stream;

/// Clients accepted per listener and turn, so that those connected are served meanwhile.
pub(crate) const ACCEPTS_MAX: usize = 256;
/// Between attempts to accept clients when there are no descriptors for them.
const ACCEPT_AGAIN_MS: u64 = 100;
/// Between two lines of the log about that.
const ACCEPT_TOLD_EVERY_MS: u64 = 10_000;
/// How long a client may take to agree on TLS.
const HANDSHAKE_MS_MAX: u64 = 10_000;

impl EventLoop {
    pub(super) fn take_messages(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Stop(signal) => (self.is_stopping, self.stop_signal) = (true, signal),
                Message::File(event) => self.persistence.handle_event(self.now_us / 1000, event),
                Message::Attach(stream) => {
                    let origin = Origin { is_local: true, is_unix: true, ..Origin::default() };
                    let stream = mio::net::UnixStream::from_std(stream);
                    self.open(Stream::Unix(stream), origin);
                }
            }
        }
    }

    /// Accepts the clients that wait at a listener, unless it was closed meanwhile.
    pub(super) fn accept(&mut self, number: usize) {
        let keepalive = self.engine.config().settings().clients.keepalive;
        for _ in 0..ACCEPTS_MAX {
            let Some(listener) = find_listener(&self.listeners, number) else { return };
            match listener.accept(keepalive, &self.ties.outside.tls) {
                Ok((stream, origin)) => self.open(stream, origin),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        self.tell_accept_failure(&error);
                        return self.accept_later(number);
                    }
                },
            }
        }
        self.to_accept.push(number);
    }

    fn tell_accept_failure(&mut self, error: &io::Error) {
        let now_ms = self.now_us / 1000;
        let is_told = |at: u64| now_ms < at.saturating_add(ACCEPT_TOLD_EVERY_MS);
        if !self.accept_told_at_ms.is_some_and(is_told) {
            self.accept_told_at_ms = Some(now_ms);
            let text = format!("Accepting client: {error}: it is tried again until it works");
            self.log(LogLevel::Warning, &text);
        }
    }

    /// Most likely we are out of descriptors. The others are served meanwhile; no event tells
    /// when there are descriptors again, so we look again after a while.
    fn accept_later(&mut self, number: usize) {
        self.stalled_listeners.push(number);
        self.accepts_again_at_ms = Some(self.now_us / 1000 + ACCEPT_AGAIN_MS);
    }

    /// Looks again at listeners that could not be accepted from.
    pub(super) fn accept_again(&mut self, now_ms: u64) {
        if self.accepts_again_at_ms.is_some_and(|at| at <= now_ms) {
            self.accepts_again_at_ms = None;
            for number in std::mem::take(&mut self.stalled_listeners) {
                self.accept(number);
            }
        }
    }

    fn open(&mut self, mut stream: Stream, origin: Origin) {
        let is_handshaking = stream.is_handshaking();
        let is_newcomer = is_handshaking || !origin.is_unix && self.engine.needs_login();
        let state = self.engine.state();
        let mut refusal = refusal(state, &origin);
        if is_newcomer {
            let is_new = |id| is_new(state, &self.clients, id);
            let goes = match refusal {
                Some(Refusal::TooManyClients) => self.newcomers.oldest(is_new),
                _ => self.newcomers.make_room(&origin, is_new),
            };
            if let Some(goes) = goes {
                refusal = refusal.filter(|it| *it != Refusal::TooManyClients);
                self.doom(goes.slot(), Fate::Closes);
            }
        }
        if let Some(refusal) = refusal.filter(|it| it.is_immediate() || !is_handshaking) {
            self.engine.measured_mut().rejected_connections += 1;
            // A client that is refused may not read; it is not worth waiting for.
            let _ = io::Write::write(&mut stream, refusal.text().as_bytes());
            return;
        }
        let from = is_newcomer.then(|| origin.clone());
        let session = self.engine.open_session(self.now_us, origin);
        let slot = session.slot();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(slot), interest) {
            self.log(LogLevel::Warning, &format!("Registering client: {error}"));
            self.engine.close_session(session);
            return;
        }
        if self.clients.len() <= slot {
            self.clients.resize_with(slot + 1, || None);
        }
        self.clients[slot] = Some(Box::new(Client::new(stream, session)));
        self.count_memory(slot);
        if let Some(origin) = &from {
            self.newcomers.add(session, origin);
        }
        if is_handshaking {
            self.handshakes.add(self.now_us / 1000, session);
        }
        if let Some(refusal) = refusal {
            self.refuse_later(session, refusal);
        }
    }

    /// The reason can be told once both sides agree on TLS.
    fn refuse_later(&mut self, id: SessionId, refusal: Refusal) {
        if let Some(session) = self.engine.session_mut(id) {
            session.output.extend_from_slice(refusal.text().as_bytes());
        }
        self.doom(id.slot(), Fate::ClosesAfterOutput);
    }

    /// Closes clients that take too long to agree on TLS.
    pub(super) fn check_handshakes(&mut self, now_ms: u64) {
        while let Some(id) = self.handshakes.pop_overdue(now_ms) {
            if self.client_of(id).is_some_and(|client| client.stream.is_handshaking()) {
                self.log(LogLevel::Verbose, "Closing client that did not finish its handshake");
                self.doom(id.slot(), Fate::Closes);
            }
        }
    }

    /// Listens where changed settings say.
    pub(super) fn change_listeners(&mut self) {
        let Some(change) = self.ties.outside.take_change() else { return };
        self.listeners
            .retain(|listener| listener.is_unix() || change.kept.contains(&listener.place));
        for listener in change.new {
            if let Err(error) = self.listen(listener) {
                self.log(LogLevel::Warning, &format!("Registering listener: {error}"));
            }
        }
        let ports = self.ties.outside.ports();
        self.engine.identity_mut().tcp_port = ports.tcp.or(ports.tls).unwrap_or(0);
    }

    pub(super) fn listen(&mut self, mut listener: Listener) -> io::Result<()> {
        listener.number = self.next_listener;
        self.next_listener += 1;
        listener.register(self.poll.registry(), Token(LISTENER_BASE + listener.number))?;
        self.listeners.push(listener);
        Ok(())
    }
}

pub(crate) fn find_listener(listeners: &[Listener], number: usize) -> Option<&Listener> {
    listeners.iter().find(|listener| listener.number == number)
}

/// Clients that may not have agreed on TLS yet, in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Handshakes(VecDeque<(u64, SessionId)>);

impl Handshakes {
    pub(crate) fn add(&mut self, now_ms: u64, id: SessionId) {
        self.0.push_back((now_ms + HANDSHAKE_MS_MAX, id));
    }

    fn pop_overdue(&mut self, now_ms: u64) -> Option<SessionId> {
        let (deadline_ms, id) = *self.0.front()?;
        (deadline_ms <= now_ms).then(|| {
            self.0.pop_front();
            id
        })
    }

    pub(super) fn clock_stepped(&mut self, step_ms: i64) {
        self.0.iter_mut().for_each(|(at, _)| *at = at.saturating_add_signed(step_ms));
    }

    /// When the next one is to be looked at, unix milliseconds.
    pub(super) fn next_at_ms(&self) -> Option<u64> {
        self.0.front().map(|(deadline_ms, _)| *deadline_ms)
    }
}

/// Why a client may not come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooManyClients,
    ProtectedMode,
}

impl Refusal {
    /// What the client is told.
    pub(crate) fn text(self) -> &'static str {
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
    pub(crate) fn is_immediate(self) -> bool {
        self == Refusal::TooManyClients
    }
}

/// Whether a client may not come in.
pub(crate) fn refusal(state: &ServerState, origin: &Origin) -> Option<Refusal> {
    if state.sessions.count() >= state.config.settings().clients.count_max {
        return Some(Refusal::TooManyClients);
    }
    let is_open = state.config.settings().clients.protected_mode && !state.needs_login();
    (is_open && !origin.is_local).then_some(Refusal::ProtectedMode)
}
