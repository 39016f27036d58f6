//! A table whose hashes begin with the slot of the key, as a node of a cluster has it.
//!
//! ```text
//! hash   [ slot: 14 bits | 50 bits of the key's hash ]
//!
//! directory, at most one entry per slot ─┬► segment of one slot, or of several
//!                                        └► SlotDirectory ─► segments of one large slot
//! ```
//!
//! Buckets follow each other in hash order, so the keys of a slot are one stretch. They are found,
//! counted and removed without a byte per key. Redis 7.0 links the keys of a slot, which takes 16
//! bytes per key; a table per slot, as later versions have it, takes some hundred bytes per slot.
//!
//! Hashes are not spread evenly here: a slot may have no key, or all of them. So
//! - the directory has at most one entry per slot, and a large slot has a directory of its own,
//!   whose size follows from the keys of that slot alone;
//! - how deep a segment may be is counted from its slot;
//! - the place by which segments split one after the other, and not all at once, is spread over
//!   slots as well as within a slot;
//! - segments without keys have no buckets, and segments that lose theirs give buckets back.

use store_resp::slot::{SLOT_COUNT, slot_of};

use super::{CURSOR_BITS, Segment, Table, start_of};

/// Top bits of a hash that are the slot.
pub(super) const SLOT_BITS: u32 = SLOT_COUNT.ilog2();
/// Marks what is not a segment in the directory of a table, but a directory.
pub(super) const IN_SLOT: u32 = 1 << 31;

/// What a table knows of slots.
#[derive(Default)]
pub(super) struct Slots {
    /// Keys by slot. Without memory as long as there is no key.
    lens: Vec<u32>,
    directories: Vec<SlotDirectory>,
    /// Directories given up by merges.
    free: Vec<u32>,
}

/// The segments of a slot that has more than one.
#[derive(Default)]
struct SlotDirectory {
    /// Log₂ of the number of entries: how many bits behind those of the slot choose one.
    depth: u32,
    segments: Vec<u32>,
}

/// The hash of a key with its slot in front.
#[inline]
pub(in super::super) fn with_slot(hash: u64, slot: u16) -> u64 {
    u64::from(slot) << (64 - SLOT_BITS) | hash >> SLOT_BITS
}

#[inline]
fn slot_at(hash: u64) -> usize {
    (hash >> (64 - SLOT_BITS)) as usize
}

/// Where the segment of `hash` with `depth` is in the order of splits.
///
/// The halves of a segment must stand next to each other: of two that differ much in how many
/// buckets they have, one is nearly empty after the split. So the place grows slowly with the
/// slot, and begins again so often that any third of the slots has all places; within a slot it
/// begins to grow when there are some segments.
pub(super) fn place_of(hash: u64, depth: u32) -> f64 {
    /// How often all places are gone through: by all slots, and by one slot.
    const ROUNDS_BITS: u32 = 4;
    const SLOT_ROUNDS_BITS: u32 = 3;
    let start = start_of(hash, depth);
    let of_slot = (start >> (64 - SLOT_BITS)) << (64 - SLOT_BITS) << ROUNDS_BITS;
    let within = start << (SLOT_BITS + SLOT_ROUNDS_BITS);
    of_slot.wrapping_add(within) as f64 / u64::MAX as f64
}

impl Slots {
    /// Counts a key. Returns by how many bytes this has grown.
    #[inline]
    pub(super) fn add(&mut self, hash: u64) -> usize {
        if let Some(len) = self.lens.get_mut(slot_at(hash)) {
            *len += 1;
            return 0;
        }
        self.lens = vec![0; usize::from(SLOT_COUNT)];
        self.lens[slot_at(hash)] = 1;
        self.lens.len() * size_of::<u32>()
    }

    #[inline]
    pub(super) fn remove(&mut self, hash: u64) {
        self.lens[slot_at(hash)] -= 1;
    }

