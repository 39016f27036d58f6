//! A picture of all databases at one moment, taken in slices while clients go on.
//!
//! ```text
//! start ─► every entry is pending ─┬─ the walk comes by ──────► saved, marked
//!                                  ├─ a change comes first ───► saved, marked, changed
//!                                  └─ (new entries are marked from the beginning)
//! ```
//!
//! What must stay true:
//! - An entry whose mark is not the keyspace's is pending. Between snapshots all marks are equal,
//!   so starting one is turning the keyspace's mark over. Entries made meanwhile get the new one.
//! - Whatever changes or removes an entry calls `before_change` first.
//! - The walk goes in hash order, as SCAN does, so that it misses nothing that stays through
//!   splits and merges; what it meets twice is marked by then.
//! - An abandoned snapshot walks on to the end, saving nothing, so that all marks are equal again.
//!
//! Small values are copied. Large ones are shared, which takes time by their number of nodes, and
//! encoded by whoever gets the parts; a later change copies the node it touches.

use store_persist::rdb::{Access, Encoder, EntryHead, Part, SavedEntry, SavedValue};
use store_types::dump;

use super::freeing::{Freeing, table_bytes};
use super::table::Table;
use super::{AccessPolicy, Data, Entry, Found, Keyspace, StringRef, ValueRef};

/// Values with more memory than this are shared instead of copied.
const SHARED_OVER: usize = 64 * 1024;
/// Work of one slice, in units of about a sixth of a microsecond.
const SLICE_UNITS: usize = 2000;
/// Bytes copied for one unit.
const COPIED_PER_UNIT: usize = 512;
/// Bytes shared for one unit: about one node.
const SHARED_PER_UNIT: usize = 16 * 1024;
/// The walk waits while this much was handed on and is not written yet.
const WALK_AHEAD_MAX: usize = 8 * 1024 * 1024;
/// What changes have saved ahead of the walk may take this much, or a tenth of all data.
const BUFFER_MIN: usize = 64 * 1024 * 1024;

/// What a snapshot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// A file of its own. FLUSHALL gives it up: nobody wants to find the old data in it.
    Save,
    /// The base of an append-only file, which FLUSHALL is going to follow.
    Rewrite,
    /// The payload of replicas, which FLUSHALL is going to follow.
    Replica,
}

/// How the parts of a snapshot come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotForm {
    /// Encoded as in an RDB file; with `compresses`, but for compression.
    Rdb {
        /// Whether the writer is going to compress strings.
        compresses: bool,
    },
    /// Every entry as [`Part::Entry`], for other formats.
    Entries,
}

/// How far a snapshot has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotProgress {
    /// What it is for.
    pub kind: SnapshotKind,
    /// Keys saved.
    pub keys_done: u64,
    /// Keys there were at its start.
    pub keys_total: u64,
}

/// What a slice of a snapshot came to.
#[derive(Debug)]
pub enum SnapshotTurn {
    /// There is none.
    Idle,
    /// Parts to write, and there will be more.
    More(Vec<Part>),
    /// Parts to write; the walk waits until some are written.
    Waiting(Vec<Part>),
    /// The last parts.
    Done(Vec<Part>),
    /// It was given up for this reason: what was written of it is to be thrown away. Its last
    /// traces go by themselves; then the next one can begin.
    Abandoned(String),
    /// One that was abandoned leaves its last traces.
    Settling,
}

/// The running snapshot.
pub(super) struct Walk {
    kind: SnapshotKind,
    form: SnapshotForm,
    encoder: Encoder,
    /// Which of the eviction policies' memories are saved.
    saves_access: bool,
    /// The database being walked, by its number at the start, and how far.
    db: usize,
    cursor: u64,
    /// Databases that FLUSHDB emptied and the walk has yet to see.
    detached: Vec<Table>,
    end: End,
    /// Bytes of parts that were handed on and not written.
    ahead_bytes: usize,
    buffer_max: usize,
    keys_done: u64,
    keys_total: u64,
}

