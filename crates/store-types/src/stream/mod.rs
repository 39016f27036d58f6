//! Streams: entries in the order of their names, and the groups of consumers that read them.
//!
//! Entries lie in listpack nodes with the layout of Redis, so that saving and loading are copies.
//! Nodes and groups sit behind `Arc`: a copy shares them, a change copies one.

mod group;
mod id;
mod load;
mod node;
mod range;
mod trim;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use group::{Consumer, Group, Pending};
pub use id::StreamId;
pub use load::StreamParts;
pub use node::Fields;
pub use range::{StreamEntry, StreamRange, StreamRangeBack};
pub use trim::{Trim, TrimTo};

use crate::limits::{Encoding, Limits};
use crate::listpack::{self, Listpack};
use crate::share::fetch_counters;

/// Entries by name, with their consumer groups.
///
/// ```
/// # use store_types::{Limits, Stream, StreamId};
/// let mut stream = Stream::new();
/// stream.add(StreamId::new(5, 0), &["name", "ada", "age", "36"], &Limits::default());
/// let entry = stream.range(StreamId::MIN, StreamId::MAX).next().unwrap();
/// assert_eq!(entry.id, StreamId::new(5, 0));
/// assert_eq!(entry.fields.count(), 2);
/// ```
#[derive(Debug, Default)]
pub struct Stream {
    /// Nodes by the name of their first entry.
    nodes: BTreeMap<StreamId, Arc<Listpack>>,
    /// Allocated bytes of all nodes, kept as they change: the engine asks after every write.
    node_bytes: usize,
    length: u64,
    last_id: StreamId,
    first_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: u64,
    groups: BTreeMap<Arc<[u8]>, Arc<Group>>,
}

impl Clone for Stream {
    fn clone(&self) -> Self {
        fetch_counters(self.nodes.values());
        Self { nodes: self.nodes.clone(), groups: self.groups.clone(), ..*self }
    }
}

impl Stream {
    /// An empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether there is none. An empty stream may well be kept: it has groups and a last name.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// How it is kept.
    pub fn encoding(&self) -> Encoding {
        Encoding::Stream
    }

    /// The highest name ever given.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The name of the first entry, `0-0` when there is none.
    pub fn first_id(&self) -> StreamId {
        self.first_id
    }

    /// The highest name that XDEL ever removed.
    pub fn max_deleted_id(&self) -> StreamId {
        self.max_deleted_id
    }

    /// How many entries were ever added.
    pub fn entries_added(&self) -> u64 {
        self.entries_added
    }

    /// How many nodes there are: what XINFO calls radix-tree-keys.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes by the names of their first entries.
    pub fn nodes(&self) -> impl Iterator<Item = (StreamId, &Listpack)> {
        self.nodes.iter().map(|(id, pack)| (*id, &**pack))
    }

    /// Allocated bytes; O(groups).
    pub fn heap_bytes(&self) -> usize {
        let groups: usize =
            self.groups.iter().map(|(name, group)| name.len() + 16 + group.heap_bytes()).sum();
        self.node_bytes + groups
    }

    /// Sets the counters: XSETID. The caller has checked that `last_id` is not below an entry.
    pub fn set_id(
        &mut self,
        last_id: StreamId,
        entries_added: Option<u64>,
        max_deleted: Option<StreamId>,
    ) {
        self.last_id = last_id;
        self.entries_added = entries_added.unwrap_or(self.entries_added);
        self.max_deleted_id = max_deleted.unwrap_or(self.max_deleted_id);
    }

    /// Appends an entry; `fields` alternates names and values. `false`, and nothing changed, when
    /// `id` is not above the last name.
    pub fn add(&mut self, id: StreamId, fields: &[impl AsRef<[u8]>], limits: &Limits) -> bool {
        if id <= self.last_id {
            return false;
        }
        let bytes: usize = fields.iter().map(|field| field.as_ref().len()).sum();
        let last = self.nodes.last_entry().filter(|node| has_room(node.get(), bytes, limits));
        match last {
            Some(mut node) => {
                let first = *node.key();
                self.node_bytes -= own_bytes(node.get());
                node::append(Arc::make_mut(node.get_mut()), first, id, fields);
                self.node_bytes += own_bytes(node.get());
            }
            None => self.insert_node(id, node::create(fields)),
        }
        self.length += 1;
        self.entries_added += 1;
        self.last_id = id;
        if self.length == 1 {
            self.first_id = id;
        }
        true
    }

    /// Removes an entry; `false` when there is none of this name.
    pub fn remove(&mut self, id: StreamId) -> bool {
        let Some((&first, shared)) = self.nodes.range_mut(..=id).next_back() else {
            return false;
        };
        let Some((place, flags)) = find_live(shared, first, id) else { return false };
        let head = node::head(shared);
        self.node_bytes -= own_bytes(shared);
        if head.live == 1 {
            self.nodes.remove(&first);
        } else {
            let pack = Arc::make_mut(shared);
            node::flag_deleted(pack, place, flags);
            node::set_counts(pack, head.live - 1, head.deleted + 1);
            self.node_bytes += own_bytes(pack);
        }
        self.length -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        if id == self.first_id {
            self.first_id = self.find_first_id();
        }
        true
    }

    fn insert_node(&mut self, first: StreamId, pack: Listpack) {
        self.node_bytes += own_bytes(&pack);
        self.nodes.insert(first, Arc::new(pack));
    }

    fn find_first_id(&self) -> StreamId {
        self.range(StreamId::MIN, StreamId::MAX).next().map_or(StreamId::MIN, |entry| entry.id)
    }
}

/// Allocated bytes of a node, its place in the map included.
fn own_bytes(pack: &Listpack) -> usize {
    const PLACE: usize = size_of::<(StreamId, Arc<Listpack>)>() + size_of::<Listpack>() + 16;
    PLACE + pack.heap_bytes()
}

/// Redis never makes a node larger than this.
const NODE_BYTES_MAX: usize = listpack::BYTES_MAX;

/// Whether a node takes `bytes` more of text.
fn has_room(pack: &Listpack, bytes: usize, limits: &Limits) -> bool {
    let bytes_max = match limits.stream_node_bytes_max {
        0 => NODE_BYTES_MAX,
        limit => limit.min(NODE_BYTES_MAX),
    };
    if pack.as_bytes().len() + bytes >= bytes_max {
        return false;
    }
    let head = node::head(pack);
    limits.stream_node_entries_max == 0
        || head.live + head.deleted < limits.stream_node_entries_max as i64
}

/// Place and flags of the live entry with this name in a node.
fn find_live(
    pack: &Listpack,
    first: StreamId,
    id: StreamId,
) -> Option<(listpack::EntryOffset, i64)> {
    let head = node::head(pack);
    let mut place = node::first_entry(&head);
    while let Some(at) = place {
        let entry = node::entry(pack, &head, first, at);
        if entry.id >= id {
            return (entry.id == id && !entry.deleted).then(|| entry.flags());
        }
        place = entry.next;
    }
    None
}

#[cfg(test)]
mod tests;
