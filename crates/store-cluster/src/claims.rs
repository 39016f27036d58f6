//! Slots and epochs: whose claim counts.

use std::sync::Arc;

use crate::cluster::{Cluster, Save};
use crate::flaw::Flaw;
use crate::message::{Body, Header, Message};
use crate::node::NodeIndex;
use crate::output::{Event, Output};
use crate::slots::SlotSet;

/// What changed hands by one message.
#[derive(Debug, Default)]
struct Taken {
    /// Slots of mine.
    lost: SlotSet,
    /// Slots of mine or of my master.
    from_shard: usize,
}

impl Cluster {
    /// `sender`, a master, claims `slots` with `epoch`.
    pub(crate) fn weigh_claims(&mut self, sender: NodeIndex, epoch: u64, slots: &Arc<SlotSet>) {
        let shard = self.me().master.unwrap_or(self.me);
        let had_slots = self.nodes[shard].slot_count > 0;
        let mut taken = Taken::default();
        for slot in slots.iter() {
            if self.takes(sender, epoch, slot) {
                self.take_slot(sender, slot, shard, &mut taken);
            }
        }
        self.mark_unclaimed(sender, slots);
        // Both have the same bits: one copy is enough.
        if self.nodes[sender].slots == *slots {
            self.nodes[sender].slots = Arc::clone(slots);
        }
        let is_last = had_slots && self.nodes[shard].slot_count == 0 && taken.from_shard > 0;
        let is_whole = slots.len() == taken.from_shard;
        let may_follow = self.settings.allows_migration || is_whole;
        if is_last && may_follow && !self.breaks(Flaw::StayMaster) {
            self.log(Event::LastSlotLost { taker: self.nodes[sender].id });
            self.follow(sender);
        } else if !taken.lost.is_empty() {
            self.output(Output::DropSlots(taken.lost));
        }
        self.follow_no_replica();
    }

    fn takes(&mut self, sender: NodeIndex, epoch: u64, slot: u16) -> bool {
        let Some(owner) = self.owner(slot) else { return !self.importing.contains_key(&slot) };
        if owner == sender {
            self.unclaimed.remove(slot);
            return false;
        }
        if self.importing.contains_key(&slot) {
            return false;
        }
        let owner_epoch = self.nodes[owner].config_epoch;
        let is_newer = match self.breaks(Flaw::LowerEpochWins) {
            true => owner_epoch > epoch,
            false => owner_epoch < epoch,
        };
        is_newer || self.unclaimed.contains(slot)
    }

    fn take_slot(&mut self, sender: NodeIndex, slot: u16, shard: NodeIndex, taken: &mut Taken) {
        let owner = self.owner(slot);
        taken.from_shard += usize::from(owner == Some(shard));
        if owner == Some(self.me) {
            taken.lost.insert(slot);
            self.migrating.remove(&slot);
        }
        if owner == Some(shard) {
            self.released.insert(slot);
        }
        self.set_owner(slot, Some(sender));
        if let Some(owner) = owner.filter(|owner| self.is_succeeded(*owner)) {
            self.replace_partner(owner, sender);
        }
        self.save(Save::First);
    }

    /// A slot that its owner no longer claims is kept for it, but goes to whoever claims it.
    fn mark_unclaimed(&mut self, owner: NodeIndex, claimed: &SlotSet) {
        if self.breaks(Flaw::NoUnclaimedBits) {
            return;
        }
        let slots = Arc::clone(&self.nodes[owner].slots);
        for slot in slots.iter().filter(|slot| !claimed.contains(*slot)) {
            self.unclaimed.insert(slot);
        }
    }

    /// A master claims exactly what it is known to have.
    pub(crate) fn note_all_claimed(&mut self, owner: NodeIndex) {
        let slots = &self.nodes[owner].slots;
        if slots.intersects(&self.unclaimed) {
            let slots = Arc::clone(slots);
            slots.iter().for_each(|slot| _ = self.unclaimed.remove(slot));
        }
    }

    /// Two masters with one epoch: the one with the smaller name takes another.
    pub(crate) fn settle_collision(&mut self, sender: NodeIndex, header: &Header) {
        let are_masters = self.me().is_master() && self.nodes[sender].is_master();
        let is_same = header.config_epoch == self.me().config_epoch;
        let is_mine = self.me().id < header.sender;
        if are_masters && is_same && is_mine && !self.breaks(Flaw::NoCollisionRule) {
            self.take_epoch();
        }
    }

    /// The next epoch, without anybody's vote.
    pub(crate) fn take_epoch(&mut self) {
        let Some(epoch) = self.begin_epoch() else { return };
        self.me_mut().config_epoch = epoch;
        self.log(Event::EpochTaken(epoch));
        self.save(Save::First);
    }

    /// The next epoch, unless mine is the greatest already. Whether it was taken.
    pub(crate) fn take_greatest_epoch(&mut self) -> bool {
        let greatest = self.nodes.iter().map(|(_, node)| node.config_epoch).max().unwrap_or(0);
        let greatest = greatest.max(self.current_epoch);
        let own = self.me().config_epoch;
        if own != 0 && own == greatest {
            return false;
        }
        self.current_epoch = greatest;
        self.take_epoch();
        true
    }

    /// Everybody hears at once what changed here.
    pub(crate) fn tell_all(&mut self) {
        let gossip = self.choose_gossip();
        self.broadcast(Message { header: self.header(), body: Body::Pong(gossip) });
    }
}
