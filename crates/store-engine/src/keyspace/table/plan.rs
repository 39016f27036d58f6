//! A table that is told how many keys come.

use super::{LOAD_MAX, SEGMENT_LEN_MAX, Segment, Table, buckets_max, place_of};

impl Table {
    /// Lays out an empty table as it will be with so many keys, so that none has to move while
    /// they come in. Costs next to nothing before they do: segments get buckets with their first
    /// key.
    pub(in super::super) fn expect(&mut self, keys: u64) {
        /// Who says so may be wrong; beyond this, segments split as usual.
        const BELIEVED_MAX: u64 = 64 * 1024 * 1024;
        let keys = keys.min(BELIEVED_MAX);
        // Nobody knows how many of them each slot gets.
        let is_by_slot = self.slots.is_some();
        if self.len > 0 || self.depth > 0 || keys < SEGMENT_LEN_MAX as u64 || is_by_slot {
            return;
        }
        let mut planned = Vec::new();
        plan(keys, 0, 0, &mut planned);
        self.depth = planned.iter().map(|(_, depth)| *depth).max().unwrap_or(0);
        self.directory = vec![0; 1 << self.depth];
        self.memory -= self.segments.iter().map(Segment::memory).sum::<usize>();
        self.free_segments.clear();
        self.segments.clear();
        for (prefix, depth) in planned {
            self.point(prefix, depth, self.segments.len() as u32);
            self.segments.push(Segment { depth, ..Segment::default() });
        }
    }
}

/// The segments that keys will have once there are `keys` of them under a prefix of the hash: a
/// prefix and its depth each, in hash order.
fn plan(keys: u64, prefix: u64, depth: u32, planned: &mut Vec<(u64, u32)>) {
    let hash = if depth == 0 { 0 } else { prefix << (64 - depth) };
    if keys < (buckets_max(place_of(hash, depth)) * LOAD_MAX) as u64 {
        planned.push((prefix, depth));
        return;
    }
    plan(keys / 2, prefix << 1, depth + 1, planned);
    plan(keys / 2, prefix << 1 | 1, depth + 1, planned);
}

#[cfg(test)]
mod tests {
    use super::super::super::entry::{Entry, NewValue};
    use super::*;

    fn hash_of(key: &[u8]) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = foldhash::quality::FixedState::with_seed(7).build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    fn insert(table: &mut Table, number: u32) {
        let entry = Entry::new(&number.to_le_bytes(), NewValue::Integer(1), None);
        table.insert(hash_of(entry.key()), entry, &hash_of);
    }

    fn contains(table: &Table, number: u32) -> bool {
        let key = number.to_le_bytes();
        table.find(hash_of(&key), &key).is_some()
    }

    fn remove(table: &mut Table, number: u32) {
        let key = number.to_le_bytes();
        let place = table.find(hash_of(&key), &key).unwrap();
        table.remove(place, hash_of(&key), &hash_of);
    }

    #[test]
    fn a_table_that_was_told_how_many_keys_come_is_like_one_that_was_not() {
        const KEYS: u32 = 100_000;
        let (mut told, mut untold) = (Table::new(), Table::new());
        told.expect(u64::from(KEYS));
        assert!(told.memory() < 100, "{} bytes before the first key", told.memory());
        let mut empty = 0;
        told.for_each(&mut |_| empty += 1);
        assert_eq!(empty, 0);
        for number in 0..KEYS {
            insert(&mut told, number);
            insert(&mut untold, number);
        }
        assert!((0..KEYS).all(|number| contains(&told, number)));
        let ratio = told.memory() as f64 / untold.memory() as f64;
        assert!((0.9..1.1).contains(&ratio), "{ratio}");
        let mut seen = 0;
        told.for_each(&mut |_| seen += 1);
        assert_eq!(seen, KEYS);
        (0..KEYS).for_each(|number| remove(&mut told, number));
        assert!(told.memory() < 40_000, "{} bytes left", told.memory());
        // A word that was much too large costs buckets for every key, and nothing else.
        let mut misled = Table::new();
        misled.expect(u64::MAX);
        (0..100).for_each(|number| insert(&mut misled, number));
        assert!((0..100).all(|number| contains(&misled, number)));
        (0..100).for_each(|number| remove(&mut misled, number));
    }
}
