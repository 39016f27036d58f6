//! What the core wants done, in order.

use crate::history::ReplicationId;
use crate::moment::Moment;
use crate::settings::Address;

/// A connection from a client or replica, numbered by the caller. A number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Whether a server follows another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes of its own.
    Primary,
    /// It repeats what this one does.
    Replica(Address),
}

/// Where a payload goes, and what is in it. Replicas with the same needs share a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotNeeds {
    /// Where to.
    pub target: SnapshotTarget,
    /// What is in it.
    pub content: SnapshotContent,
}

/// How a payload travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotTarget {
    /// Straight to the sockets, ended by a mark.
    Sockets,
    /// To a file first, so that its length is known.
    Disk,
}

/// What a payload holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotContent {
    /// Everything.
    All,
    /// `rdb-filter-only functions`.
    Functions,
    /// `rdb-filter-only` without a word: nothing.
    Nothing,
}

/// What describes the data of a snapshot file: its `repl-id`, `repl-offset` and `repl-stream-db`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// History.
    pub id: ReplicationId,
    /// Bytes of it.
    pub offset: u64,
    /// The database that the stream has selected there.
    pub db: usize,
}

/// Why a replica's session is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// It sent nothing for `repl-timeout`.
    Silent,
    /// It reads too slowly for `client-output-buffer-limit replica`.
    OutputLimit,
    /// The history that it follows here is over; it asks again and is told which one follows.
    HistoryChanged,
    /// Its snapshot could not be made.
    SnapshotFailed,
    /// This server's data goes away.
    DataReplaced,
    /// It got the payload that it asked for, and no more was asked for.
    PayloadOnly,
}

/// Why the link to the primary was closed from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// Nothing came for `repl-timeout`.
    Silent,
    /// Something came that is not in the protocol.
    Protocol,
    /// The primary refused to be followed.
    Refused,
    /// The primary ended the transfer with an error.
    TransferAborted,
    /// A request or transaction was longer than `intake_max` or `transaction_max`.
    TooLong,
    /// The payload could not be loaded.
    Unreadable,
    /// A request of the stream cannot be applied.
    Inapplicable,
    /// A write of the stream failed: the data is not the primary's any more.
    FailedWrite,
}

/// What an operator may want to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A replica gets the bytes since it was last here.
    PartialSync {
        /// Who.
        session: SessionId,
        /// How many bytes.
        bytes: u64,
    },
    /// A replica gets everything.
    FullSync {
        /// Who.
        session: SessionId,
        /// Whether it had asked for less.
        was_refused: bool,
        /// Bytes of some history that it says it has.
        had: u64,
    },
    /// A replica's payload arrived and it follows the stream.
    ReplicaOnline(SessionId),
    /// A replica claims to have more than there is; the claim was ignored.
    AckBeyondEnd(SessionId),
    /// The primary sends everything; what it is called, if the primary said so.
    LinkTransfer(Option<(ReplicationId, u64)>),
    /// The data is followed again without a payload.
    LinkContinued,
    /// The data was replaced by the primary's.
    LinkSynced,
    /// The link was closed from here.
    LinkFailed(LinkFault),
    /// That happened too often: the primary is left alone until an operator names it again.
    LinkStopped(LinkFault),
    /// The primary answered a step of the handshake with this error; it went on.
    StepRefused(String),
    /// The primary cannot be followed yet, for this reason.
    LinkNotReady(String),
    /// The primary refused the link with this text.
    LinkRefused(String),
    /// A FAILOVER came a step further, or ended, well or not.
    Failover {
        /// The replica that is to take over; `None` while it may be any.
        to: Option<Address>,
        /// What happened.
        event: FailoverEvent,
    },
    /// A primary asked this replica to take over its history, and it does.
    TakesOver {
        /// The session of that primary.
        session: SessionId,
        /// The history.
        id: ReplicationId,
    },
}

/// What became of a FAILOVER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverEvent {
    /// Clients may not write any more, until a replica has everything.
    Requested,
    /// A replica has everything: it is asked to take over.
    Started,
    /// The time is up and FORCE was given: it is asked although it may lack writes.
    Forced,
    /// It took over.
    Done,
    /// The time is up.
    TimedOut,
    /// An operator ended it.
    Aborted,
    /// The target refused to take over.
    Rejected,
    /// The target is no longer connected.
    TargetLost,
    /// The time is up before the target could be asked.
    Unreached,
}

/// One thing to do. The order carries meaning: whatever a role or a history implies is told before
/// the bytes that let others rely on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The role is another one now; applied to the data before anything that follows.
    Become(Role),
    /// Bytes for a replica's socket, in order with its payload and its part of the stream.
    Reply {
        /// To whom.
        session: SessionId,
        /// What.
        bytes: Vec<u8>,
    },
    /// Close this session once what it was sent before is written.
    Close {
        /// Whose.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// Begin a snapshot now, then say so by `handle_snapshot_started` in the same turn.
    StartSnapshot(SnapshotNeeds),
    /// Nobody waits for the running snapshot any more.
    CancelSnapshot,
    /// WAIT is over for this session: so many replicas have its write.
    Waited {
        /// Whose.
        session: SessionId,
        /// How many.
        count: usize,
    },
    /// Open a connection to the primary.
    Dial(Address),
    /// Bytes for the primary.
    LinkSend(Vec<u8>),
    /// Close the connection to the primary, or stop opening it.
    LinkClose,
    /// The next part of the primary's payload.
    Payload(Vec<u8>),
    /// The payload is whole: make it the data, then call `handle_loaded`. `handle_data_forgotten`
    /// is called when the old data goes, which may be before or after this, or never.
    Load,
    /// The payload, or what was loaded of it, is of no use.
    DropPayload,
    /// The stream follows; its session begins with this database.
    Linked {
        /// The database.
        db: usize,
    },
    /// Let no client write: the offset must stand still.
    PauseWrites,
    /// Clients may write again.
    Unpause,
    /// For the log.
    Log(Event),
    /// Nothing more now. Call `handle_time` then, if nothing else comes before.
    WaitUntil(Option<Moment>),
}
