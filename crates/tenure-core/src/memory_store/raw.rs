//! Plain string commands on the same keys: for rivals that do not speak the protocol, and for
//! tests that put foreign things where a lease belongs.

use std::time::Duration;

use crate::{InstanceId, ServerTime};

use super::keys::{Entry, Value};
use super::{MemoryStore, Token};

/// Something that a program outside the protocol leaves at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignValue<'a> {
    /// A plain string.
    Text(&'a str),
    /// A hash, as some lock libraries keep.
    Hash,
    /// A list.
    List,
}

impl MemoryStore {
    /// Puts `value` at `key` whatever was there, for ever unless `ttl` says otherwise.
    pub fn set_foreign(
        &mut self,
        now: ServerTime,
        key: &str,
        value: ForeignValue<'_>,
        ttl: Option<Duration>,
    ) {
        let value = match value {
            ForeignValue::Text(text) => Value::Text(InstanceId::seen(text)),
            ForeignValue::Hash => Value::Other("hash"),
            ForeignValue::List => Value::Other("list"),
        };
        self.keys.set(now, key, value, ttl);
    }

    /// The string at `key`, as `GET` gives it.
    pub fn get(&self, now: ServerTime, key: &str) -> Option<&str> {
        self.keys.get(now, key).and_then(Entry::text).map(InstanceId::as_str)
    }

    /// How long `key` still lives, as `PTTL` gives it: `None` when it is absent or has no expiry.
    pub fn time_left(&self, now: ServerTime, key: &str) -> Option<Duration> {
        self.keys.get(now, key).and_then(|entry| entry.time_left(now))
    }

    /// `SET key value NX` with an expiry if there is a `ttl`; whether the key was free.
    pub fn set_if_absent(
        &mut self,
        now: ServerTime,
        key: &str,
        value: &str,
        ttl: Option<Duration>,
    ) -> bool {
        let is_free = self.keys.get(now, key).is_none();
        if is_free {
            self.set_foreign(now, key, ForeignValue::Text(value), ttl);
        }
        is_free
    }

    /// `PEXPIRE key ttl`; whether the key was there.
    pub fn expire(&mut self, now: ServerTime, key: &str, ttl: Duration) -> bool {
        self.keys.expire(now, key, ttl)
    }

    /// `DEL key`; whether the key was there.
    pub fn delete(&mut self, now: ServerTime, key: &str) -> bool {
        self.keys.delete(now, key)
    }

    /// Everything about `key` that changes when somebody touches the lease there.
    pub fn fingerprint(&self, now: ServerTime, key: &str) -> Option<Fingerprint> {
        let entry = self.keys.get(now, key)?;
        let meta = self.shelves.get(key).and_then(|shelf| shelf.meta.as_ref());
        Some(Fingerprint {
            holder: entry.text()?.clone(),
            expires_at: entry.expires_at,
            token: meta.map_or(Token::NONE, |meta| meta.token),
            attempt: meta.map_or(0, |meta| meta.attempt),
        })
    }
}

/// A lease at one moment, to be compared with a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The value at the key.
    pub holder: InstanceId,
    /// The token in the side record.
    pub token: Token,
    /// The attempt in the side record: the one that was granted the term.
    pub attempt: u64,
    expires_at: Option<u64>,
}

impl Fingerprint {
    /// Whether the key only keeps others out for a while and stands for nobody's term.
    pub fn is_vacant(&self) -> bool {
        super::is_quarantine(&self.holder)
    }
}
