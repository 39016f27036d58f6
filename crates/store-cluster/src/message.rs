//! What nodes say to each other, as values. The bytes are in [`crate::wire`].

use std::sync::Arc;

use crate::id::NodeId;
use crate::slots::SlotSet;

/// Bits that describe a node, as on the wire and in nodes.conf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// It serves slots, or may.
    pub const MASTER: Flags = Flags(1);
    /// It follows a master.
    pub const REPLICA: Flags = Flags(2);
    /// I cannot reach it.
    pub const SUSPECTED: Flags = Flags(4);
    /// A majority cannot reach it.
    pub const FAILED: Flags = Flags(8);
    /// It is the node that holds the table.
    pub const MYSELF: Flags = Flags(16);
    /// Its id is not known yet.
    pub const HANDSHAKE: Flags = Flags(32);
    /// Its address is not known any more.
    pub const NO_ADDRESS: Flags = Flags(64);
    /// The first packet to it is a MEET.
    pub const MEET: Flags = Flags(128);
    /// Spare replicas may move to it.
    pub const MIGRATE_TO: Flags = Flags(256);
    /// It does not want to be promoted.
    pub const NO_FAILOVER: Flags = Flags(512);

    /// Whether one of `others` is set.
    pub const fn has(self, others: Flags) -> bool {
        self.0 & others.0 != 0
    }

    /// With `others`, too.
    pub const fn with(self, others: Flags) -> Flags {
        Flags(self.0 | others.0)
    }

    /// Without `others`.
    pub const fn without(self, others: Flags) -> Flags {
        Flags(self.0 & !others.0)
    }
}

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Its IP address as text; empty when it is not known.
    pub ip: Arc<str>,
    /// For clients.
    pub port: u16,
    /// For clients without TLS, where `port` is the one with.
    pub plain_port: u16,
    /// For nodes.
    pub bus_port: u16,
}

/// What every message tells of its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who.
    pub sender: NodeId,
    /// The greatest epoch that it knows.
    pub current_epoch: u64,
    /// Its own, or its master's.
    pub config_epoch: u64,
    /// How far its data is.
    pub offset: u64,
    /// Its own, or its master's.
    pub slots: Arc<SlotSet>,
    /// Whom it follows.
    pub master: Option<NodeId>,
    /// Its address; an empty one means the address that the connection comes from.
    pub address: Address,
    /// Its role, mostly.
    pub flags: Flags,
    /// Whether it serves requests.
    pub is_ok: bool,
    /// Its clients are paused: the offset stands still for a manual failover.
    pub is_paused: bool,
    /// An operator wants this election although the master works.
    pub is_forced: bool,
    /// How it wants to be called by clients.
    pub hostname: Option<Arc<str>>,
}

/// What a sender knows about a third node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gossip {
    /// Whom.
    pub id: NodeId,
    /// When a ping left that was not answered yet, in unix seconds; 0 for none.
    pub ping_sent: u32,
    /// When it answered last, in unix seconds.
    pub pong_received: u32,
    /// Where it is.
    pub address: Address,
    /// How it is.
    pub flags: Flags,
}

/// What a message is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Are you there?
    Ping(Vec<Gossip>),
    /// Yes; or news for everybody.
    Pong(Vec<Gossip>),
    /// An operator wants you in this cluster.
    Meet(Vec<Gossip>),
    /// A majority cannot reach this node.
    Fail(NodeId),
    /// For subscribers.
    Publish(Publication),
    /// Vote for me.
    AuthRequest,
    /// You have my vote.
    AuthAck,
    /// You are behind: these are the slots of that node.
    Update(Update),
    /// Pause your clients, I am to take over.
    ManualStart,
    /// For a module, or of a later version: nothing for us.
    Other(u16),
}

/// A message for subscribers of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Where.
    pub channel: Arc<[u8]>,
    /// What.
    pub message: Arc<[u8]>,
    /// Whether it goes to the nodes of one shard alone.
    pub is_sharded: bool,
}

/// The slots of a node, told by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Whose.
    pub id: NodeId,
    /// With which epoch.
    pub config_epoch: u64,
    /// Which.
    pub slots: Arc<SlotSet>,
}

/// One packet of the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub header: Header,
    /// What is said.
    pub body: Body,
}
