//! Waking up at a moment of the clock that counts through suspend.
//!
//! Timers of the runtime and of the standard library stand still while the host sleeps, and leases
//! do not. On Linux the kernel wakes us by a timer on the very clock of the deadlines, so that
//! nothing is late after a suspend. Elsewhere, and where no descriptor is left for such a timer, a
//! sleep is cut into short ones.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tenure_core::Moment;

use crate::clock::Clock;

/// The longest sleep in one go where the timer stands still while the host is suspended.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// For a task: waits for one moment at a time.
pub(crate) struct TaskAlarm {
    #[cfg(target_os = "linux")]
    timer: Option<tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>>,
}

impl TaskAlarm {
    /// Inside a runtime, whose events it uses.
    pub(crate) fn new() -> Self {
        TaskAlarm {
            #[cfg(target_os = "linux")]
            timer: linux::timer(linux::Reading::NonBlocking).and_then(linux::in_runtime),
        }
    }

    /// Waits until `moment`, or a little shorter: whoever waits looks at the clock and comes back.
    pub(crate) async fn wait_until(&self, moment: Moment) {
        #[cfg(target_os = "linux")]
        if let Some(timer) = &self.timer
            && linux::set(timer.get_ref(), moment)
            && let Ok(mut ready) = timer.readable().await
        {
            linux::take(timer.get_ref());
            return ready.clear_ready();
        }
        tokio::time::sleep(Clock::System.now().until(moment).min(SLEEP_MAX)).await;
    }
}

/// For a thread that sleeps until a moment which other threads may move.
pub(crate) struct ThreadAlarm {
    #[cfg(target_os = "linux")]
    timer: Option<std::os::fd::OwnedFd>,
    rings_at: Mutex<Moment>,
    moved: Condvar,
}

impl ThreadAlarm {
    pub(crate) fn new() -> Self {
        ThreadAlarm {
            #[cfg(target_os = "linux")]
            timer: linux::timer(linux::Reading::Blocking),
            rings_at: Mutex::new(Moment::NEVER),
            moved: Condvar::new(),
        }
    }

    /// Has the sleeping thread wake up at `moment` instead of whenever it was going to.
    pub(crate) fn set(&self, moment: Moment) {
        #[cfg(target_os = "linux")]
        if let Some(timer) = &self.timer
            && linux::set(timer, moment)
        {
            return;
        }
        *self.rings_at.lock().unwrap_or_else(PoisonError::into_inner) = moment;
        self.moved.notify_all();
    }

    /// Sleeps until the moment that was set has come, or a little shorter.
    pub(crate) fn wait(&self) {
        #[cfg(target_os = "linux")]
        if let Some(timer) = &self.timer {
            return linux::take(timer);
        }
        let rings_at = self.rings_at.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = Clock::System.now().until(*rings_at).min(SLEEP_MAX);
        // Woken early or late: whoever waits looks at the clock.
        drop(self.moved.wait_timeout(rings_at, pause));
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tenure_core::Moment;
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    #[derive(PartialEq, Eq)]
    pub(super) enum Reading {
        Blocking,
        NonBlocking,
    }

    pub(super) fn timer(reading: Reading) -> Option<OwnedFd> {
        let mut flags = TimerfdFlags::CLOEXEC;
        if reading == Reading::NonBlocking {
            flags |= TimerfdFlags::NONBLOCK;
        }
        timerfd_create(TimerfdClockId::Boottime, flags).ok()
    }

    /// The timer among the events of the current runtime.
    #[expect(unsafe_code, reason = "the runtime cannot see that the descriptor stays open")]
    pub(super) fn in_runtime(timer: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
        // SAFETY: what is returned owns the descriptor, and neither replaces nor closes it.
        unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }.ok()
    }

    /// Whether the timer will ring then; one in the past rings at once.
    pub(super) fn set(timer: &OwnedFd, moment: Moment) -> bool {
        const SECOND: u64 = 1_000_000_000;
        let nanos = match moment {
            // Zero switches it off.
            Moment::NEVER => 0,
            moment => moment.as_nanos().max(1),
        };
        let it_value = Timespec {
            tv_sec: i64::try_from(nanos / SECOND).unwrap_or(i64::MAX),
            tv_nsec: (nanos % SECOND) as _,
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ringing = Itimerspec { it_interval, it_value };
        timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &ringing).is_ok()
    }

    /// Takes the ring, waiting for it where the timer blocks.
    pub(super) fn take(timer: impl AsFd) {
        // An error means that there is none yet, or that a signal came: whoever waits looks again.
        let _ = rustix::io::read(timer, &mut [0; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Moment {
        Clock::System.now() + Duration::from_millis(30)
    }

    #[test]
    fn a_thread_wakes_at_the_moment_and_earlier_when_it_is_moved() {
        let alarm = ThreadAlarm::new();
        let rings_at = soon();
        alarm.set(rings_at);
        while Clock::System.now() < rings_at {
            alarm.wait();
        }
        alarm.set(Clock::System.now() + Duration::from_secs(3600));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| alarm.wait());
            alarm.set(Moment::from_nanos(1));
            waiting.join().expect("it wakes up");
        });
    }

    #[test]
    fn a_task_wakes_at_the_moment_again_and_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let alarm = TaskAlarm::new();
            for _ in 0..3 {
                let rings_at = soon();
                while Clock::System.now() < rings_at {
                    alarm.wait_until(rings_at).await;
                }
            }
            alarm.wait_until(Moment::from_nanos(1)).await;
        });
    }
}