/// Whether a snapshot is going to be whole.
enum End {
    Open,
    /// Given up, and nobody has been told.
    Abandoned(String),
    Settling,
}

impl Keyspace {
    /// Begins a snapshot of this moment. False while one is running or settling.
    pub(crate) fn start_snapshot(
        &mut self,
        kind: SnapshotKind,
        form: SnapshotForm,
        saves_access: bool,
    ) -> bool {
        if self.snapshot.is_some() {
            return false;
        }
        self.mark = !self.mark;
        let mut sizes = Vec::new();
        for (db, table) in self.databases.iter_mut().enumerate() {
            table.snapshot_db = Some(db);
            sizes.push((table.len() as u64, table.volatile_len() as u64));
        }
        let keys_total = sizes.iter().map(|(keys, _)| keys).sum();
        let compresses = form == SnapshotForm::Rdb { compresses: true };
        self.snapshot = Some(Box::new(Walk {
            kind,
            form,
            encoder: Encoder::new(sizes, compresses),
            saves_access,
            db: 0,
            cursor: 0,
            detached: Vec::new(),
            end: End::Open,
            ahead_bytes: 0,
            buffer_max: BUFFER_MIN.max(self.memory() / 10),
            keys_done: 0,
            keys_total,
        }));
        true
    }

    /// Lets changes save at least so much ahead of the walk.
    pub(crate) fn allow_ahead(&mut self, bytes: usize) {
        if let Some(walk) = &mut self.snapshot {
            walk.buffer_max = walk.buffer_max.max(bytes);
        }
    }

    /// How far the running snapshot has come; `None` without one, or when it was abandoned.
    pub fn snapshot_progress(&self) -> Option<SnapshotProgress> {
        let walk = self.snapshot.as_ref().filter(|walk| walk.is_open())?;
        let Walk { kind, keys_done, keys_total, .. } = **walk;
        Some(SnapshotProgress { kind, keys_done, keys_total })
    }

    /// Whether a snapshot runs or settles.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Gives up the running snapshot on behalf of whoever takes its parts.
    pub(crate) fn drop_snapshot(&mut self) {
        self.abandon_snapshot("");
        if let Some(walk) = self.snapshot.as_mut() {
            walk.end = End::Settling;
        }
    }

