//! Who serves which slot, in the opinion of this node.

use std::sync::Arc;

use crate::cluster::{Cluster, NOBODY};
use crate::message::Flags;
use crate::node::NodeIndex;
use crate::slots::SlotSet;

impl Cluster {
    /// Who serves `slot`, in my opinion.
    pub fn owner(&self, slot: u16) -> Option<NodeIndex> {
        Some(self.owners[usize::from(slot)]).filter(|owner| *owner != NOBODY)
    }

    /// Gives a slot to a node, whoever had it.
    pub(crate) fn set_owner(&mut self, slot: u16, owner: Option<NodeIndex>) {
        self.set_owners(&SlotSet::of([slot]), owner);
    }

    /// Gives slots to a node, whoever had them. Returns who lost some. A step per slot, and few per
    /// node that loses some.
    pub(crate) fn set_owners(
        &mut self,
        slots: &SlotSet,
        owner: Option<NodeIndex>,
    ) -> Vec<NodeIndex> {
        self.unclaimed.remove_all(slots);
        let (mut changed, mut losers) = (SlotSet::default(), Vec::new());
        for slot in slots.iter() {
            let place = &mut self.owners[usize::from(slot)];
            let old = std::mem::replace(place, owner.unwrap_or(NOBODY));
            if old == *place {
                continue;
            }
            changed.insert(slot);
            match old {
                NOBODY => self.slots_owned += 1,
                _ if !losers.contains(&old) => losers.push(old),
                _ => {}
            }
            self.slots_owned -= usize::from(owner.is_none());
        }
        if changed.is_empty() {
            return losers;
        }
        for loser in &losers {
            let node = &mut self.nodes[*loser];
            Arc::make_mut(&mut node.slots).remove_all(&changed);
            node.slot_count = node.slots.len() as u16;
        }
        if owner != Some(self.me) {
            self.taken.retain(|slot, _| !changed.contains(*slot));
        }
        if owner.is_some() && (owner == Some(self.me) || owner == self.me().master) {
            self.forget_release(&changed);
        }
        if let Some(new) = owner {
            let is_first = self.nodes[new].slot_count == 0;
            if is_first && self.nodes.iter().any(|(_, node)| node.is_replica()) {
                self.nodes[new].set(Flags::MIGRATE_TO);
            }
            let node = &mut self.nodes[new];
            Arc::make_mut(&mut node.slots).insert_all(&changed);
            node.slot_count = node.slots.len() as u16;
        }
        self.are_routes_changed = true;
        losers
    }

    /// Whoever it was, it has no slots any more.
    pub(crate) fn drop_slots_of(&mut self, index: NodeIndex) {
        let slots = Arc::clone(&self.nodes[index].slots);
        self.set_owners(&slots, None);
    }
}
