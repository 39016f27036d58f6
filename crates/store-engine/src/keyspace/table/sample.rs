//! Entries chosen at random, for eviction.
//!
//! A segment is drawn with a chance that grows with how many of its entries are in question,
//! then entries within it, so every entry has the same chance whatever its segment or bucket.
//! All entries of one call come from one segment: hashes put entries there that have nothing
//! to do with each other.

use store_types::Rng;

use super::super::entry::Entry;
use super::{SEGMENT_LEN_MAX, SLOTS, Segment, Table};

/// Draws of a segment before the next one that has anything is taken: enough for one entry in
/// question in every few hundred segments, and still only microseconds.
const SEGMENT_DRAWS_MAX: usize = 4096;
/// A segment with fewer entries in question per place is looked through instead of drawn from.
const PLACES_PER_ENTRY_MAX: usize = 16;
/// Draws of places per entry wanted, well over what that density needs.
const PLACE_DRAWS_MAX: usize = 8 * PLACES_PER_ENTRY_MAX;

/// Which entries are in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All of them.
    All,
    /// Those that end at some time.
    Volatile,
}

impl Scope {
    pub(crate) fn includes(self, entry: &Entry) -> bool {
        self == Scope::All || entry.expires_at().is_some()
    }
}

impl Table {
    /// Number of entries in question.
    pub(in super::super) fn count(&self, scope: Scope) -> usize {
        match scope {
            Scope::All => self.len,
            Scope::Volatile => self.volatile,
        }
    }

    /// Visits `count` entries drawn at random, possibly one of them twice; fewer when the drawn
    /// segment has fewer.
    pub(in super::super) fn sample(
        &self,
        scope: Scope,
        count: usize,
        random: &mut Rng,
        visit: &mut dyn FnMut(&Entry),
    ) {
        if let Some(segment) = self.random_segment(scope, random) {
            segment.sample(scope, count, random, visit);
        }
    }

    fn random_segment(&self, scope: Scope, random: &mut Rng) -> Option<&Segment> {
        let (total, segments) = (self.count(scope), self.segments.len());
        if total == 0 {
            return None;
        }
        let weight_max = match self.slots {
            // Hashing spreads entries so evenly that no segment has more than this.
            None => (4 * (total / segments) + 8).min(SEGMENT_LEN_MAX),
            // Slots have as many as they have.
            Some(_) => SEGMENT_LEN_MAX,
        };
        for _ in 0..SEGMENT_DRAWS_MAX {
            let segment = &self.segments[random.below(segments)];
            if random.below(weight_max) < segment.count(scope) {
                return Some(segment);
            }
        }
        let start = random.below(segments);
        let (before, behind) = self.segments.split_at(start);
        behind.iter().chain(before).find(|segment| segment.count(scope) > 0)
    }
}

impl Segment {
    fn count(&self, scope: Scope) -> usize {
        match scope {
            Scope::All => self.len as usize,
            Scope::Volatile => self.volatile as usize,
        }
    }

