//! One key with its value in one allocation. The only module of the store with `unsafe` code.
//!
//! ```text
//! ┌ meta: u32 ┬ lens: u32 ┬ expires_at: u64 ┬ payload: ptr ┬ key bytes ┬ value bytes ┐
//! │ always    │ always    │ if EXPIRES      │ unless INLINE│ always    │ if INLINE   │
//! └───────────┴───────────┴─────────────────┴──────────────┴───────────┴─────────────┘
//! meta   bits 0–23 access clock (LRU) or counter (LFU), 24–25 form, 26 EXPIRES, 27 LONG_KEY,
//!        28 RAW, 29 MARK
//! lens   16 bits of key length, 16 bits of value length; with LONG_KEY 32 bits of key length
//! ```
//!
//! A 16-byte key with an 8-byte value takes 32 bytes, with an expiry 48. Allocations are
//! rounded up to their size class, so that a value may change its length in place.
//!
//! What must stay true, and why the code is sound:
//! - `size_of_parts(meta, lens)` is the size that was asked for, so the class at release is
//!   the class at allocation;
//! - every byte of key and inline value was written before `Entry::new` returns;
//! - the payload of HEAP is an `Arc<Vec<u8>>` and of OBJECT a `Box<Value>`, owned by the entry
//!   and turned back into what it was exactly once, in `take_payload`;
//! - the bytes of HEAP are changed only while the entry is the one owner of the `Arc`.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

use super::memory::size_class;
use super::prefetch::{prefetch, prefetch_far};
use super::value::{Data, Value};

/// Values up to this length stand inside their entry; longer ones in a vector of their own.
pub(super) const INLINE_MAX: usize = 4096;

const ACCESS_MASK: u32 = 0x00ff_ffff;
const FORM_MASK: u32 = 3 << 24;
const FORM_INLINE: u32 = 0;
const FORM_INTEGER: u32 = 1 << 24;
const FORM_HEAP: u32 = 2 << 24;
const FORM_OBJECT: u32 = 3 << 24;
const EXPIRES: u32 = 1 << 26;
const LONG_KEY: u32 = 1 << 27;
const RAW: u32 = 1 << 28;
const MARK: u32 = 1 << 29;

const CACHE_LINE: usize = 64;
/// Bytes of one entry that are fetched ahead: what follows comes quickly enough by itself.
const PREFETCHED_MAX: usize = 2048;

const HEADER_LEN: usize = 8;
const FIELD_LEN: usize = 8;
const ALIGN: usize = 8;

/// Owner of one allocation as drawn above.
pub struct Entry(NonNull<u8>);

// SAFETY: an entry owns all it points to, and everything it can hold is `Send`.
unsafe impl Send for Entry where Value: Send {}

/// What an entry is to hold.
pub enum NewValue<'a> {
    /// A string that is the canonical form of an integer.
    Integer(i64),
    /// Any other string, as SET stores it.
    Bytes(&'a [u8]),
    /// The same, from a buffer of its own.
    Owned(Vec<u8>),
    /// A string that was edited in place: OBJECT ENCODING calls it raw whatever its length.
    Edited(Vec<u8>),
    /// A long string that a snapshot may still be reading.
    Shared(Arc<Vec<u8>>),
    /// Anything but a string.
    Object(Box<Value>),
}

/// What an entry holds.
#[derive(Clone, Copy)]
pub enum ValueRef<'a> {
    /// A string kept as an integer.
    Integer(i64),
    /// Any other string.
    Bytes(&'a [u8]),
    /// Anything but a string.
    Object(&'a Value),
}

impl ValueRef<'_> {
    /// The kind as TYPE names it.
    pub fn type_name(&self) -> &'static str {
        match self {
            ValueRef::Integer(_) | ValueRef::Bytes(_) => "string",
            ValueRef::Object(value) => value.type_name(),
        }
    }

    /// Whether it is of a kind that sessions wait for.
    pub(super) fn can_be_awaited(&self) -> bool {
        let ValueRef::Object(value) = self else { return false };
        matches!(value.data(), Data::List(_) | Data::SortedSet(_) | Data::Stream(_))
    }

    /// Whether it is a stream: those who wait in its groups learn when it is gone.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, ValueRef::Object(value) if matches!(value.data(), Data::Stream(_)))
    }
}

