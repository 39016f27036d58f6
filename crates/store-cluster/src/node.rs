//! A node as another one sees it.

use std::sync::Arc;

use crate::id::NodeId;
use crate::message::{Address, Flags};
use crate::slots::SlotSet;

/// A node's place in the table. Places are used again, so none is kept beyond a node's removal.
pub type NodeIndex = u16;

/// A connection of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LinkId {
    /// Opened from here.
    Dialled {
        /// To whom.
        node: NodeIndex,
        /// Which attempt; a number is used once.
        number: u32,
    },
    /// Accepted here, numbered by the caller. A number is used once.
    Inbound(u64),
}

/// The connection that was opened from here to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialled {
    /// Its number.
    pub number: u32,
    /// When it was asked for.
    pub dialled_at: u64,
    /// Whether it is open.
    pub is_up: bool,
}

/// Pings over the connection from here, and their answers, which come in that order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Talk {
    /// The number of the connection; what is counted begins anew with it.
    pub(crate) number: u32,
    pub(crate) pings: u32,
    pub(crate) pongs: u32,
    /// The greatest epoch that an answer knew.
    pub(crate) known_epoch: u64,
}

impl Talk {
    /// Whether the last answer is one to a ping that left after `earlier`.
    pub(crate) fn is_after(&self, earlier: Talk) -> bool {
        self.number != earlier.number || self.pongs > earlier.pings
    }
}

/// A master said that it cannot reach a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) from: NodeIndex,
    pub(crate) at: u64,
}

/// What is known about a node. Moments are readings of the monotonic clock.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// How it is.
    pub flags: Flags,
    /// Where it is.
    pub address: Address,
    /// How clients call its host.
    pub hostname: Option<Arc<str>>,
    /// Whom it follows, if that node is known.
    pub master: Option<NodeIndex>,
    /// What it serves, in my opinion.
    pub slots: Arc<SlotSet>,
    /// How many those are.
    pub slot_count: u16,
    /// The age of its claim.
    pub config_epoch: u64,
    /// What was asked and answered over the connection from here.
    pub(crate) talk: Talk,
    /// How far its data is, as it said last.
    pub offset: u64,
    /// When a ping left that was not answered yet.
    pub ping_sent_at: Option<u64>,
    /// When it last answered me, or others said so.
    pub pong_at: Option<u64>,
    /// When anything came from it.
    pub heard_at: u64,
    /// The connection from here.
    pub link: Option<Dialled>,
    /// The connection from there.
    pub inbound: Option<u64>,
    pub(crate) reports: Vec<Report>,
    pub(crate) failed_at: u64,
    pub(crate) voted_at: Option<u64>,
    pub(crate) orphaned_at: Option<u64>,
    pub(crate) added_at: u64,
}

impl Node {
    pub(crate) fn new(id: NodeId, flags: Flags, address: Address, now: u64) -> Self {
        Self {
            id,
            flags,
            address,
            hostname: None,
            master: None,
            slots: Arc::default(),
            slot_count: 0,
            config_epoch: 0,
            talk: Talk::default(),
            offset: 0,
            ping_sent_at: None,
            pong_at: None,
            heard_at: now,
            link: None,
            inbound: None,
            reports: Vec::new(),
            failed_at: 0,
            voted_at: None,
            orphaned_at: None,
            added_at: now,
        }
    }

    /// Whether it may serve slots.
    pub fn is_master(&self) -> bool {
        self.flags.has(Flags::MASTER)
    }

    /// Whether it follows somebody.
    pub fn is_replica(&self) -> bool {
        self.flags.has(Flags::REPLICA)
    }

    /// Whether a majority cannot reach it.
    pub fn is_failed(&self) -> bool {
        self.flags.has(Flags::FAILED)
    }

    /// Whether I cannot reach it, but no majority said so.
    pub fn is_suspected(&self) -> bool {
        self.flags.has(Flags::SUSPECTED)
    }

    /// Whether nothing is wrong with it.
    pub fn is_fine(&self) -> bool {
        !self.flags.has(Flags::FAILED.with(Flags::SUSPECTED))
    }

    /// Whether its id is not known yet.
    pub fn is_in_handshake(&self) -> bool {
        self.flags.has(Flags::HANDSHAKE)
    }

    /// Whether it counts where majorities are counted.
    pub fn is_voter(&self) -> bool {
        self.is_master() && self.slot_count > 0
    }

    pub(crate) fn set(&mut self, flags: Flags) {
        self.flags = self.flags.with(flags);
    }

    pub(crate) fn clear(&mut self, flags: Flags) {
        self.flags = self.flags.without(flags);
    }
}
