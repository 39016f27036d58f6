//! What becomes of values that are no longer needed: freed at once, or handed out so that it
//! delays nobody.
//!
//! ```text
//! removed entry ─► small, or wanted now ─► dropped here
//!               └► large and lazy ───────► Changes::garbage ─► the driver drops it elsewhere,
//! flushed table ─► lazy, or the queue is ─►        "            or gives it back when it is full
//!               │  full
//!               └► else ─► `Dropped`: freed in slices, by `tick` or when memory is short
//! ```
//! Whatever waits is counted, and no more waits than a named limit: a loop of writes and
//! flushes would otherwise fill the machine with what nobody can see.

use store_types::Encoding;

use super::Keyspace;
use super::entry::{Entry, ValueRef};
use super::table::Table;
use super::value::{Data, Value};

/// Values of more parts than this are worth handing out.
const EFFORT_MAX: usize = 64;
/// Giving a long string back costs the system so much per page.
const PAGE_LEN: usize = 4096;
/// A table of fewer keys is freed on the spot: about half a millisecond.
const SMALL_TABLE_LEN: usize = 2000;
/// Bytes of tables that may wait to be freed in slices. More goes to the driver's thread.
const DROPPED_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes handed out that the driver has yet to fetch: it fetches nothing while a script runs.
const HANDED_OUT_MAX: usize = 32 * 1024 * 1024;
/// Segments freed in one slice: about 2,000 keys each, a millisecond in all.
const SLICE_SEGMENTS: usize = 4;

/// When a value that is no longer needed is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freeing {
    /// Before the command goes on.
    Now,
    /// Elsewhere, if that is worth it.
    Lazily,
}

impl Freeing {
    /// Lazily if a setting says so.
    pub fn lazily_if(is_lazy: bool) -> Self {
        if is_lazy { Freeing::Lazily } else { Freeing::Now }
    }

    /// The command by which the removal of a key is propagated.
    pub fn command(self) -> &'static [u8] {
        match self {
            Freeing::Now => b"DEL",
            Freeing::Lazily => b"UNLINK",
        }
    }
}

/// The settings `lazyfree-lazy-…`: how values are freed, by why they go.
#[derive(Clone, Copy, Debug)]
pub struct FreeingSettings {
    /// Evicted for memory.
    pub eviction: Freeing,
    /// Ended.
    pub expire: Freeing,
    /// Overwritten, or removed by a command that is not about removal.
    pub server_del: Freeing,
    /// Removed by DEL.
    pub user_del: Freeing,
    /// Flushed without ASYNC or SYNC.
    pub user_flush: Freeing,
}

impl Default for FreeingSettings {
    fn default() -> Self {
        let now = Freeing::Now;
        Self { eviction: now, expire: now, server_del: now, user_del: now, user_flush: now }
    }
}

/// What INFO tells of freeing.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeingStats {
    /// Values that nobody can reach any more and that are not known to be freed.
    pub pending_objects: usize,
    /// Their bytes.
    pub pending_bytes: usize,
    /// Values freed elsewhere.
    pub freed_objects: u64,
}

/// Values that nobody can reach any more. Dropping it frees them, which may take long.
pub struct Garbage {
    content: Content,
    objects: usize,
    bytes: usize,
}

enum Content {
    Entry(Entry),
    /// In a box, since it is so much larger than an entry.
    Table(Box<Table>),
}

impl Garbage {
    /// How many values these are.
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// How many bytes they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Tables that are freed in slices.
#[derive(Default)]
pub(super) struct Dropped {
    tables: Vec<DroppedTable>,
    objects: usize,
    bytes: usize,
    /// Bytes of all tables that were ever to be freed, whoever did it, since they were last
    /// asked for.
    flushed_bytes: usize,
}

struct DroppedTable {
    table: Table,
    /// What each of its segments counts for, roughly.
    objects_each: usize,
    bytes_each: usize,
}

impl DroppedTable {
    fn new(table: Table) -> Self {
        let segments = table.segment_count().max(1);
        let (objects_each, bytes_each) = (table.len() / segments, table_bytes(&table) / segments);
        Self { table, objects_each, bytes_each }
    }

    fn objects(&self) -> usize {
        self.objects_each * self.table.segment_count()
    }

    fn bytes(&self) -> usize {
        self.bytes_each * self.table.segment_count()
    }
}

impl Dropped {
    /// Takes a table, or gives it back when too much waits already.
    fn push(&mut self, table: Table) -> Option<Table> {
        if self.bytes + table_bytes(&table) > DROPPED_BYTES_MAX {
            return Some(table);
        }
        let table = DroppedTable::new(table);
        self.objects += table.objects();
        self.bytes += table.bytes();
        self.tables.push(table);
        None
    }

    fn free_slice(&mut self) {
        let Some(last) = self.tables.last_mut() else { return };
        let (objects, bytes) = (last.objects(), last.bytes());
        let is_gone = last.table.drop_some(SLICE_SEGMENTS);
        self.objects -= objects - last.objects();
        self.bytes -= bytes - last.bytes();
        if is_gone {
            self.tables.pop();
        }
    }
}

/// Bytes of a table with all that is in it.
pub(super) fn table_bytes(table: &Table) -> usize {
    table.memory() + table.entry_memory
}

impl std::fmt::Debug for Garbage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Garbage of {} objects in {} bytes", self.objects, self.bytes)
    }
}

