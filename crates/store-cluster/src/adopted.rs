//! Keys of slots that belong to other nodes: which count, and which are of an earlier time.
//!
//! ```text
//! slot goes to another node, no key is left ─► released, kept in nodes.conf
//! restart: keys of it are there again ─► outdated ─ its owner claims it ─► DropSlots
//!          keys of another one's slot, never released ─► importing, as with Redis: they may be the
//!                                                        only copy
//!          keys of nobody's slot ─► this node's
//! ```
//! Only this node can know which of both it is. A slot is given away when it is empty, so what
//! comes back later was there before. In all other cases no key is removed here: nodes.conf may be
//! older than the data, or an operator may have ended a move half-way.

use crate::cluster::{Cluster, Save};
use crate::flaw::Flaw;
use crate::node::NodeIndex;
use crate::output::{Event, Output};
use crate::settings::Now;
use crate::slots::SlotSet;

/// What became of keys that were loaded, by slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Nobody served them: they are this node's.
    pub taken: SlotSet,
    /// They are another node's, and may have the only copy of a key: they are importing.
    pub importing: SlotSet,
    /// They are another node's, and this one gave them away: their keys go when it is heard.
    pub outdated: SlotSet,
}

impl Cluster {
    /// The data that was loaded has keys of these slots.
    pub fn adopt_keys(&mut self, now: Now, slots: &SlotSet) -> Adopted {
        self.now = now;
        let mut adopted = Adopted::default();
        if self.me().is_replica() {
            return adopted;
        }
        let me = self.me;
        for slot in slots.iter() {
            match self.owner(slot) {
                _ if self.importing.contains_key(&slot) => {}
                Some(owner) if owner == me => {}
                Some(_) if self.is_outdated(slot) => {
                    self.outdated.insert(slot);
                    adopted.outdated.insert(slot);
                }
                Some(owner) => {
                    self.import(slot, owner);
                    adopted.importing.insert(slot);
                }
                None => {
                    self.set_owner(slot, Some(me));
                    adopted.taken.insert(slot);
                }
            }
        }
        if !adopted.taken.is_empty() || !adopted.importing.is_empty() {
            self.save(Save::First);
        }
        self.finish();
        adopted
    }

    fn is_outdated(&self, slot: u16) -> bool {
        match () {
            () if self.breaks(Flaw::ImportOutdatedKeys) => false,
            () if self.breaks(Flaw::DropAdoptedKeys) => true,
            () => self.released.contains(slot),
        }
    }

    /// This replica has become a master, and its data has keys of `slots`. Those of others' slots
    /// came to its old master by a move, and the move goes on here. Slots in `left` had gone from
    /// that master: their keys may just not have been removed here yet, and are left alone. Returns
    /// what is importing now.
    pub fn adopt_copied_keys(&mut self, now: Now, slots: &SlotSet, left: &SlotSet) -> SlotSet {
        self.now = now;
        let mut importing = SlotSet::default();
        let is_master = self.me().is_master();
        for slot in slots.iter().filter(|slot| is_master && !left.contains(*slot)) {
            let owner = self.owner(slot).filter(|owner| *owner != self.me);
            if let Some(owner) = owner.filter(|_| !self.importing.contains_key(&slot)) {
                self.import(slot, owner);
                importing.insert(slot);
            }
        }
        if !importing.is_empty() {
            self.save(Save::First);
        }
        self.finish();
        importing
    }

    /// A slot comes from `from`: its keys here count from now on.
    pub(crate) fn import(&mut self, slot: u16, from: NodeIndex) {
        self.importing.insert(slot, from);
        self.forget_release(&SlotSet::of([slot]));
    }

    pub(crate) fn forget_release(&mut self, slots: &SlotSet) {
        self.released.remove_all(slots);
        self.outdated.retain(|slot| !slots.contains(*slot));
    }

    pub(crate) fn forget_releases(&mut self) {
        self.released = SlotSet::default();
        self.outdated.clear();
    }

    /// `owner`, a master, says itself that it has these slots.
    pub(crate) fn drop_outdated(&mut self, owner: NodeIndex, claimed: &SlotSet) {
        if self.outdated.is_empty() {
            return;
        }
        let is_theirs = |slot: &&u16| claimed.contains(**slot) && self.owner(**slot) == Some(owner);
        let slots = SlotSet::of(self.outdated.iter().filter(is_theirs).copied());
        if !slots.is_empty() {
            self.outdated.retain(|slot| !slots.contains(*slot));
            let slots = Box::new(slots);
            self.log(Event::OutdatedKeys { slots: slots.clone(), owner: self.nodes[owner].id });
            self.output(Output::DropSlots(slots));
        }
    }

    /// Whether a master failed and has no slots any more: somebody took its place.
    pub(crate) fn is_succeeded(&self, node: NodeIndex) -> bool {
        self.nodes[node].is_failed() && self.nodes[node].slot_count == 0
    }

    /// Slots that move between this node and `old` move between it and `new` from now on.
    pub(crate) fn replace_partner(&mut self, old: NodeIndex, new: NodeIndex) {
        let (me, mut is_changed) = (self.me, false);
        for partners in [&mut self.importing, &mut self.migrating] {
            for partner in partners.values_mut().filter(|partner| **partner == old) {
                *partner = new;
                is_changed = true;
            }
            partners.retain(|_, partner| *partner != me);
        }
        if is_changed {
            self.save(Save::Later);
        }
    }
}
