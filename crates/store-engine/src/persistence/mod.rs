//! What the driver tells of files: for INFO, and for the gates that refuse writes.

pub(crate) mod commands;
pub(crate) mod load;
pub(crate) mod snapshot;

use crate::error::CommandError;
use crate::persistence::load::LoadFailure;

/// Data being loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loading {
    /// Unix milliseconds.
    pub started_at_ms: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Bytes done with.
    pub loaded_bytes: u64,
}

/// The append-only file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AofFacts {
    /// Whether units are appended, or will be once a first base is written.
    pub is_on: bool,
    /// Whether it is being written anew.
    pub is_rewriting: bool,
    /// Whether that waits for the end of a snapshot.
    pub is_scheduled: bool,
    /// Unix milliseconds since when.
    pub rewrite_started_at_ms: u64,
    /// Seconds that the last rewrite took.
    pub last_rewrite_seconds: Option<u64>,
    /// Whether it came to its end.
    pub last_rewrite_ok: bool,
    /// Rewrites begun.
    pub rewrites: u64,
    /// Rewrites in a row that failed.
    pub rewrite_failures: u64,
    /// Why writes are refused, if they are.
    pub trouble: Option<String>,
    /// Whether it is on and has no base yet: an end would lose what it is to keep.
    pub is_starting: bool,
    /// Why its first base could not be written, until it is tried again.
    pub start_failure: Option<String>,
    /// Bytes of all files.
    pub current_size: u64,
    /// Bytes of all files after the last rewrite.
    pub base_size: u64,
    /// Bytes that wait to be written.
    pub buffer_len: usize,
    /// Whether a sync is under way.
    pub is_syncing: bool,
    /// How often a write did not wait for one.
    pub delayed_syncs: u64,
}

impl Default for AofFacts {
    fn default() -> Self {
        Self {
            is_on: false,
            is_rewriting: false,
            is_scheduled: false,
            rewrite_started_at_ms: 0,
            last_rewrite_seconds: None,
            last_rewrite_ok: true,
            rewrites: 0,
            rewrite_failures: 0,
            trouble: None,
            is_starting: false,
            start_failure: None,
            current_size: 0,
            base_size: 0,
            buffer_len: 0,
            is_syncing: false,
            delayed_syncs: 0,
        }
    }
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct PersistenceStatus {
    /// Data being loaded, if it is.
    pub loading: Option<Loading>,
    /// The append-only file.
    pub aof: AofFacts,
    /// Why the request from a file that runs cannot be loaded.
    pub(crate) load_failure: Option<LoadFailure>,
}

impl PersistenceStatus {
    /// What commands that change data are answered with while files cannot be written.
    pub(crate) fn refusal(&self) -> CommandError {
        let reason = self.aof.trouble.as_deref().unwrap_or("unknown");
        CommandError::new(format!("MISCONF Errors writing to the AOF file: {reason}"))
    }
}
