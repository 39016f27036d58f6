//! CONFIG: settings read and changed while the server runs.

use store_types::Limits;

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
    let number = |name| config.number(name) as usize;
    server.limits = Limits {
        hash_listpack_entries_max: number("hash-max-listpack-entries"),
        hash_listpack_value_max: number("hash-max-listpack-value"),
        set_intset_entries_max: number("set-max-intset-entries"),
        zset_listpack_entries_max: number("zset-max-listpack-entries"),
        zset_listpack_value_max: number("zset-max-listpack-value"),
        list_node_size: config.number("list-max-listpack-size") as i32,
        stream_node_bytes_max: number("stream-node-max-bytes"),
        stream_node_entries_max: number("stream-node-max-entries"),
        hll_sparse_bytes_max: number("hll-sparse-max-bytes"),
        hash_seed: server.limits.hash_seed,
    };
    if config.tuned().memory_max > 0 {
        server.gates |= server_gate::MEMORY_LIMIT;
    } else {
        server.gates &= !server_gate::MEMORY_LIMIT;
    }
}
