//! What a primary knows about one replica.

use std::time::Duration;

use crate::history::ID_LEN;
use crate::moment::Moment;
use crate::output::{SessionId, SnapshotContent, SnapshotNeeds, SnapshotTarget};
use crate::settings::{Address, Settings};

/// How far a replica has come.
///
/// ```text
/// Greeting ─PSYNC─► WaitStart ─snapshot begins─► Transfer ─payload sent─► AwaitAck ─ACK─► Online
///    └──────────────────── what it lacks is in the backlog ────────────────────────────────┘
/// ```
/// A payload from disk needs no ACK: its length told the replica where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It told something about itself; so may any client.
    Greeting,
    /// It waits for a snapshot to begin.
    WaitStart {
        /// Since when.
        since: Moment,
    },
    /// It gets the payload.
    Transfer,
    /// It has the payload. Nothing is sent before it says so.
    AwaitAck,
    /// It follows the stream.
    Online,
}

/// One replica, seen from its primary.
#[derive(Clone, Debug)]
pub struct Replica {
    pub(crate) session: SessionId,
    pub(crate) state: ReplicaState,
    /// The next byte of the stream that it is sent.
    pub(crate) reader: u64,
    /// `None` before the first ack of this connection: what is online may still be loading, and an
    /// offset of zero is something to wait for, too.
    pub(crate) acked: Option<u64>,
    pub(crate) heard_at: Moment,
    /// When it last had taken all of its payload that there was, or some of it.
    pub(crate) progressed_at: Moment,
    /// The snapshot whose payload it gets, and the mark that ends it, where one does.
    pub(crate) snapshot: u64,
    pub(crate) mark: Option<[u8; ID_LEN]>,
    pub(crate) port: u16,
    pub(crate) ip: Option<String>,
    pub(crate) peer: String,
    pub(crate) takes_mark: bool,
    pub(crate) knows_second_id: bool,
    pub(crate) speaks_psync: bool,
    pub(crate) payload_only: bool,
    pub(crate) content: SnapshotContent,
    pub(crate) over_soft_since: Option<Moment>,
    /// Whether it was told that it claims more than there is: it may do so without end.
    pub(crate) has_lied: bool,
}

impl Replica {
    pub(crate) fn new(session: SessionId, now: Moment) -> Self {
        Self {
            session,
            state: ReplicaState::Greeting,
            reader: 0,
            acked: None,
            heard_at: now,
            progressed_at: now,
            snapshot: 0,
            mark: None,
            port: 0,
            ip: None,
            peer: String::new(),
            takes_mark: false,
            knows_second_id: false,
            speaks_psync: true,
            payload_only: false,
            content: SnapshotContent::All,
            over_soft_since: None,
            has_lied: false,
        }
    }

    /// Its session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// How far it has come.
    pub fn state(&self) -> ReplicaState {
        self.state
    }

    /// How many bytes of the stream it says that it has applied.
    pub fn acked(&self) -> u64 {
        self.acked.unwrap_or(0)
    }

    /// Bytes of a stream that ends at `end` which it has still to be sent.
    pub fn unsent(&self, end: u64) -> u64 {
        if self.reads() { end.saturating_sub(self.reader) } else { 0 }
    }

    /// How long it has been silent.
    pub fn lag(&self, now: Moment) -> Duration {
        now.since(self.heard_at)
    }

    /// Where clients reach it: what it told, or else where it connects from.
    pub fn address(&self) -> Address {
        let host = self.ip.clone().unwrap_or_else(|| self.peer.clone());
        Address { host, port: self.port }
    }

    /// Whether it follows the stream.
    pub fn is_online(&self) -> bool {
        self.state == ReplicaState::Online
    }

    /// Whether it follows the stream, or is about to confirm what it got before.
    pub(crate) fn has_payload(&self) -> bool {
        matches!(self.state, ReplicaState::AwaitAck | ReplicaState::Online)
    }

    /// Whether what it has not been sent yet must be kept for it.
    pub(crate) fn reads(&self) -> bool {
        use ReplicaState::{AwaitAck, Online, Transfer};
        matches!(self.state, Transfer | AwaitAck | Online) && !self.payload_only
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.state, ReplicaState::WaitStart { .. })
    }

    pub(crate) fn needs(&self, settings: &Settings) -> SnapshotNeeds {
        let is_diskless = settings.diskless && self.takes_mark;
        let target = if is_diskless { SnapshotTarget::Sockets } else { SnapshotTarget::Disk };
        SnapshotNeeds { target, content: self.content }
    }

    /// Whether `unsent` bytes are too many for it.
    pub(crate) fn is_over_limit(&mut self, now: Moment, unsent: u64, settings: &Settings) -> bool {
        let limit = settings.output_limit;
        if settings.unsent_max().is_some_and(|max| unsent > max) {
            return true;
        }
        if limit.soft_max == 0 || unsent <= limit.soft_max.max(settings.backlog_size as u64) {
            self.over_soft_since = None;
            return false;
        }
        let since = *self.over_soft_since.get_or_insert(now);
        now.since(since) >= limit.soft_for
    }
}
