//! The hash table of one database: segments found through a directory by top hash bits.
//!
//! ```text
//! hash   [ directory bits | bucket bits | … | tag: low 8 bits ]
//!            │                  │
//! directory ─┘► segment ────────┘► bucket: 7 tags, link, 7 entries (64 bytes)
//!                                    └ link ► overflow bucket of the same segment
//! ```
//!
//! Only the last bucket of a chain has empty slots: a removal closes its gap from the end of the
//! chain, and an overflow bucket that is left empty is used again. Otherwise a table whose keys
//! come and go would take more and more memory for the same number of them.
//!
//! A segment that is full splits in two by its next hash bit, so no operation ever moves more
//! than [`SEGMENT_LEN_MAX`] entries: there is no long rehash. How much a segment holds grows with
//! its place in hash order, so that segments split one after the other as keys come in, not all
//! at once. Buckets hold 4 to 8 entries on average, 13 to 17 bytes of table per key; since
//! segments are at different points between the two, memory per key hardly swings.
//!
//! Buckets follow each other in hash order through all segments, so a SCAN cursor is a hash
//! prefix and stays right through any split or merge. A bucket is chosen by no more bits than a
//! cursor has, so that each bucket begins exactly at a cursor.
//!
//! In a cluster the top bits of a hash are the key's slot, so that a slot is one stretch of the
//! table: see `slots`.
//!
//! Hashbrown was not chosen for the segments, by reasoning, without a measurement: its order
//! within a segment is not hash order, so each SCAN call would have to rehash a whole segment, and
//! a lookup would touch one more cache line.

mod plan;
mod sample;
mod slots;
#[cfg(test)]
mod tests;

pub(crate) use sample::Scope;
pub(super) use slots::with_slot;

use super::entry::Entry;
use super::memory::size_class;
use super::prefetch::prefetch;
use slots::{IN_SLOT, SLOT_BITS, Slots};

const SLOTS: usize = 7;
const LINK: usize = 7;
const TAGS_ONLY: u64 = 0x00ff_ffff_ffff_ffff;
const BUCKETS_MIN: usize = 4;
/// Buckets of the last segment in hash order; the first has half as many.
const BUCKETS_MAX: usize = 256;
/// Entries per bucket at which a segment grows or splits.
const LOAD_MAX: usize = 8;
/// Entries of the fullest segment: what one split moves.
const SEGMENT_LEN_MAX: usize = BUCKETS_MAX * LOAD_MAX;
/// Two segments become one when they have no more than this together.
const MERGED_LEN_MAX: usize = SEGMENT_LEN_MAX / 8;
/// How many entries ahead a split fetches.
const PREFETCH_AHEAD: usize = 8;
/// Overflow buckets of a segment: links are one byte, zero for none.
const OVERFLOW_MAX: usize = 255;
/// Bits of a SCAN cursor: clients parse it as a signed integer, some as a double.
pub(crate) const CURSOR_BITS: u32 = 48;

/// Where an entry stands. Valid until the next insert or removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryPosition {
    segment: u32,
    bucket: u32,
    slot: u32,
}

/// `bucket` of a place in the spill list.
const SPILL: u32 = u32::MAX;

/// Entries by hash. Callers bring the hash of each key; it is never stored.
pub(super) struct Table {
    /// Segments, or for slots of many segments [`IN_SLOT`] and where their directory stands.
    directory: Vec<u32>,
    /// Log₂ of the directory's length.
    depth: u32,
    segments: Vec<Segment>,
    /// Segments given up by merges.
    free_segments: Vec<u32>,
    len: usize,
    volatile: usize,
    /// Bytes of directory, segments and buckets.
    memory: usize,
    /// Bytes of the entries. Kept by the keyspace, which sees entries change.
    pub(super) entry_memory: usize,
    /// The number this database had when the running snapshot began, if it was there by then.
    pub(super) snapshot_db: Option<usize>,
    /// Only where the top bits of hashes are slots.
    slots: Option<Box<Slots>>,
}

