//! What becomes of values that are no longer needed: freed at once, or handed out so that it
//! delays nobody.
//!
//! ```text
//! removed entry ─► small, or wanted now ─► dropped here
//!               └► large and lazy ───────► Effects::garbage ─► the driver drops it elsewhere,
//! flushed table ─► lazy ─────────────────►        "            or gives it back when it is full
//!               └► else ─► dropped in slices by `tick`
//! ```

use store_types::Encoding;

use super::Keyspace;
use super::entry::{Entry, ValueRef};
use super::table::Table;
use super::value::{Data, Value};

/// Values of more parts than this are worth handing out.
const EFFORT_MAX: usize = 64;
/// Giving a long string back costs the system so much per page.
const PAGE_LEN: usize = 4096;

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

/// What INFO tells of lazy freeing.
#[derive(Clone, Copy, Debug, Default)]
pub struct FreeingStats {
    /// Values handed out and not yet known to be freed.
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
        match freeing {
            Freeing::Now => self.dropped.push(table),
            Freeing::Lazily => {
                let (objects, bytes) = (table.len(), table.memory() + table.entry_memory);
                let content = Content::Table(Box::new(table));
                self.hand_out(Garbage { content, objects, bytes });
            }
        }
    }

    fn hand_out(&mut self, garbage: Garbage) {
        self.freeing_stats.pending_objects += garbage.objects;
        self.freeing_stats.pending_bytes += garbage.bytes;
        self.effects.garbage.push(garbage);
    }

    /// The driver has no room for it: one value is freed here and now, a table in slices.
    pub(crate) fn take_back(&mut self, garbage: Garbage) {
        self.forget_pending(garbage.objects, garbage.bytes);
        match garbage.content {
            Content::Entry(entry) => drop(entry),
            Content::Table(table) => self.dropped.push(*table),
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

    /// What INFO tells of lazy freeing.
    pub fn freeing_stats(&self) -> FreeingStats {
        self.freeing_stats
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
