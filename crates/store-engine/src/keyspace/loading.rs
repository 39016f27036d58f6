//! Entries from files: made first, placed a little later.
//!
//! Keys of a file come in an order of its own, so that nearly each of them is looked for in
//! memory that no cache has. Between the two steps the system fetches it, and the next entries
//! are read meanwhile.

use std::borrow::Cow;

use store_persist::rdb::Access;
use store_types::dump;

use super::{Data, Entry, Freeing, Keyspace, NewValue, Value, hash};

/// A key with its value, as a file has it.
pub(crate) struct FileEntry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) expires_at: Option<u64>,
    pub(crate) access: Access,
    pub(crate) value: FileValue<'a>,
}

/// A value, as a file has it.
pub(crate) enum FileValue<'a> {
    Text(Cow<'a, [u8]>),
    Value(dump::Value),
}

/// An entry that has no place yet.
pub(crate) struct Unplaced {
    db: usize,
    hash: u64,
    entry: Entry,
}

impl Unplaced {
    pub(crate) fn key(&self) -> &[u8] {
        self.entry.key()
    }
}

impl Keyspace {
    /// Whether database `db` has a key, over or not.
    #[cfg(test)]
    pub(crate) fn contains_at(&self, db: usize, key: &[u8]) -> bool {
        self.databases[db].find(self.hash(key), key).is_some()
    }

    /// Prepares an empty database for so many keys.
    pub(crate) fn expect_keys(&mut self, db: usize, keys: u64) {
        self.databases[db].expect(keys);
    }

    /// Makes an entry for database `db` of what a file has, and begins to fetch its place.
    pub(crate) fn prepare(&self, db: usize, from_file: FileEntry<'_>) -> Unplaced {
        let FileEntry { key, expires_at, access, value } = from_file;
        let hash = self.hash(key);
        self.databases[db].prefetch_bucket(hash);
        let mut entry = match value {
            FileValue::Text(Cow::Borrowed(bytes)) => Entry::new(key, text(bytes), expires_at),
            FileValue::Text(Cow::Owned(bytes)) | FileValue::Value(dump::Value::String(bytes)) => {
                Entry::new(key, owned_text(bytes), expires_at)
            }
            FileValue::Value(value) => Entry::new(key, object(value), expires_at),
        };
        let given = match access {
            Access::None => None,
            Access::Idle(seconds) => self.access.given(Some(seconds), None, self.now_ms),
            Access::Frequency(counter) => self.access.given(None, Some(counter), self.now_ms),
        };
        entry.set_access(given.unwrap_or_else(|| self.access.initial(self.now_ms)));
        entry.set_mark(self.mark);
        Unplaced { db, hash, entry }
    }

    /// Removes an entry of the same key, if there is one.
    pub(crate) fn make_place(&mut self, unplaced: &Unplaced) {
        let selected = std::mem::replace(&mut self.selected, unplaced.db);
        self.remove(unplaced.key(), Freeing::Now);
        self.selected = selected;
    }

    /// Gives an entry its place. Nobody is told of it. Fails with the entry when its key is there.
    pub(crate) fn place(&mut self, unplaced: Unplaced) -> Result<(), Unplaced> {
        let Unplaced { db, hash: hash_of_key, entry } = unplaced;
        let (hasher, table) = (&self.hasher, &mut self.databases[db]);
        if table.find(hash_of_key, entry.key()).is_some() {
            return Err(Unplaced { db, hash: hash_of_key, entry });
        }
        table.entry_memory += entry.memory();
        table.insert(hash_of_key, entry, &|key| hash(hasher, key));
        Ok(())
    }
}

fn text(bytes: &[u8]) -> NewValue<'_> {
    match store_resp::parse_integer(bytes) {
        Some(number) => NewValue::Integer(number),
        None => NewValue::Bytes(bytes),
    }
}

/// What was decompressed becomes the value as it is.
fn owned_text(bytes: Vec<u8>) -> NewValue<'static> {
    match store_resp::parse_integer(&bytes) {
        Some(number) => NewValue::Integer(number),
        None => NewValue::Owned(bytes),
    }
}

fn object(value: dump::Value) -> NewValue<'static> {
    let data = match value {
        dump::Value::String(bytes) => return NewValue::Owned(bytes),
        dump::Value::List(list) => Data::List(list),
        dump::Value::Hash(hash) => Data::Hash(hash),
        dump::Value::Set(set) => Data::Set(set),
        dump::Value::SortedSet(set) => Data::SortedSet(set),
        dump::Value::Stream(stream) => Data::Stream(stream),
    };
    NewValue::Object(Box::new(Value::new(data)))
}
