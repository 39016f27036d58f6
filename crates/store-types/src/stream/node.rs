//! One node of a stream: up to a hundred entries in a listpack, named relative to the first.
//!
//! ```text
//! live | deleted | n | field … | 0                 head: the field names of the first entry
//! flags | ms − first | seq − first | value … | c   entry with the same field names
//! flags | ms − first | seq − first | n | field | value … | c
//! ```
//!
//! `c` counts the elements of its entry before it, so that entries can be read backwards. Deleted
//! entries stay in place with a flag.

use super::StreamId;
use crate::damage::Damaged;
use crate::element::Element;
use crate::listpack::{self, EntryOffset, Listpack};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// The head of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) live: i64,
    pub(super) deleted: i64,
    /// How many field names there are.
    field_count: usize,
    /// The place of the first field name, or of the zero if there is none.
    fields_at: EntryOffset,
    first_entry: Option<EntryOffset>,
}

/// An entry as it is in its node.
#[derive(Clone)]
pub(super) struct RawEntry<'a> {
    pub(super) id: StreamId,
    pub(super) deleted: bool,
    pub(super) fields: Fields<'a>,
    flags_at: EntryOffset,
    flags: i64,
    pub(super) next: Option<EntryOffset>,
}

/// Field names and values of an entry, in order.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    /// The names in the head, when the entry has the same ones.
    names: Option<listpack::Iter<'a>>,
    elements: listpack::Iter<'a>,
    left: usize,
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Element<'a>, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let name = match &mut self.names {
            Some(names) => names.next()?,
            None => self.elements.next()?,
        };
        Some((name, self.elements.next()?))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Fields<'_> {}

/// A node with one entry.
pub(super) fn create(fields: &[impl AsRef<[u8]>]) -> Listpack {
    let bytes: usize = fields.iter().map(|field| field.as_ref().len() + 4).sum();
    let mut pack = Listpack::with_capacity(bytes + 32);
    pack.push_back_int(1);
    pack.push_back_int(0);
    pack.push_back_int(fields.len() as i64 / 2);
    for pair in fields.chunks_exact(2) {
        pack.push_back(pair[0].as_ref());
    }
    pack.push_back_int(0);
    push_entry(&mut pack, StreamId::MIN, fields, SAME_FIELDS);
    pack
}

/// Appends an entry to a node whose first entry is `first`.
pub(super) fn append(
    pack: &mut Listpack,
    first: StreamId,
    id: StreamId,
    fields: &[impl AsRef<[u8]>],
) {
    let head = head(pack);
    let names = pack.iter_from(head.fields_at).take(head.field_count);
    let same = head.field_count == fields.len() / 2
        && names.zip(fields.chunks_exact(2)).all(|(name, pair)| name == *pair[0].as_ref());
    let delta = StreamId::new(id.ms.wrapping_sub(first.ms), id.seq.wrapping_sub(first.seq));
    push_entry(pack, delta, fields, if same { SAME_FIELDS } else { 0 });
    set_counts(pack, head.live + 1, head.deleted);
}

fn push_entry(pack: &mut Listpack, delta: StreamId, fields: &[impl AsRef<[u8]>], flags: i64) {
    let count = fields.len() / 2;
    pack.push_back_int(flags);
    pack.push_back_int(delta.ms as i64);
    pack.push_back_int(delta.seq as i64);
    if flags & SAME_FIELDS != 0 {
        fields.chunks_exact(2).for_each(|pair| pack.push_back(pair[1].as_ref()));
        pack.push_back_int(count as i64 + 3);
    } else {
        pack.push_back_int(count as i64);
        fields[..2 * count].iter().for_each(|element| pack.push_back(element.as_ref()));
        pack.push_back_int(2 * count as i64 + 4);
    }
}

/// The head of a node that was checked on the way in.
pub(super) fn head(pack: &Listpack) -> Head {
    checked_head(pack).expect("checked on the way in")
}

fn checked_head(pack: &Listpack) -> Option<Head> {
    let live_at = pack.first()?;
    let deleted_at = pack.next(live_at)?;
    let count_at = pack.next(deleted_at)?;
    let fields_at = pack.next(count_at)?;
    let field_count = usize::try_from(pack.get(count_at).as_i64()?).ok()?;
    let mut zero_at = fields_at;
    for _ in 0..field_count {
        zero_at = pack.next(zero_at)?;
    }
    (pack.get(zero_at).as_i64() == Some(0)).then_some(Head {
        live: pack.get(live_at).as_i64()?,
        deleted: pack.get(deleted_at).as_i64()?,
        field_count,
        fields_at,
        first_entry: pack.next(zero_at),
    })
}

/// The entry whose flags are at `place`.
pub(super) fn entry<'a>(
    pack: &'a Listpack,
    head: &Head,
    first: StreamId,
    place: EntryOffset,
) -> RawEntry<'a> {
    checked_entry(pack, head, first, place).expect("checked on the way in")
}

