//! All keys with their values: lookups, changes, expiry, and what changes cause.
//!
//! In: the moment and the selected database, set once per request by `begin`. Out: values, and
//! [`Changes`] (events, touched watchers, ready keys) for the engine to deliver.

mod access;
pub(crate) mod changes;
mod entry;
mod evict;
mod expiry;
mod freeing;
mod loading;
pub(crate) mod memory;
mod object;
mod prefetch;
mod slots;
mod snapshot;
mod table;
mod value;
mod waiting;
mod watch;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use store_types::Rng;

pub use access::AccessPolicy;
pub use entry::{Entry, NewValue, ValueRef};
pub(crate) use expiry::ExpiryTurn;
pub use freeing::{Freeing, FreeingSettings, FreeingStats, Garbage};
pub(crate) use loading::{FileEntry, FileValue, Unplaced};
pub use object::{Object, ValueMut};
pub use snapshot::{SnapshotForm, SnapshotKind, SnapshotProgress, SnapshotTurn};
pub(crate) use snapshot::{saved, shared};
pub(crate) use table::{CURSOR_BITS, Scope};
pub use value::{Data, Value};
pub use waiting::WaitingKeys;
pub use watch::Watches;

use self::changes::{Changes, KeyEvent, LostWatch, Notification, WatchedNow, event_class};
use crate::error::CommandError;
use table::{EntryPosition, Table};

/// What becomes of a key's expiry when its value is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// As it was.
    Keep,
    /// None.
    Clear,
    /// At this unix millisecond.
    At(u64),
}

/// Counters that INFO tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyStats {
    /// Reads that found their key.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Keys removed because they ended.
    pub expired: u64,
    /// Keys removed for memory.
    pub evicted: u64,
}

/// The databases and everything that hangs on keys. Methods act on the selected database.
pub struct Keyspace {
    databases: Vec<Table>,
    selected: usize,
    now_us: u64,
    now_ms: u64,
    /// Keys that end before this are gone: the moment, or never while data is loaded.
    ended_before_ms: u64,
    loading: bool,
    hasher: KeyHasher,
    access: AccessPolicy,
    /// Whether reads leave the access bits alone (CLIENT NO-TOUCH, and OBJECT's lookups).
    untouched: bool,
    /// Tables that FLUSHALL let go; freed in slices.
    dropped: freeing::Dropped,
    freeing_stats: FreeingStats,
    /// Bytes in [`Changes::garbage`](changes::Changes::garbage), as long as there is any.
    handed_out_bytes: usize,
    expiry_cursor: (usize, usize),
    expiry_enabled: bool,
    /// How values are freed, by why they go.
    pub freeing: FreeingSettings,
    /// `active-expire-effort`, 1 to 10.
    expiry_effort: usize,
    /// The mark of entries that the running snapshot has done with; without one, of all.
    mark: bool,
    /// Keys that ended stay, unseen: clients are paused, or this is a replica.
    keeps_ended: bool,
    is_paused: bool,
    is_replica: bool,
    /// Keys that end and were written here, by number of their database: on a replica that takes
    /// writes nobody else removes them.
    own_volatile: BTreeSet<(usize, Box<[u8]>)>,
    /// How many of them the present round has looked at.
    own_cursor: usize,
    /// For the test that must notice it: changes save nothing first.
    #[cfg(test)]
    pub(crate) is_careless: bool,
    /// For the test that compares them with what the key finder finds: keys looked for or set.
    #[cfg(test)]
    pub(crate) looked_up: std::collections::BTreeSet<Vec<u8>>,
    /// The running snapshot.
    snapshot: Option<Box<snapshot::Walk>>,
    /// Changes since the last save.
    pub dirty: u64,
    /// Slots whose keys are being removed.
    emptied_slots: BTreeSet<u16>,
    /// Counters that INFO tells.
    pub stats: KeyStats,
    /// Seeded randomness for RANDOMKEY and its kind.
    pub random: Rng,
    /// What is to be delivered after the request.
    pub changes: Changes,
    /// Watched keys.
    pub watches: Watches,
    /// Keys that blocked sessions wait for.
    pub waiting: WaitingKeys,
}