    fn len_of(&self, slot: usize) -> usize {
        self.lens.get(slot).map_or(0, |len| *len as usize)
    }

    /// How many keys have hashes that begin with these bits, no more than those of a slot.
    fn has_under(&self, prefix: u64, depth: u32) -> bool {
        let width = SLOT_BITS - depth;
        let first = (prefix << width) as usize;
        let lens = self.lens.get(first..first + (1 << width));
        lens.is_some_and(|lens| lens.iter().any(|len| *len > 0))
    }

    /// How deep the segment of `hash` may be.
    pub(super) fn depth_max(&self, hash: u64) -> u32 {
        SLOT_BITS + self.len_of(slot_at(hash)).max(1).ilog2()
    }

    fn directory(&self, at: u32) -> &SlotDirectory {
        &self.directories[(at & !IN_SLOT) as usize]
    }

    fn directory_mut(&mut self, at: u32) -> &mut SlotDirectory {
        &mut self.directories[(at & !IN_SLOT) as usize]
    }

    /// Gives a slot of one segment a directory, and returns what the table's is to say.
    fn add_directory(&mut self, segment: u32) -> u32 {
        let directory = SlotDirectory { depth: 1, segments: vec![segment; 2] };
        let at = match self.free.pop() {
            Some(free) => {
                self.directories[free as usize] = directory;
                free
            }
            None => {
                self.directories.push(directory);
                (self.directories.len() - 1) as u32
            }
        };
        at | IN_SLOT
    }

    fn give_up_directory(&mut self, at: u32) {
        *self.directory_mut(at) = SlotDirectory::default();
        self.free.push(at & !IN_SLOT);
    }
}

impl Table {
    /// An empty table that is laid out by slot.
    pub(in super::super) fn by_slot() -> Self {
        Self { slots: Some(Box::default()), ..Self::new() }
    }

    /// Takes all entries away and leaves a table of the same layout.
    pub(in super::super) fn take_all(&mut self) -> Self {
        let empty = if self.slots.is_some() { Self::by_slot() } else { Self::new() };
        std::mem::replace(self, empty)
    }

    pub(super) fn segment_in_slot(&self, at: u32, hash: u64) -> u32 {
        let directory = self.slots_there().directory(at);
        directory.segments[((hash << SLOT_BITS >> 1) >> (63 - directory.depth)) as usize]
    }

    fn slots_there(&self) -> &Slots {
        self.slots.as_ref().expect("only a table by slot has such entries")
    }

    /// [`widen`](Self::widen) for a segment that is in one slot.
    pub(super) fn widen_slot(&mut self, hash: u64, depth: u32) {
        debug_assert!(self.depth == SLOT_BITS, "the directory has an entry per slot by now");
        let Some(slots) = &mut self.slots else { return };
        let at = &mut self.directory[slot_at(hash)];
        if *at & IN_SLOT == 0 {
            *at = slots.add_directory(*at);
            return;
        }
        let directory = slots.directory_mut(*at);
        if directory.depth == depth - SLOT_BITS {
            directory.segments = directory.segments.iter().flat_map(|at| [*at, *at]).collect();
            directory.depth += 1;
        }
    }

    /// [`point`](Self::point) for a segment that is in one slot.
    pub(super) fn point_in_slot(&mut self, prefix: u64, depth: u32, segment: u32) {
        let Some(slots) = &mut self.slots else { return };
        let beyond = depth - SLOT_BITS;
        let at = &mut self.directory[(prefix >> beyond) as usize];
        if beyond == 0 {
            if *at & IN_SLOT != 0 {
                slots.give_up_directory(*at);
            }
            *at = segment;
            return;
        }
        let directory = slots.directory_mut(*at);
        let width = directory.depth - beyond;
        let first = ((prefix & ((1 << beyond) - 1)) << width) as usize;
        directory.segments[first..first + (1 << width)].fill(segment);
    }

