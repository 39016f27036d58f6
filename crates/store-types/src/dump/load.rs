//! Bytes to values.

use super::reader::{LoadError, Reader};
use super::{Value, code, mend, ziplist, zipmap};
use crate::damage::Damaged;
use crate::intset::Intset;
use crate::limits::Limits;
use crate::listpack::Listpack;
use crate::{End, Group, Hash, List, Set, SortedSet, Stream, StreamId, StreamParts};

/// A list node that is one element, as Redis writes those of a gigabyte.
const PLAIN_NODE: u64 = 1;
/// A list node that is a listpack.
const PACKED_NODE: u64 = 2;

/// Reads a value of the type that `code` names.
///
/// # Errors
/// [`LoadError`]; the reader then stands somewhere within the value.
pub fn load_value(code: u8, reader: &mut Reader<'_>, limits: &Limits) -> Result<Value, LoadError> {
    let start = reader.is_forgiving().then(|| reader.clone());
    let loaded = load_strictly(code, reader, limits);
    if let (Err(LoadError::Damaged(fault)), Some(mut again)) = (&loaded, start)
        && let Some(value) = mend::load_value(code, &mut again, limits)
    {
        again.note_mended(*fault);
        *reader = again;
        return Ok(value);
    }
    loaded
}

fn load_strictly(code: u8, reader: &mut Reader<'_>, limits: &Limits) -> Result<Value, LoadError> {
    Ok(match code {
        code::STRING => Value::String(reader.string()?.into_owned()),
        code::LIST => Value::List(load_list(reader, limits)?),
        code::LIST_ZIPLIST => Value::List(load_ziplist(reader, limits)?),
        code::LIST_QUICKLIST => Value::List(load_ziplist_nodes(reader)?),
        code::LIST_QUICKLIST_2 => Value::List(load_nodes(reader, limits)?),
        code::SET => Value::Set(load_set(reader, limits)?),
        code::SET_INTSET => Value::Set(load_intset(reader, limits)?),
        code::ZSET | code::ZSET_2 => Value::SortedSet(load_sorted_set(code, reader, limits)?),
        code::ZSET_LISTPACK => Value::SortedSet(load_sorted_pack(load_pack(reader)?, limits)?),
        code::ZSET_ZIPLIST => {
            let pack = ziplist::to_listpack(&reader.string()?)?;
            Value::SortedSet(load_sorted_pack(pack, limits)?)
        }
        code::HASH => Value::Hash(load_hash(reader, limits)?),
        code::HASH_ZIPMAP => Value::Hash(zipmap::to_hash(&reader.string()?, limits)?),
        code::HASH_LISTPACK => Value::Hash(load_hash_pack(load_pack(reader)?, limits)?),
        code::HASH_ZIPLIST => {
            let pack = ziplist::to_listpack(&reader.string()?)?;
            Value::Hash(load_hash_pack(pack, limits)?)
        }
        code::STREAM | code::STREAM_2 => Value::Stream(load_stream(code, reader)?),
        unknown => return Err(LoadError::UnknownType(unknown)),
    })
}

fn load_pack(reader: &mut Reader<'_>) -> Result<Listpack, LoadError> {
    Ok(Listpack::from_bytes(reader.string()?.into_owned())?)
}

/// The number of elements, of which there must be one.
fn load_count(reader: &mut Reader<'_>) -> Result<u64, LoadError> {
    match reader.length()? {
        0 => Err(LoadError::Empty),
        count => Ok(count),
    }
}

/// How many elements to make room for: a false count must not take memory.
fn room_for(count: u64, reader: &Reader<'_>) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX).min(reader.rest().len())
}

fn load_list(reader: &mut Reader<'_>, limits: &Limits) -> Result<List, LoadError> {
    let mut list = List::new();
    for _ in 0..load_count(reader)? {
        list.push(End::Back, &reader.string()?, limits);
    }
    Ok(list)
}

fn load_ziplist(reader: &mut Reader<'_>, limits: &Limits) -> Result<List, LoadError> {
    let mut list = List::new();
    for element in ziplist::to_listpack(&reader.string()?)?.iter() {
        element.with_bytes(|bytes| list.push(End::Back, bytes, limits));
    }
    not_empty(list)
}

fn load_ziplist_nodes(reader: &mut Reader<'_>) -> Result<List, LoadError> {
    let mut list = List::new();
    for _ in 0..load_count(reader)? {
        list.push_node(ziplist::to_listpack(&reader.string()?)?);
    }
    not_empty(list)
}

fn load_nodes(reader: &mut Reader<'_>, limits: &Limits) -> Result<List, LoadError> {
    let mut list = List::new();
    for _ in 0..load_count(reader)? {
        match reader.length()? {
            PLAIN_NODE => {
                // Kept as a node of its own, whatever fits into the one before.
                let mut node = List::new();
                let element = reader.string()?;
                if element.is_empty() {
                    return Err(Damaged::new("list", "a node without bytes").into());
                }
                node.push(End::Back, &element, limits);
                node.nodes().for_each(|pack| list.push_node(pack.clone()));
            }
            PACKED_NODE => list.push_node(load_pack(reader)?),
            _ => return Err(Damaged::new("list", "unknown kind of node").into()),
        }
    }
    not_empty(list)
}

