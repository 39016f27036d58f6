//! The small generator behind jitter: seeded by the caller, so that every run can be repeated.

use std::time::Duration;

/// SplitMix64: one word of state, good enough to keep instances from moving in step.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A duration from zero up to, but not including, `limit`.
    pub(crate) fn below(&mut self, limit: Duration) -> Duration {
        let nanos = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(((u128::from(self.next()) * u128::from(nanos)) >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_jitter_within_its_limit() {
        let draw = |seed| {
            let mut random = Random::seeded(seed);
            (0..100).map(|_| random.below(Duration::from_millis(5))).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert!(draw(3).iter().all(|jitter| *jitter < Duration::from_millis(5)));
    }
}
