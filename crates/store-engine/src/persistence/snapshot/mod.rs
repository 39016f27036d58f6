//! Snapshots as the driver sees them: begun, fetched part by part, and loaded.
//!
//! ```text
//! BGSAVE, a save point ─► begin_save ─► ServerRequest::SaveStarted(job) ─► the driver opens a file
//! start_snapshot (AOF rewrite) ──┐                                            │
//!                                └► snapshot_turn ─► parts ──────────────────►│ written
//!                                                       finish_save ◄─────────┘ synced, renamed
//! ```
//! There is one snapshot at a time; `keyspace::snapshot` says how it stays true to its moment.

mod load;
mod saving;

use std::path::PathBuf;

use store_persist::rdb::{Head, WriteOptions};
use store_replica::{Facts, SnapshotContent};

pub use load::{EndedKeys, LoadOptions, LoadProgress, LoadReport, check_snapshot};
pub(crate) use load::{check_records, load, load_aside, load_library_again};
pub use saving::{SaveFailure, SaveJob, SavePoint, Saving};
pub(crate) use saving::{begin_save, guard_writes, save_before_end, save_now, stop_saving};

use crate::engine::Engine;
use crate::keyspace::{Keyspace, SnapshotForm, SnapshotKind, SnapshotTurn};
use crate::state::ServerState;

/// Facts in a file: who wrote it, and what is known of the data's history.
pub mod fact {
    /// Version of the program.
    pub const VERSION: &str = "tenure-ver";
    /// Incarnation of the data.
    pub const INCARNATION: &str = "tenure-incarnation";
    /// `complete` or `unknown`, as INFO tells.
    pub const HISTORY: &str = "tenure-history";
    /// The history of replication that the data is of, as Redis calls it.
    pub const REPLICATION_ID: &str = "repl-id";
    /// How many bytes of it.
    pub const OFFSET: &str = "repl-offset";
    /// The database that its stream has selected there.
    pub const STREAM_DB: &str = "repl-stream-db";
}

impl Engine {
    /// Begins a snapshot of this moment. False while one is running or leaves its last traces.
    pub fn start_snapshot(&mut self, now_us: u64, kind: SnapshotKind, form: SnapshotForm) -> bool {
        self.keyspace.begin(now_us, 0);
        start(&mut self.keyspace, &self.state, kind, form)
    }

    /// Walks one slice of the running snapshot, in well under a millisecond, while `ahead_bytes`
    /// of its parts (by [`own_bytes`](store_persist::rdb::Part::own_bytes)) are not written yet.
    pub fn snapshot_turn(&mut self, ahead_bytes: usize) -> SnapshotTurn {
        self.keyspace.snapshot_turn(ahead_bytes)
    }

    /// Whether [`snapshot_turn`](Self::snapshot_turn) has anything to do.
    pub fn has_snapshot(&self) -> bool {
        self.keyspace.has_snapshot()
    }

    /// Gives the running snapshot up. Nobody needs to take turns any more: its last traces go
    /// with [`tick`](Self::tick).
    pub fn abandon_snapshot(&mut self) {
        self.keyspace.drop_snapshot();
    }

    /// What the payload of a full sync begins with. `facts` say of which history it is.
    pub fn payload_head(&self, facts: Facts, content: SnapshotContent) -> Head {
        let mut head = head(&self.keyspace, &self.state, false);
        head.facts.retain(|(name, _)| !name.starts_with("repl-"));
        head.facts.extend(history_facts(facts));
        if content == SnapshotContent::Nothing {
            head.functions.clear();
        }
        head
    }

    /// What a snapshot file of this moment begins with; `is_aof_base` when an append-only file
    /// goes on from it.
    pub fn snapshot_head(&self, is_aof_base: bool) -> Head {
        head(&self.keyspace, &self.state, is_aof_base)
    }
}

/// Which history the data is of, and how much of it.
fn history_facts(facts: Facts) -> [(String, Vec<u8>); 3] {
    [
        (fact::STREAM_DB.to_owned(), facts.db.to_string().into_bytes()),
        (fact::REPLICATION_ID.to_owned(), facts.id.as_str().as_bytes().to_vec()),
        (fact::OFFSET.to_owned(), facts.offset.to_string().into_bytes()),
    ]
}

fn start(db: &mut Keyspace, server: &ServerState, kind: SnapshotKind, form: SnapshotForm) -> bool {
    let policy = server.config.settings().memory.eviction.policy;
    let is_begun = db.start_snapshot(kind, form, policy.orders_by_access());
    if is_begun && kind == SnapshotKind::Replica {
        // Given up under heavy overwrite, it would only begin again: what a replica may fall behind
        // in the stream it may fall behind here.
        let hard = server.config.settings().clients.output_limits.replica.hard;
        db.allow_ahead(if hard == 0 { usize::MAX } else { hard });
    }
    is_begun
}

fn head(db: &Keyspace, server: &ServerState, is_aof_base: bool) -> Head {
    let identity = &server.identity;
    let history = if identity.history_complete { "complete" } else { "unknown" };
    let facts = [
        ("redis-ver", crate::REDIS_VERSION.to_owned()),
        ("redis-bits", "64".to_owned()),
        ("ctime", (db.now_ms() / 1000).to_string()),
        ("used-mem", (server.base_memory + db.memory()).to_string()),
        ("aof-base", u8::from(is_aof_base).to_string()),
        (fact::VERSION, env!("CARGO_PKG_VERSION").to_owned()),
        (fact::INCARNATION, identity.incarnation.clone()),
        (fact::HISTORY, history.to_owned()),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.into_bytes())).into_iter();
    // What follows in an append-only file is behind this.
    let described = server.replication.described.filter(|_| !is_aof_base && !db.changes.is_ahead());
    let libraries = server.scripting.interpreter().into_iter().flat_map(|lua| lua.libraries());
    Head {
        options: WriteOptions {
            compresses: server.config.settings().snapshot.compresses,
            checksums: server.config.settings().snapshot.checksums,
        },
        facts: facts.chain(described.into_iter().flat_map(history_facts)).collect(),
        functions: libraries.map(|library| library.code().to_vec()).collect(),
    }
}

/// Where the settings say that the snapshot file is.
pub(crate) fn path(server: &ServerState) -> PathBuf {
    let snapshot = &server.config.settings().snapshot;
    snapshot.folder.join(&snapshot.file_name)
}

#[cfg(test)]
mod tests;
