//! The best candidates that samples have brought so far.
//!
//! A sample of five rarely contains the best key of all; keeping the best of many samples comes
//! close to it for little work.

use std::collections::VecDeque;

/// Candidates kept: more would be out of date before their turn comes.
const CANDIDATES_MAX: usize = 16;

/// Candidates in order, the one to go first at the end.
#[derive(Debug, Default)]
pub(super) struct Pool {
    candidates: VecDeque<Candidate>,
}

/// A key that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) score: i64,
    pub(super) db: usize,
    pub(super) key: Box<[u8]>,
}

impl Pool {
    pub(super) fn clear(&mut self) {
        self.candidates.clear();
    }

    /// Takes in a key if it is better than the worst, or there is room. One that is there
    /// already only gets its new score.
    pub(super) fn offer(&mut self, score: i64, db: usize, key: &[u8]) {
        let same = |known: &Candidate| known.db == db && *known.key == *key;
        let known = self.candidates.iter().position(same);
        let is_full = self.candidates.len() == CANDIDATES_MAX;
        let key = match known.and_then(|at| self.candidates.remove(at)) {
            Some(known) => known.key,
            None if !is_full => key.into(),
            None if self.candidates.front().is_some_and(|worst| worst.score < score) => {
                self.candidates.pop_front();
                key.into()
            }
            None => return,
        };
        self.insert(Candidate { score, db, key });
    }

    /// Puts a candidate that was taken out back under a new score.
    pub(super) fn insert(&mut self, candidate: Candidate) {
        let at = self.candidates.partition_point(|known| known.score < candidate.score);
        self.candidates.insert(at, candidate);
    }

    /// Takes out the candidate with the highest score.
    pub(super) fn take_best(&mut self) -> Option<Candidate> {
        self.candidates.pop_back()
    }

    /// The highest score of those that are left.
    pub(super) fn best_score(&self) -> Option<i64> {
        self.candidates.back().map(|candidate| candidate.score)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The model offers the same to a plain map and cuts off the worst.
        #[test]
        fn the_pool_keeps_the_best_of_all_it_was_offered(
            offers in proptest::collection::vec((0..40i64, 0..3usize, 0..12u8), 1..200),
        ) {
            let mut pool = Pool::default();
            let mut model: BTreeMap<(usize, u8), i64> = BTreeMap::new();
            for (score, db, key) in offers {
                pool.offer(score, db, &[key]);
                model.insert((db, key), score);
                if model.len() > CANDIDATES_MAX {
                    let worst = *model.values().min().unwrap();
                    let dropped = pool.candidates.front().unwrap().score;
                    prop_assert!(dropped >= worst);
                    // Which of several equally bad ones goes is the pool's choice.
                    model.retain(|place, _| {
                        pool.candidates.iter().any(|c| (c.db, c.key[0]) == *place)
                    });
                }
                prop_assert_eq!(pool.candidates.len(), model.len());
                prop_assert!(pool.candidates.iter().is_sorted_by_key(|c| c.score));
                for candidate in &pool.candidates {
                    prop_assert_eq!(model[&(candidate.db, candidate.key[0])], candidate.score);
                }
            }
            let best = model.values().max().copied();
            prop_assert_eq!(pool.take_best().map(|candidate| candidate.score), best);
        }
    }
}
