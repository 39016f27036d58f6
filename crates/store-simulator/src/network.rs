//! Connections between hosts: bytes in order, late, in pieces, held up by cuts, lost by resets.
//!
//! A cut holds bytes back one way, as a network does that loses packets: they arrive when it ends,
//! unless somebody gave up meanwhile. A reset loses what is on its way. What was not read counts
//! against the sender, so that a slow reader slows its writer down.

use std::collections::BTreeMap;

use crate::queue::{Queue, Real};
use crate::random::Random;

/// A host, by its place in the world.
pub type Host = usize;

/// A connection. A number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who opened it.
    Dialer,
    /// Who accepted it.
    Listener,
}

impl Side {
    /// The other end.
    pub fn other(self) -> Side {
        match self {
            Side::Dialer => Side::Listener,
            Side::Listener => Side::Dialer,
        }
    }
}

/// What the network does to a host.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// Somebody wants to connect: accept or refuse.
    Knock(ConnectionId),
    /// The connection that was asked for is open.
    Opened(ConnectionId),
    /// More bytes may be there to read.
    Bytes(ConnectionId, Side, Vec<u8>),
    /// The connection is over at this end.
    Closed(ConnectionId, Side),
}

/// How a network behaves.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The longest usual delay.
    pub delay_max: Real,
    /// In how many of a hundred cases bytes arrive in pieces.
    pub pieces_percent: u64,
    /// How many bytes may be on their way or unread.
    pub window: usize,
}

#[derive(Debug)]
struct Connection {
    hosts: [Host; 2],
    is_open: [bool; 2],
    is_reset: bool,
    arrives_at: [Real; 2],
    inbox: [Vec<u8>; 2],
    unread: [usize; 2],
    opened_at: Real,
}

/// All connections of a world.
#[derive(Debug)]
pub struct Network {
    weather: Weather,
    connections: BTreeMap<ConnectionId, Connection>,
    cuts: BTreeMap<(Host, Host), Real>,
    made: u64,
}

impl Network {
    /// One without connections.
    pub fn new(weather: Weather) -> Self {
        Self { weather, connections: BTreeMap::new(), cuts: BTreeMap::new(), made: 0 }
    }

    /// From now on it behaves like this, and all cuts end.
    pub fn set_weather(&mut self, weather: Weather) {
        self.weather = weather;
        self.cuts.clear();
    }

    /// Holds back whatever goes from one host to the other until `until`.
    pub fn cut(&mut self, from: Host, to: Host, until: Real) {
        self.cuts.insert((from, to), until);
    }

    /// Asks for a connection.
    pub fn dial<E: From<Delivery>>(
        &mut self,
        (from, to): (Host, Host),
        queue: &mut Queue<E>,
        random: &mut Random,
    ) -> ConnectionId {
        self.made += 1;
        let id = ConnectionId(self.made);
        let connection = Connection {
            hosts: [from, to],
            is_open: [true, false],
            is_reset: false,
            arrives_at: [0; 2],
            inbox: [Vec::new(), Vec::new()],
            unread: [0; 2],
            opened_at: queue.now(),
        };
        self.connections.insert(id, connection);
        let arrives_at = self.arrival(id, Side::Listener, queue.now(), random);
        queue.at(arrives_at, Delivery::Knock(id).into());
        id
    }

    /// The host that was asked for takes it, if it is still there to be taken.
    pub fn accept<E: From<Delivery>>(
        &mut self,
        id: ConnectionId,
        queue: &mut Queue<E>,
        random: &mut Random,
    ) -> bool {
        let now = queue.now();
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        if connection.is_reset {
            return false;
        }
        connection.is_open[1] = true;
        connection.opened_at = now;
        let arrives_at = self.arrival(id, Side::Dialer, now, random);
        queue.at(arrives_at, Delivery::Opened(id).into());
        true
    }

    /// Bytes from one end to the other.
    pub fn send<E: From<Delivery>>(
        &mut self,
        (id, from): (ConnectionId, Side),
        bytes: &[u8],
        queue: &mut Queue<E>,
        random: &mut Random,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.is_open[from as usize] || connection.is_reset {
            return;
        }
        connection.unread[from as usize] += bytes.len();
        let mut rest = bytes;
        while !rest.is_empty() {
            let is_cut = random.percent(self.weather.pieces_percent) && rest.len() > 1;
            let len =
                if is_cut { 1 + random.below(rest.len() as u64 - 1) as usize } else { rest.len() };
            let (piece, later) = rest.split_at(len);
            let arrives_at = self.arrival(id, from.other(), queue.now(), random);
            queue.at(arrives_at, Delivery::Bytes(id, from.other(), piece.to_vec()).into());
            rest = later;
        }
    }

