//! How often one request may be sent on, and how long it rests between two tries.

use std::time::Duration;

/// How often one request is sent on before it is abandoned: two nodes may disagree for a moment and
/// send it to and fro.
pub const HOPS_MAX: u32 = 5;
/// The first rest; each one is twice as long as the one before it.
const REST: Duration = Duration::from_millis(20);
const REST_MAX: Duration = Duration::from_millis(200);

/// How often one request was sent on and put off so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts {
    /// How often it was sent on since it last rested.
    hops: u32,
    rests: u32,
}

impl Attempts {
    /// Counts one more node that it is sent on to. False once there were too many of them.
    pub fn may_hop(&mut self) -> bool {
        self.hops += 1;
        self.hops <= HOPS_MAX
    }

    /// Counts one more wait and returns how long it is: keys are being moved, or a replica is about
    /// to take over. Hops are counted from 0 again.
    pub fn rest(&mut self) -> Duration {
        let rest = REST.saturating_mul(1 << self.rests.min(8)).min(REST_MAX);
        self.rests += 1;
        self.hops = 0;
        rest
    }

    /// Whether it has never been refused or put off.
    pub fn is_first(&self) -> bool {
        self.hops == 0 && self.rests == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_sent_on_a_few_times_and_again_after_each_rest() {
        let mut attempts = Attempts::default();
        assert!(attempts.is_first());
        for _ in 0..10 {
            assert!((0..HOPS_MAX).all(|_| attempts.may_hop()));
            assert!(!attempts.may_hop());
            attempts.rest();
        }
        assert!(!attempts.is_first());
        assert_eq!(attempts.rest(), REST_MAX);
        assert_eq!(Attempts::default().rest(), REST);
    }
}
