//! Plain keys with an expiry: what any program may read and write beside the protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{InstanceId, ServerTime};

/// What stands at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// A plain string: the id of a holder, or whatever a foreign program wrote.
    Text(InstanceId),
    /// Some other type, with the word the store has for it.
    Other(&'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// In milliseconds of the store's clock; the key is still there at that very millisecond.
    pub(super) expires_at: Option<u64>,
}

/// The keyspace. Like in Redis, an expired key is gone for every reader.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys {
    entries: BTreeMap<String, Entry>,
    /// Whether anything but strings was ever put here: saves a search where nobody did.
    has_foreign_types: bool,
}

impl Keys {
    pub(super) fn get(&self, now: ServerTime, key: &str) -> Option<&Entry> {
        let entry = self.entries.get(key)?;
        let expired = entry.expires_at.is_some_and(|expires_at| now.as_millis() > expires_at);
        (!expired).then_some(entry)
    }

    pub(super) fn set(&mut self, now: ServerTime, key: &str, value: Value, ttl: Option<Duration>) {
        self.has_foreign_types |= matches!(value, Value::Other(_));
        let entry = Entry { value, expires_at: ttl.map(|ttl| after(now, ttl)) };
        match self.entries.get_mut(key) {
            Some(stale) => *stale = entry,
            None => drop(self.entries.insert(key.to_owned(), entry)),
        }
    }

    /// Whether the key was there to be given a new expiry.
    pub(super) fn expire(&mut self, now: ServerTime, key: &str, ttl: Duration) -> bool {
        if self.get(now, key).is_none() {
            return false;
        }
        if let Some(entry) = self.entries.get_mut(key) {
            entry.expires_at = Some(after(now, ttl));
        }
        true
    }

    /// Whether the key was there to be deleted.
    pub(super) fn delete(&mut self, now: ServerTime, key: &str) -> bool {
        let was_there = self.get(now, key).is_some();
        self.entries.remove(key);
        was_there
    }

    pub(super) fn clear(&mut self) {
        *self = Keys::default();
    }

    pub(super) fn has_foreign_types(&self) -> bool {
        self.has_foreign_types
    }
}

impl Entry {
    /// How long the key still lives, in the store's whole milliseconds.
    pub(super) fn time_left(&self, now: ServerTime) -> Option<Duration> {
        let expires_at = self.expires_at?;
        Some(Duration::from_millis(expires_at.saturating_sub(now.as_millis())))
    }
}

/// The millisecond that lies `ttl` after `now`.
fn after(now: ServerTime, ttl: Duration) -> u64 {
    now.as_millis().saturating_add(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))
}
