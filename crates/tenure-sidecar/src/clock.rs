//! The only file that reads a clock. Leases are counted by the library's own; what is read here is
//! only shown, and says how old something is.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tenure::Moment;

/// A reading to measure from.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A reading of the clock that goes on while the machine sleeps: how old knowledge is.
pub(crate) fn awake_or_asleep() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Milliseconds since this was first asked for, asleep or not. Readers compare two of them to tell
/// what is new from what came late.
pub(crate) fn running_ms() -> u64 {
    static STARTED_AT: OnceLock<Moment> = OnceLock::new();
    let started_at = STARTED_AT.get_or_init(awake_or_asleep);
    u64::try_from(awake_or_asleep().since(*started_at).as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970, 0 before.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
