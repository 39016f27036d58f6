//! What the driver tells of replication, and what sessions ask of it.
//!
//! ```text
//! command ─► ServerRequest::Replication ─► the driver's machine ─► resume_session, finish_wait
//! units ────────────────────────────────► the driver's machine ─► Session::wrote_at
//! INFO, ROLE, the gates ◄── ReplicationFacts ◄── told at the end of a turn
//! ```

pub(crate) mod commands;
mod info;
mod link;
pub(crate) mod replica_info;
pub(crate) mod role;

pub use link::Applied;
use store_replica::{
    Address, Facts, FailoverError, FailoverPhase, FailoverRequest, History, LinkPhase,
    ReplicaState, SyncCounts,
};
use store_resp::{OwnedRequest, Request};

pub(crate) use info::write_section as write_info;
pub(crate) use role::UNBLOCKED;

use crate::commands::describe_client;
use crate::context::Context;
use crate::effects::ServerRequest;
use crate::engine::Engine;
use crate::session::{SessionId, session_flag};

/// What a session asks of replication. It is held back meanwhile, so that replies keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicationRequest {
    /// REPLCONF.
    Replconf(OwnedRequest),
    /// PSYNC.
    Psync(OwnedRequest),
    /// SYNC.
    Sync,
    /// SHUTDOWN, which waits until replicas have everything. The session is asked again then.
    Shutdown,
    /// SHUTDOWN ABORT.
    AbortShutdown,
    /// WAIT until so many replicas have what the session wrote.
    Wait {
        /// How many.
        count: usize,
        /// The number of this wait: no other one has it.
        wait: u64,
    },
    /// REPLICAOF this one; `None` for NO ONE.
    Follow(Option<Address>, Asker),
    /// FAILOVER.
    Failover(FailoverRequest, Asker),
    /// FAILOVER ABORT.
    AbortFailover(Asker),
    /// DEBUG CHANGE-REPL-ID.
    ChangeId,
}

/// What whoever asks for something does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// It waits.
    Waits,
    /// It was answered already, as a part of a transaction, and may wait for something else.
    WentOn,
}

/// The part of the stream that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BacklogFacts {
    /// The offset of its first byte.
    pub first: u64,
    /// Bytes of the stream.
    pub len: u64,
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
    /// Whether it reads the payload from a file that is whole.
    pub reads_file: bool,
    /// Bytes of the stream that it has confirmed.
    pub acked: u64,
    /// Bytes of the stream that it has yet to be sent.
    pub unsent: u64,
    /// Seconds since it was last heard of.
    pub lag_seconds: u64,
}

/// The link to the primary, on a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// Where the primary is.
    pub host: String,
    /// See above.
    pub port: u16,
    /// How far the link has come.
    pub phase: LinkPhase,
    /// Whether the primary is left alone until an operator names it again.
    pub is_stopped: bool,
    /// Seconds since the primary was last heard of.
    pub silent_seconds: u64,
    /// Seconds since the stream is not followed; `None` while it is.
    pub down_seconds: Option<u64>,
    /// Bytes of the stream that have arrived.
    pub read_offset: u64,
    /// Bytes of the payload that have arrived.
    pub received_bytes: u64,
    /// How many it has, if the primary told.
    pub payload_bytes: Option<u64>,
}

impl LinkFacts {
    /// Whether the stream is followed.
    pub fn is_linked(&self) -> bool {
        self.phase == LinkPhase::Connected
    }
}

/// What the driver tells: for INFO and ROLE, and for the gates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicationFacts {
    /// Which data this is; `None` before a driver has told.
    pub history: Option<History>,
    /// The part of the stream that is kept, if it is.
    pub backlog: Option<BacklogFacts>,
    /// What describes the data, for files: on a primary that behind all units that were fetched.
    pub described: Option<Facts>,
    /// Whom this server follows; `None` on a primary.
    pub link: Option<LinkFacts>,
    /// Who follows.
    pub replicas: Vec<ReplicaFacts>,
    /// How many of them count for `min-replicas-to-write`.
    pub good_replicas: usize,
    /// Whether a payload is being made.
    pub is_syncing: bool,
    /// Whether the server ends as soon as replicas have everything.
    pub is_ending: bool,
    /// How far a FAILOVER is.
    pub failover: FailoverPhase,
    /// How often replicas got what.
    pub syncs: SyncCounts,
    /// What of it was there at CONFIG RESETSTAT.
    pub syncs_before: SyncCounts,
    /// Bytes of payloads and of the stream that were sent to replicas.
    pub sent_bytes: u64,
    /// Bytes that came from the primary.
    pub received_bytes: u64,
    /// How many sessions have begun to WAIT.
    pub(crate) waits_begun: u64,
}

