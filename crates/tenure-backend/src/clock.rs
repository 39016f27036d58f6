//! The only file that reads a clock.
//!
//! Deadlines are counted on a clock that goes on while the host is suspended: a closed laptop or a
//! paused virtual machine must not make a lease longer.

use rustix::time::{ClockId, clock_gettime};
use tenure_core::Moment;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
compile_error!(
    "tenure needs a clock that counts through suspend: it knows those of Linux and macOS only"
);

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
/// On macOS this one counts through sleep, unlike the one behind `Instant`.
#[cfg(target_os = "macos")]
const CLOCK: ClockId = ClockId::Monotonic;

/// The current time on the clock that leases are counted on. About as cheap as a function call.
#[inline]
pub fn system_now() -> Moment {
    let time = clock_gettime(CLOCK);
    // A clock counted from boot is never negative, and 64 bits of nanoseconds are 584 years.
    Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The current time as the runtime's timers count it: for timeouts of calls, never for leases.
pub fn timer_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}
