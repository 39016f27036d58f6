//! Values as RDB files and DUMP payloads carry them: version 10, as Redis 7.0 writes it.
//!
//! ```text
//! payload    type | value | version (u16) | CRC-64 of all before
//! value      a string, or a length and that many strings, or one blob of a compact encoding
//! ```
//!
//! [`save_value`] writes what Redis 7.0 writes for equal contents. [`load_value`] reads every type
//! that Redis 7.0 reads, ziplists and zipmaps of old versions included; the bytes may come from
//! anywhere, and no length in them is believed before that many bytes have been seen.

mod load;
mod mend;
mod reader;
mod save;
mod writer;
mod ziplist;
mod zipmap;

pub use load::load_value;
pub use reader::{LoadError, Reader};
pub use save::{save_value, type_code};
pub use writer::{Span, Writer};

use crate::crc64::crc64;
use crate::damage::Damaged;
use crate::limits::Limits;
use crate::lzf::Compressor;
use crate::{Hash, List, Set, SortedSet, Stream};

/// The version of the format that is written; later ones are refused.
pub const VERSION: u16 = 10;
/// Version and checksum.
const FOOTER: usize = 10;
/// The checksum alone.
const CHECKSUM: usize = 8;

/// Any value, owned.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A sorted set.
    SortedSet(SortedSet),
    /// A hash.
    Hash(Hash),
    /// A stream.
    Stream(Stream),
}

impl Value {
    /// The same value, borrowed.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::String(value) => ValueRef::String(value),
            Self::List(value) => ValueRef::List(value),
            Self::Set(value) => ValueRef::Set(value),
            Self::SortedSet(value) => ValueRef::SortedSet(value),
            Self::Hash(value) => ValueRef::Hash(value),
            Self::Stream(value) => ValueRef::Stream(value),
        }
    }
}

/// Any value, borrowed from wherever it is kept.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// A string.
    String(&'a [u8]),
    /// A list.
    List(&'a List),
    /// A set.
    Set(&'a Set),
    /// A sorted set.
    SortedSet(&'a SortedSet),
    /// A hash.
    Hash(&'a Hash),
    /// A stream.
    Stream(&'a Stream),
}

/// Why a payload was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// It is of a later version, or bytes were changed on the way.
    #[error("version or checksum of the payload are wrong")]
    Footer,
    /// It does not hold a value.
    #[error("bad data format: {0}")]
    Data(#[from] LoadError),
}

/// The payload that DUMP replies with; strings are compressed when there is a compressor.
///
/// ```
/// # use store_types::{Limits, dump::{Value, ValueRef, dump, restore}};
/// let payload = dump(ValueRef::String(b"hello"), None);
/// let Ok(Value::String(back)) = restore(&payload, &Limits::default()) else { panic!() };
/// assert_eq!(back, b"hello");
/// ```
pub fn dump(value: ValueRef<'_>, compressor: Option<&mut Compressor>) -> Vec<u8> {
    let mut payload = vec![type_code(value)];
    save_value(value, &mut Writer::new(&mut payload, compressor));
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The value that a payload carries: RESTORE.
///
/// # Errors
/// [`RestoreError`] when it is not a whole payload of a known version or its value is damaged.
pub fn restore(payload: &[u8], limits: &Limits) -> Result<Value, RestoreError> {
    check_sum(payload)?;
    restore_unsummed(payload, limits)
}

fn check_sum(payload: &[u8]) -> Result<(), RestoreError> {
    let summed = payload.len().checked_sub(CHECKSUM).ok_or(RestoreError::Footer)?;
    match payload[summed..] == crc64(0, &payload[..summed]).to_le_bytes() {
        true => Ok(()),
        false => Err(RestoreError::Footer),
    }
}

/// The same whatever the checksum says. The value is checked as ever.
///
/// # Errors
/// As [`restore`], but for the checksum.
pub fn restore_unsummed(payload: &[u8], limits: &Limits) -> Result<Value, RestoreError> {
    restore_by(payload, limits, Reader::new).map(|(value, _)| value)
}

/// The value of a payload that another server has taken already, and what was wrong with it if it
/// had to be made whole: see [`Reader::forgiving`].
///
/// # Errors
/// As [`restore`].
pub fn restore_taken(
    payload: &[u8],
    limits: &Limits,
) -> Result<(Value, Option<Damaged>), RestoreError> {
    check_sum(payload)?;
    restore_by(payload, limits, Reader::forgiving)
}

fn restore_by<'p>(
    payload: &'p [u8],
    limits: &Limits,
    reader: fn(&'p [u8]) -> Reader<'p>,
) -> Result<(Value, Option<Damaged>), RestoreError> {
    let body_len = payload.len().checked_sub(FOOTER).ok_or(RestoreError::Footer)?;
    let (body, footer) = payload.split_at(body_len);
    if u16::from_le_bytes([footer[0], footer[1]]) > VERSION {
        return Err(RestoreError::Footer);
    }
    let mut reader = reader(body);
    let code = reader.byte()?;
    let value = load_value(code, &mut reader, limits)?;
    Ok((value, reader.mended()))
}

/// The type bytes.
mod code {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const ZSET: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const ZSET_2: u8 = 5;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const ZSET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_QUICKLIST: u8 = 14;
    pub(super) const STREAM: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const ZSET_LISTPACK: u8 = 17;
    pub(super) const LIST_QUICKLIST_2: u8 = 18;
    pub(super) const STREAM_2: u8 = 19;
}

#[cfg(test)]
mod tests;
