//! Which clock a client goes by: the system's, or one that tests put in its place and move.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tenure_core::Moment;

use crate::driver::Inbox;

use tenure_backend::clock::system_now;
pub(crate) use tenure_backend::clock::timer_now;

/// Where readings come from, chosen when a client is made.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    System,
    Manual(Arc<ManualClock>),
}

impl Clock {
    /// A reading, now. On the system clock about as cheap as a function call.
    #[inline]
    pub(crate) fn now(&self) -> Moment {
        match self {
            Clock::System => system_now(),
            Clock::Manual(clock) => clock.now(),
        }
    }
}

/// Microseconds since 1970 by the wall clock. Only a store in memory asks: it makes tokens of it.
pub(crate) fn wall_micros() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + time.tv_nsec as u64 / 1_000
}

/// A clock that stands still until somebody moves it.
#[derive(Debug)]
pub(crate) struct ManualClock {
    nanos: AtomicU64,
    /// Drivers that sleep until this clock has moved.
    sleepers: Mutex<Vec<Weak<Inbox>>>,
}

impl ManualClock {
    pub(crate) fn starting_at(moment: Moment) -> Arc<Self> {
        let nanos = AtomicU64::new(moment.as_nanos());
        Arc::new(ManualClock { nanos, sleepers: Mutex::new(Vec::new()) })
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    pub(crate) fn wake_on_change(&self, inbox: &Arc<Inbox>) {
        self.lock_sleepers().push(Arc::downgrade(inbox));
    }

    /// Moves the clock and wakes every driver, so that each looks at what is due.
    pub(crate) fn set(&self, moment: Moment) {
        self.nanos.fetch_max(moment.as_nanos(), Ordering::AcqRel);
        self.drivers().iter().for_each(|inbox| inbox.rouse());
    }

    /// The drivers that still run.
    pub(crate) fn drivers(&self) -> Vec<Arc<Inbox>> {
        let mut sleepers = self.lock_sleepers();
        sleepers.retain(|inbox| inbox.strong_count() > 0);
        sleepers.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock_sleepers(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Inbox>>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_and_is_never_the_origin() {
        let before = Clock::System.now();
        assert!(before > Moment::ORIGIN);
        assert!(Clock::System.now() >= before);
    }

    #[test]
    fn a_manual_clock_never_goes_back() {
        let clock = ManualClock::starting_at(Moment::from_nanos(10));
        clock.set(Moment::from_nanos(30));
        clock.set(Moment::from_nanos(20));
        assert_eq!(Clock::Manual(clock).now(), Moment::from_nanos(30));
    }
}
