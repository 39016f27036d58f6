//! Plain commands on the same keys: for rivals that do not speak the protocol, for tests that put
//! foreign things where a lease belongs, and to compare this store with a real one.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::{InstanceId, ServerTime};

use super::keys::{Entry, Value};
use super::members::Told;
use super::record::{Field, Record};
use super::step::{token, whole_millis};
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

/// A command that any program may give. Where it does not fit the type of the key, nothing happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignCommand {
    /// `SET key value`, with `PX` where there is a number of milliseconds.
    Set(String, String, Option<i64>),
    /// `DEL key`.
    Del(String),
    /// `PEXPIRE key milliseconds`.
    Expire(String, i64),
    /// `HSET key field value`.
    SetField(String, String, String),
    /// `HDEL key field`.
    DelField(String, String),
    /// `ZADD key score member`.
    AddScore(String, i64, String),
    /// `XADD key * field value`.
    AddEntry(String, String, String),
}

/// The value at a key, as any client can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The type, in the store's word.
    pub kind: String,
    /// Its elements as text: a string is one, a hash has a field and its value each, a sorted set a
    /// member and its score, a stream the fields of each entry in one.
    pub elements: Vec<(String, String)>,
    /// When it ends, in milliseconds of the store's clock.
    pub expires_at: Option<i64>,
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
        self.keys.set(now, key, value, ttl.map(whole_millis));
    }

    /// Carries out a command of a foreign program.
    pub fn apply(&mut self, now: ServerTime, word: &ForeignCommand) {
        match word {
            ForeignCommand::Set(key, value, ttl) => {
                self.keys.set(now, key, Value::Text(InstanceId::seen(value)), *ttl);
            }
            ForeignCommand::Del(key) => drop(self.keys.delete(now, key)),
            ForeignCommand::Expire(key, ttl) => drop(self.keys.expire(now, key, *ttl)),
            ForeignCommand::SetField(key, field, value) => self.set_field(now, key, field, value),
            ForeignCommand::DelField(key, field) => self.del_field(now, key, field),
            ForeignCommand::AddScore(key, score, member) => {
                let empty = || Value::Beats(BTreeMap::new());
                if let Value::Beats(beats) = self.keys.value_or(now, key, empty) {
                    beats.insert(InstanceId::seen(member), *score);
                }
            }
            ForeignCommand::AddEntry(key, field, value) => {
                let empty = || Value::Stream(VecDeque::new());
                if let Value::Stream(entries) = self.keys.value_or(now, key, empty) {
                    entries.push_back(vec![(field.clone(), value.clone())]);
                }
            }
        }
    }

    fn set_field(&mut self, now: ServerTime, key: &str, field: &str, value: &str) {
        let empty = || match key.rsplit(':').next() {
            Some("meta") => Value::Record(Box::default()),
            Some("members") => Value::Members(BTreeMap::new()),
            _ => Value::Hash(BTreeMap::new()),
        };
        match self.keys.value_or(now, key, empty) {
            Value::Record(record) => record.set_named(field, value),
            Value::Members(members) => {
                members.insert(InstanceId::seen(field), Told::Raw(value.to_owned()));
            }
            Value::Hash(fields) => drop(fields.insert(field.to_owned(), value.to_owned())),
            _ => {}
        }
    }

    fn del_field(&mut self, now: ServerTime, key: &str, field: &str) {
        let Some(entry) = self.keys.get_mut(now, key) else { return };
        let is_empty = match &mut entry.value {
            Value::Record(record) => {
                record.remove_named(field);
                record.has_no_fields()
            }
            Value::Members(members) => {
                members.remove(&InstanceId::seen(field));
                members.is_empty()
            }
            Value::Hash(fields) => {
                fields.remove(field);
                fields.is_empty()
            }
            _ => false,
        };
        if is_empty {
            self.keys.delete(now, key);
        }
    }

    /// Every key, as any client can read it.
    pub fn show(&self, now: ServerTime) -> BTreeMap<String, Shown> {
        self.keys.iter(now).map(|(key, entry)| (key.clone(), shown(entry))).collect()
    }

    /// The string at `key`, as `GET` gives it.
    pub fn get(&self, now: ServerTime, key: &str) -> Option<&str> {
        self.keys.get(now, key).and_then(Entry::text).map(InstanceId::as_str)
    }

    /// How long `key` still lives, as `PTTL` gives it: `None` when it is absent or has no expiry.
    pub fn time_left(&self, now: ServerTime, key: &str) -> Option<Duration> {
        let left = self.keys.time_left(now, key);
        u64::try_from(left).ok().map(Duration::from_millis)
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
        self.keys.expire(now, key, whole_millis(ttl))
    }

    /// `DEL key`; whether the key was there.
    pub fn delete(&mut self, now: ServerTime, key: &str) -> bool {
        self.keys.delete(now, key)
    }

    /// Everything about `key` that changes when somebody touches the lease there.
    pub fn fingerprint(&self, now: ServerTime, key: &str) -> Option<Fingerprint> {
        let entry = self.keys.get(now, key)?;
        let names = self.names.get(key);
        let record = names.and_then(|names| self.record(now, &names.meta));
        Some(Fingerprint {
            holder: entry.text()?.clone(),
            expires_at: entry.expires_at,
            token: record.and_then(|record| token(record.number(Field::Token))),
            attempt: record
                .and_then(|record| record.number(Field::Attempt))
                .and_then(|attempt| u64::try_from(attempt).ok())
                .unwrap_or(0),
        })
    }
}

fn shown(entry: &Entry) -> Shown {
    let elements = match &entry.value {
        Value::Text(text) => vec![(text.to_string(), String::new())],
        Value::Record(record) => sorted(record),
        Value::Members(members) => {
            members.iter().map(|(id, told)| (id.to_string(), told.text())).collect()
        }
        Value::Beats(beats) => {
            beats.iter().map(|(id, beat)| (id.to_string(), beat.to_string())).collect()
        }
        Value::Stream(entries) => {
            entries.iter().map(|entry| (format!("{entry:?}"), String::new())).collect()
        }
        Value::Hash(fields) => fields.clone().into_iter().collect(),
        Value::Other(_) => Vec::new(),
    };
    Shown { kind: entry.value.kind().to_owned(), elements, expires_at: entry.expires_at }
}

fn sorted(record: &Record) -> Vec<(String, String)> {
    let mut fields: Vec<_> = record.fields().collect();
    fields.sort();
    fields
}

/// A lease at one moment, to be compared with a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The value at the key.
    pub holder: InstanceId,
    /// The token in the side record.
    pub token: Option<Token>,
    /// The attempt in the side record: the one that was granted the term.
    pub attempt: u64,
    expires_at: Option<i64>,
}

impl Fingerprint {
    /// Whether the key only keeps others out for a while and stands for nobody's term.
    pub fn is_vacant(&self) -> bool {
        super::is_quarantine(&self.holder)
    }
}