    /// Whether a snapshot that was given up leaves its last traces, and all know.
    pub(crate) fn is_settling(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|walk| matches!(walk.end, End::Settling))
    }

    /// Gives up the running snapshot, if there is one; whoever takes its parts is told why.
    pub(crate) fn abandon_snapshot(&mut self, reason: &str) {
        if let Some(walk) = self.snapshot.as_mut().filter(|walk| walk.is_open()) {
            walk.abandon(reason.to_owned());
            let detached = std::mem::take(&mut walk.detached);
            self.discard_tables(detached);
        }
    }

    /// Bytes of databases that FLUSHDB emptied and that are kept for the running snapshot.
    pub(super) fn detached_bytes(&self) -> usize {
        let walk = self.snapshot.as_ref();
        walk.map_or(0, |walk| walk.detached.iter().map(table_bytes).sum())
    }

    fn discard_tables(&mut self, tables: Vec<Table>) {
        for table in tables {
            self.discard_table(table, Freeing::Now);
        }
    }

    /// Walks one slice, while `ahead_bytes` of the parts handed on are not written yet.
    pub(crate) fn snapshot_turn(&mut self, ahead_bytes: usize) -> SnapshotTurn {
        let Some(mut walk) = self.snapshot.take() else { return SnapshotTurn::Idle };
        walk.ahead_bytes = ahead_bytes;
        if let End::Abandoned(reason) = &mut walk.end {
            let reason = std::mem::take(reason);
            walk.end = End::Settling;
            self.snapshot = Some(walk);
            return SnapshotTurn::Abandoned(reason);
        }
        let waits = walk.is_open() && ahead_bytes >= WALK_AHEAD_MAX;
        let is_done = !waits && self.walk_slice(&mut walk);
        let parts = walk.encoder.take_parts();
        if is_done {
            self.databases.iter_mut().for_each(|table| table.snapshot_db = None);
            self.discard_tables(std::mem::take(&mut walk.detached));
        }
        match (&walk.end, is_done) {
            (End::Open, true) => SnapshotTurn::Done(parts),
            (_, true) => SnapshotTurn::Idle,
            (end, false) => {
                let turn = match end {
                    End::Open if waits => SnapshotTurn::Waiting(parts),
                    End::Open => SnapshotTurn::More(parts),
                    End::Abandoned(_) | End::Settling => SnapshotTurn::Settling,
                };
                self.snapshot = Some(walk);
                turn
            }
        }
    }

    /// Goes on from where the walk stands. True behind the last database.
    fn walk_slice(&mut self, walk: &mut Walk) -> bool {
        let (mark, access, now_ms) = (self.mark, self.access, self.now_ms);
        let mut units = 0;
        while walk.db < self.databases.len() {
            let is_next = |table: &&mut Table| table.snapshot_db == Some(walk.db);
            let mut detached = std::mem::take(&mut walk.detached);
            let mut tables = self.databases.iter_mut().chain(&mut detached);
            let table = tables.find(is_next);
            let is_over = table
                .is_none_or(|table| walk.walk_table(table, mark, (access, now_ms), &mut units));
            walk.detached = detached;
            if !is_over {
                return false;
            }
            walk.db += 1;
            // A table that FLUSHDB took away half-walked leaves its cursor behind.
            walk.cursor = 0;
            let is_walked = |table: &mut Table| table.snapshot_db < Some(walk.db);
            let walked = walk.detached.extract_if(.., is_walked).collect();
            self.discard_tables(walked);
        }
        true
    }

    /// To be called before an entry is changed or removed: saves it if a snapshot needs it.
    #[inline]
    pub(super) fn before_change(&mut self, found: Found) {
        if self.snapshot.is_some() {
            self.save_before_change(found);
        }
    }

    #[cold]
    fn save_before_change(&mut self, found: Found) {
        #[cfg(test)]
        if self.is_careless {
            return;
        }
        let table = &mut self.databases[self.selected];
        let Some(walk) = self.snapshot.as_mut().filter(|walk| walk.is_open()) else { return };
        let Some(db) = table.snapshot_db else { return };
        let entry = table.entry_mut(found.place);
        if entry.mark() == self.mark {
            return;
        }
        entry.set_mark(self.mark);
        walk.save(db, entry, (self.access, self.now_ms));
        if walk.encoder.pending_bytes() + walk.ahead_bytes > walk.buffer_max {
            let reason = format!(
                "changes come faster than they are written: {} bytes wait for the file",
                walk.encoder.pending_bytes() + walk.ahead_bytes
            );
            self.abandon_snapshot(&reason);
        }
    }

    /// Keeps an emptied database for the running snapshot, or returns it to be freed.
    pub(super) fn keep_for_snapshot(&mut self, table: Table) -> Option<Table> {
        match self.snapshot.as_mut().filter(|walk| walk.is_open()) {
            Some(walk) if table.snapshot_db.is_some_and(|db| db >= walk.db) => {
                walk.detached.push(table);
                None
            }
            _ => Some(table),
        }
    }

    /// The kind of the running snapshot, if there is one.
    pub(crate) fn snapshot_kind(&self) -> Option<SnapshotKind> {
        self.snapshot_progress().map(|progress| progress.kind)
    }
}

/// How accesses are remembered, and the moment.
type AccessNow = (AccessPolicy, u64);

impl Walk {
    fn is_open(&self) -> bool {
        matches!(self.end, End::Open)
    }

