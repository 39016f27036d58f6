//! Keys given up for memory: the keyspace's part of it.

use store_resp::OwnedRequest;

use super::changes::{Unit, event_class};
use super::freeing::{Freeing, free_effort};
use super::table::Scope;
use super::{Entry, Found, Keyspace};

impl Keyspace {
    /// How many keys of database `db` are in question.
    pub(crate) fn count(&self, db: usize, scope: Scope) -> usize {
        self.databases[db].count(scope)
    }

    /// Visits up to `count` entries of database `db` drawn at random, possibly one twice.
    pub(crate) fn sample(
        &mut self,
        db: usize,
        scope: Scope,
        count: usize,
        visit: &mut dyn FnMut(&Entry),
    ) {
        self.databases[db].sample(scope, count, &mut self.random, visit);
    }

    /// The entry behind a key of database `db`, whether it ended or not.
    pub(crate) fn entry_in(&self, db: usize, key: &[u8]) -> Option<&Entry> {
        let table = &self.databases[db];
        Some(table.entry(table.find(self.hash(key), key)?))
    }

    /// Gives up a key, with all that follows from it: it is propagated as a unit of its own,
    /// before whatever the memory is needed for. Returns how much work freeing it was, or
    /// `None` without the key.
    pub(crate) fn evict(&mut self, db: usize, key: &[u8]) -> Option<usize> {
        let hash = self.hash(key);
        let place = self.databases[db].find(hash, key)?;
        let selected = std::mem::replace(&mut self.selected, db);
        let entry = self.take_found(Found { hash, place });
        let freeing = self.freeing.eviction;
        let effort = match freeing {
            Freeing::Now => free_effort(entry.value()),
            Freeing::Lazily => 0,
        };
        self.stats.evicted += 1;
        self.signal_lost(key);
        self.notify(event_class::EVICTED, "evicted", key);
        if self.changes.propagating {
            let request = OwnedRequest::from_args([freeing.command(), key]);
            self.changes.units.push(Unit { requests: vec![(db, request)], ..Unit::default() });
        }
        self.discard(entry, freeing);
        self.selected = selected;
        Some(effort)
    }
}