/// Keys prefetched at once: more than this would push each other out of the fill buffers.
pub(crate) const PREFETCH_MAX: usize = 16;

/// A key that will be looked up soon. Any change of the keyspace in between does no harm.
#[derive(Clone, Copy, Debug)]
pub struct PrefetchHandle {
    db: usize,
    hash: u64,
}

/// A found key. Valid until the next change of the keyspace.
#[derive(Clone, Copy)]
struct Found {
    hash: u64,
    place: EntryPosition,
}

impl Keyspace {
    /// `databases` empty databases, hashing and choosing by `seed`.
    pub fn new(databases: usize, seed: u64) -> Self {
        let mut random = Rng::seeded(seed);
        Self {
            databases: std::iter::repeat_with(Table::new).take(databases).collect(),
            selected: 0,
            now_us: 0,
            now_ms: 0,
            ended_before_ms: 0,
            loading: false,
            hasher: KeyHasher {
                state: foldhash::quality::FixedState::with_seed(random.next_u64()),
                is_by_slot: false,
            },
            access: AccessPolicy::default(),
            untouched: false,
            dropped: freeing::Dropped::default(),
            freeing_stats: FreeingStats::default(),
            handed_out_bytes: 0,
            freeing: FreeingSettings::default(),
            expiry_cursor: (0, 0),
            expiry_enabled: true,
            expiry_effort: 1,
            mark: false,
            keeps_ended: false,
            is_paused: false,
            is_replica: false,
            own_volatile: BTreeSet::new(),
            own_cursor: 0,
            #[cfg(test)]
            is_careless: false,
            #[cfg(test)]
            looked_up: std::collections::BTreeSet::new(),
            snapshot: None,
            dirty: 0,
            emptied_slots: BTreeSet::new(),
            stats: KeyStats::default(),
            random,
            changes: Changes::default(),
            watches: Watches::default(),
            waiting: WaitingKeys::default(),
        }
    }

    /// Sets the moment and the database for what comes next.
    #[inline]
    pub(crate) fn begin(&mut self, now_us: u64, db: usize) {
        self.now_us = now_us;
        self.now_ms = now_us / 1000;
        self.ended_before_ms = if self.loading { 0 } else { self.now_ms };
        self.selected = db;
    }

    /// Unix milliseconds: the moment of the running request.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Unix microseconds: the moment of the running request.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Whether a key that ends at `at_ms` has ended. While data is loaded none has: whether it
    /// ended before the next change of it was decided when that change was made. On a replica the
    /// primary decides.
    pub fn is_over(&self, at_ms: i64) -> bool {
        at_ms <= self.now_ms as i64 && !self.loading && !self.is_replica
    }

    /// Data is loaded from now on, or no more.
    pub(crate) fn set_loading(&mut self, loading: bool) {
        self.loading = loading;
    }

    /// The selected database.
    #[inline]
    pub fn selected(&self) -> usize {
        self.selected
    }

    /// Selects another database. Panics when there is none: commands check the number.
    pub fn select(&mut self, db: usize) {
        assert!(db < self.databases.len(), "database numbers are checked by commands");
        self.selected = db;
    }

    /// How many databases there are.
    pub fn database_count(&self) -> usize {
        self.databases.len()
    }

    /// Keys in the selected database.
    pub fn len(&self) -> usize {
        self.table().len()
    }

    /// Whether the selected database has no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys and keys with an expiry in database `db`.
    pub fn counts(&self, db: usize) -> (usize, usize) {
        (self.databases[db].len(), self.databases[db].volatile_len())
    }

    /// Bytes of all keys and values, tables included.
    #[inline]
    pub fn memory(&self) -> usize {
        self.databases.iter().map(|table| table.memory() + table.entry_memory).sum()
    }

    /// Bytes of the table of database `db` itself: what keys cost beside their entries.
    pub(crate) fn table_memory(&self, db: usize) -> usize {
        self.databases[db].memory()
    }

    /// How accesses are remembered.
    pub fn access_policy(&self) -> AccessPolicy {
        self.access
    }

