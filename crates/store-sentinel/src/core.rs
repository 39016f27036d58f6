//! What all groups of a sentinel share: its name and epoch, its connections, its outputs.

use std::collections::VecDeque;

use store_replica::{Address, Moment};

use crate::event::{Event, EventKind};
use crate::links::{Asked, Links, Pending, SlotId, SlotKind, SlotState, Target};
use crate::output::{Output, Question};
use crate::settings::{Draw, RunId, Timing};

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: RunId,
    pub(crate) port: u16,
    pub(crate) announce_ip: Option<String>,
    pub(crate) announce_port: Option<u16>,
    pub(crate) timing: Timing,
    pub(crate) draw: Draw,
    pub(crate) current_epoch: u64,
    pub(crate) links: Links,
    pub(crate) is_tilted: bool,
    outputs: VecDeque<Output>,
    /// Where the file must be written: before everything that came after the first change.
    persist_at: Option<usize>,
}

impl Core {
    pub(crate) fn new(id: RunId, timing: Timing, draw: Draw) -> Self {
        Self {
            id,
            port: 26_379,
            announce_ip: None,
            announce_port: None,
            timing,
            draw,
            current_epoch: 0,
            links: Links::default(),
            is_tilted: false,
            outputs: VecDeque::new(),
            persist_at: None,
        }
    }

    /// Something changed that the file keeps. Whatever is pushed from here on leaves after it.
    pub(crate) fn mark_changed(&mut self) {
        self.persist_at.get_or_insert(self.outputs.len());
    }

    /// The end of an input: the file is written where its first change was.
    pub(crate) fn settle(&mut self, text: String) {
        if let Some(at) = self.persist_at.take() {
            self.outputs.insert(at, Output::Persist(text));
        }
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.persist_at.is_some()
    }

    pub(crate) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(crate) fn tell(&mut self, kind: EventKind, text: String) {
        self.push(Output::Tell(Event { kind, text }));
    }

    /// Another sentinel knows a greater epoch.
    pub(crate) fn raise_epoch(&mut self, epoch: u64) {
        if epoch > self.current_epoch {
            self.current_epoch = epoch;
            self.mark_changed();
            self.tell(EventKind::NewEpoch, epoch.to_string());
        }
    }

    /// Where other sentinels reach this one, as seen over a connection.
    pub(crate) fn own_address(&self, slot: SlotId) -> Option<Address> {
        let local = || self.links.get(slot).local_host.clone();
        let host = self.announce_ip.clone().or_else(local)?;
        Some(Address { host, port: self.announce_port.unwrap_or(self.port) })
    }

    /// Opens a slot that is closed, once in a ping period.
    pub(crate) fn reconnect(&mut self, now: Moment, id: SlotId) {
        let rest = self.timing.ping_every;
        let slot = self.links.get(id);
        let is_due = slot.dialed_at.is_none_or(|at| now.since(at) >= rest);
        if slot.state == SlotState::Closed && is_due {
            let address = slot.address.clone();
            let link = self.links.begin(now, id);
            self.push(Output::Dial { link, address });
        }
    }

    /// Asks, when the connection is open. Whether it was asked.
    pub(crate) fn ask(
        &mut self,
        id: SlotId,
        target: Target,
        asked: Asked,
        question: Question,
    ) -> bool {
        let slot = self.links.get_mut(id);
        let SlotState::Open(link) = slot.state else { return false };
        if slot.kind == SlotKind::Commands {
            let replies_left = question.replies();
            slot.pending.push_back(Pending { asked, target, replies_left });
        }
        self.push(Output::Send { link, question });
        true
    }

    pub(crate) fn ping(&mut self, now: Moment, id: SlotId, target: Target) {
        if self.ask(id, target, Asked::Ping, Question::Ping) {
            let slot = self.links.get_mut(id);
            slot.pinged_at = Some(now);
            slot.waiting_since.get_or_insert(now);
        }
    }

    /// Closes a connection from here; it is opened again later.
    pub(crate) fn close(&mut self, id: SlotId) {
        if let Some(link) = self.links.end(id) {
            self.push(Output::Close(link));
        }
    }

    /// A user of the slot is gone.
    pub(crate) fn release(&mut self, id: SlotId) {
        if let Some(link) = self.links.release(id) {
            self.push(Output::Close(link));
        }
    }
}