    /// Parts the segment of `hash` from slots that have no keys, so that its entries move once and
    /// not with each bit that does not part them. False when it has no such neighbours.
    pub(super) fn narrow(&mut self, index: u32, hash: u64, hash_of: &dyn Fn(&[u8]) -> u64) -> bool {
        let depth_before = self.segments[index as usize].depth;
        let mut depth = depth_before;
        while depth < SLOT_BITS {
            let neighbour = hash >> (63 - depth) ^ 1;
            let slots = self.slots.as_ref();
            if slots.is_none_or(|slots| slots.has_under(neighbour, depth + 1)) {
                break;
            }
            self.widen(hash, depth);
            depth += 1;
            let empty = self.add_segment(Segment { depth, ..Segment::default() });
            self.point(neighbour, depth, empty);
        }
        if depth == depth_before {
            return false;
        }
        let buckets = self.buckets_max(hash, depth);
        let segment = &mut self.segments[index as usize];
        self.memory -= segment.memory();
        segment.depth = depth;
        segment.rebuild(buckets, hash_of);
        self.memory += segment.memory();
        true
    }

    /// How many keys a slot has; 0 in a table that is not laid out by slot.
    pub(in super::super) fn len_of_slot(&self, slot: u16) -> usize {
        self.slots.as_ref().map_or(0, |slots| slots.len_of(usize::from(slot)))
    }