/// A lookup needs no more than the first cache line: the order of the fields is meant.
#[derive(Default)]
#[repr(C, align(64))]
struct Segment {
    buckets: Box<[Bucket]>,
    len: u32,
    /// How many top hash bits all its entries share.
    depth: u32,
    /// The number of entries at which the segment grows or splits.
    grow_at: u32,
    volatile: u32,
    overflow: Vec<Bucket>,
    /// No key of the segment ends before this moment.
    soonest_expiry: u64,
    /// Entries whose hashes collide so much that splitting cannot part them.
    spill: Vec<Entry>,
    /// Link to the first unused overflow bucket, which links to the next; zero for none.
    unused: u8,
}

#[derive(Default)]
#[repr(align(64))]
struct Bucket {
    /// Seven tags, zero for an empty slot, and the link.
    tags: [u8; 8],
    slots: [Option<Entry>; SLOTS],
}

impl Default for Table {
    fn default() -> Self {
        Self::new()
    }
}

impl Table {
    /// An empty table that has allocated nothing.
    pub(super) fn new() -> Self {
        Self {
            directory: vec![0],
            depth: 0,
            segments: vec![Segment::default()],
            free_segments: Vec::new(),
            len: 0,
            volatile: 0,
            memory: 0,
            entry_memory: 0,
            snapshot_db: None,
            slots: None,
        }
    }

    /// Number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Number of entries with an expiry.
    pub(super) fn volatile_len(&self) -> usize {
        self.volatile
    }

    /// Bytes of the table itself, entries not counted.
    #[inline]
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    #[inline]
    fn segment_of(&self, hash: u64) -> u32 {
        // A shift by 64 is not defined, so the bits are taken in two steps.
        let at = self.directory[((hash >> 1) >> (63 - self.depth)) as usize];
        if at & IN_SLOT == 0 { at } else { self.segment_in_slot(at, hash) }
    }

    /// Finds `key`, whose hash is `hash`.
    #[inline]
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<EntryPosition> {
        let index = self.segment_of(hash);
        let segment = &self.segments[index as usize];
        if segment.len == 0 {
            return None;
        }
        let (bucket, slot) = segment.find(hash, key)?;
        Some(EntryPosition { segment: index, bucket, slot })
    }

    /// Begins to fetch the bucket where the chain of `hash` begins.
    #[inline]
    pub(super) fn prefetch_bucket(&self, hash: u64) {
        let segment = &self.segments[self.segment_of(hash) as usize];
        if segment.len > 0 {
            prefetch(&raw const segment.buckets[segment.home(hash)]);
        }
    }

    /// Begins to fetch the entry that a look at the first bucket of `hash` suggests, which is
    /// returned: most likely the one that a lookup finds.
    #[inline]
    pub(super) fn prefetch_entry(&self, hash: u64) -> Option<&Entry> {
        let segment = &self.segments[self.segment_of(hash) as usize];
        if segment.len == 0 {
            return None;
        }
        let bucket = &segment.buckets[segment.home(hash)];
        let candidates = bucket.slots_tagged(tag_of(hash));
        if candidates != 0
            && let Some(entry) = &bucket.slots[candidates.trailing_zeros() as usize / 8]
        {
            entry.prefetch();
            return Some(entry);
        }
        if let Some(next) = segment.next(bucket) {
            prefetch(segment.bucket(next));
        }
        None
    }

    /// The entry at a place just found.
    #[inline]
    pub(super) fn entry(&self, place: EntryPosition) -> &Entry {
        let segment = &self.segments[place.segment as usize];
        if place.bucket == SPILL {
            return &segment.spill[place.slot as usize];
        }
        segment.bucket(place.bucket).slots[place.slot as usize]
            .as_ref()
            .expect("a place is valid until the next insert or removal")
    }

    /// The entry at a place just found, for changes that keep its key and expiry.
    #[inline]
    pub(super) fn entry_mut(&mut self, place: EntryPosition) -> &mut Entry {
        self.segments[place.segment as usize].entry_mut(place)
    }