fn checked_entry<'a>(
    pack: &'a Listpack,
    head: &Head,
    first: StreamId,
    place: EntryOffset,
) -> Option<RawEntry<'a>> {
    let flags = pack.get(place).as_i64()?;
    let ms_at = pack.next(place)?;
    let seq_at = pack.next(ms_at)?;
    let mut at = pack.next(seq_at)?;
    let same = flags & SAME_FIELDS != 0;
    let count = if same {
        head.field_count
    } else {
        let count = usize::try_from(pack.get(at).as_i64()?).ok()?;
        at = pack.next(at)?;
        count
    };
    let fields = Fields {
        names: same.then(|| pack.iter_from(head.fields_at)),
        elements: pack.iter_from(at),
        left: count,
    };
    let element_count = if same { count } else { count.checked_mul(2)? };
    for _ in 0..element_count {
        at = pack.next(at)?;
    }
    let before = element_count + if same { 3 } else { 4 };
    if pack.get(at).as_i64() != i64::try_from(before).ok() {
        return None;
    }
    let id = StreamId::new(
        first.ms.wrapping_add(pack.get(ms_at).as_i64()? as u64),
        first.seq.wrapping_add(pack.get(seq_at).as_i64()? as u64),
    );
    let deleted = flags & DELETED != 0;
    Some(RawEntry { id, deleted, fields, flags_at: place, flags, next: pack.next(at) })
}

/// Where the first entry of a node starts.
pub(super) fn first_entry(head: &Head) -> Option<EntryOffset> {
    head.first_entry
}

/// Where the last entry of a node starts.
pub(super) fn last_entry(pack: &Listpack) -> Option<EntryOffset> {
    entry_ending_at(pack, pack.last()?)
}

/// Where the entry before the one at `place` starts.
pub(super) fn entry_before(
    pack: &Listpack,
    head: &Head,
    place: EntryOffset,
) -> Option<EntryOffset> {
    if head.first_entry == Some(place) {
        return None;
    }
    entry_ending_at(pack, pack.previous(place)?)
}

fn entry_ending_at(pack: &Listpack, count_at: EntryOffset) -> Option<EntryOffset> {
    let mut place = count_at;
    for _ in 0..pack.get(count_at).as_i64()? {
        place = pack.previous(place)?;
    }
    Some(place)
}

/// Flags an entry as deleted; the counts in the head are left to the caller.
pub(super) fn flag_deleted(pack: &mut Listpack, flags_at: EntryOffset, flags: i64) {
    pack.replace(flags_at, Element::Int(flags | DELETED));
}

impl RawEntry<'_> {
    pub(super) fn flags(&self) -> (EntryOffset, i64) {
        (self.flags_at, self.flags)
    }
}

/// Writes the counts of the head. Places in the node are meaningless afterwards.
pub(super) fn set_counts(pack: &mut Listpack, live: i64, deleted: i64) {
    let live_at = pack.first().expect("a node has a head");
    pack.replace(live_at, Element::Int(live));
    let deleted_at = pack.next(live_at).expect("a node has a head");
    pack.replace(deleted_at, Element::Int(deleted));
}

/// The lowest and the highest name in a node, deleted entries included.
pub(super) struct Span {
    pub(super) lowest: StreamId,
    pub(super) highest: StreamId,
    pub(super) live: u64,
}

/// Checks a foreign node: every entry is whole, names ascend, and the counts are right.
pub(super) fn check(pack: &Listpack, first: StreamId) -> Result<Span, Damaged> {
    let damaged = |reason| Damaged::new("stream", reason);
    let head = checked_head(pack).ok_or(damaged("a node has no head"))?;
    let mut span: Option<Span> = None;
    let (mut live, mut deleted) = (0_i64, 0_i64);
    let mut place = head.first_entry;
    while let Some(at) = place {
        let entry = checked_entry(pack, &head, first, at)
            .ok_or(damaged("an entry of a node is not whole"))?;
        if entry.flags & !(DELETED | SAME_FIELDS) != 0 {
            return Err(damaged("an entry has unknown flags"));
        }
        let highest = span.as_ref().map(|span| span.highest);
        if entry.id < first || highest.is_some_and(|highest| highest >= entry.id) {
            return Err(damaged("entries are not in order"));
        }
        live += i64::from(!entry.deleted);
        deleted += i64::from(entry.deleted);
        let lowest = span.map_or(entry.id, |span| span.lowest);
        span = Some(Span { lowest, highest: entry.id, live: live as u64 });
        place = entry.next;
    }
    // A node may have no live entry: MINID flags entries up to one that was deleted before.
    if live != head.live || deleted != head.deleted {
        return Err(damaged("a node's counts are wrong"));
    }
    span.ok_or(damaged("a node is empty"))
}
