//! The hash table of large hashes, sets and sorted sets.
//!
//! Entries live in segments of a few hundred; a directory over the top bits of the hash names the
//! segment. Growth splits one segment, so no insert stalls. A segment sits behind an `Arc`: a
//! copy of the table shares all segments, and a change copies the one it touches.
//!
//! ```text
//! hash  63 ……… 42 | 41 … 32 | 31 … 25 |
//!       directory | bucket  | tag in the segment
//!       63 ……………………………… 16   scan position
//! ```

mod pick;
mod scan;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::quality::FixedState;
use hashbrown::HashTable;

use crate::share::fetch_counters;

/// A segment splits somewhere between these lengths. Each has a limit of its own in this range, so
/// that memory per entry does not swing as all segments fill at once.
const SPLIT_MIN: usize = 224;
const SPLIT_MAX: usize = 448;
/// Two neighbours that together hold no more than this become one.
const MERGE_MAX: usize = 96;
/// Directory slots per segment beyond which splitting stops: only a flood of equal hash prefixes
/// leads here, and then the segment grows instead.
const SLOTS_PER_SEGMENT_MAX: usize = 64;
/// A segment's table is shrunk when it uses less than one bucket in this many.
const SPARSE_FACTOR: usize = 8;

/// What a table holds: something with a key.
pub(crate) trait Keyed: Clone {
    /// The key, which never changes while the entry is in the table.
    fn key(&self) -> &[u8];
    /// Bytes allocated by the entry outside the table.
    fn heap_bytes(&self) -> usize;
}

/// A set of entries with distinct keys.
pub(crate) struct Table<T> {
    /// Segment index by the top `depth` bits of the hash; empty while there is one segment.
    directory: Vec<u32>,
    segments: Vec<Arc<Segment<T>>>,
    len: usize,
    /// Sum of the entries' own allocations.
    entry_bytes: usize,
    /// Sum of the segments' allocations, kept as they change: the engine asks after every write.
    segment_bytes: usize,
    seed: u64,
    depth: u8,
}

/// The entries whose hash starts with the `depth` bits of `prefix`.
#[derive(Clone)]
struct Segment<T> {
    entries: HashTable<T>,
    prefix: u64,
    depth: u8,
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        fetch_counters(self.segments.iter());
        Self { directory: self.directory.clone(), segments: self.segments.clone(), ..*self }
    }
}