    fn abandon(&mut self, reason: String) {
        self.end = End::Abandoned(reason);
        self.encoder = Encoder::new(Vec::new(), false);
    }

    /// Walks on through a table. True when it is done with, false when the slice is.
    fn walk_table(
        &mut self,
        table: &mut Table,
        mark: bool,
        access: AccessNow,
        units: &mut usize,
    ) -> bool {
        loop {
            let mut work = 1;
            let next = table.scan_mut(self.cursor, &mut |entry| {
                if entry.mark() != mark {
                    entry.set_mark(mark);
                    let db = self.db;
                    work += if self.is_open() { self.save(db, entry, access) } else { 1 };
                }
            });
            self.cursor = next;
            *units += work;
            if next == 0 {
                return true;
            }
            table.prefetch_at(next);
            if *units >= SLICE_UNITS {
                return false;
            }
        }
    }

    /// Saves an entry, and returns what work it was.
    fn save(&mut self, db: usize, entry: &Entry, access: AccessNow) -> usize {
        self.keys_done += 1;
        let (policy, now_ms) = access;
        let access = match (self.saves_access, policy.is_lfu) {
            (false, _) => Access::None,
            (true, false) => Access::Idle(policy.idle_seconds(entry.access(), now_ms)),
            (true, true) => Access::Frequency(policy.counter(entry.access(), now_ms) as u8),
        };
        let expires_at = entry.expires_at();
        let head = EntryHead { db, key: entry.key(), expires_at, access };
        let value = entry.value();
        let memory = match value {
            ValueRef::Integer(_) => 0,
            ValueRef::Bytes(bytes) => bytes.len(),
            ValueRef::Object(value) => value.memory(),
        };
        if memory > SHARED_OVER || self.form == SnapshotForm::Entries {
            let value = shared(entry);
            let key = Box::from(head.key);
            self.encoder.share(SavedEntry { db, key, expires_at, access, value });
            return 1 + memory / SHARED_PER_UNIT;
        }
        let mut scratch = [0; 20];
        self.encoder.copy(head, saved(value, &mut scratch));
        1 + memory / COPIED_PER_UNIT
    }
}

/// A value as it is saved.
pub(crate) fn saved<'a>(value: ValueRef<'a>, scratch: &'a mut [u8; 20]) -> dump::ValueRef<'a> {
    match value {
        ValueRef::Integer(number) => {
            dump::ValueRef::String(StringRef::Integer(number).bytes(scratch))
        }
        ValueRef::Bytes(bytes) => dump::ValueRef::String(bytes),
        ValueRef::Object(value) => match value.data() {
            Data::List(list) => dump::ValueRef::List(list),
            Data::Hash(hash) => dump::ValueRef::Hash(hash),
            Data::Set(set) => dump::ValueRef::Set(set),
            Data::SortedSet(set) => dump::ValueRef::SortedSet(set),
            Data::Stream(stream) => dump::ValueRef::Stream(stream),
        },
    }
}

/// A value that shares its memory with the entry's, where it has nodes to share.
pub(crate) fn shared(entry: &Entry) -> SavedValue {
    if let Some(text) = entry.share_heap() {
        return SavedValue::Text(text);
    }
    let mut scratch = [0; 20];
    SavedValue::Value(match saved(entry.value(), &mut scratch) {
        dump::ValueRef::String(bytes) => dump::Value::String(bytes.to_vec()),
        dump::ValueRef::List(list) => dump::Value::List(list.clone()),
        dump::ValueRef::Hash(hash) => dump::Value::Hash(hash.clone()),
        dump::ValueRef::Set(set) => dump::Value::Set(set.clone()),
        dump::ValueRef::SortedSet(set) => dump::Value::SortedSet(set.clone()),
        dump::ValueRef::Stream(stream) => dump::Value::Stream(stream.clone()),
    })
}
