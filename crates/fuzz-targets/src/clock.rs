//! The only file of this crate that reads a clock.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time that this thread has used. Other programs do not count.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
