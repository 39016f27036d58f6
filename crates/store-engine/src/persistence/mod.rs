//! What the driver tells of files: for INFO, and for the gates that refuse writes.

pub(crate) mod aside;
pub(crate) mod commands;
pub(crate) mod load;
pub(crate) mod snapshot;

pub use store_persist::aof::AofFacts;

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
    /// Whether it is loaded beside the data in use, which is whole.
    pub is_aside: bool,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct PersistenceStatus {
    /// Data being loaded, if it is.
    pub loading: Option<Loading>,
    /// Whether data is loaded beside the data in use.
    pub is_loading_aside: bool,
    /// The append-only file.
    pub aof: AofFacts,
    /// Why the request from a file that runs cannot be loaded.
    pub(crate) load_failure: Option<LoadFailure>,
    /// Whether a request of the primary that runs was to change keys, and failed.
    pub(crate) lacks_write: bool,
}

impl PersistenceStatus {
    /// Whether the data is only a part of what is being loaded.
    pub(crate) fn is_half_loaded(&self) -> bool {
        self.loading.as_ref().is_some_and(|loading| !loading.is_aside)
    }
}

impl PersistenceStatus {
    /// What commands that change data are answered with while files cannot be written.
    pub(crate) fn refusal(&self) -> CommandError {
        let reason = self.aof.trouble.as_deref().unwrap_or("unknown");
        CommandError::new(format!("MISCONF Errors writing to the AOF file: {reason}"))
    }
}
