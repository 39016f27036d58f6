//! INFO replication: the section, in the order of Redis 7.0.

use std::fmt::{Result, Write};

use store_replica::{FailoverPhase, ReplicaState};

use super::replica_info::write_link;
use super::{ReplicaFacts, ReplicationFacts};
use crate::config::Config;
use crate::state::ServerState;

/// Writes the section.
pub(crate) fn write_section(server: &ServerState, text: &mut String) -> Result {
    let facts = &server.replication;
    match &facts.link {
        None => text.push_str("role:master\r\n"),
        Some(link) => {
            text.push_str("role:slave\r\n");
            write_link(server, link, text)?;
        }
    }
    write!(text, "connected_slaves:{}\r\n", facts.replicas.len())?;
    if server.config.settings().keys.replicas_min > 0 {
        write!(text, "min_slaves_good_slaves:{}\r\n", facts.good_replicas)?;
    }
    for (index, replica) in facts.replicas.iter().enumerate() {
        write_replica(index, replica, text)?;
    }
    let failover = match facts.failover {
        FailoverPhase::None => "no-failover",
        FailoverPhase::WaitSync => "waiting-for-sync",
        FailoverPhase::InProgress => "failover-in-progress",
    };
    write!(text, "master_failover_state:{failover}\r\n")?;
    write_history(server, facts, text)?;
    let backlog = facts.backlog.unwrap_or_default();
    // The first byte has number one.
    let first = facts.backlog.map_or(0, |backlog| backlog.first + 1);
    write!(
        text,
        "repl_backlog_active:{}\r\nrepl_backlog_size:{}\r\n\
         repl_backlog_first_byte_offset:{first}\r\nrepl_backlog_histlen:{}\r\n",
        u8::from(facts.backlog.is_some()),
        server.config.settings().keys.backlog_bytes,
        backlog.len,
    )
}

fn write_replica(index: usize, replica: &ReplicaFacts, text: &mut String) -> Result {
    let ReplicaFacts { ip, port, acked, .. } = replica;
    let state = replica.state_name();
    let lag = if replica.is_past_transfer() { replica.lag_seconds } else { 0 };
    write!(text, "slave{index}:ip={ip},port={port},state={state},offset={acked},lag={lag}\r\n")
}

fn write_history(server: &ServerState, facts: &ReplicationFacts, text: &mut String) -> Result {
    let id = facts.history.map(|history| history.id());
    let id = id.as_ref().map_or(server.identity.run_id.as_str(), |id| id.as_str());
    let second = facts.history.and_then(|history| history.second());
    let second_id = second.map_or_else(|| "0".repeat(40), |second| second.id.to_string());
    let second_offset = second.map_or(-1, |second| second.until as i64 + 1);
    write!(
        text,
        "master_replid:{id}\r\nmaster_replid2:{second_id}\r\nmaster_repl_offset:{}\r\n\
         second_repl_offset:{second_offset}\r\n",
        facts.offset(),
    )
}

impl ReplicationFacts {
    /// Bytes of the stream that are kept.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.backlog.map_or(0, |backlog| backlog.len)
    }

    /// Those of them that the backlog is set to hold.
    pub(crate) fn backlog_bytes(&self, config: &Config) -> usize {
        (self.stream_bytes() as usize).min(config.settings().keys.backlog_bytes)
    }

    /// The others, which replicas have yet to read. `maxmemory` does not count them: each key that
    /// is evicted adds to them.
    pub(crate) fn unread_bytes(&self, config: &Config) -> usize {
        self.stream_bytes() as usize - self.backlog_bytes(config)
    }

    /// How many bytes the stream has had.
    pub(crate) fn offset(&self) -> u64 {
        self.history.map_or(0, |history| history.offset())
    }
}

impl ReplicaFacts {
    pub(crate) fn is_past_transfer(&self) -> bool {
        matches!(self.state, ReplicaState::Online | ReplicaState::AwaitAck)
    }

    /// As Redis calls it: what goes straight to sockets is a part of the save.
    fn state_name(&self) -> &'static str {
        match self.state {
            ReplicaState::Online | ReplicaState::AwaitAck => "online",
            ReplicaState::Transfer if self.reads_file => "send_bulk",
            _ => "wait_bgsave",
        }
    }
}