fn not_empty(list: List) -> Result<List, LoadError> {
    if list.is_empty() { Err(LoadError::Empty) } else { Ok(list) }
}

fn load_set(reader: &mut Reader<'_>, limits: &Limits) -> Result<Set, LoadError> {
    let count = load_count(reader)?;
    let mut set = Set::with_capacity(room_for(count, reader), limits);
    for _ in 0..count {
        if !set.insert(&reader.string()?, limits) {
            return Err(Damaged::new("set", "a member comes twice").into());
        }
    }
    Ok(set)
}

fn load_intset(reader: &mut Reader<'_>, limits: &Limits) -> Result<Set, LoadError> {
    let integers = Intset::from_bytes(reader.string()?.into_owned())?;
    if integers.is_empty() {
        return Err(LoadError::Empty);
    }
    Ok(Set::from_intset(integers, limits))
}

fn load_sorted_set(
    code: u8,
    reader: &mut Reader<'_>,
    limits: &Limits,
) -> Result<SortedSet, LoadError> {
    let count = load_count(reader)?;
    let mut set = SortedSet::large_with_capacity(room_for(count, reader), limits);
    for _ in 0..count {
        let member = reader.string()?;
        let score = match code {
            code::ZSET_2 => reader.double()?,
            _ => reader.text_double()?,
        };
        if score.is_nan() {
            return Err(Damaged::new("sorted set", "a score is not a number").into());
        }
        if set.insert(&member, score, limits) != crate::Inserted::Added {
            return Err(Damaged::new("sorted set", "a member comes twice").into());
        }
    }
    set.compact(limits);
    Ok(set)
}

fn load_sorted_pack(pack: Listpack, limits: &Limits) -> Result<SortedSet, LoadError> {
    if pack.is_empty() {
        return Err(LoadError::Empty);
    }
    Ok(SortedSet::from_listpack(pack, limits)?)
}

fn load_hash(reader: &mut Reader<'_>, limits: &Limits) -> Result<Hash, LoadError> {
    let count = load_count(reader)?;
    let mut hash = Hash::with_capacity(room_for(count, reader), limits);
    for _ in 0..count {
        let field = reader.string()?;
        if !hash.insert(&field, &reader.string()?, limits) {
            return Err(Damaged::new("hash", "a field comes twice").into());
        }
    }
    Ok(hash)
}

fn load_hash_pack(pack: Listpack, limits: &Limits) -> Result<Hash, LoadError> {
    if pack.is_empty() {
        return Err(LoadError::Empty);
    }
    Ok(Hash::from_listpack(pack, limits)?)
}

fn load_stream(code: u8, reader: &mut Reader<'_>) -> Result<Stream, LoadError> {
    let mut stream = Stream::new();
    for _ in 0..reader.length()? {
        let first = reader.string()?;
        let first = <[u8; 16]>::try_from(&*first)
            .map_err(|_| Damaged::new("stream", "a node's name has not sixteen bytes"))?;
        stream.push_node(StreamId::from_bytes(first), load_pack(reader)?)?;
    }
    let length = reader.length()?;
    let last_id = load_id(reader)?;
    let history = match code {
        code::STREAM_2 => Some((load_id(reader)?, load_id(reader)?, reader.length()?)),
        _ => None,
    };
    stream.finish_nodes(StreamParts { length, last_id, history })?;
    for _ in 0..reader.length()? {
        let name = reader.string()?;
        let group = load_group(code, reader, &stream)?;
        if !stream.create_group(&name, group) {
            return Err(Damaged::new("stream", "a group comes twice").into());
        }
    }
    Ok(stream)
}

fn load_id(reader: &mut Reader<'_>) -> Result<StreamId, LoadError> {
    Ok(StreamId::new(reader.length()?, reader.length()?))
}

fn load_group(code: u8, reader: &mut Reader<'_>, stream: &Stream) -> Result<Group, LoadError> {
    let last_id = load_id(reader)?;
    let entries_read = match code {
        code::STREAM_2 => Some(reader.length()?).filter(|&count| count != u64::MAX),
        _ => stream.entries_before(last_id),
    };
    let mut group = Group::new(last_id, entries_read);
    for _ in 0..reader.length()? {
        let id = StreamId::from_bytes(reader.array()?);
        group.push_pending(id, reader.milliseconds()?, reader.length()?)?;
    }
    for _ in 0..reader.length()? {
        let name = reader.string()?;
        let seen_at = reader.milliseconds()?;
        let mut ids = Vec::new();
        for _ in 0..reader.length()? {
            ids.push(StreamId::from_bytes(reader.array()?));
        }
        group.push_consumer(&name, seen_at, &ids)?;
    }
    group.finish()?;
    Ok(group)
}
