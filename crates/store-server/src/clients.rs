//! The connected clients, and who of them is to be served next.

use store_engine::{Session, SessionId};

use crate::client::{Client, CloseState};

/// All clients by slot, as their sessions have it, with the lists that a turn works off. Both the
/// loop and whoever serves clients while a script runs add to them.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    /// Boxed, since they are taken out while their requests run.
    slots: Vec<Option<Box<Client>>>,
    /// Clients with output to write at the end of the turn.
    pub(crate) to_write: Vec<usize>,
    /// Clients whose streams may have more, and whose turn is over.
    pub(crate) to_read: Vec<usize>,
    /// Clients to close at the end of the turn.
    pub(crate) to_close: Vec<usize>,
    /// Bytes that they hold.
    pub(crate) memory: usize,
}

impl Clients {
    /// The client in a slot, unless it was taken out.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<&Client> {
        self.slots.get(slot)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Client> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// The client of a session, unless another one has its slot by now.
    pub(crate) fn of(&self, id: SessionId) -> Option<&Client> {
        self.get(id.slot()).filter(|client| client.session == id)
    }

    /// Takes a client out, to serve it. It is to be [put back](Self::put_back).
    #[inline]
    pub(crate) fn take(&mut self, slot: usize) -> Option<Box<Client>> {
        self.slots.get_mut(slot)?.take()
    }

    #[inline]
    pub(crate) fn put_back(&mut self, client: Box<Client>) {
        let slot = client.session.slot();
        self.slots[slot] = Some(client);
    }

    /// A client has connected.
    pub(crate) fn add(&mut self, client: Box<Client>) {
        let slot = client.session.slot();
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        self.slots[slot] = Some(client);
    }

    /// The slots there are, taken or not.
    pub(crate) fn slots(&self) -> std::ops::Range<usize> {
        0..self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.slots.iter().flatten().map(|client| &**client)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Client> {
        self.slots.iter_mut().flatten().map(|client| &mut **client)
    }

    /// Reads from a client in the next turn.
    pub(crate) fn read_later(&mut self, slot: usize) {
        if let Some(client) = self.slots.get_mut(slot).and_then(Option::as_mut)
            && !client.waits_to_read
        {
            client.waits_to_read = true;
            self.to_read.push(slot);
        }
    }

    /// Writes to a client that was taken out at the end of the turn.
    #[inline]
    pub(crate) fn want_write(&mut self, client: &mut Client) {
        if !client.wants_write {
            client.wants_write = true;
            self.to_write.push(client.session.slot());
        }
    }

    /// Writes to a client at the end of the turn.
    pub(crate) fn write_later(&mut self, slot: usize) {
        if let Some(client) = self.slots.get_mut(slot).and_then(Option::as_mut)
            && !client.wants_write
        {
            client.wants_write = true;
            self.to_write.push(slot);
        }
    }

    /// Counts what the client of a session and the session hold now.
    #[inline]
    pub(crate) fn count_memory(&mut self, session: &mut Session) {
        let Some(client) = self.get_mut(session.id.slot()) else { return };
        (session.query_bytes, session.query_capacity) = client.query_bytes();
        let memory = size_of_val(client) + session.memory();
        let before = std::mem::replace(&mut client.counted_memory, memory);
        self.memory = self.memory + memory - before;
    }

    /// Closes a client at the end of the turn, or once its output is written.
    pub(crate) fn close_later(&mut self, slot: usize, closing: CloseState) {
        let Some(client) = self.get_mut(slot) else { return };
        client.closing = closing;
        match closing {
            CloseState::Now => self.to_close.push(slot),
            _ => self.write_later(slot),
        }
    }
}