impl Entry {
    /// Allocates an entry. The key must be shorter than 4 GiB.
    pub fn new(key: &[u8], value: NewValue<'_>, expires_at: Option<u64>) -> Self {
        let long_key = key.len() > usize::from(u16::MAX);
        let (form, payload, inline): (u32, *mut u8, &[u8]) = match value {
            NewValue::Integer(number) => (FORM_INTEGER, integer_payload(number), &[]),
            NewValue::Bytes(bytes) if bytes.len() <= INLINE_MAX && !long_key => {
                (FORM_INLINE, std::ptr::null_mut(), bytes)
            }
            NewValue::Owned(bytes) if bytes.len() <= INLINE_MAX => {
                return Self::new(key, NewValue::Bytes(&bytes), expires_at);
            }
            NewValue::Owned(bytes) => (FORM_HEAP, heap_payload(Arc::new(bytes)), &[]),
            NewValue::Bytes(bytes) => (FORM_HEAP, heap_payload(Arc::new(bytes.to_vec())), &[]),
            NewValue::Edited(bytes) => (FORM_HEAP | RAW, heap_payload(Arc::new(bytes)), &[]),
            NewValue::Shared(bytes) => (FORM_HEAP, heap_payload(bytes), &[]),
            NewValue::Object(value) => (FORM_OBJECT, into_payload(value), &[]),
        };
        let mut meta = form;
        let mut lens = u32::try_from(key.len()).expect("requests are shorter than 4 GiB");
        if long_key {
            meta |= LONG_KEY;
        } else {
            lens |= (inline.len() as u32) << 16;
        }
        if expires_at.is_some() {
            meta |= EXPIRES;
        }
        let parts = Parts { meta, lens };
        let layout = parts.layout();
        // SAFETY: the layout is never empty. All writes stay within `parts.size()` bytes, which
        // the offsets of `Parts` add up to, and the alignment fits `u64`.
        unsafe {
            let Some(start) = NonNull::new(alloc(layout)) else { handle_alloc_error(layout) };
            let entry = Self(start);
            start.cast::<u32>().write(meta);
            start.cast::<u32>().add(1).write(lens);
            if let Some(at) = expires_at {
                start.add(HEADER_LEN).cast::<u64>().write(at);
            }
            if form & FORM_MASK != FORM_INLINE {
                start.add(parts.payload_offset()).cast::<*mut u8>().write(payload);
            }
            start.add(parts.key_offset()).copy_from_nonoverlapping(from_slice(key), key.len());
            start
                .add(parts.value_offset())
                .copy_from_nonoverlapping(from_slice(inline), inline.len());
            entry
        }
    }

    #[inline]
    fn parts(&self) -> Parts {
        // SAFETY: the header is written in `new` and lives as long as the entry.
        unsafe {
            Parts { meta: self.0.cast::<u32>().read(), lens: self.0.cast::<u32>().add(1).read() }
        }
    }

    fn set_meta(&mut self, meta: u32) {
        // SAFETY: as in `parts`, and `&mut self` means nobody else reads it.
        unsafe { self.0.cast::<u32>().write(meta) }
    }

