//! The only place where the server reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// How long a step of the wall clock may go unseen: turns are often much shorter than this, and
/// looking at two clocks in each of them would show.
const FOLLOW_US: u64 = 1000;
/// From here on, the wall clock was set and did not merely run a little faster or slower.
const STEP_US_MIN: u64 = 500;
/// How far apart two looks at clocks may be to count as one moment.
const ONE_MOMENT: Duration = Duration::from_micros(100);

/// Unix microseconds that go forward steadily between two looks at the wall clock, so that the
/// duration of a command is never wrong by a step of it.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    unix_us_at_start: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        loop {
            let before = Instant::now();
            let unix_us_at_start = unix_us();
            let started = Instant::now();
            // A process that was stopped in between would be wrong by as long as that, and leases
            // with it.
            if started - before < ONE_MOMENT {
                return Self { started, unix_us_at_start };
            }
        }
    }

    /// The time, following the wall clock again, and by how much somebody has set that clock since
    /// the last look. To be called once per turn of the loop.
    pub(crate) fn follow_wall_clock(&mut self) -> (u64, i64) {
        let since_us = self.started.elapsed().as_micros() as u64;
        if since_us < FOLLOW_US {
            return (self.unix_us_at_start + since_us, 0);
        }
        let now = Self::new();
        let since_us = (now.started - self.started).as_micros() as u64;
        let step_us = now.unix_us_at_start.wrapping_sub(self.unix_us_at_start + since_us) as i64;
        *self = now;
        let is_step = step_us.unsigned_abs() >= STEP_US_MIN;
        (self.unix_us_at_start, if is_step { step_us } else { 0 })
    }

    #[inline]
    pub(crate) fn now_us(&self) -> u64 {
        self.unix_us_at_start + self.started.elapsed().as_micros() as u64
    }
}

fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// Processor time of this thread.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How long something has run, by a clock that nobody sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    since: std::time::Instant,
}

impl Running {
    pub(crate) fn begin() -> Self {
        Running { since: std::time::Instant::now() }
    }

    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