    /// The same, with the count of entry memory beside it.
    #[inline]
    pub(super) fn entry_and_memory(&mut self, place: EntryPosition) -> (&mut Entry, &mut usize) {
        let segment = &mut self.segments[place.segment as usize];
        (segment.entry_mut(place), &mut self.entry_memory)
    }

    /// Puts another entry with the same key in the place of one, which is returned.
    pub(super) fn replace(&mut self, place: EntryPosition, entry: Entry) -> Entry {
        self.count_volatile(place.segment, entry.expires_at(), Count::Add);
        let old = std::mem::replace(self.entry_mut(place), entry);
        self.count_volatile(place.segment, old.expires_at(), Count::Remove);
        old
    }

    /// Must be told when the expiry of the entry at `place` was moved within the entry.
    pub(super) fn expiry_moved(&mut self, place: EntryPosition, expires_at: u64) {
        let segment = &mut self.segments[place.segment as usize];
        segment.soonest_expiry = segment.soonest_expiry.min(expires_at);
    }

    /// Adds an entry whose key is not there yet. `hash_of` gives the hash of any key, for
    /// splits.
    #[inline]
    pub(super) fn insert(&mut self, hash: u64, entry: Entry, hash_of: &dyn Fn(&[u8]) -> u64) {
        let mut index = self.segment_of(hash);
        if self.segments[index as usize].is_full() {
            self.make_room(hash, hash_of);
            index = self.segment_of(hash);
        }
        self.count_volatile(index, entry.expires_at(), Count::Add);
        let segment = &mut self.segments[index as usize];
        let before = segment.overflow.capacity();
        segment.put(hash, entry);
        segment.len += 1;
        self.len += 1;
        if let Some(slots) = &mut self.slots {
            self.memory += slots.add(hash);
        }
        let grown = segment.overflow.capacity() - before;
        if grown > 0 {
            self.memory += grown * size_of::<Bucket>();
        }
    }

    /// Takes out the entry at a place just found.
    pub(super) fn remove(
        &mut self,
        place: EntryPosition,
        hash: u64,
        hash_of: &dyn Fn(&[u8]) -> u64,
    ) -> Entry {
        let segment = &mut self.segments[place.segment as usize];
        let entry = if place.bucket == SPILL {
            segment.spill.swap_remove(place.slot as usize)
        } else {
            let (_, entry) = segment
                .bucket_mut(place.bucket)
                .take(place.slot as usize)
                .expect("a place is valid until the next insert or removal");
            segment.close_gap(segment.home(hash) as u32, place);
            entry
        };
        segment.len -= 1;
        self.len -= 1;
        if let Some(slots) = &mut self.slots {
            slots.remove(hash);
        }
        self.count_volatile(place.segment, entry.expires_at(), Count::Remove);
        self.shrink(place.segment, hash, hash_of);
        entry
    }

    fn count_volatile(&mut self, segment: u32, expires_at: Option<u64>, count: Count) {
        let Some(at) = expires_at else { return };
        let segment = &mut self.segments[segment as usize];
        match count {
            Count::Add => {
                let soonest = if segment.volatile == 0 { u64::MAX } else { segment.soonest_expiry };
                segment.soonest_expiry = soonest.min(at);
                segment.volatile += 1;
                self.volatile += 1;
            }
            Count::Remove => {
                segment.volatile -= 1;
                self.volatile -= 1;
            }
        }
    }

    /// Grows or splits the segment of `hash` until it can take one more entry.
    #[cold]
    fn make_room(&mut self, hash: u64, hash_of: &dyn Fn(&[u8]) -> u64) {
        while let index = self.segment_of(hash)
            && self.segments[index as usize].is_full()
        {
            let segment = &self.segments[index as usize];
            let (buckets, len) = (segment.buckets.len(), segment.len);
            let buckets_max = self.buckets_max(hash, segment.depth);
            let crowded = len as usize * 2 >= buckets_max * LOAD_MAX;
            if buckets == buckets_max && crowded && segment.depth < self.depth_max(hash) {
                if !self.narrow(index, hash, hash_of) {
                    self.split(index, hash, hash_of);
                }
                continue;
            }
            let is_by_slot = self.slots.is_some();
            let segment = &mut self.segments[index as usize];
            self.memory -= segment.memory();
            // One of a layout that was planned gets all its buckets at once.
            let planned = buckets == 0 && segment.depth > 0 && !is_by_slot;
            let wanted = if planned { buckets_max } else { buckets * 2 };
            segment.rebuild(wanted.clamp(BUCKETS_MIN, buckets_max), hash_of);
            self.memory += segment.memory();
            if segment.is_full() || !segment.spill.is_empty() {
                // Hashes that collide: neither more buckets nor a split would part them.
                segment.grow_at = 2 * len;
            }
        }
    }

