//! Slots and epochs: whose claim counts.

use std::sync::Arc;

use crate::cluster::{Cluster, Save};
use crate::flaw::Flaw;
use crate::message::{Body, Header, Message};
use crate::node::NodeIndex;
use crate::output::{Event, Output};
use crate::slots::SlotSet;

impl Cluster {
    /// `sender`, a master, claims `slots` with `epoch`, as it says or somebody says of it.
    /// `is_answer`: it says so itself, over the connection from here.
    pub(crate) fn weigh_claims(
        &mut self,
        sender: NodeIndex,
        epoch: u64,
        slots: &Arc<SlotSet>,
        is_answer: bool,
    ) {
        self.forget_giver_that_replaced_me(sender, epoch, slots);
        let shard = self.me().master.unwrap_or(self.me);
        let (had, own) = (&self.nodes[shard].slots, &self.nodes[sender].slots);
        let (had, own) = (Arc::clone(had), Arc::clone(own));
        self.unclaimed.remove_all(&slots.both(&own));
        let news = slots.without(&own);
        let taken = SlotSet::of(news.iter().filter(|slot| {
            self.decide_by_order((sender, epoch), *slot, is_answer)
                .unwrap_or_else(|| self.takes(epoch, *slot))
        }));
        let from_shard = taken.both(&had);
        if !taken.is_empty() {
            self.take_slots(sender, &taken, &from_shard);
        }
        // Both have the same bits: one copy is enough.
        if self.nodes[sender].slots == *slots {
            self.nodes[sender].slots = Arc::clone(slots);
        }
        let is_last = self.nodes[shard].slot_count == 0 && !from_shard.is_empty();
        let may_follow = self.settings.allows_migration || **slots == from_shard;
        if is_last && may_follow && !self.breaks(Flaw::StayMaster) {
            self.log(Event::LastSlotLost { taker: self.nodes[sender].id });
            self.follow(sender);
        } else if shard == self.me && !from_shard.is_empty() {
            self.output(Output::DropSlots(Box::new(from_shard)));
        }
        self.follow_no_replica();
    }

    /// Whether a claim for a slot that is not the claimant's yet counts.
    fn takes(&self, epoch: u64, slot: u16) -> bool {
        let Some(owner) = self.owner(slot) else { return true };
        let owner_epoch = self.nodes[owner].config_epoch;
        let is_newer = match self.breaks(Flaw::LowerEpochWins) {
            true => owner_epoch > epoch,
            false => owner_epoch < epoch,
        };
        // Two have one epoch, and the one that is down cannot take another: until it is back, all
        // shall agree on the one that works.
        let is_alone = owner_epoch == epoch
            && self.nodes[owner].is_failed()
            && !self.breaks(Flaw::DeadKeepsSlots);
        is_newer || is_alone || self.unclaimed.contains(slot)
    }

    fn take_slots(&mut self, sender: NodeIndex, taken: &SlotSet, from_shard: &SlotSet) {
        if self.me().master.is_none() {
            self.migrating.retain(|slot, _| !from_shard.contains(*slot));
        }
        self.released.insert_all(from_shard);
        for owner in self.set_owners(taken, Some(sender)) {
            if self.is_succeeded(owner) {
                self.replace_partner(owner, sender);
            }
        }
        self.save(Save::First);
    }

    /// A slot that its owner no longer claims is kept for it, but goes to whoever claims it.
    /// Only the owner itself knows that: others may not know all that it claims.
    pub(crate) fn mark_unclaimed(&mut self, owner: NodeIndex, claimed: &SlotSet) {
        if self.breaks(Flaw::NoUnclaimedBits) {
            return;
        }
        self.unclaimed.insert_all(&self.nodes[owner].slots.without(claimed));
    }

    /// A master claims exactly what it is known to have.
    pub(crate) fn note_all_claimed(&mut self, owner: NodeIndex) {
        self.unclaimed.remove_all(&self.nodes[owner].slots);
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
        if !self.can_promise() {
            return;
        }
        let Some(epoch) = self.begin_epoch() else { return };
        self.me_mut().config_epoch = epoch;
        self.log(Event::EpochTaken(epoch));
        self.save(Save::First);
        self.withhold();
        self.ask_takers();
    }

    /// The next epoch, unless mine is the greatest already. Whether it was taken.
    pub(crate) fn take_greatest_epoch(&mut self) -> bool {
        if !self.can_promise() {
            return false;
        }
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
