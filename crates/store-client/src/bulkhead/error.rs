use std::sync::Arc;
use std::time::Duration;

/// Why a bulkhead could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkheadError {
    /// Nobody could ever call.
    #[error("the bulkhead {name:?} has no place for any call: give it at least one")]
    NoPlace {
        /// The name of the dependency.
        name: Arc<str>,
    },
    /// The system does not start as many threads.
    #[error(
        "cannot start {threads} threads for the bulkhead {name:?}; is a limit reached (ulimit -u)?"
    )]
    NoThreads {
        /// The name of the dependency.
        name: Arc<str>,
        /// How many were asked for.
        threads: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why a call has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// All places were taken. The call was not made.
    #[error("{name}: refused, {running} calls are running and {waiting} are waiting")]
    Refused {
        /// The name of the dependency.
        name: Arc<str>,
        /// How many calls ran at that moment.
        running: usize,
        /// How many calls waited at that moment.
        waiting: usize,
    },
    /// It waited longest when a newer call came, and [`WhenFull::DropOldest`] gave its place to
    /// that one. The call was not made.
    ///
    /// [`WhenFull::DropOldest`]: crate::bulkhead::WhenFull::DropOldest
    #[error("{name}: dropped from the queue for a newer call")]
    Dropped {
        /// The name of the dependency.
        name: Arc<str>,
    },
    /// No result within the time-out.
    #[error("{name}: no result within {after:?} ({})", if *.has_begun { "it still runs" } else { "it was not begun" })]
    TimedOut {
        /// The name of the dependency.
        name: Arc<str>,
        /// The time-out.
        after: Duration,
        /// Whether the call was begun: it then goes on, and keeps its thread until it ends.
        has_begun: bool,
    },
    /// The call panicked. Its thread takes the next one.
    #[error("{name}: the call panicked: {message}")]
    Panicked {
        /// The name of the dependency.
        name: Arc<str>,
        /// What the panic said.
        message: String,
    },
    /// The bulkhead is being dropped. The call was not made.
    #[error("{name}: closed")]
    Closed {
        /// The name of the dependency.
        name: Arc<str>,
    },
}
