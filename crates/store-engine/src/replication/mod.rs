//! What the driver tells of replication, and what sessions ask of it.
//!
//! ```text
//! command ─► ServerRequest::Replication ─► the driver's machine ─► resume_session, finish_wait
//! units ────────────────────────────────► the driver's machine ─► Session::wrote_at
//! INFO, ROLE, the gates ◄── ReplicationFacts ◄── told at the end of a turn
//! ```

pub(crate) mod commands;

use store_replica::{FailoverPhase, History, ReplicaState, SyncCounts};
use store_resp::OwnedRequest;

use crate::engine::Engine;
use crate::session::SessionId;
use crate::state::server_gate;

/// What a session asks of replication. It is held back meanwhile, so that replies keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicationRequest {
    /// REPLCONF.
    Replconf(OwnedRequest),
    /// PSYNC.
    Psync(OwnedRequest),
    /// SYNC.
    Sync,
    /// WAIT until so many replicas have what the session wrote.
    Wait {
        /// How many.
        count: usize,
    },
}

/// The part of the stream that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogFacts {
    /// The offset of its first byte.
    pub first: u64,
    /// Bytes of the stream.
    pub len: u64,
    /// Bytes in memory.
    pub memory: usize,
}

/// One replica of this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaFacts {
    /// Its session.
    pub session: SessionId,
    /// Where clients reach it.
    pub ip: String,
    /// See above.
    pub port: u16,
    /// How far it has come.
    pub state: ReplicaState,
    /// Bytes of the stream that it has confirmed.
    pub acked: u64,
    /// Bytes of the stream that it has yet to be sent.
    pub unsent: u64,
    /// Seconds since it was last heard of.
    pub lag_seconds: u64,
}

/// What the driver tells: for INFO and ROLE, and for the gates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationFacts {
    /// Which data this is; `None` before a driver has told.
    pub history: Option<History>,
    /// The part of the stream that is kept, if it is.
    pub backlog: Option<BacklogFacts>,
    /// Who follows.
    pub replicas: Vec<ReplicaFacts>,
    /// How many of them count for `min-replicas-to-write`.
    pub good_replicas: usize,
    /// How far a FAILOVER is.
    pub failover: FailoverPhase,
    /// How often replicas got what.
    pub syncs: SyncCounts,
    /// Bytes of payloads and of the stream that were sent to replicas.
    pub sent_bytes: u64,
}

impl ReplicationFacts {
    /// How many replicas have confirmed the stream up to `offset`.
    pub(crate) fn count_acks(&self, offset: u64) -> usize {
        let replicas = self.replicas.iter();
        let has_it = |it: &&ReplicaFacts| it.state == ReplicaState::Online && it.acked >= offset;
        replicas.filter(has_it).count()
    }
}

impl Engine {
    /// For the driver to tell what it knows, before requests run that ask for it. The gates follow
    /// with [`follow_replication`](Self::follow_replication).
    pub fn replication_facts_mut(&mut self) -> &mut ReplicationFacts {
        &mut self.state.replication
    }

    /// The facts were told: opens or shuts the gates that depend on them.
    pub fn follow_replication(&mut self) {
        let wanted = self.state.config.settings().keys.replicas_min;
        match wanted > self.state.replication.good_replicas {
            true => self.state.gates |= server_gate::FEW_REPLICAS,
            false => self.state.gates &= !server_gate::FEW_REPLICAS,
        }
    }
}
