//! The listpack of Redis 7.0, byte for byte: a whole small collection in one allocation.
//!
//! ```text
//! total bytes (u32) | entries (u16, 65,535 = count them) | entry … | ff
//! ```
//!
//! Elements go in as bytes and come out as [`Element`]s; text that is the text of an integer is
//! stored as an integer. A [`EntryOffset`] names an entry until the next change.

mod codec;
mod iter;

use codec::{END, Encoded, back_length_size, decode, decode_back_length, entry_length};
pub use iter::Iter;

use crate::damage::Damaged;
use crate::element::Element;
use crate::number::parse_i64;

/// Bytes before the first entry.
const HEADER: usize = 6;
/// The header's count when it cannot say the count.
const UNKNOWN_COUNT: u16 = u16::MAX;
/// A listpack that would grow past this is not extended: callers convert to a larger form instead.
pub const BYTES_MAX: usize = 1 << 30;

/// Where an entry starts. Any change to the listpack makes places at or after it meaningless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryOffset(u32);

/// A sequence of elements in one run of bytes.
///
/// ```
/// # use store_types::{Element, listpack::Listpack};
/// let mut pack = Listpack::new();
/// pack.push_back(b"name");
/// pack.push_back(b"7");
/// assert_eq!(pack.iter().last(), Some(Element::Int(7)));
/// assert_eq!(pack.as_bytes().len(), 15);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Listpack {
    bytes: Vec<u8>,
}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

