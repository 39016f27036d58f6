//! The only place where the program reads a clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A reading to measure from.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// A reading of the clock that goes on while the machine sleeps: how old knowledge is.
pub(crate) fn awake_or_asleep() -> tenure::Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    tenure::Moment::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Unix milliseconds, 0 before 1970.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Microseconds since 1970, 0 before.
pub(crate) fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// How long ago a moment of the wall clock was; nothing when it is yet to come.
pub(crate) fn age_of(moment: SystemTime) -> std::time::Duration {
    SystemTime::now().duration_since(moment).unwrap_or_default()
}

/// A clock that only ever goes on, for lengths of time.
pub(crate) fn steady() -> std::time::Instant {
    std::time::Instant::now()
}

/// A reading of the clock that counts through suspend, as leases do.
pub(crate) fn boot_now() -> tenure::Moment {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // It counts from the start of the machine: never negative, and 64 bits are 584 years.
    tenure::Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
