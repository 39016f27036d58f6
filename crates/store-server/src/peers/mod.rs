//! Connections that this server opens to others, served by the loop like those of clients.
//!
//! ```text
//! dial ─► Resolving, on a thread ─► Connecting, one address after the other ─► Open
//!                 └───────────────────────────┴── failed, or too late ──────────┴─► closed
//! ```
//! Whoever dials gets a number, and hears of the rest by [`PeerEvent`]. Bytes are read when the
//! owner asks for them, so that a peer that sends more than is wanted waits in its own socket;
//! bytes to send are kept up to [`OUTPUT_MAX`].

mod connection;
mod resolve;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::event::Event;
use mio::{Registry, Token};

use crate::acceptor::LISTENER_BASE;
use crate::persistence::Mailbox;
use crate::stream::Stream;
use crate::tls::TlsDialer;
use connection::{Connection, Progress};
pub(crate) use resolve::Resolved;
use resolve::Resolver;

/// Peers have tokens from here on, above those of listeners.
pub(crate) const PEER_BASE: usize = LISTENER_BASE + LISTENER_BASE / 2;
/// Listeners of the bus of a cluster have tokens from here on, below those of peers.
pub(crate) const BUS_BASE: usize = PEER_BASE - LISTENER_BASE / 4;
/// Connections at once: two per node of a large cluster.
const PEERS_MAX: usize = 16 * 1024;
/// What may wait to be sent to one peer. Links send acknowledgements and questions, so one that
/// takes none of them for so long is of no use.
const OUTPUT_MAX: usize = 1024 * 1024;

/// A connection that was dialled. A number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PeerId(usize);

/// Where to connect to.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    /// How it is encrypted, if it is.
    pub(crate) tls: Option<TlsDialer>,
    /// How long it may take until the connection is open.
    pub(crate) timeout: Duration,
}

/// What became of a connection.
#[derive(Debug)]
pub(crate) enum PeerEvent {
    /// It can be written to and read from.
    Opened(PeerId),
    /// It is gone, for this reason.
    Closed(PeerId, io::Error),
}

/// What a read came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PeerRead {
    /// So many bytes at the front of the buffer.
    Bytes(usize),
    /// Nothing for now. An event tells of more, or that it is gone.
    Nothing,
}

/// All connections that this server opened.
pub(crate) struct Peers {
    connections: BTreeMap<PeerId, Connection>,
    next_id: usize,
    resolver: Resolver,
    events: VecDeque<PeerEvent>,
}

impl Peers {
    /// `mailbox` brings back what the thread found that looks up names.
    pub(crate) fn new(mailbox: Mailbox) -> Self {
        Self {
            connections: BTreeMap::new(),
            next_id: 0,
            resolver: Resolver::new(mailbox),
            events: VecDeque::new(),
        }
    }

    /// Begins to connect. `now_ms` is a reading of a clock that never goes back, here as below.
    pub(crate) fn dial(&mut self, registry: &Registry, now_ms: u64, target: &Target<'_>) -> PeerId {
        let id = PeerId(self.next_id);
        self.next_id += 1;
        if self.connections.len() >= PEERS_MAX {
            self.events.push_back(PeerEvent::Closed(id, io::Error::other("too many peers")));
            return id;
        }
        let ends_at_ms = now_ms.saturating_add(target.timeout.as_millis() as u64);
        self.connections.insert(id, Connection::new(ends_at_ms, target.tls.clone()));
        match target.host.parse() {
            Ok(ip) => {
                let addresses = vec![SocketAddr::new(ip, target.port)];
                self.handle_resolved(registry, now_ms, Resolved { peer: id, found: Ok(addresses) });
            }
            Err(_) => {
                if let Err(error) = self.resolver.look_up(id, target.host, target.port) {
                    self.fail(registry, id, error);
                }
            }
        }
        id
    }

    /// Addresses of a name were found, or not.
    pub(crate) fn handle_resolved(&mut self, registry: &Registry, now_ms: u64, resolved: Resolved) {
        let id = resolved.peer;
        // One that was closed meanwhile does not matter any more.
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let begun = resolved
            .found
            .and_then(|addresses| connection.begin(registry, token(id), now_ms, addresses));
        if let Err(error) = begun {
            self.fail(registry, id, error);
        }
    }

    /// Something happened at a socket of a peer. Which it is.
    pub(crate) fn handle_event(
        &mut self,
        registry: &Registry,
        now_ms: u64,
        event: &Event,
    ) -> PeerId {
        let id = PeerId(event.token().0 - PEER_BASE);
        let Some(connection) = self.connections.get_mut(&id) else { return id };
        let is_ended = event.is_read_closed() || event.is_error();
        connection.may_read |= event.is_readable() || is_ended;
        connection.may_have_ended |= is_ended;
        if event.is_writable() || is_ended {
            self.advance(registry, now_ms, id);
        }
        id
    }

