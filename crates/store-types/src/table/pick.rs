//! Random entries, every one with the same chance.

use std::collections::BTreeSet;

use super::{Keyed, SPLIT_MAX, Table};
use crate::rng::Rng;

/// Draws after which a plain walk takes over. A draw fails when it hits a small segment or an empty
/// bucket; this many failures in a row happen only in a table that is nearly empty.
const DRAWS_MAX: usize = 1_000;

impl<T: Keyed> Table<T> {
    /// One entry at random.
    pub(crate) fn random(&self, rng: &mut Rng) -> Option<&T> {
        self.random_slot(rng).map(|slot| self.entry(slot))
    }

    /// `count` distinct entries at random, all of them if there are no more.
    pub(crate) fn sample(&self, rng: &mut Rng, count: usize) -> Vec<&T> {
        if count >= self.len() {
            return self.iter().collect();
        }
        if count > self.len() / 3 {
            return self.sample_by_walk(rng, count);
        }
        let mut slots = BTreeSet::new();
        let mut picked = Vec::with_capacity(count);
        while picked.len() < count {
            let Some(slot) = self.random_slot(rng) else { break };
            if slots.insert(slot) {
                picked.push(self.entry(slot));
            }
        }
        picked
    }

    fn sample_by_walk(&self, rng: &mut Rng, count: usize) -> Vec<&T> {
        let mut remaining = self.len();
        let mut picked = Vec::with_capacity(count);
        for entry in self.iter() {
            if rng.chooses(count - picked.len(), remaining) {
                picked.push(entry);
            }
            remaining -= 1;
        }
        picked
    }

    /// Segment and bucket of a random entry.
    fn random_slot(&self, rng: &mut Rng) -> Option<(usize, usize)> {
        if self.len() == 0 {
            return None;
        }
        for _ in 0..DRAWS_MAX {
            let segment = rng.below(self.segments.len());
            let entries = &self.segments[segment].entries;
            // A segment is kept in proportion to its length, or small ones would be favoured.
            let kept = self.segments.len() == 1 || rng.below(SPLIT_MAX) < entries.len();
            if !kept || entries.is_empty() {
                continue;
            }
            for _ in 0..DRAWS_MAX {
                let bucket = rng.below(entries.num_buckets());
                if entries.get_bucket(bucket).is_some() {
                    return Some((segment, bucket));
                }
            }
        }
        self.nth_slot(rng.below(self.len()))
    }

    fn nth_slot(&self, mut index: usize) -> Option<(usize, usize)> {
        for (segment, shared) in self.segments.iter().enumerate() {
            if index < shared.entries.len() {
                return shared.entries.iter_buckets().nth(index).map(|bucket| (segment, bucket));
            }
            index -= shared.entries.len();
        }
        None
    }

    fn entry(&self, (segment, bucket): (usize, usize)) -> &T {
        self.segments[segment].entries.get_bucket(bucket).expect("just found there")
    }
}
