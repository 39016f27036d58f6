//! One server: the unchanged core, a small store, and what a machine keeps for them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use store_replica::{
    Access, Address, Command, ExpiryMode, Facts, Moment, Replication, ReplicationId, SessionId,
    Settings, SnapshotNeeds,
};
use store_resp::{OwnedRequest, RequestParser};

use super::data::{Change, ChangeKind, Data, Key, LinkSession};
use super::flaw::Flaw;
use crate::clock::Clock;
use crate::network::ConnectionId;
use crate::queue::Real;

/// A write that no client made: the end of a key.
const NOBODYS_WRITE: u32 = 0;

/// What a server's disk has.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    pub(crate) facts: Option<Facts>,
    pub(crate) bytes: Vec<u8>,
}

/// When the old data goes for a payload (`repl-diskless-load`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoadMode {
    /// Once the payload is whole and known to be good.
    Spool,
    /// Before its first byte.
    Direct,
    /// When it has been loaded beside the old data.
    Swap,
}

impl LoadMode {
    pub(crate) const ALL: [LoadMode; 3] = [LoadMode::Spool, LoadMode::Direct, LoadMode::Swap];
}

/// A payload that arrives, or is loaded.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) mode: LoadMode,
    pub(crate) bytes: Vec<u8>,
    /// Whether the old data could be continued when it began.
    pub(crate) was_described: bool,
    /// Whether the old data is gone.
    pub(crate) is_flushed: bool,
}

/// A replica's connection, at its primary.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) connection: ConnectionId,
    pub(crate) unparsed: Vec<u8>,
    pub(crate) parser: RequestParser,
    pub(crate) out: VecDeque<u8>,
    /// The payload that it gets, and how much of it was sent.
    pub(crate) payload: Option<u64>,
    pub(crate) payload_sent: usize,
}

/// A snapshot on its way to replicas.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Arc<Vec<u8>>,
    /// Whether it is sent while it is made.
    pub(crate) is_diskless: bool,
    /// Whether it is whole, and another one may be made.
    pub(crate) is_made: bool,
    pub(crate) ticket: u64,
}

/// A client in a blocking command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockedClient {
    pub(crate) session: SessionId,
    pub(crate) db: usize,
    pub(crate) key: Key,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) is_up: bool,
    pub(crate) life: u32,
    /// Counts changes of role: what a client wrote before one is not what WAIT asks about.
    pub(crate) reign: u32,
    pub(crate) replication: Replication,
    pub(crate) data: Data,
    pub(crate) clock: Clock,
    pub(crate) disk: Option<Saved>,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) upstream: Option<ConnectionId>,
    pub(crate) link: LinkSession,
    /// Requests that were confirmed before they were applied, where that is the flaw.
    pub(crate) read_ahead: VecDeque<OwnedRequest>,
    pub(crate) skips_select: bool,
    pub(crate) peers: BTreeMap<SessionId, Peer>,
    pub(crate) outgoing: Vec<Outgoing>,
    /// The snapshot that begins when another one is over.
    pub(crate) wanted: Option<SnapshotNeeds>,
    /// How the next payload is loaded. An operator may change it at any time.
    pub(crate) load: LoadMode,
    /// What it was when the primary was dialled, where guessing by that is the flaw.
    pub(crate) guessed_load: LoadMode,
    pub(crate) incoming: Option<Incoming>,
    pub(crate) loading: Option<u64>,
    /// Payloads in a row that it did not take, since an operator last named a primary.
    pub(crate) refused: u32,
    pub(crate) waiting: BTreeMap<SessionId, u32>,
    pub(crate) blocked: Vec<BlockedClient>,
    pub(crate) paused_until: Real,
    pub(crate) is_paused_for_failover: bool,
    /// When data was last lost or replaced here.
    pub(crate) lost_at: Real,
    pub(crate) rests_until: Real,
    /// Since when the stream has taken more than it should.
    pub(crate) large_since: Option<Real>,
    pub(crate) wakes_at: Option<Real>,
    pub(crate) old_ids: Vec<ReplicationId>,
    pub(crate) seen_acks: BTreeMap<Address, u64>,
}