    /// Begins to fetch the beginning of the entry into the cache.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch(self.0.as_ptr());
    }

    /// Begins to fetch what lies behind the first cache line. Looks at the entry, so its first
    /// line should be there.
    #[inline]
    pub(super) fn prefetch_value(&self) {
        let end = self.parts().size().min(PREFETCHED_MAX);
        for at in (CACHE_LINE..end).step_by(CACHE_LINE) {
            prefetch_far(self.0.as_ptr().wrapping_add(at));
        }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        let parts = self.parts();
        // SAFETY: `new` wrote `key_len` bytes at `key_offset`.
        unsafe {
            std::slice::from_raw_parts(self.0.add(parts.key_offset()).as_ptr(), parts.key_len())
        }
    }

    /// The value, by its form.
    #[inline]
    pub fn value(&self) -> ValueRef<'_> {
        let parts = self.parts();
        // SAFETY: each form says what `new` wrote: inline bytes, an integer, or a box that the
        // entry owns.
        unsafe {
            match parts.meta & FORM_MASK {
                FORM_INLINE => {
                    let start = self.0.add(parts.value_offset()).as_ptr();
                    ValueRef::Bytes(std::slice::from_raw_parts(start, parts.value_len()))
                }
                FORM_INTEGER => ValueRef::Integer(self.payload(parts).addr() as i64),
                FORM_HEAP => ValueRef::Bytes(&*(self.payload(parts).cast::<Vec<u8>>())),
                _ => ValueRef::Object(&*(self.payload(parts).cast::<Value>())),
            }
        }
    }

    /// The value of a kind that is not a string, for changing it.
    #[inline]
    pub fn object_mut(&mut self) -> Option<&mut Value> {
        let parts = self.parts();
        // SAFETY: the payload of OBJECT is a box that the entry owns.
        (parts.meta & FORM_MASK == FORM_OBJECT)
            .then(|| unsafe { &mut *(self.payload(parts).cast::<Value>()) })
    }

    /// The vector of a long or edited string, for changing it. One that is shared is copied.
    pub fn heap_mut(&mut self) -> Option<&mut Vec<u8>> {
        let parts = self.parts();
        if parts.meta & FORM_MASK != FORM_HEAP {
            return None;
        }
        self.set_meta(parts.meta | RAW);
        // SAFETY: the payload of HEAP is an `Arc` that the entry owns; it is written back at
        // once, and nobody else owns it, so its bytes may be changed.
        unsafe {
            let mut text = Arc::from_raw(self.payload(parts).cast::<Vec<u8>>());
            if Arc::get_mut(&mut text).is_none() {
                text = Arc::new(Vec::clone(&text));
            }
            let payload = heap_payload(text);
            self.0.add(parts.payload_offset()).cast::<*mut u8>().write(payload);
            Some(&mut *payload.cast::<Vec<u8>>())
        }
    }

    /// A long or edited string, to be read while the entry goes on.
    pub fn share_heap(&self) -> Option<Arc<Vec<u8>>> {
        let parts = self.parts();
        if parts.meta & FORM_MASK != FORM_HEAP {
            return None;
        }
        let text = self.payload(parts).cast::<Vec<u8>>();
        // SAFETY: the payload of HEAP is an `Arc` that the entry owns; this makes one owner more.
        unsafe {
            Arc::increment_strong_count(text);
            Some(Arc::from_raw(text))
        }
    }

    /// The mark by which a snapshot tells entries it has done with from those it has not.
    #[inline]
    pub(super) fn mark(&self) -> bool {
        self.parts().meta & MARK != 0
    }

    #[inline]
    pub(super) fn set_mark(&mut self, mark: bool) {
        let meta = self.parts().meta;
        self.set_meta(if mark { meta | MARK } else { meta & !MARK });
    }

    /// Whether OBJECT ENCODING must say raw whatever the length.
    pub fn is_edited(&self) -> bool {
        self.parts().meta & RAW != 0
    }

    /// When the key ends, in unix milliseconds.
    #[inline]
    pub fn expires_at(&self) -> Option<u64> {
        // SAFETY: with EXPIRES, `new` wrote the moment behind the header.
        (self.parts().meta & EXPIRES != 0)
            .then(|| unsafe { self.0.add(HEADER_LEN).cast::<u64>().read() })
    }

    /// The 24 bits of access clock (LRU) or counter (LFU).
    #[inline]
    pub fn access(&self) -> u32 {
        self.parts().meta & ACCESS_MASK
    }

    /// Writes the 24 access bits.
    #[inline]
    pub fn set_access(&mut self, access: u32) {
        let meta = self.parts().meta;
        if meta & ACCESS_MASK != access {
            self.set_meta(meta & !ACCESS_MASK | access & ACCESS_MASK);
        }
    }

    /// Overwrites the value where it stands when size and form allow; else hands it back.
    #[inline]
    pub fn overwrite<'a>(
        &mut self,
        value: NewValue<'a>,
        expires_at: Option<u64>,
    ) -> Result<(), NewValue<'a>> {
        let parts = self.parts();
        if (parts.meta & EXPIRES != 0) != expires_at.is_some() {
            return Err(value);
        }
        match (parts.meta & FORM_MASK, value) {
            // SAFETY: the payload of INTEGER is eight plain bytes.
            (FORM_INTEGER, NewValue::Integer(number)) => unsafe {
                self.0.add(parts.payload_offset()).cast::<*mut u8>().write(integer_payload(number));
            },
            (FORM_INLINE, NewValue::Bytes(bytes)) if parts.fits(bytes.len()) => {
                let lens = parts.key_len() as u32 | (bytes.len() as u32) << 16;
                // SAFETY: `fits` says that the new length has the same class, so the bytes lie
                // within the allocation and its release computes the same layout. Source and
                // target cannot overlap: the value comes from a request.
                unsafe {
                    self.0.cast::<u32>().add(1).write(lens);
                    let target = self.0.add(parts.value_offset());
                    target.copy_from_nonoverlapping(from_slice(bytes), bytes.len());
                }
            }
            (_, value) => return Err(value),
        }
        if let Some(at) = expires_at {
            self.write_expires_at(at);
        }
        Ok(())
    }

    /// Moves the end of a key that has one already.
    ///
    /// Returns false, changing nothing, for a key without an end: it has no room for one.
    pub fn move_expires_at(&mut self, at: u64) -> bool {
        let expires = self.parts().meta & EXPIRES != 0;
        if expires {
            self.write_expires_at(at);
        }
        expires
    }

    fn write_expires_at(&mut self, at: u64) {
        debug_assert!(self.parts().meta & EXPIRES != 0);
        // SAFETY: both callers checked EXPIRES, so the field exists.
        unsafe { self.0.add(HEADER_LEN).cast::<u64>().write(at) }
    }

    /// The same value under `key` with `expires_at`, in a new allocation. Access bits stay.
    pub fn rebuilt(mut self, key: Option<&[u8]>, expires_at: Option<u64>) -> Self {
        let edited = self.is_edited();
        let value = match self.take_payload() {
            Some(value) => value,
            None => match self.value() {
                ValueRef::Integer(number) => NewValue::Integer(number),
                ValueRef::Bytes(bytes) => NewValue::Bytes(bytes),
                ValueRef::Object(_) => unreachable!("objects are payloads, taken above"),
            },
        };
        let mut entry = Entry::new(key.unwrap_or(self.key()), value, expires_at);
        if edited {
            let meta = entry.parts().meta;
            entry.set_meta(meta | RAW);
        }
        entry.set_mark(self.mark());
        entry.set_access(self.access());
        entry
    }

    /// Takes a value with memory of its own out, leaving an integer in its place.
    pub fn take_payload(&mut self) -> Option<NewValue<'static>> {
        let parts = self.parts();
        let payload = match parts.meta & FORM_MASK {
            FORM_HEAP | FORM_OBJECT => self.payload(parts),
            _ => return None,
        };
        self.set_meta(parts.meta & !FORM_MASK | FORM_INTEGER);
        // SAFETY: the form said what it is; it is an integer from here on, so neither
        // `Drop` nor a second call can reach it again.
        Some(unsafe {
            match parts.meta & FORM_MASK {
                FORM_HEAP => NewValue::Shared(Arc::from_raw(payload.cast::<Vec<u8>>())),
                _ => NewValue::Object(Box::from_raw(payload.cast::<Value>())),
            }
        })
    }

    /// Bytes of memory, the value's own allocations included.
    #[inline]
    pub fn memory(&self) -> usize {
        let parts = self.parts();
        let own = parts.layout().size();
        match parts.meta & FORM_MASK {
            FORM_INLINE | FORM_INTEGER => own,
            _ => own + self.payload_memory(),
        }
    }

    fn payload_memory(&self) -> usize {
        let parts = self.parts();
        match self.value() {
            ValueRef::Object(value) => size_class(size_of::<Value>()) + value.memory(),
            _ => {
                // SAFETY: only HEAP and OBJECT come here, and OBJECT is handled above.
                let bytes = unsafe { &*(self.payload(parts).cast::<Vec<u8>>()) };
                size_class(ARC_LEN + size_of::<Vec<u8>>()) + size_class(bytes.capacity())
            }
        }
    }

    #[inline]
    fn payload(&self, parts: Parts) -> *mut u8 {
        debug_assert!(parts.meta & FORM_MASK != FORM_INLINE);
        // SAFETY: every form but INLINE has the field.
        unsafe { self.0.add(parts.payload_offset()).cast::<*mut u8>().read() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        drop(self.take_payload());
        // `take_payload` changes the form from one payload to another, so the size stands.
        let layout = self.parts().layout();
        // SAFETY: allocated in `new` with this very layout; see the head of the module.
        unsafe { dealloc(self.0.as_ptr(), layout) }
    }
}