    fn split(&mut self, index: u32, hash: u64, hash_of: &dyn Fn(&[u8]) -> u64) {
        self.widen(hash, self.segments[index as usize].depth);
        let segment = std::mem::take(&mut self.segments[index as usize]);
        self.memory -= segment.memory();
        let depth = segment.depth + 1;
        let low_hash = hash & !(1 << (64 - depth));
        let high_hash = low_hash | 1 << (64 - depth);
        let half = |hash| Segment::sized(self.buckets_max(hash, depth), depth);
        let mut halves = [half(low_hash), half(high_hash)];
        for_each_hashed(segment, hash_of, |hash, entry| {
            halves[(hash >> (64 - depth) & 1) as usize].add(hash, entry);
        });
        if self.slots.is_some() {
            halves.iter_mut().for_each(Segment::give_back_unused);
        }
        let [low, high] = halves;
        self.memory += low.memory() + high.memory();
        self.segments[index as usize] = low;
        let high_index = self.add_segment(high);
        self.point(hash >> (64 - depth) | 1, depth, high_index);
    }

    fn add_segment(&mut self, segment: Segment) -> u32 {
        match self.free_segments.pop() {
            Some(free) => {
                self.segments[free as usize] = segment;
                free
            }
            None => {
                self.segments.push(segment);
                (self.segments.len() - 1) as u32
            }
        }
    }

