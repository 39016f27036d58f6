//! The one clock of a trial: the same that the library measures leases with.

use rustix::time::{ClockId, clock_gettime};
use tenure_core::Moment;

/// Now, on the host's suspend-aware clock, comparable between all processes of the host.
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Moment::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// What this process takes for the time of day, in seconds since 1970.
pub fn wall_seconds() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(0, |time| time.as_secs())
}

/// The processor time that this process has used.
pub fn cpu_time() -> std::time::Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