    /// How many bytes the writer at this end may send now.
    pub fn room(&self, id: ConnectionId, side: Side) -> usize {
        let unread = self.connections.get(&id).map_or(usize::MAX, |c| c.unread[side as usize]);
        self.weather.window.saturating_sub(unread)
    }

    /// Bytes reach the reader's end. Whether it should look.
    pub fn arrive(&mut self, id: ConnectionId, to: Side, bytes: &[u8]) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        let is_heard = connection.is_open[to as usize] && !connection.is_reset;
        if is_heard {
            connection.inbox[to as usize].extend_from_slice(bytes);
        }
        is_heard
    }

    /// Takes all that has arrived at this end.
    pub fn read(&mut self, id: ConnectionId, side: Side) -> Vec<u8> {
        let Some(connection) = self.connections.get_mut(&id) else { return Vec::new() };
        let bytes = std::mem::take(&mut connection.inbox[side as usize]);
        connection.unread[side.other() as usize] -= bytes.len();
        bytes
    }

    /// This end is closed; the other hears of it behind the bytes that are on their way.
    pub fn close<E: From<Delivery>>(
        &mut self,
        id: ConnectionId,
        side: Side,
        queue: &mut Queue<E>,
        random: &mut Random,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !std::mem::replace(&mut connection.is_open[side as usize], false) {
            return;
        }
        let arrives_at = self.arrival(id, side.other(), queue.now(), random);
        queue.at(arrives_at, Delivery::Closed(id, side.other()).into());
    }

    /// Something on the way forgets the connection: what is in flight is lost.
    pub fn reset<E: From<Delivery>>(
        &mut self,
        id: ConnectionId,
        queue: &mut Queue<E>,
        random: &mut Random,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.is_reset = true;
        for side in [Side::Dialer, Side::Listener] {
            let delay = random.between(0, self.weather.delay_max);
            queue.after(delay, Delivery::Closed(id, side).into());
        }
    }

    /// The end of a connection is heard of at `side`. Whether that is news.
    pub fn end(&mut self, id: ConnectionId, side: Side) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else { return false };
        std::mem::replace(&mut connection.is_open[side as usize], false)
    }

    /// A host stops: its ends are closed, with or without a word to the others.
    pub fn stop_host<E: From<Delivery>>(
        &mut self,
        host: Host,
        is_silent: bool,
        queue: &mut Queue<E>,
        random: &mut Random,
    ) {
        for (id, side) in self.of_host(host) {
            match is_silent {
                true => _ = self.end(id, side),
                false => self.close(id, side, queue, random),
            }
        }
    }

    /// The open ends at a host.
    pub fn of_host(&self, host: Host) -> Vec<(ConnectionId, Side)> {
        let mut ends = Vec::new();
        for (id, connection) in &self.connections {
            for side in [Side::Dialer, Side::Listener] {
                let index = side as usize;
                if connection.hosts[index] == host && connection.is_open[index] {
                    ends.push((*id, side));
                }
            }
        }
        ends
    }

    /// Connections that are open at one end at least.
    pub fn open(&self) -> Vec<ConnectionId> {
        let is_open = |connection: &Connection| connection.is_open[0] || connection.is_open[1];
        self.connections.iter().filter(|(_, c)| is_open(c)).map(|(id, _)| *id).collect()
    }

    /// Who is at an end.
    pub fn host(&self, id: ConnectionId, side: Side) -> Host {
        self.connections[&id].hosts[side as usize]
    }

    /// When it was accepted.
    pub fn opened_at(&self, id: ConnectionId) -> Real {
        self.connections[&id].opened_at
    }

    /// When something that leaves now reaches `to`: never before what left earlier.
    fn arrival(&mut self, id: ConnectionId, to: Side, now: Real, random: &mut Random) -> Real {
        let delay = match random.percent(85) {
            true => random.between(0, 2),
            false => random.between(0, self.weather.delay_max),
        };
        let Some(connection) = self.connections.get_mut(&id) else { return now };
        let path = (connection.hosts[to.other() as usize], connection.hosts[to as usize]);
        let starts_at = self.cuts.get(&path).map_or(now, |until| now.max(*until));
        let last = &mut connection.arrives_at[to as usize];
        *last = (starts_at + delay).max(*last);
        *last
    }
}