/// The header, and where the rest stands.
#[derive(Clone, Copy)]
struct Parts {
    meta: u32,
    lens: u32,
}

impl Parts {
    #[inline]
    fn key_len(self) -> usize {
        (if self.meta & LONG_KEY != 0 { self.lens } else { self.lens & 0xffff }) as usize
    }

    #[inline]
    fn value_len(self) -> usize {
        if self.meta & LONG_KEY != 0 { 0 } else { (self.lens >> 16) as usize }
    }

    #[inline]
    fn payload_offset(self) -> usize {
        HEADER_LEN + if self.meta & EXPIRES != 0 { FIELD_LEN } else { 0 }
    }

    #[inline]
    fn key_offset(self) -> usize {
        let inline = self.meta & FORM_MASK == FORM_INLINE;
        self.payload_offset() + if inline { 0 } else { FIELD_LEN }
    }

    #[inline]
    fn value_offset(self) -> usize {
        self.key_offset() + self.key_len()
    }

    #[inline]
    fn size(self) -> usize {
        self.value_offset() + self.value_len()
    }

    /// Whether an inline value of `len` bytes would get the same allocation.
    #[inline]
    fn fits(self, len: usize) -> bool {
        len <= INLINE_MAX && size_class(self.value_offset() + len) == size_class(self.size())
    }