    /// Changes how accesses are remembered.
    pub fn set_access_policy(&mut self, access: AccessPolicy) {
        self.access = access;
    }

    #[inline]
    fn table(&self) -> &Table {
        &self.databases[self.selected]
    }

    #[inline]
    fn table_mut(&mut self) -> &mut Table {
        &mut self.databases[self.selected]
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        hash(&self.hasher, key)
    }

    /// Finds a living key; one that ended is removed on the way.
    #[inline]
    fn find(&mut self, key: &[u8]) -> Option<Found> {
        #[cfg(test)]
        self.looked_up.insert(key.to_vec());
        let hash = self.hash(key);
        let place = self.table().find(hash, key)?;
        let found = Found { hash, place };
        match self.table().entry(place).expires_at() {
            Some(at) if at < self.ended_before_ms => {
                if !self.keeps_ended {
                    self.expire(found, key);
                }
                None
            }
            _ => Some(found),
        }
    }

    /// Begins to fetch what lookups of `keys` in database `db` will touch.
    pub(crate) fn prefetch<'k>(&self, db: usize, keys: impl Iterator<Item = &'k [u8]>) {
        let table = &self.databases[db];
        let mut hashes = [0; PREFETCH_MAX];
        let mut count = 0;
        for (slot, key) in hashes.iter_mut().zip(keys) {
            *slot = self.hash(key);
            table.prefetch_bucket(*slot);
            count += 1;
        }
        let mut entries = [None; PREFETCH_MAX];
        for (slot, hash) in entries.iter_mut().zip(&hashes[..count]) {
            *slot = table.prefetch_entry(*hash);
        }
        entries.iter().flatten().for_each(|entry: &&Entry| entry.prefetch_value());
    }

    /// The first step of fetching what a lookup of `key` in database `db` will touch.
    #[inline]
    pub(crate) fn foresee(&self, db: usize, key: &[u8]) -> PrefetchHandle {
        let hash = self.hash(key);
        self.databases[db].prefetch_bucket(hash);
        PrefetchHandle { db, hash }
    }

    /// The second step, when the bucket is there: the entry, as far as one can tell.
    #[inline]
    pub(crate) fn prefetch_entry(&self, foreseen: PrefetchHandle) {
        self.databases[foreseen.db].prefetch_entry(foreseen.hash);
    }

    /// The third step, when the entry's beginning is there: the rest of it.
    #[inline]
    pub(crate) fn prefetch_value(&self, foreseen: PrefetchHandle) {
        if let Some(entry) = self.databases[foreseen.db].prefetch_entry(foreseen.hash) {
            entry.prefetch_value();
        }
    }

    #[inline]
    fn touch_access(&mut self, found: Found) {
        if self.untouched {
            return;
        }
        let (access, now_ms) = (self.access, self.now_ms);
        let random = &mut self.random;
        let entry = self.databases[self.selected].entry_mut(found.place);
        let before = entry.access();
        let bits = access.accessed(before, now_ms, || random.next_u64());
        // A key that is read often would otherwise be written back to memory as often.
        if bits != before {
            entry.set_access(bits);
        }
    }

    /// Runs `look` with reads that leave the access bits alone.
    pub fn without_touching<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.untouched, true);
        let result = look(self);
        self.untouched = before;
        result
    }

    /// Reads a key: counted as hit or miss, and as an access.
    #[inline]
    pub fn read(&mut self, key: &[u8]) -> Option<ValueRef<'_>> {
        match self.find(key) {
            Some(found) => {
                self.stats.hits += 1;
                self.touch_access(found);
                Some(self.table().entry(found.place).value())
            }
            None => {
                self.stats.misses += 1;
                self.notify(event_class::KEY_MISS, "keymiss", key);
                None
            }
        }
    }

    /// Looks at a key with a write in mind: an access, but no hit or miss.
    #[inline]
    pub fn peek(&mut self, key: &[u8]) -> Option<ValueRef<'_>> {
        let found = self.find(key)?;
        self.touch_access(found);
        Some(self.table().entry(found.place).value())
    }

    /// The entry behind a key, without counting or touching anything.
    pub fn entry(&mut self, key: &[u8]) -> Option<&Entry> {
        let found = self.find(key)?;
        Some(self.table().entry(found.place))
    }

    /// The entry behind a key, even if it has ended and nobody has removed it yet.
    pub(crate) fn stored_entry(&self, key: &[u8]) -> Option<&Entry> {
        let place = self.table().find(self.hash(key), key)?;
        Some(self.table().entry(place))
    }

    /// The entry behind a key, looked at: a hit or miss, but no access and no event.
    pub fn inspect(&mut self, key: &[u8]) -> Option<&Entry> {
        match self.find(key) {
            Some(found) => {
                self.stats.hits += 1;
                Some(self.table().entry(found.place))
            }
            None => {
                self.stats.misses += 1;
                None
            }
        }
    }

    /// The entry behind a key, read: a hit or miss, and an access.
    pub fn read_entry(&mut self, key: &[u8]) -> Option<&Entry> {
        self.read(key)?;
        self.entry(key)
    }

    /// A long string, to be read while the key goes on. Counts and touches nothing.
    pub fn share_string(&mut self, key: &[u8]) -> Option<Arc<Vec<u8>>> {
        self.entry(key)?.share_heap()
    }

    /// Whether a living key is there.
    pub fn contains(&mut self, key: &[u8]) -> bool {
        self.find(key).is_some()
    }

    /// Reads a string. Fails when the key holds something else.
    #[inline]
    pub fn read_string(&mut self, key: &[u8]) -> Result<Option<StringRef<'_>>, CommandError> {
        string_of(self.read(key))
    }

    /// Looks at a string with a write in mind. Fails when the key holds something else.
    #[inline]
    pub fn peek_string(&mut self, key: &[u8]) -> Result<Option<StringRef<'_>>, CommandError> {
        string_of(self.peek(key))
    }

    /// Sets a key to a value, whatever was there before.
    #[inline]
    pub fn set(&mut self, key: &[u8], value: NewValue<'_>, expiry: Expiry) {
        let found = self.find(key);
        let Some(found) = found else {
            let expires_at = match expiry {
                Expiry::At(at) => Some(at),
                Expiry::Keep | Expiry::Clear => None,
            };
            return self.insert(key, value, expires_at);
        };
        if !self.waiting.is_empty() && self.table().entry(found.place).value().is_stream() {
            self.signal_ready(key);
        }
        self.before_change(found);
        if self.is_replica && matches!(expiry, Expiry::At(_)) {
            self.remember_own(key);
        }
        let table = &mut self.databases[self.selected];
        let entry = table.entry_mut(found.place);
        let expires_at = match expiry {
            Expiry::Keep => entry.expires_at(),
            Expiry::Clear => None,
            Expiry::At(at) => Some(at),
        };
        let bits = entry.access();
        match entry.overwrite(value, expires_at) {
            Ok(()) => {
                if let Some(at) = expires_at {
                    table.expiry_moved(found.place, at);
                }
            }
            Err(value) => {
                let mut entry = Entry::new(key, value, expires_at);
                entry.set_access(bits);
                self.replace(found, entry);
            }
        }
        self.touch_access(found);
    }

    /// A new key, which must not be there.
    fn insert(&mut self, key: &[u8], value: NewValue<'_>, expires_at: Option<u64>) {
        let mut entry = Entry::new(key, value, expires_at);
        entry.set_access(self.access.initial(self.now_ms));
        self.insert_entry(key, entry);
    }

    fn insert_entry(&mut self, key: &[u8], mut entry: Entry) {
        #[cfg(test)]
        self.looked_up.insert(key.to_vec());
        if self.keeps_ended {
            self.make_way(key);
        }
        if self.is_replica && entry.expires_at().is_some() {
            self.remember_own(key);
        }
        entry.set_mark(self.mark);
        let is_awaited = !self.waiting.is_empty() && entry.value().can_be_awaited();
        self.table_mut().entry_memory += entry.memory();
        let hash = self.hash(key);
        let (hasher, table) = (&self.hasher, &mut self.databases[self.selected]);
        table.insert(hash, entry, &|key| self::hash(hasher, key));
        self.notify(event_class::NEW, "new", key);
        // Whoever waits for a key looks whether this is what it waits for.
        if is_awaited {
            self.signal_ready(key);
        }
    }

    /// One that ended and was kept makes way for its successor.
    #[cold]
    fn make_way(&mut self, key: &[u8]) {
        self.keeps_ended = false;
        self.contains(key);
        self.keeps_ended = true;
    }

    /// Hashes keys as `other` does, so that tables fit both.
    pub(crate) fn hash_as(&mut self, other: &Keyspace) {
        self.hasher = other.hasher.clone();
        if self.hasher.is_by_slot {
            self.lay_out_by_slot();
        }
    }

    /// Takes all tables of a keyspace that hashes as this one, which has no keys and no snapshot.
    pub(crate) fn take_tables(&mut self, other: &mut Keyspace) {
        debug_assert!(self.snapshot.is_none() && self.databases.len() == other.databases.len());
        std::mem::swap(&mut self.databases, &mut other.databases);
        self.mark = other.mark;
        self.emptied_slots.clear();
        self.expiry_cursor = (0, 0);
    }

    /// While clients are paused, keys that ended are not shown but stay: the data does not change.
    pub(crate) fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
        self.keeps_ended = self.is_paused || self.is_replica;
    }

    /// On a replica, keys that ended are not shown but stay until the primary removes them.
    pub(crate) fn set_replica(&mut self, is_replica: bool) {
        self.is_replica = is_replica;
        // The primary says what goes, and has removed the rest if it was to be.
        self.emptied_slots.clear();
        self.own_volatile.clear();
        self.keeps_ended = self.is_paused || self.is_replica;
    }

    /// Whether another server decides what these keys are.
    pub(crate) fn is_replica(&self) -> bool {
        self.is_replica
    }

    /// Whether the key is there though it has ended.
    pub(crate) fn has_ended(&self, key: &[u8]) -> bool {
        self.state_in(self.selected, key) == Some(true)
    }

    /// Whether the key is there and has not ended. Neither ends nor touches it.
    pub(crate) fn is_present(&self, key: &[u8]) -> bool {
        self.state_in(self.selected, key) == Some(false)
    }

    /// Puts another entry in the place of one, which the caller has told to
    /// [`before_change`](Self::before_change).
    fn replace(&mut self, found: Found, mut entry: Entry) {
        entry.set_mark(self.mark);
        let table = self.table_mut();
        table.entry_memory += entry.memory();
        let old = table.replace(found.place, entry);
        table.entry_memory -= old.memory();
        self.discard(old, self.freeing.server_del);
    }

    /// Takes a key out, without any effect but the memory.
    pub fn take(&mut self, key: &[u8]) -> Option<Entry> {
        let found = self.find(key)?;
        Some(self.take_found(found))
    }

    fn take_found(&mut self, found: Found) -> Entry {
        self.before_change(found);
        let (hasher, table) = (&self.hasher, &mut self.databases[self.selected]);
        let hash_of = |key: &[u8]| hash(hasher, key);
        let entry = table.remove(found.place, found.hash, &hash_of);
        table.entry_memory -= entry.memory();
        if !self.waiting.is_empty() && entry.value().is_stream() {
            self.signal_ready(entry.key());
        }
        entry
    }

    /// Puts an entry taken elsewhere under `key`, which must not be there.
    pub fn put(&mut self, key: &[u8], entry: Entry) {
        let expires_at = entry.expires_at();
        let entry = if entry.key() == key { entry } else { entry.rebuilt(Some(key), expires_at) };
        self.insert_entry(key, entry);
    }

    /// Removes a key, without any effect but the memory. False when it is not there.
    pub fn remove(&mut self, key: &[u8], freeing: Freeing) -> bool {
        let Some(entry) = self.take(key) else { return false };
        self.discard(entry, freeing);
        true
    }

    /// Removes a key with all that follows from it, on behalf of a command that is not about
    /// removal. False when it is not there.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        self.delete_freeing(key, self.freeing.server_del)
    }

    /// Removes the key that a command would have stored something under. As in Redis, one that has
    /// ended is removed as if it had not.
    pub fn delete_target(&mut self, key: &[u8]) -> bool {
        let ended_before_ms = std::mem::take(&mut self.ended_before_ms);
        let removed = self.delete(key);
        self.ended_before_ms = ended_before_ms;
        removed
    }

    /// Removes a key with all that follows from it. False when it is not there.
    pub fn delete_freeing(&mut self, key: &[u8], freeing: Freeing) -> bool {
        let removed = self.remove(key, freeing);
        if removed {
            self.changed(event_class::GENERIC, "del", key);
        }
        removed
    }

    /// When a key ends: outer `None` without the key, inner `None` when it never does.
    pub fn expires_at(&mut self, key: &[u8]) -> Option<Option<u64>> {
        let found = self.find(key)?;
        Some(self.table().entry(found.place).expires_at())
    }

    /// Sets or takes away the end of a key. False when the key is not there.
    pub fn set_expires_at(&mut self, key: &[u8], expires_at: Option<u64>) -> bool {
        let Some(found) = self.find(key) else { return false };
        self.before_change(found);
        if self.is_replica && expires_at.is_some() {
            self.remember_own(key);
        }
        let table = &mut self.databases[self.selected];
        let entry = table.entry_mut(found.place);
        match expires_at {
            Some(at) if entry.move_expires_at(at) => table.expiry_moved(found.place, at),
            None if entry.expires_at().is_none() => {}
            _ => {
                // The entry needs more or less room, so it moves.
                let hole = Entry::new(b"", NewValue::Integer(0), None);
                let before = entry.memory();
                let old = table.replace(found.place, hole);
                let entry = old.rebuilt(None, expires_at);
                table.entry_memory = table.entry_memory - before + entry.memory();
                table.replace(found.place, entry);
            }
        }
        true
    }

    /// Sets what is remembered of a key's accesses, as far as the policy remembers it.
    pub fn set_access(&mut self, key: &[u8], idle_seconds: Option<u64>, frequency: Option<u8>) {
        if let Some(bits) = self.access.given(idle_seconds, frequency, self.now_ms)
            && let Some(found) = self.find(key)
        {
            self.table_mut().entry_mut(found.place).set_access(bits);
        }
    }

    /// Edits a string in place, created empty when it is not there. The expiry stays; OBJECT
    /// ENCODING will say raw. The caller has checked that the key holds no other kind.
    pub fn edit_string(&mut self, key: &[u8], edit: impl FnOnce(&mut Vec<u8>)) {
        let Some(found) = self.find(key) else {
            let mut bytes = Vec::new();
            edit(&mut bytes);
            return self.insert(key, NewValue::Edited(bytes), None);
        };
        self.touch_access(found);
        self.before_change(found);
        let (entry, memory) = self.databases[self.selected].entry_and_memory(found.place);
        let before = entry.memory();
        if let Some(bytes) = entry.heap_mut() {
            edit(bytes);
            *memory = *memory - before + entry.memory();
            return;
        }
        let mut bytes = StringRef::of(entry.value()).map(|text| text.to_vec()).unwrap_or_default();
        edit(&mut bytes);
        let mut edited = Entry::new(key, NewValue::Edited(bytes), entry.expires_at());
        edited.set_access(entry.access());
        self.replace(found, edited);
    }

    /// Visits the keys at `cursor` and returns the next cursor; see `Table::scan`. Keys that
    /// ended are visited too.
    pub fn scan(&self, cursor: u64, visit: &mut dyn FnMut(&Entry)) -> u64 {
        self.table().scan(cursor, visit)
    }

    /// Visits every key of the selected database.
    pub fn for_each(&self, visit: &mut dyn FnMut(&Entry)) {
        self.table().for_each(visit);
    }

    /// A living key chosen at random.
    pub fn random_key(&mut self) -> Option<Vec<u8>> {
        /// With this many that ended in a row, one of them will do: they may be all there is.
        const TRIES_MAX: usize = 100;
        let mut tries = 0;
        while !self.is_empty() {
            let key = self.random_bucket_key();
            tries += usize::from(self.keeps_ended);
            if self.contains(&key) || tries == TRIES_MAX {
                return Some(key);
            }
        }
        None
    }

    fn random_bucket_key(&mut self) -> Vec<u8> {
        if self.hasher.is_by_slot {
            return self.sampled_key();
        }
        loop {
            let cursor = self.random.next_u64() >> (64 - CURSOR_BITS);
            let mut keys = Vec::new();
            self.table().scan(cursor, &mut |entry| keys.push(entry.key().to_vec()));
            if !keys.is_empty() {
                let chosen = self.random.below(keys.len());
                return keys.swap_remove(chosen);
            }
        }
    }

    /// Empties database `db`, and tells how many keys it had. Freed now means in slices by
    /// `tick`, unless too much waits for that.
    pub fn flush(&mut self, db: usize, freeing: Freeing) -> usize {
        let table = self.databases[db].take_all();
        let removed = table.len();
        // What comes next is none of what was to be removed.
        self.emptied_slots.clear();
        self.signal_flushed(db, &table);
        if removed > 0
            && let Some(table) = self.keep_for_snapshot(table)
        {
            self.discard_table(table, freeing);
        }
        removed
    }

    /// Exchanges two databases.
    pub fn swap_databases(&mut self, a: usize, b: usize) {
        if a == b {
            // Nothing changes for anybody who watches.
            return;
        }
        self.signal_swapped(a, b);
        self.signal_swapped(b, a);
        self.databases.swap(a, b);
        for db in [a, b] {
            // What they wait for may have come, or gone.
            for key in self.waiting.in_db(db) {
                self.changes.ready_keys.push(db, &key);
            }
        }
    }

    /// Tells whoever watches keys of `db` that those of `other` are about to take their place.
    fn signal_swapped(&mut self, db: usize, other: usize) {
        for (key, watchers) in self.watches.in_db(db) {
            let was_there = self.state_in(db, key).is_some();
            let now = match self.state_in(other, key) {
                None if !was_there => continue,
                None => WatchedNow::Gone,
                Some(true) => WatchedNow::Ended { was_there },
                Some(false) => WatchedNow::There,
            };
            for watcher in watchers {
                let (watcher, key) = (*watcher, key.into());
                self.changes.lost_watches.push(LostWatch { watcher, db, key, now });
            }
        }
    }

    /// Whether a key of that database has ended, if it is there.
    fn state_in(&self, db: usize, key: &[u8]) -> Option<bool> {
        let table = &self.databases[db];
        let place = table.find(hash(&self.hasher, key), key)?;
        let ends_at = table.entry(place).expires_at();
        Some(ends_at.is_some_and(|at| at < self.ended_before_ms))
    }

    // What changes cause: the one place where watchers, tracking, events and blocked sessions
    // learn of them.

    /// A command changed `key`: counts the change, tells watchers and trackers, and records the
    /// event `name` of `class`.
    #[inline]
    pub fn changed(&mut self, class: u32, name: &'static str, key: &[u8]) {
        self.dirty += 1;
        self.signal_modified(key);
        self.notify(class, name, key);
    }

    /// The same where trackers hear of the event first: to be followed by
    /// [`signal_modified`](Self::signal_modified).
    #[inline]
    pub fn changed_after_event(&mut self, class: u32, name: &'static str, key: &[u8]) {
        self.dirty += 1;
        self.notify(class, name, key);
    }

    /// Tells watchers and trackers that `key` changed.
    #[inline]
    pub fn signal_modified(&mut self, key: &[u8]) {
        self.touch_watchers(key);
        if self.changes.tracking {
            let by_script = self.changes.in_script;
            self.changes
                .notifications
                .push(Notification::Changed { key: Some(key.into()), by_script });
        }
    }

    /// Tells watchers and trackers that `key` is gone, though no command removed it.
    fn signal_lost(&mut self, key: &[u8]) {
        if !self.watches.is_empty() {
            let db = self.selected;
            for watcher in self.watches.of(db, key) {
                self.changes.lost_watches.push(LostWatch {
                    watcher: *watcher,
                    db,
                    key: key.into(),
                    now: WatchedNow::Gone,
                });
            }
        }
        if self.changes.tracking {
            self.changes.notifications.push(Notification::Lost(key.into()));
        }
    }

    #[inline]
    fn touch_watchers(&mut self, key: &[u8]) {
        if !self.watches.is_empty() {
            // Once is enough: a script may change a key any number of times.
            let watchers = self.watches.take(self.selected, key);
            self.changes.touched_watchers.extend(watchers);
        }
    }

    /// Records a keyspace event when the setting asks for it.
    #[inline]
    pub fn notify(&mut self, class: u32, name: &'static str, key: &[u8]) {
        if self.changes.event_mask & class != 0 {
            let db = self.selected;
            let event = KeyEvent { db, class, name, key: key.into() };
            self.changes.notifications.push(Notification::Event(event));
        }
    }

    /// Tells sessions blocked on `key` that it may have what they wait for. To be called
    /// whenever a list, sorted set or stream grows; a new key signals by itself.
    #[inline]
    pub fn signal_ready(&mut self, key: &[u8]) {
        if self.waiting.contains(self.selected, key) {
            self.changes.ready_keys.push(self.selected, key);
        }
    }

    fn signal_flushed(&mut self, db: usize, flushed: &Table) {
        for (key, watchers) in self.watches.in_db(db) {
            if flushed.find(hash(&self.hasher, key), key).is_some() {
                for watcher in watchers {
                    let (watcher, key, now) = (*watcher, key.into(), WatchedNow::Gone);
                    self.changes.lost_watches.push(LostWatch { watcher, db, key, now });
                }
            }
        }
        for key in self.waiting.in_db(db) {
            let place = flushed.find(hash(&self.hasher, &key), &key);
            if place.is_some_and(|place| flushed.entry(place).value().is_stream()) {
                self.changes.ready_keys.push(db, &key);
            }
        }
    }

    /// Tells trackers that all keys may be gone, however many databases that means.
    pub(crate) fn signal_all_flushed(&mut self) {
        if self.changes.tracking {
            let by_script = self.changes.in_script;
            self.changes.notifications.push(Notification::Changed { key: None, by_script });
        }
    }
}

