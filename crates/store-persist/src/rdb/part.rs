//! What travels from the data to the file.

use std::sync::Arc;

use store_types::dump::{Span, Value, ValueRef};

/// What is remembered of an entry's accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing.
    #[default]
    None,
    /// Seconds since the last one (LRU).
    Idle(u64),
    /// The counter (LFU).
    Frequency(u8),
}

/// An entry without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryHead<'a> {
    /// Its database.
    pub db: usize,
    /// Its key.
    pub key: &'a [u8],
    /// When it ends, in unix milliseconds.
    pub expires_at: Option<u64>,
    /// What is remembered of its accesses.
    pub access: Access,
}

/// A run of small entries, encoded but for the strings worth compressing.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Encoded entries.
    pub bytes: Vec<u8>,
    /// Where strings stand bare in them; none unless compression is wanted.
    pub strings: Vec<Span>,
    /// How many entries that are.
    pub entries: usize,
}

/// A large entry. Its value shares its memory with the store's.
#[derive(Clone, Debug)]
pub struct SavedEntry {
    /// Its database.
    pub db: usize,
    /// Its key.
    pub key: Box<[u8]>,
    /// When it ends, in unix milliseconds.
    pub expires_at: Option<u64>,
    /// What is remembered of its accesses.
    pub access: Access,
    /// Its value.
    pub value: SavedValue,
}

impl SavedEntry {
    /// The entry without its value.
    pub fn head(&self) -> EntryHead<'_> {
        EntryHead { db: self.db, key: &self.key, expires_at: self.expires_at, access: self.access }
    }
}

/// A value that shares its memory with the store's: its nodes, or the whole string.
#[derive(Clone, Debug)]
pub enum SavedValue {
    /// A long string.
    Text(Arc<Vec<u8>>),
    /// Anything else.
    Value(Value),
}

impl SavedValue {
    /// The value as formats take it.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Text(bytes) => ValueRef::String(bytes),
            Self::Value(value) => value.as_ref(),
        }
    }

    /// Allocated bytes, shared or not.
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Text(bytes) => bytes.capacity(),
            Self::Value(Value::String(bytes)) => bytes.capacity(),
            Self::Value(Value::List(list)) => list.heap_bytes(),
            Self::Value(Value::Set(set)) => set.heap_bytes(),
            Self::Value(Value::SortedSet(set)) => set.heap_bytes(),
            Self::Value(Value::Hash(hash)) => hash.heap_bytes(),
            Self::Value(Value::Stream(stream)) => stream.heap_bytes(),
        }
    }
}

/// A piece of a snapshot. Pieces must be written in the order they were made.
#[derive(Clone, Debug)]
pub enum Part {
    /// Many small entries.
    Run(Run),
    /// One entry, not encoded yet.
    Entry(Box<SavedEntry>),
}

impl Part {
    /// How many entries are in it.
    pub fn entries(&self) -> usize {
        match self {
            Self::Run(run) => run.entries,
            Self::Entry(_) => 1,
        }
    }

    /// Bytes of memory that the piece takes until it is written. What it shares costs nothing
    /// until it is changed; then a node is copied.
    pub fn own_bytes(&self) -> usize {
        /// More than any node has.
        const COPIED_MAX: usize = 64 * 1024;
        match self {
            Self::Run(run) => run.bytes.capacity() + run.strings.capacity() * size_of::<Span>(),
            Self::Entry(entry) => {
                let shared = entry.value.heap_bytes().min(COPIED_MAX);
                size_of::<SavedEntry>() + entry.key.len() + shared
            }
        }
    }
}