    /// Sees to it that a segment of this depth has two entries in the directory.
    fn widen(&mut self, hash: u64, depth: u32) {
        if self.slots.is_some() && depth >= SLOT_BITS {
            return self.widen_slot(hash, depth);
        }
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|at| [*at, *at]).collect();
            self.depth += 1;
        }
    }

    /// How many buckets the segment of `hash` with `depth` has before it splits.
    fn buckets_max(&self, hash: u64, depth: u32) -> usize {
        match self.slots {
            None => buckets_max(place_of(hash, depth)),
            Some(_) => buckets_max(slots::place_of(hash, depth)),
        }
    }

    /// How deep the segment of `hash` may be: hashes that collide are not parted by splits.
    fn depth_max(&self, hash: u64) -> u32 {
        match &self.slots {
            None => self.len.ilog2(),
            Some(slots) => slots.depth_max(hash),
        }
    }

    /// Makes all directory slots under the `depth`-bit `prefix` name `segment`.
    fn point(&mut self, prefix: u64, depth: u32, segment: u32) {
        if self.slots.is_some() && depth >= SLOT_BITS {
            return self.point_in_slot(prefix, depth, segment);
        }
        let width = self.depth - depth;
        let first = (prefix << width) as usize;
        self.directory[first..first + (1 << width)].fill(segment);
    }

    /// Gives memory back after removals: fewer buckets, or one segment instead of two.
    fn shrink(&mut self, index: u32, hash: u64, hash_of: &dyn Fn(&[u8]) -> u64) {
        let segment = &mut self.segments[index as usize];
        let buckets = segment.buckets.len();
        if segment.len as usize >= buckets || buckets <= BUCKETS_MIN {
            return;
        }
        if segment.depth == 0 {
            return self.halve_buckets(index, hash_of);
        }
        let depth = segment.depth;
        let prefix = hash >> (64 - depth);
        let other = self.segment_of((prefix ^ 1) << (64 - depth));
        let (a, b) = (&self.segments[index as usize], &self.segments[other as usize]);
        if a.depth == b.depth && (a.len + b.len) as usize <= MERGED_LEN_MAX {
            self.merge(index, other, prefix >> 1, hash_of);
        } else if self.slots.is_some() {
            // Others are as full as before: only slots go as a whole.
            self.halve_buckets(index, hash_of);
        }
    }

    fn halve_buckets(&mut self, index: u32, hash_of: &dyn Fn(&[u8]) -> u64) {
        let segment = &mut self.segments[index as usize];
        self.memory -= segment.memory();
        segment.rebuild(segment.buckets.len() / 2, hash_of);
        self.memory += segment.memory();
    }

    fn merge(&mut self, index: u32, other: u32, prefix: u64, hash_of: &dyn Fn(&[u8]) -> u64) {
        let a = std::mem::take(&mut self.segments[index as usize]);
        let b = std::mem::take(&mut self.segments[other as usize]);
        self.memory -= a.memory() + b.memory();
        let depth = a.depth - 1;
        // Less than it may grow to: two nearly empty segments make one.
        let mut merged = Segment::sized(BUCKETS_MAX / 4, depth);
        for segment in [a, b] {
            for_each_hashed(segment, hash_of, |hash, entry| merged.add(hash, entry));
        }
        self.memory += merged.memory();
        self.segments[index as usize] = merged;
        self.free_segments.push(other);
        self.point(prefix, depth, index);
    }

    /// Visits the bucket that `cursor` names and returns the cursor of the next one, 0 at the
    /// end. An entry there from the first call to the last is visited at least once.
    pub(super) fn scan(&self, cursor: u64, visit: &mut dyn FnMut(&Entry)) -> u64 {
        let hash = cursor << (64 - CURSOR_BITS);
        let segment = &self.segments[self.segment_of(hash) as usize];
        if !segment.buckets.is_empty() {
            segment.visit_chain(segment.home(hash) as u32, visit);
        }
        segment.spill.iter().for_each(visit);
        segment.next_cursor(cursor)
    }

    /// The same, for changes that keep key and expiry.
    pub(super) fn scan_mut(&mut self, cursor: u64, visit: &mut dyn FnMut(&mut Entry)) -> u64 {
        let hash = cursor << (64 - CURSOR_BITS);
        let index = self.segment_of(hash) as usize;
        let segment = &mut self.segments[index];
        if !segment.buckets.is_empty() {
            let mut number = Some(segment.home(hash) as u32);
            while let Some(at) = number {
                segment.bucket_mut(at).slots.iter_mut().flatten().for_each(&mut *visit);
                number = segment.next(segment.bucket(at));
            }
        }
        segment.spill.iter_mut().for_each(visit);
        segment.next_cursor(cursor)
    }

    /// Begins to fetch the entries of the bucket that `cursor` names.
    pub(super) fn prefetch_at(&self, cursor: u64) {
        let hash = cursor << (64 - CURSOR_BITS);
        let segment = &self.segments[self.segment_of(hash) as usize];
        if let Some(bucket) = segment.buckets.get(segment.home(hash)) {
            bucket.slots.iter().flatten().for_each(Entry::prefetch);
        }
    }

    /// Visits every entry, in hash order.
    pub(super) fn for_each(&self, visit: &mut dyn FnMut(&Entry)) {
        let mut cursor = 0;
        loop {
            cursor = self.scan(cursor, visit);
            if cursor == 0 {
                return;
            }
        }
    }

    /// How many segments [`segment_due`](Self::segment_due) may be asked for.
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Whether a key of the segment may have ended by `now`.
    pub(super) fn segment_due(&self, segment: usize, now: u64) -> bool {
        let segment = &self.segments[segment];
        segment.volatile > 0 && segment.soonest_expiry <= now
    }

    /// The keys of a segment that ended by `now`, at most `keys_max`; the caller removes them.
    /// Learns the segment's soonest expiry on the way when all fitted.
    pub(super) fn expired_keys(
        &mut self,
        segment: usize,
        now: u64,
        keys_max: usize,
    ) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut soonest = u64::MAX;
        self.segments[segment].for_each(&mut |entry| match entry.expires_at() {
            Some(at) if at <= now => {
                if keys.len() < keys_max {
                    keys.push(entry.key().to_vec());
                } else {
                    soonest = 0;
                }
            }
            Some(at) => soonest = soonest.min(at),
            None => {}
        });
        self.segments[segment].soonest_expiry = soonest;
        keys
    }

    /// Drops up to `segments_max` segments of a table that nobody will use any more. True when
    /// nothing is left.
    pub(super) fn drop_some(&mut self, segments_max: usize) -> bool {
        let keep = self.segments.len().saturating_sub(segments_max);
        self.segments.truncate(keep);
        self.segments.is_empty()
    }
}