    /// The first keys of a slot, at most `keys_max`.
    pub(in super::super) fn keys_in_slot(&self, slot: u16, keys_max: usize) -> Vec<Vec<u8>> {
        let wanted = keys_max.min(self.len_of_slot(slot));
        let mut keys = Vec::new();
        let first = u64::from(slot) << (CURSOR_BITS - SLOT_BITS);
        let end = u64::from(slot + 1) << (CURSOR_BITS - SLOT_BITS);
        let (mut cursor, mut segment_before) = (first, None);
        while keys.len() < wanted {
            let index = self.segment_of(cursor << (64 - CURSOR_BITS));
            let segment = &self.segments[index as usize];
            let mut take = |entry: &super::Entry| {
                // A segment of few keys is that of several slots.
                let is_in = segment.depth >= SLOT_BITS || slot_of(entry.key()) == slot;
                if is_in && keys.len() < wanted {
                    keys.push(entry.key().to_vec());
                }
            };
            if segment.len > 0 {
                let home = segment.home(cursor << (64 - CURSOR_BITS));
                segment.visit_chain(home as u32, &mut take);
            }
            if segment_before.replace(index) != Some(index) {
                segment.spill.iter().for_each(take);
            }
            cursor = segment.next_cursor(cursor);
            if cursor == 0 || cursor >= end {
                break;
            }
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::super::super::entry::{Entry, NewValue};
    use super::super::Scope;
    use super::*;

    fn hash_of(key: &[u8]) -> u64 {
        use std::hash::{BuildHasher, Hasher};
        let mut hasher = foldhash::quality::FixedState::with_seed(7).build_hasher();
        hasher.write(key);
        with_slot(hasher.finish(), slot_of(key))
    }

    fn insert(table: &mut Table, key: &str) {
        let entry = Entry::new(key.as_bytes(), NewValue::Integer(1), None);
        table.insert(hash_of(key.as_bytes()), entry, &hash_of);
    }

    fn remove(table: &mut Table, key: &str) -> bool {
        let hash = hash_of(key.as_bytes());
        let Some(place) = table.find(hash, key.as_bytes()) else { return false };
        table.remove(place, hash, &hash_of);
        true
    }

    fn contains(table: &Table, key: &str) -> bool {
        table.find(hash_of(key.as_bytes()), key.as_bytes()).is_some()
    }

    fn names(table: &Table, slot: u16) -> BTreeSet<Vec<u8>> {
        let keys = table.keys_in_slot(slot, usize::MAX);
        let names: BTreeSet<_> = keys.iter().cloned().collect();
        assert_eq!(names.len(), keys.len(), "a key was told twice");
        names
    }

    /// Keys of the slots that a third of a cluster has.
    fn spread_keys(count: usize) -> Vec<String> {
        let all = (0..).map(|number| format!("key:{number}"));
        all.filter(|key| slot_of(key.as_bytes()) < SLOT_COUNT / 3).take(count).collect()
    }

    /// Bytes of a table of the other layout with as many keys.
    fn standalone_memory(keys: &[String]) -> f64 {
        let plain = |key: &[u8]| hash_of(key).rotate_left(SLOT_BITS);
        let mut table = Table::new();
        for key in keys {
            let entry = Entry::new(key.as_bytes(), NewValue::Integer(1), None);
            // As evenly spread as hashes are without slots.
            let hash = plain(key.as_bytes()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let spread = |key: &[u8]| plain(key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            table.insert(hash, entry, &spread);
        }
        table.memory() as f64
    }

    #[test]
    fn a_slot_with_all_the_keys_costs_no_more_than_a_table() {
        const KEYS: u32 = 150_000;
        let mut table = Table::by_slot();
        let mut per_key = Vec::new();
        for number in 0..KEYS {
            insert(&mut table, &format!("{{hot}}:{number}"));
            if number > 30_000 && number % 1000 == 0 {
                per_key.push(table.memory() as f64 / f64::from(number));
            }
        }
        assert!(per_key.iter().all(|bytes| (12.0..18.5).contains(bytes)), "{per_key:?}");
        let slots = table.slots.as_ref().unwrap();
        assert!(table.directory.len() == usize::from(SLOT_COUNT));
        let entries: usize = slots.directories.iter().map(|it| it.segments.len()).sum();
        assert!(entries < 1024, "{entries} entries for about a hundred segments");
        assert!(table.segments.iter().all(|segment| segment.spill.is_empty()));
        let slot = slot_of(b"hot");
        assert_eq!(table.len_of_slot(slot), KEYS as usize);
        assert_eq!(names(&table, slot).len(), KEYS as usize);
        assert!(names(&table, slot + 1).is_empty());
        assert!((0..KEYS).all(|number| remove(&mut table, &format!("{{hot}}:{number}"))));
        let bytes = table.memory() - usize::from(SLOT_COUNT) * size_of::<u32>();
        assert!(bytes < 20_000, "{bytes} bytes left");
        let slots = table.slots.as_ref().unwrap();
        assert!(slots.directories.iter().all(|it| it.segments.len() < 1024));
    }

    #[test]
    fn memory_per_key_is_that_of_a_table_without_slots() {
        let keys = spread_keys(120_000);
        let mut table = Table::by_slot();
        for (at, key) in keys.iter().enumerate() {
            insert(&mut table, key);
            if at > 50_000 && at.is_multiple_of(2500) {
                let counts = (usize::from(SLOT_COUNT) * size_of::<u32>()) as f64;
                let bytes = table.memory() as f64 - counts;
                let ratio = bytes / standalone_memory(&keys[..=at]);
                // Some sixteen bytes of a hundred are the table's.
                assert!((0.94..1.06).contains(&ratio), "{ratio} of the other layout at {at}");
            }
        }
    }

    #[test]
    fn a_slot_that_loses_its_keys_gives_its_memory_back() {
        let mut table = Table::by_slot();
        let keys: Vec<String> =
            (0..30).flat_map(|tag| (0..900).map(move |at| format!("{{{tag}}}:{at}"))).collect();
        keys.iter().for_each(|key| insert(&mut table, key));
        let before = table.memory();
        let is_gone = |key: &&String| !key.starts_with("{3}");
        keys.iter().filter(is_gone).for_each(|key| assert!(remove(&mut table, key)));
        assert_eq!(table.len(), 900);
        assert!(table.memory() - 65_536 < (before - 65_536) / 15, "{}", table.memory());
        assert!(keys.iter().filter(|key| !is_gone(key)).all(|key| contains(&table, key)));
    }

    #[test]
    fn every_key_has_the_same_chance_to_be_drawn_however_slots_are_filled() {
        let mut table = Table::by_slot();
        let keys: Vec<String> =
            (0..4000).map(|at| format!("{{hot}}:{at}")).chain(spread_keys(2000)).collect();
        keys.iter().for_each(|key| insert(&mut table, key));
        let mut random = store_types::Rng::seeded(4);
        let (mut hot, draws) = (0, 6000);
        for _ in 0..draws {
            table.sample(Scope::All, 1, &mut random, &mut |entry| {
                hot += usize::from(entry.key().starts_with(b"{hot}"));
            });
        }
        let share = hot as f64 / f64::from(draws);
        assert!((0.6..0.73).contains(&share), "{share} instead of two thirds");
    }

    /// A few slots, one of them large.
    fn key() -> impl Strategy<Value = String> {
        prop_oneof![
            (0..4000u32).prop_map(|number| format!("{{hot}}:{number}")),
            (0..20u32, 0..60u32).prop_map(|(tag, number)| format!("{{{tag}}}:{number}")),
            (0..300u32).prop_map(|number| format!("key:{number}")),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn a_table_by_slot_agrees_with_a_plain_map(
            steps in proptest::collection::vec((key(), 0..4u8), 1..6000),
            emptied in 0..20u32,
        ) {
            let mut table = Table::by_slot();
            let mut model: BTreeMap<u16, BTreeSet<Vec<u8>>> = BTreeMap::new();
            for (key, what) in steps {
                let slot = slot_of(key.as_bytes());
                let keys = model.entry(slot).or_default();
                if what == 0 {
                    prop_assert_eq!(remove(&mut table, &key), keys.remove(key.as_bytes()));
                } else if keys.insert(key.clone().into_bytes()) {
                    insert(&mut table, &key);
                }
            }
            let slot = slot_of(emptied.to_string().as_bytes());
            for key in table.keys_in_slot(slot, usize::MAX) {
                prop_assert!(remove(&mut table, std::str::from_utf8(&key).unwrap()));
            }
            model.remove(&slot);
            prop_assert_eq!(table.len(), model.values().map(BTreeSet::len).sum::<usize>());
            for slot in 0..SLOT_COUNT {
                let expected = model.get(&slot).cloned().unwrap_or_default();
                prop_assert_eq!(table.len_of_slot(slot), expected.len());
                prop_assert_eq!(names(&table, slot), expected);
            }
            let mut seen = BTreeSet::new();
            table.for_each(&mut |entry| _ = seen.insert(entry.key().to_vec()));
            prop_assert_eq!(seen, model.into_values().flatten().collect::<BTreeSet<_>>());
        }

        #[test]
        fn a_scan_sees_every_key_that_stays_while_a_slot_comes_or_goes(
            stays in 1..300u32, grows in 0..9_000u32, first in any::<bool>(),
        ) {
            let mut table = Table::by_slot();
            (0..stays).for_each(|number| insert(&mut table, &format!("key:{number}")));
            let hot = |number: u32| format!("{{hot}}:{number}");
            if first {
                (0..grows).for_each(|number| insert(&mut table, &hot(number)));
            }
            let (mut seen, mut cursor, mut calls) = (BTreeSet::new(), 0, 0);
            loop {
                cursor = table.scan(cursor, &mut |entry| _ = seen.insert(entry.key().to_vec()));
                if cursor == 0 {
                    break;
                }
                calls += 1;
                if calls == 20 {
                    (0..grows).for_each(|number| match first {
                        true => _ = remove(&mut table, &hot(number)),
                        false => insert(&mut table, &hot(number)),
                    });
                }
            }
            for number in 0..stays {
                let key = format!("key:{number}");
                prop_assert!(seen.contains(key.as_bytes()), "{} was missed", key);
            }
        }
    }
}
