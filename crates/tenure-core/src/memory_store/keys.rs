//! The keyspace: what any program may read and write, and nothing that the protocol knows of.

use std::collections::{BTreeMap, VecDeque};

use crate::{InstanceId, ServerTime};

use super::members::Told;
use super::record::Record;

/// What a store says to a command that does not fit the type of a key.
pub(super) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";

/// What stands at a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A plain string: the id of a holder, or whatever a foreign program wrote.
    Text(InstanceId),
    /// The side record: a hash whose fields have names that we know, and others.
    Record(Box<Record>),
    /// What members told about themselves: a hash by their ids.
    Members(BTreeMap<InstanceId, Told>),
    /// Members by their last heartbeat in milliseconds: a sorted set.
    Beats(BTreeMap<InstanceId, i64>),
    /// The history: a stream.
    Stream(VecDeque<StreamEntry>),
    /// Any other hash.
    Hash(BTreeMap<String, String>),
    /// Any other type, with the word the store has for it.
    Other(&'static str),
}

/// One entry of a stream: its fields in order.
pub(super) type StreamEntry = Vec<(String, String)>;

impl Value {
    /// The word that the store has for this type.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::Record(_) | Value::Members(_) | Value::Hash(_) => "hash",
            Value::Beats(_) => "zset",
            Value::Stream(_) => "stream",
            Value::Other(kind) => kind,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// In milliseconds of the store's clock; the key is still there at that very millisecond.
    pub(super) expires_at: Option<i64>,
}

impl Entry {
    pub(super) fn text(&self) -> Option<&InstanceId> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn is_expired(&self, now: ServerTime) -> bool {
        self.expires_at.is_some_and(|expires_at| millis(now) > expires_at)
    }
}

/// All keys. Like in Redis, an expired key is gone for every reader.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    entries: BTreeMap<String, Entry>,
}

impl Keys {
    pub(super) fn get(&self, now: ServerTime, key: &str) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| !entry.is_expired(now))
    }

    pub(super) fn get_mut(&mut self, now: ServerTime, key: &str) -> Option<&mut Entry> {
        self.entries.get_mut(key).filter(|entry| !entry.is_expired(now))
    }

    /// The value at `key`, put there first where nothing stands.
    pub(super) fn value_or(
        &mut self,
        now: ServerTime,
        key: &str,
        empty: impl FnOnce() -> Value,
    ) -> &mut Value {
        if self.get(now, key).is_none() {
            self.set(now, key, empty(), None);
        }
        &mut self.entries.get_mut(key).expect("it was put there above").value
    }

    pub(super) fn set(&mut self, now: ServerTime, key: &str, value: Value, ttl: Option<i64>) {
        let expires_at = ttl.map(|ttl| millis(now).saturating_add(ttl));
        let entry = Entry { value, expires_at };
        match self.entries.get_mut(key) {
            Some(stale) => *stale = entry,
            None => drop(self.entries.insert(key.to_owned(), entry)),
        }
    }

    /// Whether the key was there to be given a new expiry.
    pub(super) fn expire(&mut self, now: ServerTime, key: &str, ttl: i64) -> bool {
        let Some(entry) = self.get_mut(now, key) else { return false };
        entry.expires_at = Some(millis(now).saturating_add(ttl));
        true
    }

    /// Whether the key was there to be deleted.
    pub(super) fn delete(&mut self, now: ServerTime, key: &str) -> bool {
        let was_there = self.get(now, key).is_some();
        self.entries.remove(key);
        was_there
    }

    pub(super) fn delete_where(&mut self, is_gone: impl Fn(&str) -> bool) {
        self.entries.retain(|key, _| !is_gone(key));
    }

    pub(super) fn remove_expired(&mut self, now: ServerTime) {
        self.entries.retain(|_, entry| !entry.is_expired(now));
    }

    pub(super) fn remove_if_expired(&mut self, now: ServerTime, key: &str) {
        if self.entries.get(key).is_some_and(|entry| entry.is_expired(now)) {
            self.entries.remove(key);
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Every key, those that have ended too.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    /// Puts a key back as it was.
    pub(super) fn put(&mut self, key: String, entry: Entry) {
        self.entries.insert(key, entry);
    }

    pub(super) fn iter(&self, now: ServerTime) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter().filter(move |(_, entry)| !entry.is_expired(now))
    }

    /// How long the key still lives in milliseconds: -2 without the key, -1 without an expiry.
    pub(super) fn time_left(&self, now: ServerTime, key: &str) -> i64 {
        match self.get(now, key).map(|entry| entry.expires_at) {
            None => -2,
            Some(None) => -1,
            Some(Some(expires_at)) => (expires_at - millis(now)).max(0),
        }
    }
}

/// The store's clock in whole milliseconds.
pub(super) fn millis(now: ServerTime) -> i64 {
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