impl Listpack {
    /// An empty listpack.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// An empty listpack with room for `bytes` of entries.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut pack = Self { bytes: Vec::with_capacity(HEADER + 1 + bytes) };
        pack.bytes.extend_from_slice(&[HEADER as u8 + 1, 0, 0, 0, 0, 0, END]);
        pack
    }

    /// Takes foreign bytes after checking every one of them.
    ///
    /// # Errors
    /// [`Damaged`] when the bytes are not exactly one well-formed listpack.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, Damaged> {
        validate(&bytes)?;
        Ok(Self { bytes })
    }

    /// The bytes, as Redis keeps and saves them.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many elements there are. Counts them when there are 65,535 or more.
    #[inline]
    pub fn len(&self) -> usize {
        match self.header_count() {
            UNKNOWN_COUNT => self.iter().count(),
            count => usize::from(count),
        }
    }

    /// Whether there is no element.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes[HEADER] == END
    }

    /// Allocated bytes.
    #[inline]
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether `added` more bytes of text keep the listpack within [`BYTES_MAX`].
    #[inline]
    pub fn has_room_for(&self, added: usize) -> bool {
        self.bytes.len().saturating_add(added) <= BYTES_MAX
    }

    /// The first entry.
    #[inline]
    pub fn first(&self) -> Option<EntryOffset> {
        self.place(HEADER)
    }

    /// The last entry.
    #[inline]
    pub fn last(&self) -> Option<EntryOffset> {
        self.before(self.end())
    }

    /// The entry after `place`.
    #[inline]
    pub fn next(&self, place: EntryOffset) -> Option<EntryOffset> {
        self.place(self.after(place.0 as usize))
    }

    /// The entry before `place`.
    #[inline]
    pub fn previous(&self, place: EntryOffset) -> Option<EntryOffset> {
        self.before(place.0 as usize)
    }

    /// The element at `place`.
    #[inline]
    pub fn get(&self, place: EntryOffset) -> Element<'_> {
        decode(&self.bytes, place.0 as usize).0
    }

    /// The entry with this index, walked to from the nearer end.
    pub fn seek(&self, index: usize) -> Option<EntryOffset> {
        match self.header_count() {
            UNKNOWN_COUNT => self.seek_forward(index),
            count if index >= usize::from(count) => None,
            count if index <= usize::from(count) / 2 => self.seek_forward(index),
            count => self.seek_back(usize::from(count) - 1 - index),
        }
    }

    /// The entry that has `index` entries after it.
    pub fn seek_back(&self, index: usize) -> Option<EntryOffset> {
        let mut place = self.last()?;
        for _ in 0..index {
            place = self.previous(place)?;
        }
        Some(place)
    }

    fn seek_forward(&self, index: usize) -> Option<EntryOffset> {
        let mut place = self.first()?;
        for _ in 0..index {
            place = self.next(place)?;
        }
        Some(place)
    }

    /// All elements, from either end.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(&self.bytes, HEADER, self.end())
    }

    /// The elements from `place` on.
    #[inline]
    pub fn iter_from(&self, place: EntryOffset) -> Iter<'_> {
        Iter::new(&self.bytes, place.0 as usize, self.end())
    }

    /// The elements before and at `place`; take them in reverse.
    #[inline]
    pub fn iter_through(&self, place: EntryOffset) -> Iter<'_> {
        Iter::new(&self.bytes, HEADER, self.after(place.0 as usize))
    }

    /// The first entry at or after `from` that equals `wanted`, looking at one entry and skipping
    /// `skip` after each: with `skip` 1 only every second entry counts.
    pub fn find(&self, from: EntryOffset, wanted: &[u8], skip: usize) -> Option<EntryOffset> {
        let wanted_int = parse_i64(wanted);
        let mut at = from.0 as usize;
        let mut left_to_skip = 0;
        while self.bytes[at] != END {
            if left_to_skip > 0 {
                left_to_skip -= 1;
                at = self.after(at);
                continue;
            }
            let (element, length) = decode(&self.bytes, at);
            let found = match element {
                Element::Bytes(bytes) => bytes == wanted,
                Element::Int(value) => wanted_int == Some(value),
            };
            if found {
                return self.place(at);
            }
            at += length + back_length_size(length);
            left_to_skip = skip;
        }
        None
    }

    /// Appends an element.
    #[inline]
    pub fn push_back(&mut self, element: &[u8]) {
        self.insert_at(self.end(), &Encoded::from_bytes(element));
    }

    /// Appends an integer.
    #[inline]
    pub fn push_back_int(&mut self, value: i64) {
        self.insert_at(self.end(), &Encoded::from_int(value));
    }

    /// Prepends an element.
    #[inline]
    pub fn push_front(&mut self, element: &[u8]) {
        self.insert_at(HEADER, &Encoded::from_bytes(element));
    }

    /// Inserts before `place`; the place then names the new entry.
    pub fn insert_before(&mut self, place: EntryOffset, element: Element<'_>) {
        self.insert_at(place.0 as usize, &Encoded::from_element(element));
    }

    /// Inserts after `place`, which stays valid.
    pub fn insert_after(&mut self, place: EntryOffset, element: Element<'_>) {
        let at = self.after(place.0 as usize);
        self.insert_at(at, &Encoded::from_element(element));
    }

    /// Replaces the element at `place`, which stays valid.
    pub fn replace(&mut self, place: EntryOffset, element: Element<'_>) {
        let at = place.0 as usize;
        let removed = self.after(at) - at;
        self.splice(at, removed, &Encoded::from_element(element));
    }

    /// Removes the entry at `place`; returns the place of the one that followed.
    pub fn remove(&mut self, place: EntryOffset) -> Option<EntryOffset> {
        self.remove_from(place, 1)
    }

    /// Removes up to `count` entries from `place` on; returns the place of the one that followed.
    pub fn remove_from(&mut self, place: EntryOffset, count: usize) -> Option<EntryOffset> {
        let at = place.0 as usize;
        let mut end = at;
        let mut removed = 0;
        while removed < count && self.bytes[end] != END {
            end = self.after(end);
            removed += 1;
        }
        self.remove_bytes(at, end, removed);
        self.place(at)
    }

    /// Removes up to `count` entries, the first of which has index `start`.
    pub fn remove_range(&mut self, start: usize, count: usize) {
        if let Some(place) = self.seek(start) {
            self.remove_from(place, count);
        }
    }

    /// Appends all elements of `other`.
    pub fn append(&mut self, other: &Self) {
        let entries = &other.bytes[HEADER..other.end()];
        let count = self.len() + other.len();
        self.reserve(entries.len());
        self.bytes.pop();
        self.bytes.extend_from_slice(entries);
        self.bytes.push(END);
        self.set_header(count);
    }

    /// Removes the elements from index `at` on and returns them as a listpack of their own.
    pub fn split_off(&mut self, at: usize) -> Self {
        let mut tail = Self::new();
        let Some(place) = self.seek(at) else { return tail };
        let from = place.0 as usize;
        let count = self.len();
        tail.bytes.pop();
        tail.bytes.extend_from_slice(&self.bytes[from..]);
        tail.set_header(count - at);
        self.bytes.truncate(from);
        self.bytes.push(END);
        self.set_header(at);
        self.give_back_room();
        tail
    }

    /// The offset of the end byte.
    #[inline]
    fn end(&self) -> usize {
        self.bytes.len() - 1
    }

    #[inline]
    fn place(&self, at: usize) -> Option<EntryOffset> {
        (self.bytes[at] != END).then_some(EntryOffset(at as u32))
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        let length = entry_length(&self.bytes, at);
        at + length + back_length_size(length)
    }

    #[inline]
    fn before(&self, at: usize) -> Option<EntryOffset> {
        if at == HEADER {
            return None;
        }
        let length = decode_back_length(&self.bytes, at).expect("validated on the way in");
        Some(EntryOffset((at - back_length_size(length) - length) as u32))
    }

    #[inline]
    fn insert_at(&mut self, at: usize, encoded: &Encoded<'_>) {
        self.splice(at, 0, encoded);
        if self.header_count() != UNKNOWN_COUNT {
            self.write_count(self.header_count() + 1);
        }
    }

    /// Puts one entry where `removed` bytes were.
    fn splice(&mut self, at: usize, removed: usize, encoded: &Encoded<'_>) {
        let added = encoded.len();
        let old_len = self.bytes.len();
        assert!(old_len + added <= u32::MAX as usize, "a listpack's length is 32 bits");
        if added > removed {
            self.reserve(added - removed);
            self.bytes.resize(old_len + added - removed, 0);
        }
        if added != removed {
            self.bytes.copy_within(at + removed..old_len, at + added);
        }
        if added < removed {
            self.bytes.truncate(old_len + added - removed);
            self.give_back_room();
        }
        encoded.write(&mut self.bytes[at..at + added]);
        self.write_total();
    }

    fn remove_bytes(&mut self, from: usize, to: usize, count: usize) {
        self.bytes.drain(from..to);
        self.write_total();
        if self.header_count() != UNKNOWN_COUNT {
            self.write_count(self.header_count() - count as u16);
        }
        self.give_back_room();
    }

    /// Grows in steps of an eighth: doubling would waste half of millions of small values.
    #[inline]
    fn reserve(&mut self, added: usize) {
        let needed = self.bytes.len() + added;
        if needed > self.bytes.capacity() {
            let target = (needed + needed / 8).next_multiple_of(16);
            self.bytes.reserve_exact(target - self.bytes.len());
        }
    }

    fn give_back_room(&mut self) {
        const SLACK: usize = 64;
        if self.bytes.capacity() > self.bytes.len() * 2 + SLACK {
            self.bytes.shrink_to(self.bytes.len());
        }
    }

    #[inline]
    fn header_count(&self) -> u16 {
        u16::from_le_bytes([self.bytes[4], self.bytes[5]])
    }

    fn set_header(&mut self, count: usize) {
        self.write_total();
        self.write_count(u16::try_from(count).unwrap_or(UNKNOWN_COUNT));
    }

    #[inline]
    fn write_count(&mut self, count: u16) {
        self.bytes[4..6].copy_from_slice(&count.to_le_bytes());
    }

    #[inline]
    fn write_total(&mut self) {
        let total = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&total.to_le_bytes());
    }
}

