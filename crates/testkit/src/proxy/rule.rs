//! What the proxy does with the bytes that pass.

use std::ops::{Index, IndexMut};
use std::time::Duration;

/// The way that bytes take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the client to the server: requests.
    ToServer,
    /// From the server to the client: replies and messages.
    ToClient,
}

impl Direction {
    /// Both, requests first.
    pub const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];
}

/// What happens to the bytes of one direction, on all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rule {
    /// They are passed on at once.
    #[default]
    Forward,
    /// They are passed on this much later. Bytes that are under way when the rule changes keep
    /// their delay, since nothing overtakes on a connection.
    Delay(Duration),
    /// They are read and thrown away, and so are those that were still delayed. The end of a
    /// connection is kept back until the rule changes.
    Swallow,
    /// They are not even read: the sender's buffers fill up. Nothing is lost: another rule lets
    /// them pass. Both directions together make a half-open connection, as a pulled cable does.
    HalfOpen,
    /// They are passed on in pieces of at most so many bytes, with a pause after each.
    Slice {
        /// The length of a piece; 0 counts as 1.
        bytes: usize,
        /// The time between two pieces.
        pause: Duration,
    },
    /// Each connection is cut once so many bytes have passed on it since the rule was set.
    CutAfter {
        /// How many bytes still pass.
        bytes: u64,
        /// How the connection then ends.
        cut: Cut,
    },
}

/// How a connection is ended, towards both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// In good order: either side reads to the end of what was passed on, then sees the end.
    Close,
    /// By reset: the next read or write fails.
    Reset,
}

/// What becomes of new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Door {
    /// They are accepted and connected to the server.
    #[default]
    Open,
    /// They are reset at once, as if nothing listened.
    Refuse,
}

/// One value for either direction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PerDirection<T>([T; 2]);

impl<T> PerDirection<T> {
    pub(super) fn new(to_server: T, to_client: T) -> Self {
        Self([to_server, to_client])
    }
}

impl<T> Index<Direction> for PerDirection<T> {
    type Output = T;

    fn index(&self, direction: Direction) -> &T {
        &self.0[direction as usize]
    }
}

impl<T> IndexMut<Direction> for PerDirection<T> {
    fn index_mut(&mut self, direction: Direction) -> &mut T {
        &mut self.0[direction as usize]
    }
}
