//! Keys by slot, on a node of a cluster: counted, listed, and removed when the slot has gone to
//! another node.
//!
//! A node of a cluster uses the first database alone. A slot that goes may have any number of
//! keys, so they are removed in slices, the first at once. Until all are gone, the slot is said to
//! be emptied, and no key may come to it.

use store_resp::OwnedRequest;
use store_resp::slot::slot_of;

use super::changes::Unit;
use super::freeing::Freeing;
use super::table::{Scope, Table, with_slot};
use super::{Found, Keyspace};

/// Keys of a slot that are removed at once: about half a millisecond.
const SLICE_KEYS: usize = 1000;
/// Keys that one propagated request removes.
const KEYS_PER_REQUEST: usize = 100;
/// The database that a cluster has.
const DB: usize = 0;

#[inline(never)]
pub(super) fn hash_in_slot(hash: u64, key: &[u8]) -> u64 {
    with_slot(hash, slot_of(key))
}

impl Keyspace {
    /// From now on keys are found by slot, too. There must not be any yet.
    pub(crate) fn lay_out_by_slot(&mut self) {
        debug_assert!(self.databases.iter().all(|table| table.len() == 0), "keys have their place");
        self.hasher.is_by_slot = true;
        self.databases.iter_mut().for_each(|table| *table = Table::by_slot());
    }

    /// Whether keys are found by slot.
    pub fn is_by_slot(&self) -> bool {
        self.hasher.is_by_slot
    }

    /// How many keys a slot has.
    pub fn slot_len(&self, slot: u16) -> usize {
        self.databases[DB].len_of_slot(slot)
    }

    /// Some keys of a slot, at most `keys_max`: always the same ones as long as nothing changes.
    /// Keys that ended and are not removed yet are among them.
    pub fn keys_in_slot(&self, slot: u16, keys_max: usize) -> Vec<Vec<u8>> {
        self.databases[DB].keys_in_slot(slot, keys_max)
    }

    /// Removes the keys of a slot that this server does not have any more: the first of them at
    /// once, the others by [`empty_some`](Self::empty_some).
    pub(crate) fn empty_slot(&mut self, slot: u16) {
        self.empty_slot_later(slot);
        self.empty_slice(slot);
    }

    /// The same, but nothing is removed yet.
    pub(crate) fn empty_slot_later(&mut self, slot: u16) {
        self.emptied_slots.insert(slot);
    }

    /// Whether keys of a slot are still to be removed: none may come to it meanwhile.
    pub fn is_emptied(&self, slot: u16) -> bool {
        self.emptied_slots.contains(&slot)
    }

    /// Whether some slot is being emptied.
    pub(crate) fn has_emptied_slots(&self) -> bool {
        !self.emptied_slots.is_empty()
    }

    /// Removes some more keys of slots that are emptied. True while there are more.
    pub(crate) fn empty_some(&mut self) -> bool {
        if let Some(slot) = self.emptied_slots.first().copied() {
            self.empty_slice(slot);
        }
        self.has_emptied_slots()
    }

    fn empty_slice(&mut self, slot: u16) {
        let keys = self.keys_in_slot(slot, SLICE_KEYS);
        let selected = std::mem::replace(&mut self.selected, DB);
        for key in &keys {
            let hash = self.hash(key);
            let Some(place) = self.table().find(hash, key) else { continue };
            let entry = self.take_found(Found { hash, place });
            self.discard(entry, Freeing::Lazily);
            self.dirty += 1;
            // No event is told: the key is elsewhere, and not gone.
            self.signal_modified(key);
        }
        if self.changes.propagating {
            let command = self.freeing.server_del.command();
            for keys in keys.chunks(KEYS_PER_REQUEST) {
                let keys = keys.iter().map(Vec::as_slice);
                let request = OwnedRequest::from_args(std::iter::once(command).chain(keys));
                let requests = vec![(DB, request)];
                self.changes.units.push(Unit { requests, ..Unit::default() });
            }
        }
        self.selected = selected;
        if self.slot_len(slot) == 0 {
            self.emptied_slots.remove(&slot);
        }
    }

    /// A key chosen at random. There must be one.
    pub(super) fn sampled_key(&mut self) -> Vec<u8> {
        let mut key = Vec::new();
        let table = &self.databases[self.selected];
        table.sample(Scope::All, 1, &mut self.random, &mut |entry| key = entry.key().to_vec());
        key
    }
}