enum Count {
    Add,
    Remove,
}

impl Segment {
    fn sized(buckets: usize, depth: u32) -> Self {
        let grow_at = (buckets * LOAD_MAX) as u32;
        let buckets = std::iter::repeat_with(Bucket::default).take(buckets).collect();
        Self { buckets, depth, grow_at, soonest_expiry: u64::MAX, ..Self::default() }
    }

    /// An empty segment keeps no buckets.
    fn give_back_unused(&mut self) {
        if self.len == 0 {
            *self = Self { depth: self.depth, ..Self::default() };
        }
    }

    /// The bucket where the chain of `hash` begins. There must be buckets.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        let width = CURSOR_BITS - self.depth;
        let within = (hash >> (64 - CURSOR_BITS)) & ((1 << width) - 1);
        // At most 48 bits times nine bits.
        ((within * self.buckets.len() as u64) >> width) as usize
    }

    /// The cursor of the bucket behind the one that `cursor` names, 0 behind the last of all.
    fn next_cursor(&self, cursor: u64) -> u64 {
        // Cursors within the segment, and the first behind it.
        let width = CURSOR_BITS - self.depth;
        let base = cursor & (u64::MAX >> (64 - CURSOR_BITS)) & !((1 << width) - 1);
        let next = match self.buckets.len() as u64 {
            0 => base + (1 << width),
            buckets => {
                let home = self.home(cursor << (64 - CURSOR_BITS)) as u64;
                // The least cursor that `home` maps to the next bucket.
                base + ((home + 1) << width).div_ceil(buckets)
            }
        };
        if next >> CURSOR_BITS != 0 { 0 } else { next }
    }

    /// Home buckets are numbered from 0, overflow buckets behind them.
    #[inline]
    fn bucket(&self, number: u32) -> &Bucket {
        let number = number as usize;
        match self.buckets.get(number) {
            Some(bucket) => bucket,
            None => &self.overflow[number - self.buckets.len()],
        }
    }

    #[inline]
    fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        let number = number as usize;
        let homes = self.buckets.len();
        match self.buckets.get_mut(number) {
            Some(bucket) => bucket,
            None => &mut self.overflow[number - homes],
        }
    }

    #[inline]
    fn entry_mut(&mut self, place: EntryPosition) -> &mut Entry {
        if place.bucket == SPILL {
            return &mut self.spill[place.slot as usize];
        }
        self.bucket_mut(place.bucket).slots[place.slot as usize]
            .as_mut()
            .expect("a place is valid until the next insert or removal")
    }

    /// The number of the bucket that `bucket` links to.
    #[inline]
    fn next(&self, bucket: &Bucket) -> Option<u32> {
        match bucket.tags[LINK] {
            0 => None,
            link => Some(self.number_of(link)),
        }
    }

    #[inline]
    fn number_of(&self, link: u8) -> u32 {
        self.buckets.len() as u32 + u32::from(link) - 1
    }

    #[inline]
    fn find(&self, hash: u64, key: &[u8]) -> Option<(u32, u32)> {
        let tag = tag_of(hash);
        let mut number = self.home(hash) as u32;
        loop {
            let bucket = self.bucket(number);
            let mut candidates = bucket.slots_tagged(tag);
            while candidates != 0 {
                let slot = candidates.trailing_zeros() / 8;
                if let Some(entry) = &bucket.slots[slot as usize]
                    && entry.key() == key
                {
                    return Some((number, slot));
                }
                candidates &= candidates - 1;
            }
            match self.next(bucket) {
                Some(next) => number = next,
                None => break,
            }
        }
        let slot = self.spill.iter().position(|entry| entry.key() == key)?;
        Some((SPILL, slot as u32))
    }

    /// Whether the segment must grow before it can take one more entry.
    #[inline]
    fn is_full(&self) -> bool {
        self.len >= self.grow_at
    }

    /// Puts the entry into the first free slot of its chain, longer by a bucket if need be.
    #[inline]
    fn put(&mut self, hash: u64, entry: Entry) {
        let mut number = self.home(hash) as u32;
        loop {
            let bucket = self.bucket_mut(number);
            if let Some(slot) = bucket.free_slot() {
                bucket.tags[slot] = tag_of(hash);
                bucket.slots[slot] = Some(entry);
                return;
            }
            match self.next(self.bucket(number)) {
                Some(next) => number = next,
                None => break,
            }
        }
        self.put_in_overflow(number, hash, entry);
    }

    fn put_in_overflow(&mut self, last: u32, hash: u64, entry: Entry) {
        if self.unused == 0 && self.overflow.len() >= OVERFLOW_MAX {
            if self.spill.is_empty() {
                // Too crowded, whatever it holds: the next insert looks into it.
                self.grow_at = self.grow_at.min(self.len);
            }
            self.spill.push(entry);
            return;
        }
        let link = self.take_unused();
        let number = self.number_of(link);
        let bucket = self.bucket_mut(number);
        bucket.tags[0] = tag_of(hash);
        bucket.slots[0] = Some(entry);
        self.bucket_mut(last).tags[LINK] = link;
    }

    /// Link to an empty overflow bucket, of which there must be room for one.
    fn take_unused(&mut self) -> u8 {
        if self.unused != 0 {
            let number = self.number_of(self.unused);
            let next = std::mem::take(&mut self.bucket_mut(number).tags[LINK]);
            return std::mem::replace(&mut self.unused, next);
        }
        if self.overflow.len() == self.overflow.capacity() {
            // In eighths of the homes, so that little is reserved in vain.
            self.overflow.reserve_exact((self.buckets.len() / 8).max(1));
        }
        self.overflow.push(Bucket::default());
        self.overflow.len() as u8
    }

    /// Fills the gap at `place` from the end of its chain, which begins at `home`, and lets go
    /// of a bucket that has become empty.
    #[inline]
    fn close_gap(&mut self, home: u32, place: EntryPosition) {
        if self.bucket(home).tags[LINK] != 0 {
            self.close_gap_in_chain(home, place);
        }
    }

    fn close_gap_in_chain(&mut self, home: u32, place: EntryPosition) {
        let (mut before, mut last) = (home, home);
        while let Some(next) = self.next(self.bucket(last)) {
            (before, last) = (last, next);
        }
        if place.bucket != last
            && let Some(slot) = self.bucket(last).last_slot()
            && let Some((tag, entry)) = self.bucket_mut(last).take(slot)
        {
            let gap = self.bucket_mut(place.bucket);
            gap.tags[place.slot as usize] = tag;
            gap.slots[place.slot as usize] = Some(entry);
        }
        if self.bucket(last).last_slot().is_none() {
            let link = std::mem::take(&mut self.bucket_mut(before).tags[LINK]);
            self.bucket_mut(last).tags[LINK] = self.unused;
            self.unused = link;
        }
    }

    /// Puts an entry that comes from another segment, with the counts.
    fn add(&mut self, hash: u64, entry: Entry) {
        if let Some(at) = entry.expires_at() {
            self.volatile += 1;
            self.soonest_expiry = self.soonest_expiry.min(at);
        }
        self.len += 1;
        self.put(hash, entry);
    }

    /// Places all entries anew in `buckets` buckets.
    fn rebuild(&mut self, buckets: usize, hash_of: &dyn Fn(&[u8]) -> u64) {
        let depth = self.depth;
        let old = std::mem::replace(self, Segment::sized(buckets, depth));
        for_each_hashed(old, hash_of, |hash, entry| self.add(hash, entry));
    }

    fn into_entries(self) -> impl Iterator<Item = Entry> {
        let buckets = self.buckets.into_iter().chain(self.overflow);
        buckets.flat_map(|bucket| bucket.slots.into_iter().flatten()).chain(self.spill)
    }

    fn visit_chain(&self, home: u32, visit: &mut dyn FnMut(&Entry)) {
        let mut number = Some(home);
        while let Some(at) = number {
            let bucket = self.bucket(at);
            bucket.slots.iter().flatten().for_each(&mut *visit);
            number = self.next(bucket);
        }
    }

    fn for_each(&self, visit: &mut dyn FnMut(&Entry)) {
        let buckets = self.buckets.iter().chain(&self.overflow);
        buckets.flat_map(|bucket| bucket.slots.iter().flatten()).for_each(&mut *visit);
        self.spill.iter().for_each(visit);
    }

    fn memory(&self) -> usize {
        size_class(self.buckets.len() * size_of::<Bucket>())
            + self.overflow.capacity() * size_of::<Bucket>()
    }
}

