//! How long to wait before the next try to connect.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(20);
/// The longest wait between two attempts to connect: short enough that a leader finds its store
/// again well within an ordinary lease.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Waits that double, each drawn from zero to its bound: a fleet that lost its store together does
/// not come back together.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let bound = FIRST.saturating_mul(1 << self.failures.min(16)).min(WAIT_MAX);
        self.failures = self.failures.saturating_add(1);
        bound.mul_f64(fastrand::f64())
    }

    /// It worked.
    pub(crate) fn reset(&mut self) {
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
        assert!(waits.iter().all(|wait| *wait <= WAIT_MAX));
        assert!(waits[20..].iter().any(|wait| *wait > WAIT_MAX / 2));
        assert!(waits[20..].iter().any(|wait| *wait < WAIT_MAX / 2));
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
