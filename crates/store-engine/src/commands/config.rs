//! CONFIG: settings read and changed while the server runs.

use super::prelude::*;
use crate::keyspace::{AccessPolicy, Keyspace};
use crate::state::{ServerState, server_gate};

pub(super) const TABLE: &[Command] = &[];

/// Brings everything that keeps a setting in its own form up to date.
pub(crate) fn apply_settings(db: &mut Keyspace, server: &mut ServerState) {
    let config = &server.config;
    db.effects.event_mask = config.tuned().event_mask;
    db.set_access_policy(AccessPolicy {
        is_lfu: config.text("maxmemory-policy").ends_with("lfu"),
        log_factor: config.number("lfu-log-factor") as u32,
        decay_minutes: config.number("lfu-decay-time") as u32,
    });
    if config.tuned().memory_max > 0 {
        server.gates |= server_gate::MEMORY_LIMIT;
    } else {
        server.gates &= !server_gate::MEMORY_LIMIT;
    }
}