    #[inline]
    fn layout(self) -> Layout {
        Layout::from_size_align(size_class(self.size()), ALIGN)
            .expect("keys and inline values are shorter than 4 GiB")
    }
}

/// The two counters of an `Arc`.
const ARC_LEN: usize = 2 * size_of::<usize>();

fn heap_payload(text: Arc<Vec<u8>>) -> *mut u8 {
    Arc::into_raw(text).cast_mut().cast()
}

fn into_payload<T>(value: Box<T>) -> *mut u8 {
    Box::into_raw(value).cast()
}

/// An integer in the field that otherwise holds a pointer: both have eight bytes.
fn integer_payload(number: i64) -> *mut u8 {
    const { assert!(usize::BITS == 64, "the layout of entries is that of 64-bit machines") };
    std::ptr::without_provenance_mut(number as usize)
}

fn from_slice(bytes: &[u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(entry: &Entry) -> &[u8] {
        match entry.value() {
            ValueRef::Bytes(bytes) => bytes,
            _ => panic!("not bytes"),
        }
    }

    #[test]
    fn the_sizes_promised_above_hold() {
        let entry = |expires_at| Entry::new(&[7; 16], NewValue::Bytes(&[1; 8]), expires_at);
        assert_eq!(entry(None).memory(), 32);
        assert_eq!(entry(Some(1)).memory(), 48);
        assert_eq!(Entry::new(&[7; 16], NewValue::Integer(-1), None).memory(), 32);
    }

    #[test]
    fn every_form_gives_back_what_was_put_in() {
        for key_len in [0, 1, 16, 65_535, 65_536, 70_000] {
            for value_len in [0, 1, 44, 4096, 4097, 100_000] {
                for expires_at in [None, Some(u64::MAX)] {
                    let (key, value) = (vec![b'k'; key_len], vec![b'v'; value_len]);
                    let mut entry = Entry::new(&key, NewValue::Bytes(&value), expires_at);
                    entry.set_access(0x00ab_cdef);
                    assert_eq!((entry.key(), text(&entry)), (&key[..], &value[..]));
                    let entry = entry.rebuilt(Some(b"other"), Some(5));
                    assert_eq!((entry.key(), text(&entry)), (&b"other"[..], &value[..]));
                    assert_eq!((entry.expires_at(), entry.access()), (Some(5), 0x00ab_cdef));
                }
            }
        }
    }

    #[test]
    fn a_value_is_overwritten_in_place_only_within_its_class() {
        let mut entry = Entry::new(b"key", NewValue::Bytes(b"1234567890"), None);
        assert!(entry.overwrite(NewValue::Bytes(b"abcdef"), None).is_ok());
        assert_eq!(text(&entry), b"abcdef");
        assert!(entry.overwrite(NewValue::Bytes(&[b'x'; 21]), None).is_ok());
        assert!(entry.overwrite(NewValue::Bytes(&[b'x'; 22]), None).is_err());
        assert!(entry.overwrite(NewValue::Bytes(b"abc"), Some(1)).is_err());
        assert!(entry.overwrite(NewValue::Integer(1), None).is_err());
        assert_eq!(text(&entry), &[b'x'; 21]);
    }

    #[test]
    fn a_shared_string_is_copied_by_the_next_edit_and_by_nothing_else() {
        let mut entry = Entry::new(b"key", NewValue::Owned(vec![b'v'; 5000]), None);
        let shared = entry.share_heap().unwrap();
        entry = entry.rebuilt(Some(b"other"), Some(7));
        assert_eq!(Arc::strong_count(&shared), 2);
        entry.heap_mut().unwrap().push(b'!');
        assert_eq!((Arc::strong_count(&shared), shared.len()), (1, 5000));
        assert_eq!(text(&entry).len(), 5001);
        drop(entry);
        assert!(shared.iter().all(|byte| *byte == b'v'));
    }

    #[test]
    fn an_edited_string_stays_edited() {
        let mut entry = Entry::new(b"key", NewValue::Edited(b"ab".to_vec()), None);
        entry.heap_mut().unwrap().push(b'c');
        let entry = entry.rebuilt(None, Some(9));
        assert!(entry.is_edited());
        assert_eq!(text(&entry), b"abc");
    }
}
