//! What only a simulator does to a store: look at a rule from outside, or break it on purpose.

use crate::{Resource, ServerTime};

use super::MemoryStore;
use super::life::Life;

impl MemoryStore {
    /// A store that vouches for its history like [`MemoryStore::new`], as the process `run`:
    /// several that decide together must differ in it.
    pub fn vouching(now: ServerTime, run: u64) -> Self {
        Self::living(Life::new(now, run, true))
    }

    /// Until when nobody is granted a term of `resource`; the origin of time without a quarantine.
    pub fn quarantine_until(&self, resource: &Resource) -> ServerTime {
        self.shelves.get(resource.key()).map(|shelf| shelf.quarantine_until).unwrap_or_default()
    }

    /// Breaks a rule: moves the end of a quarantine, in either direction. What keeps the key
    /// meanwhile ends with it.
    pub fn move_quarantine(&mut self, now: ServerTime, resource: &Resource, until: ServerTime) {
        let key = resource.key();
        if self.keys.get(now, key).is_some_and(super::keys::Entry::is_quarantine) {
            match until > now {
                true => drop(self.keys.expire(now, key, until.since(now))),
                false => drop(self.keys.delete(now, key)),
            }
        }
        if let Some(shelf) = self.shelves.get_mut(key) {
            shelf.quarantine_until = until;
        }
    }
}