impl std::fmt::Debug for Listpack {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> FromIterator<Element<'a>> for Listpack {
    fn from_iter<I: IntoIterator<Item = Element<'a>>>(elements: I) -> Self {
        let mut pack = Self::new();
        for element in elements {
            pack.insert_at(pack.end(), &Encoded::from_element(element));
        }
        pack
    }
}

/// Checks header, every entry, every back length, the end and the count.
fn validate(bytes: &[u8]) -> Result<(), Damaged> {
    let damaged = |reason| Err(Damaged::new("listpack", reason));
    let (Some(total), Some(count)) = (bytes.first_chunk::<4>(), bytes.get(4..HEADER)) else {
        return damaged("shorter than its header");
    };
    if u32::from_le_bytes(*total) as usize != bytes.len() {
        return damaged("its length is not the one it names");
    }
    let mut at = HEADER;
    let mut found = 0_usize;
    loop {
        match bytes.get(at) {
            None => return damaged("no end"),
            Some(&END) if at + 1 == bytes.len() => break,
            Some(&END) => return damaged("bytes after the end"),
            Some(_) => {}
        }
        let Some(length) = codec::checked_entry_length(bytes, at) else {
            return damaged("an entry is not whole");
        };
        let next = at + length + back_length_size(length);
        if next > bytes.len() || decode_back_length(bytes, next) != Some(length) {
            return damaged("an entry's back length is wrong");
        }
        at = next;
        found += 1;
    }
    let count = u16::from_le_bytes([count[0], count[1]]);
    if count != UNKNOWN_COUNT && usize::from(count) != found {
        return damaged("its count is not the one it names");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