impl<T: Keyed> Table<T> {
    /// A table that takes `capacity` entries without growing, as far as one segment goes.
    pub(crate) fn with_capacity(seed: u64, capacity: usize) -> Self {
        let entries = HashTable::with_capacity(capacity.min(SPLIT_MIN));
        let segment = Segment { entries, prefix: 0, depth: 0 };
        Self {
            directory: Vec::new(),
            len: 0,
            entry_bytes: 0,
            segment_bytes: segment.own_bytes(),
            segments: vec![Arc::new(segment)],
            seed,
            depth: 0,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Allocated bytes, the entries' own included.
    pub(crate) fn heap_bytes(&self) -> usize {
        let index = self.segments.capacity() * 8 + self.directory.capacity() * 4;
        index + self.segment_bytes + self.entry_bytes
    }

    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Option<&T> {
        let hash = self.hash(key);
        let segment = &self.segments[self.segment_of(hash)];
        segment.entries.find(spread(hash), |entry| entry.key() == key)
    }

    /// Changes the entry with this key, if there is one.
    pub(crate) fn update<R>(&mut self, key: &[u8], change: impl FnOnce(&mut T) -> R) -> Option<R> {
        let hash = self.hash(key);
        let index = self.segment_of(hash);
        let segment = Arc::make_mut(&mut self.segments[index]);
        let entry = segment.entries.find_mut(spread(hash), |entry| entry.key() == key)?;
        let before = entry.heap_bytes();
        let result = change(entry);
        self.entry_bytes = self.entry_bytes + entry.heap_bytes() - before;
        Some(result)
    }

    /// Adds the entry that `make` makes unless the key is there; says whether it added one.
    pub(crate) fn insert_with(&mut self, key: &[u8], make: impl FnOnce() -> T) -> bool {
        let hash = self.hash(key);
        let index = self.segment_of(hash);
        let shared = &self.segments[index];
        if shared.entries.find(spread(hash), |entry| entry.key() == key).is_some() {
            return false;
        }
        let entry = make();
        self.len += 1;
        self.entry_bytes += entry.heap_bytes();
        let seed = self.seed;
        let segment = Arc::make_mut(&mut self.segments[index]);
        self.segment_bytes -= segment.own_bytes();
        segment.entries.insert_unique(spread(hash), entry, |entry| rehash(seed, entry));
        self.segment_bytes += segment.own_bytes();
        if segment.entries.len() > segment.split_limit() {
            self.split(index);
        }
        true
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<T> {
        let hash = self.hash(key);
        let index = self.segment_of(hash);
        self.segments[index].entries.find(spread(hash), |entry| entry.key() == key)?;
        let seed = self.seed;
        let segment = Arc::make_mut(&mut self.segments[index]);
        let found = segment.entries.find_entry(spread(hash), |entry| entry.key() == key);
        let (entry, _) = found.ok().expect("found above").remove();
        self.len -= 1;
        self.entry_bytes -= entry.heap_bytes();
        self.segment_bytes -= segment.own_bytes();
        segment.shrink_if_sparse(seed);
        self.segment_bytes += segment.own_bytes();
        if segment.depth > 0 && segment.entries.len() < MERGE_MAX / 2 {
            self.merge(index);
        }
        Some(entry)
    }

    /// All entries, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flat_map(|segment| segment.entries.iter())
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        hash(self.seed, key)
    }

    #[inline]
    fn segment_of(&self, hash: u64) -> usize {
        match self.depth {
            0 => 0,
            depth => self.directory[(hash >> (64 - depth)) as usize] as usize,
        }
    }

    /// Halves a segment by the next bit of the hash.
    fn split(&mut self, index: usize) {
        if self.segments[index].depth == self.depth && !self.double_directory() {
            return;
        }
        let seed = self.seed;
        let segment = Arc::make_mut(&mut self.segments[index]);
        self.segment_bytes -= segment.own_bytes();
        segment.depth += 1;
        segment.prefix <<= 1;
        let bit = 1 << (64 - segment.depth);
        let upper = segment.entries.extract_if(|entry| hash(seed, entry.key()) & bit != 0);
        let upper: Vec<T> = upper.collect();
        segment.entries.shrink_to_fit(|entry| rehash(seed, entry));
        let mut entries = HashTable::with_capacity(upper.len());
        for entry in upper {
            entries.insert_unique(rehash(seed, &entry), entry, |entry| rehash(seed, entry));
        }
        let sibling = Segment { entries, prefix: segment.prefix | 1, depth: segment.depth };
        self.segment_bytes += segment.own_bytes() + sibling.own_bytes();
        self.segments.push(Arc::new(sibling));
        self.point_at(self.segments.len() - 1);
    }

    /// Makes room for one more bit; `false` when that would waste too much.
    fn double_directory(&mut self) -> bool {
        let slots = 2 << self.depth;
        if slots > self.segments.len() * SLOTS_PER_SEGMENT_MAX {
            return false;
        }
        self.directory = match self.depth {
            0 => vec![0, 0],
            _ => self.directory.iter().flat_map(|&index| [index, index]).collect(),
        };
        self.depth += 1;
        true
    }

    /// Lets the directory slots of a segment's prefix name that segment.
    fn point_at(&mut self, index: usize) {
        if self.depth == 0 {
            return;
        }
        let segment = &self.segments[index];
        let spare = self.depth - segment.depth;
        let from = (segment.prefix << spare) as usize;
        self.directory[from..from + (1 << spare)].fill(index as u32);
    }

    /// Joins a nearly empty segment with its sibling if that is nearly empty as well.
    fn merge(&mut self, index: usize) {
        let (prefix, depth) = (self.segments[index].prefix, self.segments[index].depth);
        let sibling = self.directory[((prefix ^ 1) << (self.depth - depth)) as usize] as usize;
        let together = self.segments[index].entries.len() + self.segments[sibling].entries.len();
        if self.segments[sibling].depth != depth || together > MERGE_MAX {
            return;
        }
        let seed = self.seed;
        let absorbed = self.segments[sibling].clone();
        let segment = Arc::make_mut(&mut self.segments[index]);
        self.segment_bytes -= segment.own_bytes() + absorbed.own_bytes();
        segment.depth -= 1;
        segment.prefix >>= 1;
        for entry in absorbed.entries.iter().cloned() {
            let spread = rehash(seed, &entry);
            segment.entries.insert_unique(spread, entry, |entry| rehash(seed, entry));
        }
        self.segment_bytes += segment.own_bytes();
        self.point_at(index);
        self.segments.swap_remove(sibling);
        if sibling < self.segments.len() {
            self.point_at(sibling);
        }
        self.shrink_directory();
    }

    fn shrink_directory(&mut self) {
        let wasteful = self.directory.len() > 8 * self.segments.len();
        if !wasteful && self.segments.len() > 1 {
            return;
        }
        while self.depth > 0 && self.segments.iter().all(|segment| segment.depth < self.depth) {
            self.depth -= 1;
            self.directory = self.directory.iter().step_by(2).copied().collect();
        }
        if self.depth == 0 {
            self.directory = Vec::new();
        }
    }
}

impl<T: Keyed> Segment<T> {
    /// Allocated bytes of the segment, counters included, without the entries' own.
    #[inline]
    fn own_bytes(&self) -> usize {
        self.entries.allocation_size() + size_of::<Self>() + 16
    }

    /// Spread over `SPLIT_MIN..SPLIT_MAX` by the prefix, the same for the life of the segment.
    #[inline]
    fn split_limit(&self) -> usize {
        let mixed = (self.prefix ^ u64::from(self.depth) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        SPLIT_MIN + (mixed >> 32) as usize % (SPLIT_MAX - SPLIT_MIN)
    }

    fn shrink_if_sparse(&mut self, seed: u64) {
        let buckets = self.entries.num_buckets();
        if buckets > 16 && self.entries.len() < buckets / SPARSE_FACTOR {
            self.entries.shrink_to(self.entries.len() * 2, |entry| rehash(seed, entry));
        }
    }
}

/// The hash of a key under a seed.
#[inline]
pub(crate) fn hash(seed: u64, key: &[u8]) -> u64 {
    let mut hasher = FixedState::with_seed(seed).build_hasher();
    hasher.write(key);
    hasher.finish()
}

#[inline]
fn rehash<T: Keyed>(seed: u64, entry: &T) -> u64 {
    spread(hash(seed, entry.key()))
}

/// The hash as a segment sees it: all its entries share the top bits, which hashbrown would
/// otherwise take for its tags.
#[inline]
fn spread(hash: u64) -> u64 {
    hash.rotate_left(32)
}

#[cfg(test)]
mod tests;
