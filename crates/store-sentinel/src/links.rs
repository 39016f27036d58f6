//! Connections of a sentinel, and what is known from them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use store_replica::{Address, Moment};

use crate::settings::{Access, RunId};

/// A connection that a sentinel opened. A number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// The place of a connection, which is opened again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotId(u64);

/// One of a group: what a question is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupMember {
    Primary,
    Replica(Address),
    Peer(RunId),
}

/// Of which group.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) group: Arc<str>,
    pub(crate) member: GroupMember,
}

/// What an answer will be an answer to.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Ping,
    Info { at: Moment },
    IsDown { address: Address },
    Other,
}

#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) asked: Asked,
    pub(crate) target: Target,
    pub(crate) replies_left: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Closed,
    Opening(LinkId),
    Open(LinkId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// Questions and answers.
    Commands,
    /// The subscription to hellos.
    Hellos,
}

/// One place for a connection, with what it has shown.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) kind: SlotKind,
    pub(crate) address: Address,
    pub(crate) access: Access,
    pub(crate) state: SlotState,
    /// When it was last dialled.
    pub(crate) dialed_at: Option<Moment>,
    pub(crate) pending: VecDeque<Pending>,
    pub(crate) is_info_pending: bool,
    pub(crate) pinged_at: Option<Moment>,
    /// Since when a ping has not been answered. A new slot counts as pinged: who cannot be
    /// reached at all is down, too.
    pub(crate) waiting_since: Option<Moment>,
    /// When a ping was last answered as a server that works does.
    pub(crate) available_at: Moment,
    /// When a ping was last answered in any way.
    pub(crate) answered_at: Moment,
    /// When a subscription last said anything.
    pub(crate) heard_at: Moment,
    /// This sentinel's end of the connection.
    pub(crate) local_host: Option<String>,
    users: usize,
}

impl Slot {
    fn new(kind: SlotKind, now: Moment, address: Address, access: Access) -> Self {
        Self {
            kind,
            address,
            access,
            state: SlotState::Closed,
            dialed_at: None,
            pending: VecDeque::new(),
            is_info_pending: false,
            pinged_at: None,
            waiting_since: Some(now),
            available_at: now,
            answered_at: now,
            heard_at: now,
            local_host: None,
            users: 1,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, SlotState::Open(_))
    }

    pub(crate) fn link(&self) -> Option<LinkId> {
        match self.state {
            SlotState::Closed => None,
            SlotState::Opening(link) | SlotState::Open(link) => Some(link),
        }
    }

    /// Questions that may be unanswered at once: a server that answers nothing fills no memory.
    pub(crate) fn has_room(&self) -> bool {
        const PENDING_MAX: usize = 100;
        self.pending.len() < PENDING_MAX * self.users
    }

    /// The connection is gone; what was asked is not answered any more.
    pub(crate) fn forget_connection(&mut self) {
        self.state = SlotState::Closed;
        self.pending.clear();
        self.is_info_pending = false;
    }
}

/// All slots.
#[derive(Debug, Default)]
pub(crate) struct Links {
    slots: BTreeMap<SlotId, Slot>,
    by_link: BTreeMap<LinkId, SlotId>,
    /// Other sentinels watch several groups with us over one connection.
    of_peers: BTreeMap<RunId, SlotId>,
    slots_made: u64,
    links_made: u64,
}

impl Links {
    pub(crate) fn create(
        &mut self,
        kind: SlotKind,
        now: Moment,
        address: Address,
        access: Access,
    ) -> SlotId {
        self.slots_made += 1;
        let id = SlotId(self.slots_made);
        self.slots.insert(id, Slot::new(kind, now, address, access));
        id
    }

    /// The connection to another sentinel, which all groups share.
    pub(crate) fn share(
        &mut self,
        now: Moment,
        id: &RunId,
        address: &Address,
        access: Access,
    ) -> SlotId {
        if let Some(slot_id) = self.of_peers.get(id) {
            let slot = self.slots.get_mut(slot_id).expect("a shared slot is in use");
            if slot.address == *address {
                slot.users += 1;
                return *slot_id;
            }
        }
        let slot_id = self.create(SlotKind::Commands, now, address.clone(), access);
        self.of_peers.insert(id.clone(), slot_id);
        slot_id
    }

    /// One user less. Returns the connection to close when it was the last.
    pub(crate) fn release(&mut self, id: SlotId) -> Option<LinkId> {
        let slot = self.slots.get_mut(&id)?;
        slot.users -= 1;
        if slot.users > 0 {
            return None;
        }
        self.of_peers.retain(|_, slot_id| *slot_id != id);
        let link = self.slots.remove(&id)?.link();
        self.by_link.retain(|_, slot_id| *slot_id != id);
        link
    }

    pub(crate) fn get(&self, id: SlotId) -> &Slot {
        self.slots.get(&id).expect("a slot lives as long as its instance")
    }

    pub(crate) fn get_mut(&mut self, id: SlotId) -> &mut Slot {
        self.slots.get_mut(&id).expect("a slot lives as long as its instance")
    }

    /// How many groups use a slot.
    pub(crate) fn users(&self, id: SlotId) -> usize {
        self.get(id).users
    }

    /// The connections to other sentinels.
    pub(crate) fn of_peers(&self) -> Vec<SlotId> {
        self.of_peers.values().copied().collect()
    }

    /// All places for connections.
    pub(crate) fn all(&self) -> impl Iterator<Item = SlotId> {
        self.slots.keys().copied()
    }

    /// A new number for a slot that is dialled now.
    pub(crate) fn begin(&mut self, now: Moment, id: SlotId) -> LinkId {
        self.links_made += 1;
        let link = LinkId(self.links_made);
        self.by_link.insert(link, id);
        let slot = self.get_mut(id);
        slot.state = SlotState::Opening(link);
        slot.dialed_at = Some(now);
        link
    }

    /// The slot of a connection that is still wanted.
    pub(crate) fn find(&self, link: LinkId) -> Option<SlotId> {
        self.by_link.get(&link).copied()
    }

    /// The connection is gone. Which it was.
    pub(crate) fn end(&mut self, id: SlotId) -> Option<LinkId> {
        let slot = self.get_mut(id);
        let link = slot.link();
        slot.forget_connection();
        if let Some(link) = link {
            self.by_link.remove(&link);
        }
        link
    }
}
