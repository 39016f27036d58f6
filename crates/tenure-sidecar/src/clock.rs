//! The only file that reads a clock. Leases are counted by the library's own; what is read here
//! is shown to people and says how old something is.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A reading to measure from.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970, 0 before.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
