//! A small seeded generator. Whoever owns the engine owns the seed, so a run can be repeated.

/// SplitMix64: eight bytes of state, good enough to pick members, not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator whose whole sequence follows from `seed`.
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Sixty-four random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `limit`, which is not zero. The bias is below `limit` in 2^64.
    #[inline]
    pub fn below(&mut self, limit: usize) -> usize {
        assert!(limit > 0, "no number is below zero");
        ((u128::from(self.next_u64()) * limit as u128) >> 64) as usize
    }

    /// Whether the next of `remaining` items is among the `wanted` ones still to be chosen: asking
    /// for each item in turn picks every subset of that size with the same chance.
    #[inline]
    pub fn chooses(&mut self, wanted: usize, remaining: usize) -> bool {
        wanted > 0 && self.below(remaining) < wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_within_the_limit() {
        let (mut left, mut right) = (Rng::seeded(7), Rng::seeded(7));
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            let value = left.below(10);
            assert_eq!(value, right.below(10));
            seen[value] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1_200).contains(&count)), "{seen:?}");
    }
}