    /// Looks at all sockets, whether an event told of them or not: somebody else took the events.
    pub(crate) fn look_everywhere(&mut self, registry: &Registry, now_ms: u64) {
        let ids: Vec<PeerId> = self.connections.keys().copied().collect();
        for id in ids {
            if let Some(connection) = self.connections.get_mut(&id) {
                (connection.may_read, connection.may_have_ended) = (true, true);
            }
            self.advance(registry, now_ms, id);
        }
    }

    /// Goes on with a connection whose socket may be open, or take more, by now.
    fn advance(&mut self, registry: &Registry, now_ms: u64, id: PeerId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.advance(registry, token(id), now_ms) {
            Ok(Progress::Opened) => self.events.push_back(PeerEvent::Opened(id)),
            Ok(Progress::Waits) => {}
            Err(error) => self.fail(registry, id, error),
        }
    }

    /// Ends attempts that took too long, and goes on to the next address of those that may.
    pub(crate) fn handle_time(&mut self, registry: &Registry, now_ms: u64) {
        let is_due =
            |connection: &Connection| connection.wakes_at_ms().is_some_and(|at_ms| at_ms <= now_ms);
        let due = self.connections.iter().filter(|(_, connection)| is_due(connection));
        let due: Vec<PeerId> = due.map(|(id, _)| *id).collect();
        for id in due {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            if let Err(error) = connection.give_up_address(registry, token(id), now_ms) {
                self.fail(registry, id, error);
            }
        }
    }

    /// When [`handle_time`](Self::handle_time) is wanted.
    pub(crate) fn wakes_at_ms(&self) -> Option<u64> {
        self.connections.values().filter_map(Connection::wakes_at_ms).min()
    }

    /// Whether there is no connection, and nothing to tell of those that there were.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.connections.is_empty() && self.events.is_empty()
    }

    /// What became of connections, in order.
    pub(crate) fn poll_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    /// Whether something became of a connection.
    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes in a connection that another server opened. `None` when it cannot be served.
    pub(crate) fn adopt(
        &mut self,
        registry: &Registry,
        now_ms: u64,
        stream: Stream,
    ) -> Option<PeerId> {
        if self.connections.len() >= PEERS_MAX {
            return None;
        }
        let id = PeerId(self.next_id);
        self.next_id += 1;
        let connection = Connection::adopt(registry, token(id), now_ms, stream).ok()?;
        self.connections.insert(id, connection);
        Some(id)
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self, id: PeerId) -> usize {
        self.connections.get(&id).map_or(0, Connection::unsent)
    }

    /// Bytes that wait to be sent, and bytes set aside for that.
    pub(crate) fn output_size(&self, id: PeerId) -> (usize, usize) {
        let connection = self.connections.get(&id);
        connection.map_or((0, 0), |it| (it.unsent(), it.output_capacity()))
    }

    /// Sends bytes, or keeps them until the socket takes them.
    pub(crate) fn send(&mut self, registry: &Registry, id: PeerId, bytes: &[u8]) {
        self.send_within(registry, id, bytes, OUTPUT_MAX);
    }

    /// The same with another limit for what may wait.
    pub(crate) fn send_within(
        &mut self,
        registry: &Registry,
        id: PeerId,
        bytes: &[u8],
        limit: usize,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let sent = match connection.unsent() + bytes.len() > limit {
            true => Err(io::Error::other("the peer does not read what it is sent")),
            false => connection.send(bytes),
        };
        if let Err(error) = sent {
            self.fail(registry, id, error);
        }
    }

    /// The hosts of this end and of the other, by number, once it is open.
    pub(crate) fn hosts(&self, id: PeerId) -> Option<(String, String)> {
        self.connections.get(&id)?.hosts()
    }

    /// Whether a read may bring something without an event.
    pub(crate) fn may_read(&self, id: PeerId) -> bool {
        self.connections.get(&id).is_some_and(Connection::is_readable)
    }

    /// All of which a read may bring something without an event.
    pub(crate) fn readable(&self) -> impl Iterator<Item = PeerId> {
        let readable = self.connections.iter().filter(|(_, connection)| connection.is_readable());
        readable.map(|(id, _)| *id)
    }

    /// Reads once. A connection that has ended is told by an event.
    pub(crate) fn read(&mut self, registry: &Registry, id: PeerId, buffer: &mut [u8]) -> PeerRead {
        let Some(connection) = self.connections.get_mut(&id) else { return PeerRead::Nothing };
        match connection.read(buffer) {
            Ok(read) => read,
            Err(error) => {
                self.fail(registry, id, error);
                PeerRead::Nothing
            }
        }
    }

    /// Closes a connection, or stops opening it. Nothing more is told of it.
    pub(crate) fn close(&mut self, registry: &Registry, id: PeerId) {
        if let Some(connection) = self.connections.remove(&id) {
            connection.close(registry);
        }
        self.events.retain(|event| match event {
            PeerEvent::Opened(told) | PeerEvent::Closed(told, _) => *told != id,
        });
    }

    fn fail(&mut self, registry: &Registry, id: PeerId, error: io::Error) {
        self.close(registry, id);
        self.events.push_back(PeerEvent::Closed(id, error));
    }
}

fn token(id: PeerId) -> Token {
    Token(PEER_BASE + id.0)
}

#[cfg(test)]
mod tests;
