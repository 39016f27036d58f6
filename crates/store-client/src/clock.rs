//! The only file that reads a clock.

use tokio::time::Instant;

/// The time as the runtime's timers count it.
pub(crate) fn now() -> Instant {
    Instant::now()
}
