//! Walking the entries of a stream, in either direction.

use std::collections::btree_map;
use std::sync::Arc;

use super::node::{self, Fields, Head, RawEntry};
use super::{Stream, StreamId};
use crate::listpack::{EntryOffset, Listpack};

/// One entry.
#[derive(Clone, Debug)]
pub struct StreamEntry<'a> {
    /// Its name.
    pub id: StreamId,
    /// Its fields in order, each with its value.
    pub fields: Fields<'a>,
}

impl Stream {
    /// The entries with names from `start` through `end`, ascending.
    pub fn range(&self, start: StreamId, end: StreamId) -> StreamRange<'_> {
        let from = self.nodes.range(..=start).next_back().map_or(start, |(first, _)| *first);
        // A range from above its end is empty, not an error.
        let nodes = if start <= end { self.nodes.range(from..=end) } else { none(self) };
        StreamRange { nodes, current: None, start, end }
    }

    /// The same entries, descending.
    pub fn range_back(&self, start: StreamId, end: StreamId) -> StreamRangeBack<'_> {
        let nodes = if start <= end { self.nodes.range(..=end) } else { none(self) };
        StreamRangeBack { nodes, current: None, start, end }
    }

    /// The entry of this name.
    pub fn get(&self, id: StreamId) -> Option<StreamEntry<'_>> {
        self.range(id, id).next()
    }
}

fn none(stream: &Stream) -> Nodes<'_> {
    stream.nodes.range(StreamId::MAX..StreamId::MAX)
}

type Nodes<'a> = btree_map::Range<'a, StreamId, Arc<Listpack>>;

/// A node being walked, and the entry that comes next.
#[derive(Clone)]
struct Current<'a> {
    first: StreamId,
    pack: &'a Listpack,
    head: Head,
    place: Option<EntryOffset>,
}

impl<'a> Current<'a> {
    fn entry(&self, place: EntryOffset) -> RawEntry<'a> {
        node::entry(self.pack, &self.head, self.first, place)
    }
}

/// Entries in ascending order.
#[derive(Clone)]
pub struct StreamRange<'a> {
    nodes: Nodes<'a>,
    current: Option<Current<'a>>,
    start: StreamId,
    end: StreamId,
}

impl<'a> Iterator for StreamRange<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            if self.current.as_ref().is_none_or(|current| current.place.is_none()) {
                let (&first, pack) = self.nodes.next()?;
                let head = node::head(pack);
                let place = node::first_entry(&head);
                self.current = Some(Current { first, pack, head, place });
            }
            let current = self.current.as_mut()?;
            let Some(place) = current.place else { continue };
            let entry = current.entry(place);
            current.place = entry.next;
            if entry.id > self.end {
                self.nodes = btree_map::Range::default();
                current.place = None;
                return None;
            }
            if entry.id >= self.start && !entry.deleted {
                return Some(StreamEntry { id: entry.id, fields: entry.fields });
            }
        }
    }
}

/// Entries in descending order.
#[derive(Clone)]
pub struct StreamRangeBack<'a> {
    nodes: Nodes<'a>,
    current: Option<Current<'a>>,
    start: StreamId,
    end: StreamId,
}

impl<'a> Iterator for StreamRangeBack<'a> {
    type Item = StreamEntry<'a>;

    fn next(&mut self) -> Option<StreamEntry<'a>> {
        loop {
            if self.current.as_ref().is_none_or(|current| current.place.is_none()) {
                let (&first, pack) = self.nodes.next_back()?;
                let head = node::head(pack);
                self.current = Some(Current { first, pack, head, place: node::last_entry(pack) });
            }
            let current = self.current.as_mut()?;
            let Some(place) = current.place else { continue };
            let entry = current.entry(place);
            current.place = node::entry_before(current.pack, &current.head, place);
            if entry.id < self.start {
                self.nodes = btree_map::Range::default();
                current.place = None;
                return None;
            }
            if entry.id <= self.end && !entry.deleted {
                return Some(StreamEntry { id: entry.id, fields: entry.fields });
            }
        }
    }
}
