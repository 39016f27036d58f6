//! Randomness that a printed seed repeats.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// The environment variable that fixes the seed of all tests that ask for one.
const VARIABLE: &str = "TESTKIT_SEED";

/// The seed for this run: from the environment variable `TESTKIT_SEED`, else a new one. It is
/// printed, and the test harness shows it when the test fails.
///
/// # Panics
/// When the variable is set and holds no number.
#[must_use]
pub fn seed() -> u64 {
    let seed = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is no number")),
        Err(_) => RandomState::new().hash_one(std::process::id()),
    };
    eprintln!("seed {seed}; to repeat: {VARIABLE}={seed}");
    seed
}

/// A small generator of pseudo-random numbers: the same seed gives the same numbers on every
/// machine and in every version.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// A generator that starts from `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number, each equally likely.
    pub fn next_u64(&mut self) -> u64 {
        // SplitMix64: a counter in steps of the golden ratio, then well mixed.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `range`.
    ///
    /// # Panics
    /// When the range is empty.
    pub fn in_range(&mut self, range: Range<u64>) -> u64 {
        assert!(range.start < range.end, "no number lies in {range:?}");
        // Slightly uneven for enormous ranges, which no test notices.
        range.start + self.next_u64() % (range.end - range.start)
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// When there is none.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let index = self.in_range(0..choices.len() as u64);
        &choices[usize::try_from(index).expect("less than a slice's length")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut random = Random::seeded(seed);
            (0..8).map(|_| random.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_all_of_it() {
        let mut random = Random::seeded(1);
        let mut reached = [false; 5];
        for _ in 0..200 {
            let number = random.in_range(10..15);
            reached[usize::try_from(number - 10).unwrap()] = true;
        }
        assert_eq!(reached, [true; 5]);
        assert!(["a", "b"].contains(random.choose(&["a", "b"])));
    }
}
