//! How long to wait before the next try to connect.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
/// The longest wait between two attempts to connect: short enough that a leader finds its store
/// again well within an ordinary lease. In a long outage each client tries twice in this time on
/// average, so N clients cause at most 2 N attempts in this time.
pub const REDIAL_WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits that double, each drawn from zero to its bound: a fleet that lost its store together does
/// not come back together.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after one more failure.
    pub(super) fn next(&mut self) -> Duration {
        self.next_from(FIRST)
    }

    /// The wait after one more failure, where a first one is worth more patience.
    pub(super) fn next_from(&mut self, first: Duration) -> Duration {
        let bound = first.max(FIRST).saturating_mul(1 << self.failures.min(16));
        let bound = bound.min(REDIAL_WAIT_MAX);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(fastrand::f64())
    }

    /// It worked.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_their_bound_and_differ() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..200).map(|_| backoff.next()).collect();
        assert!(waits[0] <= FIRST && waits[1] <= FIRST * 2);
        assert!(waits.iter().all(|wait| *wait <= REDIAL_WAIT_MAX));
        assert!(waits[20..].iter().any(|wait| *wait > REDIAL_WAIT_MAX / 2));
        assert!(waits[20..].iter().any(|wait| *wait < REDIAL_WAIT_MAX / 2));
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