impl ReplicationFacts {
    /// Whether a FAILOVER can begin, as far as the driver has told.
    pub(crate) fn check_failover(&self, asked: &FailoverRequest) -> Result<(), FailoverError> {
        let has_payload =
            |it: &&ReplicaFacts| matches!(it.state, ReplicaState::AwaitAck | ReplicaState::Online);
        let is_it = |it: &&ReplicaFacts, to: &Address| it.ip == to.host && it.port == to.port;
        let target = asked.to.as_ref().map(|to| self.replicas.iter().find(|it| is_it(it, to)));
        match target {
            _ if self.failover != FailoverPhase::None => Err(FailoverError::Running),
            _ if self.link.is_some() => Err(FailoverError::NotPrimary),
            _ if self.replicas.is_empty() => Err(FailoverError::NoReplicas),
            _ if asked.is_forced && (asked.to.is_none() || asked.timeout.is_none()) => {
                Err(FailoverError::ForceNeedsBoth)
            }
            Some(None) => Err(FailoverError::UnknownTarget),
            Some(found) if found.filter(has_payload).is_none() => {
                Err(FailoverError::TargetNotOnline)
            }
            _ => Ok(()),
        }
    }

    /// Whether there is a FAILOVER to abort, as far as the driver has told.
    pub(crate) fn check_abort(&self) -> Result<(), FailoverError> {
        match self.failover {
            FailoverPhase::None => Err(FailoverError::NotRunning),
            _ => Ok(()),
        }
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset_stats(&mut self) {
        self.syncs_before = self.syncs;
        (self.sent_bytes, self.received_bytes) = (0, 0);
    }

    /// How often replicas got what since CONFIG RESETSTAT.
    pub(crate) fn counted_syncs(&self) -> SyncCounts {
        let (all, before) = (self.syncs, self.syncs_before);
        SyncCounts {
            full: all.full - before.full,
            partial_done: all.partial_done - before.partial_done,
            partial_refused: all.partial_refused - before.partial_refused,
        }
    }

    /// How many replicas have confirmed the stream up to where a session wrote. One that wrote
    /// nothing asks about all that there is.
    pub(crate) fn count_acks(&self, wrote_at: u64) -> usize {
        let offset = if wrote_at == 0 { self.offset() } else { wrote_at };
        let replicas = self.replicas.iter();
        let has_it = |it: &&ReplicaFacts| it.state == ReplicaState::Online && it.acked >= offset;
        replicas.filter(has_it).count()
    }
}

/// A replica asked for something that is answered: it takes itself for a client.
pub(crate) fn close_answered_replica(cx: &mut Context<'_>, request: Request<'_>) {
    const NAME_MAX: usize = 128;
    let name = request.arg(0);
    let name = name[..name.len().min(NAME_MAX)].escape_ascii();
    let line = format!("Replica generated a reply to command '{name}', disconnecting it");
    let id = cx.session.id;
    cx.session.flags |= session_flag::CLOSING;
    cx.server.effects.requests.extend([ServerRequest::Log(line), ServerRequest::Close(id)]);
}

impl Engine {
    /// For the driver to tell what it knows, before requests run that ask for it. The gates follow
    /// with [`follow_replication`](Self::follow_replication).
    pub fn replication_facts_mut(&mut self) -> &mut ReplicationFacts {
        &mut self.state.replication
    }

    /// A session as CLIENT LIST shows it, for the log; `None` when it is gone.
    pub fn describe_session(&self, id: SessionId) -> Option<String> {
        let session = self.state.sessions.get(id)?;
        Some(describe_client(&self.state, session, self.keyspace.now_ms()))
    }

    /// The facts were told: opens or shuts the gates that depend on them.
    pub fn follow_replication(&mut self) {
        for (gate, is_shut) in role::gates(&self.state) {
            match is_shut {
                true => self.state.gates |= gate,
                false => self.state.gates &= !gate,
            }
        }
    }
}