/// How keys are hashed.
#[derive(Clone)]
struct KeyHasher {
    state: foldhash::quality::FixedState,
    /// Whether hashes begin with the slot of the key.
    is_by_slot: bool,
}

#[inline]
fn hash(hasher: &KeyHasher, key: &[u8]) -> u64 {
    let mut state = hasher.state.build_hasher();
    state.write(key);
    let hash = state.finish();
    if hasher.is_by_slot { slots::hash_in_slot(hash, key) } else { hash }
}

/// A string in either of its forms.
#[derive(Clone, Copy)]
pub enum StringRef<'a> {
    /// Kept as an integer.
    Integer(i64),
    /// Kept as bytes.
    Bytes(&'a [u8]),
}

impl<'a> StringRef<'a> {
    fn of(value: ValueRef<'a>) -> Option<Self> {
        match value {
            ValueRef::Integer(number) => Some(Self::Integer(number)),
            ValueRef::Bytes(bytes) => Some(Self::Bytes(bytes)),
            ValueRef::Object(_) => None,
        }
    }

    /// The bytes; those of an integer are written into `scratch`.
    #[inline]
    pub fn bytes(self, scratch: &'a mut [u8; 20]) -> &'a [u8] {
        match self {
            Self::Integer(number) => store_resp::format_integer(number, scratch),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// A copy of the bytes.
    pub fn to_vec(self) -> Vec<u8> {
        self.bytes(&mut [0; 20]).to_vec()
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        self.bytes(&mut [0; 20]).len()
    }

    /// Whether it is the empty string.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

#[inline]
fn string_of(value: Option<ValueRef<'_>>) -> Result<Option<StringRef<'_>>, CommandError> {
    match value {
        None => Ok(None),
        Some(value) => StringRef::of(value).map(Some).ok_or(CommandError::WRONG_TYPE),
    }
}