impl Server {
    pub(crate) fn new(replication: Replication, clock: Clock, flaw: Option<Flaw>) -> Self {
        Self {
            is_up: true,
            life: 0,
            reign: 0,
            replication,
            data: Data::default(),
            clock,
            disk: None,
            flaw,
            upstream: None,
            link: LinkSession::default(),
            read_ahead: VecDeque::new(),
            skips_select: false,
            peers: BTreeMap::new(),
            outgoing: Vec::new(),
            wanted: None,
            load: LoadMode::Spool,
            guessed_load: LoadMode::Spool,
            incoming: None,
            loading: None,
            refused: 0,
            waiting: BTreeMap::new(),
            blocked: Vec::new(),
            paused_until: 0,
            is_paused_for_failover: false,
            lost_at: 0,
            rests_until: 0,
            large_since: None,
            wakes_at: None,
            old_ids: Vec::new(),
            seen_acks: BTreeMap::new(),
        }
    }

    pub(crate) fn now(&self, real: Real) -> Moment {
        Moment::from_ms(self.clock.monotonic(real))
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(crate) fn settings(&self) -> Settings {
        self.replication.settings().clone()
    }

    /// Whether the old data is gone and the new is not there yet.
    pub(crate) fn is_flushed(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.is_flushed)
    }

    /// The old data goes for a payload, and the core hears of it in the same step.
    pub(crate) fn drop_data(&mut self, real: Real) {
        let is_told = match self.flaw {
            Some(Flaw::CachedPrimaryAfterLoad) => false,
            Some(Flaw::LoadModeGuessed) => self.guessed_load != LoadMode::Swap,
            _ => true,
        };
        if is_told {
            self.replication.handle_data_forgotten(self.now(real));
        }
        self.data = Data::default();
        self.lost_at = real;
        if let Some(incoming) = &mut self.incoming {
            incoming.is_flushed = true;
        }
    }

    /// What a client's request finds under a key, and what it does to one that has expired.
    pub(crate) fn find(&mut self, real: Real, db: usize, key: Key, access: Access) -> Option<u64> {
        let entry = self.data.get(db, key)?;
        let expires_at = entry.expires_at.unwrap_or(u64::MAX);
        if expires_at > self.clock.wall(real) {
            return Some(expires_at);
        }
        let mut mode = self.replication.expiry_mode(access);
        let is_replica = !self.replication.is_primary();
        let is_early = self.has(Flaw::ReplicaExpires) && is_replica
            || self.has(Flaw::ExpireInPause) && !is_replica;
        if is_early && mode == ExpiryMode::Hide {
            mode = ExpiryMode::Drop;
        }
        let change = Change { write: NOBODYS_WRITE, key, kind: ChangeKind::Delete };
        match mode {
            ExpiryMode::Own => {
                self.write(real, &[(db, change)]);
            }
            ExpiryMode::Drop => self.data.apply(db, &change),
            ExpiryMode::Hide => {}
            ExpiryMode::Ignore => return Some(expires_at),
        }
        None
    }

    /// Applies one unit and feeds it. Returns the offset behind it.
    pub(crate) fn write(&mut self, real: Real, changes: &[(usize, Change)]) -> u64 {
        let now = self.now(real);
        let mut encoded = Vec::with_capacity(changes.len());
        for (db, change) in changes {
            self.data.apply(*db, change);
            encoded.push((*db, change.encode()));
        }
        let unit = encoded.iter().map(|(db, bytes)| Command { db: *db, bytes });
        self.replication.feed(now, unit)
    }

    pub(crate) fn takes_writes(&self, real: Real) -> bool {
        let is_paused = self.is_paused(real);
        let is_able = self.is_up && self.replication.is_primary() && !is_paused;
        is_able && !self.replication.has_too_few_replicas(self.now(real))
    }

    pub(crate) fn is_paused(&self, real: Real) -> bool {
        self.is_paused_for_failover || real < self.paused_until
    }
}
