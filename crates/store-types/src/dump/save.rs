//! Values to bytes.

use super::writer::Writer;
use super::{ValueRef, code};
use crate::limits::Encoding;
use crate::{Element, Group, Hash, List, Set, SortedSet, Stream, StreamId};

/// A list node that is a listpack, the only kind we keep.
const PACKED_NODE: u64 = 2;

/// The type byte of a value.
pub fn type_code(value: ValueRef<'_>) -> u8 {
    match value {
        ValueRef::String(_) => code::STRING,
        ValueRef::List(_) => code::LIST_QUICKLIST_2,
        ValueRef::Set(set) if set.encoding() == Encoding::Intset => code::SET_INTSET,
        ValueRef::Set(_) => code::SET,
        ValueRef::SortedSet(set) if set.encoding() == Encoding::Listpack => code::ZSET_LISTPACK,
        ValueRef::SortedSet(_) => code::ZSET_2,
        ValueRef::Hash(hash) if hash.encoding() == Encoding::Listpack => code::HASH_LISTPACK,
        ValueRef::Hash(_) => code::HASH,
        ValueRef::Stream(_) => code::STREAM_2,
    }
}

/// Writes a value, without its type byte.
pub fn save_value(value: ValueRef<'_>, writer: &mut Writer<'_>) {
    match value {
        ValueRef::String(bytes) => writer.string(bytes),
        ValueRef::List(list) => save_list(list, writer),
        ValueRef::Set(set) => save_set(set, writer),
        ValueRef::SortedSet(set) => save_sorted_set(set, writer),
        ValueRef::Hash(hash) => save_hash(hash, writer),
        ValueRef::Stream(stream) => save_stream(stream, writer),
    }
}

fn save_list(list: &List, writer: &mut Writer<'_>) {
    writer.length(list.node_count() as u64);
    for pack in list.nodes() {
        writer.length(PACKED_NODE);
        writer.string(pack.as_bytes());
    }
}

fn save_set(set: &Set, writer: &mut Writer<'_>) {
    if let Some(integers) = set.as_intset() {
        return writer.string(integers.as_bytes());
    }
    writer.length(set.len() as u64);
    set.iter().for_each(|member| save_element(member, writer));
}

/// Large sorted sets go from the highest score down: so Redis writes them, and so both load them
/// by adding at one edge.
fn save_sorted_set(set: &SortedSet, writer: &mut Writer<'_>) {
    if let Some(pack) = set.as_listpack() {
        return writer.string(pack.as_bytes());
    }
    writer.length(set.len() as u64);
    for (member, score) in set.iter().rev() {
        save_element(member, writer);
        writer.double(score);
    }
}

fn save_hash(hash: &Hash, writer: &mut Writer<'_>) {
    if let Some(pack) = hash.as_listpack() {
        return writer.string(pack.as_bytes());
    }
    writer.length(hash.len() as u64);
    for (field, value) in hash.iter() {
        save_element(field, writer);
        save_element(value, writer);
    }
}

fn save_element(element: Element<'_>, writer: &mut Writer<'_>) {
    element.with_bytes(|bytes| writer.string(bytes));
}

fn save_stream(stream: &Stream, writer: &mut Writer<'_>) {
    writer.length(stream.node_count() as u64);
    for (first, pack) in stream.nodes() {
        writer.string(&first.to_bytes());
        writer.string(pack.as_bytes());
    }
    writer.length(stream.len() as u64);
    save_id(stream.last_id(), writer);
    save_id(stream.first_id(), writer);
    save_id(stream.max_deleted_id(), writer);
    writer.length(stream.entries_added());
    writer.length(stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        writer.string(name);
        save_group(group, writer);
    }
}

fn save_id(id: StreamId, writer: &mut Writer<'_>) {
    writer.length(id.ms);
    writer.length(id.seq);
}

fn save_group(group: &Group, writer: &mut Writer<'_>) {
    save_id(group.last_id(), writer);
    // An unknown count is −1 there, and lengths have no sign.
    writer.length(group.entries_read().unwrap_or(u64::MAX));
    writer.length(group.pending().len() as u64);
    for (id, pending) in group.pending() {
        writer.raw(&id.to_bytes());
        writer.milliseconds(pending.delivered_at);
        writer.length(pending.deliveries);
    }
    writer.length(group.consumers().len() as u64);
    for (name, consumer) in group.consumers() {
        writer.string(name);
        writer.milliseconds(consumer.seen_at());
        writer.length(consumer.pending().len() as u64);
        consumer.pending().iter().for_each(|id| writer.raw(&id.to_bytes()));
    }
}