/// Takes a segment apart, with the hash of each entry. Entries are fetched ahead: they are
/// strewn all over memory, and waiting for each would make a split ten times as long.
fn for_each_hashed(
    segment: Segment,
    hash_of: &dyn Fn(&[u8]) -> u64,
    mut take: impl FnMut(u64, Entry),
) {
    let entries: Vec<Entry> = segment.into_entries().collect();
    entries.iter().take(PREFETCH_AHEAD).for_each(Entry::prefetch);
    let mut entries = entries.into_iter();
    while let Some(entry) = entries.next() {
        if let Some(ahead) = entries.as_slice().get(PREFETCH_AHEAD - 1) {
            ahead.prefetch();
        }
        take(hash_of(entry.key()), entry);
    }
}

/// How many buckets a segment has before it splits: from half of [`BUCKETS_MAX`] for the first in
/// hash order, whose place is 0, to all of it for the last, whose place is nearly 1. Each part of
/// the octave is gone through in the same time while the number of keys doubles.
fn buckets_max(place: f64) -> usize {
    (BUCKETS_MAX as f64 / 2.0 * place.exp2()) as usize
}

/// Where the segment of `hash` with `depth` begins among all hashes.
fn place_of(hash: u64, depth: u32) -> f64 {
    start_of(hash, depth) as f64 / u64::MAX as f64
}