    fn sample(&self, scope: Scope, count: usize, random: &mut Rng, visit: &mut dyn FnMut(&Entry)) {
        let slots = (self.buckets.len() + self.overflow.len()) * SLOTS;
        let places = slots + self.spill.len();
        let there = self.count(scope);
        if there * PLACES_PER_ENTRY_MAX < places || there <= 4 * count {
            return self.sample_by_looking(scope, count, random, visit);
        }
        let mut left = count;
        for _ in 0..count * PLACE_DRAWS_MAX {
            let Some(entry) = self.entry_at(random.below(places), slots) else { continue };
            if scope.includes(entry) {
                visit(entry);
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
        if left == count {
            // Hardly ever, but who asks relies on finding what is there.
            self.sample_by_looking(scope, count, random, visit);
        }
    }

    fn entry_at(&self, place: usize, slots: usize) -> Option<&Entry> {
        if place >= slots {
            return self.spill.get(place - slots);
        }
        self.bucket((place / SLOTS) as u32).slots[place % SLOTS].as_ref()
    }

    /// Visits entries in question, no one twice.
    fn sample_by_looking(
        &self,
        scope: Scope,
        count: usize,
        random: &mut Rng,
        visit: &mut dyn FnMut(&Entry),
    ) {
        let buckets = self.buckets.iter().chain(&self.overflow);
        let entries = buckets.flat_map(|bucket| bucket.slots.iter().flatten()).chain(&self.spill);
        let (mut remaining, mut wanted) = (self.count(scope), count);
        for entry in entries.filter(|entry| scope.includes(entry)) {
            if wanted == 0 {
                return;
            }
            if random.chooses(wanted, remaining) {
                visit(entry);
                wanted -= 1;
            }
            remaining -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::entry::NewValue;
    use super::*;

    fn hash_of(key: &[u8]) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = foldhash::quality::FixedState::with_seed(3).build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// `count` keys, of which every `every`-th ends.
    fn table(count: usize, every: usize) -> Table {
        let mut table = Table::new();
        for number in 0..count {
            let expires_at = number.is_multiple_of(every).then_some(5);
            let key = (number as u32).to_be_bytes();
            let entry = Entry::new(&key, NewValue::Integer(0), expires_at);
            table.insert(hash_of(&key), entry, &hash_of);
        }
        table
    }

    fn number(entry: &Entry) -> usize {
        u32::from_be_bytes(entry.key().try_into().unwrap()) as usize
    }

    /// Pearson's statistic over its degrees of freedom: 1 for an even choice.
    fn unevenness(table: &Table, scope: Scope, in_question: &[usize], draws: usize) -> f64 {
        let mut random = Rng::seeded(11);
        let mut seen = vec![0_u32; table.len()];
        let mut total = 0;
        for _ in 0..draws {
            table.sample(scope, 5, &mut random, &mut |entry| {
                seen[number(entry)] += 1;
                total += 1;
            });
        }
        let expected = f64::from(total) / in_question.len() as f64;
        let squares = in_question.iter().map(|at| (f64::from(seen[*at]) - expected).powi(2));
        assert_eq!(in_question.iter().map(|at| seen[*at]).sum::<u32>(), total, "out of scope");
        squares.sum::<f64>() / expected / (in_question.len() - 1) as f64
    }

    #[test]
    fn every_entry_in_question_has_the_same_chance() {
        // One segment, several, many; all keys, most, few, hardly any that end.
        for count in [40, 3_000, 30_000] {
            for every in [1, 2, 10, 200] {
                let table = table(count, every);
                let all: Vec<usize> = (0..count).collect();
                let ending: Vec<usize> = (0..count).step_by(every).collect();
                for (scope, in_question) in [(Scope::All, all), (Scope::Volatile, ending)] {
                    if in_question.len() < 10 {
                        continue;
                    }
                    let draws = in_question.len() * 4;
                    let uneven = unevenness(&table, scope, &in_question, draws);
                    // Five at a time from one segment vary more than five alone would.
                    let what = format!("{scope:?} of {count}, every {every}: {uneven:.2}");
                    assert!((0.5..1.5).contains(&uneven), "{what}");
                }
            }
        }
    }

    #[test]
    fn a_choice_that_favours_low_slots_would_be_seen() {
        let table = table(3_000, 1);
        let mut random = Rng::seeded(12);
        let mut seen = vec![0_u32; 3_000];
        for _ in 0..60_000 {
            let segment = &table.segments[random.below(table.segments.len())];
            let bucket = &segment.buckets[random.below(segment.buckets.len())];
            if let Some(entry) = bucket.slots.iter().flatten().next() {
                seen[number(entry)] += 1;
            }
        }
        let expected = 20.0;
        let squares = seen.iter().map(|count| (f64::from(*count) - expected).powi(2));
        assert!(squares.sum::<f64>() / expected / 2_999.0 > 5.0);
    }

    #[test]
    fn few_entries_are_all_seen_and_none_twice() {
        let table = table(2_000, 1_000);
        let mut seen = Vec::new();
        let mut random = Rng::seeded(13);
        table.sample(Scope::Volatile, 5, &mut random, &mut |entry| seen.push(number(entry)));
        seen.dedup();
        assert!(!seen.is_empty() && seen.len() <= 2, "{seen:?}");
        let mut none = 0;
        Table::new().sample(Scope::All, 5, &mut random, &mut |_| none += 1);
        assert_eq!(none, 0);
    }
}