impl Keyspace {
    /// Frees an entry that was taken out.
    #[inline]
    pub(super) fn discard(&mut self, entry: Entry, freeing: Freeing) {
        if freeing == Freeing::Lazily && free_effort(entry.value()) > EFFORT_MAX {
            let bytes = entry.memory();
            self.hand_out(Garbage { content: Content::Entry(entry), objects: 1, bytes });
        }
    }

    /// Frees a whole table.
    pub(super) fn discard_table(&mut self, table: Table, freeing: Freeing) {
        if table.len() == 0 {
            return;
        }
        self.dropped.flushed_bytes += table_bytes(&table);
        let refused = match freeing {
            Freeing::Now if table.len() <= SMALL_TABLE_LEN => return,
            Freeing::Now => self.dropped.push(table),
            Freeing::Lazily => Some(table),
        };
        if let Some(table) = refused {
            let (objects, bytes) = (table.len(), table_bytes(&table));
            let content = Content::Table(Box::new(table));
            self.hand_out(Garbage { content, objects, bytes });
        }
    }

    /// Frees some of the tables that FLUSHALL let go. True while there is more.
    pub(crate) fn drop_some(&mut self) -> bool {
        self.dropped.free_slice();
        self.has_dropped()
    }

    /// Bytes of tables that were let go since the last call.
    pub(crate) fn take_flushed_bytes(&mut self) -> usize {
        std::mem::take(&mut self.dropped.flushed_bytes)
    }

    /// Whether tables that FLUSHALL let go wait to be freed.
    pub(crate) fn has_dropped(&self) -> bool {
        !self.dropped.tables.is_empty()
    }

    /// Bytes of tables that FLUSHALL let go and that are not freed yet.
    pub(crate) fn dropped_bytes(&self) -> usize {
        self.dropped.bytes
    }

    fn hand_out(&mut self, garbage: Garbage) {
        self.freeing_stats.pending_objects += garbage.objects;
        self.freeing_stats.pending_bytes += garbage.bytes;
        let unfetched = match self.changes.garbage.is_empty() {
            true => 0,
            false => self.handed_out_bytes,
        };
        if self.changes.in_script && unfetched > HANDED_OUT_MAX {
            return self.take_back(garbage);
        }
        self.handed_out_bytes = unfetched + garbage.bytes;
        self.changes.garbage.push(garbage);
    }

    /// The driver has no room for it: it is freed here and now, a table in slices unless too
    /// much waits for that as well.
    pub(crate) fn take_back(&mut self, garbage: Garbage) {
        self.forget_pending(garbage.objects, garbage.bytes);
        match garbage.content {
            Content::Entry(entry) => drop(entry),
            Content::Table(table) => drop(self.dropped.push(*table)),
        }
    }

    /// The driver has freed this much.
    pub(crate) fn note_freed(&mut self, objects: usize, bytes: usize) {
        self.forget_pending(objects, bytes);
        self.freeing_stats.freed_objects += objects as u64;
    }

    fn forget_pending(&mut self, objects: usize, bytes: usize) {
        let stats = &mut self.freeing_stats;
        stats.pending_objects = stats.pending_objects.saturating_sub(objects);
        stats.pending_bytes = stats.pending_bytes.saturating_sub(bytes);
    }

    /// CONFIG RESETSTAT: what is pending stays so.
    pub(crate) fn reset_freed_count(&mut self) {
        self.freeing_stats.freed_objects = 0;
    }

    /// What INFO tells of freeing: what was handed out, and what waits here.
    pub fn freeing_stats(&self) -> FreeingStats {
        let FreeingStats { pending_objects, pending_bytes, freed_objects } = self.freeing_stats;
        FreeingStats {
            pending_objects: pending_objects + self.dropped.objects,
            pending_bytes: pending_bytes + self.dropped.bytes + self.detached_bytes(),
            freed_objects,
        }
    }
}

/// How much work freeing a value is: the number of its allocations, roughly.
pub(super) fn free_effort(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Integer(_) => 1,
        ValueRef::Bytes(bytes) => 1 + bytes.len() / PAGE_LEN,
        ValueRef::Object(value) => object_effort(value),
    }
}

fn object_effort(value: &Value) -> usize {
    let unless_compact = |len: usize, encoding: Encoding| match encoding {
        Encoding::Hashtable | Encoding::Skiplist => len,
        _ => 1,
    };
    match value.data() {
        Data::List(list) => list.node_count(),
        Data::Hash(hash) => unless_compact(hash.len(), hash.encoding()),
        Data::Set(set) => unless_compact(set.len(), set.encoding()),
        Data::SortedSet(set) => unless_compact(set.len(), set.encoding()),
        Data::Stream(stream) => stream.node_count(),
    }
}