/// The first hash of the segment of `hash` with `depth`.
fn start_of(hash: u64, depth: u32) -> u64 {
    if depth == 0 { 0 } else { hash >> (64 - depth) << (64 - depth) }
}

impl Bucket {
    /// The high bit of each byte whose slot has `tag`; now and then of one that has not, so
    /// the key must be compared.
    #[inline]
    fn slots_tagged(&self, tag: u8) -> u64 {
        const ONES: u64 = 0x0101_0101_0101_0101;
        let different = u64::from_le_bytes(self.tags) ^ (ONES * u64::from(tag));
        different.wrapping_sub(ONES) & !different & (ONES << 7) & TAGS_ONLY
    }

    #[inline]
    fn free_slot(&self) -> Option<usize> {
        self.tags[..SLOTS].iter().position(|tag| *tag == 0)
    }

    fn last_slot(&self) -> Option<usize> {
        self.tags[..SLOTS].iter().rposition(|tag| *tag != 0)
    }

    /// Empties a slot: its tag and its entry.
    #[inline]
    fn take(&mut self, slot: usize) -> Option<(u8, Entry)> {
        Some((std::mem::take(&mut self.tags[slot]), self.slots[slot].take()?))
    }
}

/// The low hash bits, never zero: zero marks an empty slot.
#[inline]
fn tag_of(hash: u64) -> u8 {
    (hash as u8).max(1)
}
