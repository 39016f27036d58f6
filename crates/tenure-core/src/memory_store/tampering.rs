//! What only a simulator does to a store: look at a rule from outside, or break it on purpose.

use crate::{Resource, ServerTime};

use super::MemoryStore;
use super::keys::Entry;
use super::life::Life;
use super::record::Field;
use super::step::{moment, whole_millis};

impl MemoryStore {
    /// A store that vouches for its history like [`MemoryStore::new`], as the process `run`:
    /// several that decide together must differ in it.
    pub fn vouching(now: ServerTime, run: u64) -> Self {
        Self::living(Life::own(now, run))
    }

    /// Until when nobody is granted a term of `resource`; the origin of time without a quarantine.
    pub fn quarantine_until(&self, resource: &Resource) -> ServerTime {
        let record = self.record(ServerTime::default(), &resource.side_key("meta"));
        record
            .and_then(|record| record.number(Field::QuarantineUntil))
            .map(moment)
            .unwrap_or_default()
    }

    /// Until when an operator paused `resource`; the origin of time without a pause.
    pub fn paused_until(&self, resource: &Resource) -> ServerTime {
        let record = self.record(ServerTime::default(), &resource.side_key("meta"));
        let until = record.and_then(|record| record.number(Field::PausedUntil));
        until.map(moment).unwrap_or_default()
    }

    /// Breaks a rule: moves the end of a quarantine, in either direction. What keeps the key
    /// meanwhile ends with it.
    pub fn move_quarantine(&mut self, now: ServerTime, resource: &Resource, until: ServerTime) {
        let key = resource.key();
        if self.keys.get(now, key).and_then(Entry::text).is_some_and(super::is_quarantine) {
            match until > now {
                true => drop(self.keys.expire(now, key, whole_millis(until.since(now)))),
                false => drop(self.keys.delete(now, key)),
            }
        }
        if let Some(record) = self.record_mut(now, resource) {
            record.set(Field::QuarantineUntil, i64::try_from(until.0).unwrap_or(i64::MAX));
        }
    }
}
