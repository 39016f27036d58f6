//! What the core wants done, in order.

use std::sync::Arc;

use crate::id::NodeId;
use crate::message::{Address, Message, Publication};
use crate::node::LinkId;
use crate::slots::SlotSet;
use crate::unsaved::SavedClaim;

/// One thing to do. The order carries meaning: a `Persist` that must be synced is on disk before
/// any later `Send` leaves, and a role is applied before the packet that tells of it.
#[derive(Clone, Debug)]
pub enum Output {
    /// The text of nodes.conf is this now.
    Persist {
        /// All of it.
        text: String,
        /// Whether later sends wait until it is on disk.
        is_synced: bool,
        /// For `handle_file_lost`, once this text is on disk.
        claim: SavedClaim,
    },
    /// Open a connection, then say `handle_link_up` or `handle_link_down`.
    Dial {
        /// How to name it.
        link: LinkId,
        /// Where to.
        address: Address,
    },
    /// A packet.
    Send {
        /// Over which connection.
        link: LinkId,
        /// What. Shared by all who get the same.
        message: Arc<Message>,
    },
    /// Close a connection.
    Close(LinkId),
    /// The data follows this node from now on, or nobody.
    Become(Role),
    /// Let no client write: the offset must stand still.
    PauseWrites,
    /// Clients may write again.
    Unpause,
    /// These slots belong to somebody else now: their keys go.
    DropSlots(Box<SlotSet>),
    /// Say `adopt_copied_keys` with the slots that have keys: this replica has become a master.
    FindKeys {
        /// Slots that its old master had lost before.
        left: Box<SlotSet>,
    },
    /// For subscribers on this node.
    Publish(Publication),
    /// For the log.
    Log(Event),
    /// Nothing more now. Call `handle_tick` at this reading of the monotonic clock.
    WaitUntil(u64),
}

/// What the data of a node does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes of its own.
    Master,
    /// It repeats what this node does; `None` while its address is not known.
    ReplicaOf {
        /// Whom.
        id: NodeId,
        /// Where that is.
        address: Option<Address>,
    },
}

/// What an operator may want to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Requests are served again, or no longer.
    StateChanged {
        /// Which of both.
        is_ok: bool,
    },
    /// I cannot reach this node.
    Suspected(NodeId),
    /// A majority cannot reach it.
    Failed {
        /// Whom.
        id: NodeId,
        /// Whether it was found here, and not told by somebody else.
        is_own_finding: bool,
    },
    /// It is reached again.
    Recovered(NodeId),
    /// An election will begin then, if the master does not come back.
    ElectionPlanned {
        /// At this reading of the monotonic clock.
        starts_at: u64,
        /// How many replicas go first.
        rank: u64,
    },
    /// This replica asks for votes.
    ElectionStarted {
        /// For this epoch.
        epoch: u64,
        /// When it was planned.
        planned_at: u64,
        /// Whether an operator asked for it.
        is_manual: bool,
    },
    /// It will not stand: its data is too old.
    DataTooOld {
        /// How old, in milliseconds; `None` when it never had any.
        age: Option<u64>,
    },
    /// It was elected.
    ElectionWon {
        /// With this epoch.
        epoch: u64,
        /// As so many votes were needed.
        quorum: usize,
    },
    /// A vote was given.
    Voted {
        /// To whom.
        candidate: NodeId,
        /// In this epoch.
        epoch: u64,
    },
    /// A vote was refused.
    VoteRefused {
        /// To whom.
        candidate: NodeId,
        /// Why.
        reason: &'static str,
    },
    /// An epoch was taken without votes.
    EpochTaken(u64),
    /// Packets of a node are dropped: after its epoch there would be no other one.
    EpochRefused {
        /// Of this node.
        id: NodeId,
        /// Which is at this address.
        peer: String,
        /// Its epoch.
        epoch: u64,
    },
    /// No election: all epochs are used.
    NoEpochLeft,
    /// This replica moves to a master that has none.
    Migrating {
        /// To whom.
        to: NodeId,
    },
    /// An operator's failover was given up.
    ManualFailoverTimedOut,
    /// An operator's failover was given up: the master may have started again, and its clients may
    /// write.
    ManualFailoverLostMaster,
    /// Who answered at this node's address is another one.
    AddressReused(NodeId),
    /// Keys of these slots came back with a restart. Their owner has them: they go.
    OutdatedKeys {
        /// Which.
        slots: Box<SlotSet>,
        /// Whose they are.
        owner: NodeId,
    },
    /// This node's last slot was taken: it follows the taker.
    LastSlotLost {
        /// Whom.
        taker: NodeId,
    },
}
