//! Slots that operators move between two masters whose epochs grow meanwhile.
//!
//! A packet has one epoch for all slots of its sender. Whoever takes a slot takes a new epoch, and
//! with it seems to claim anew whatever it has just given away, if it was not heard yet that it is
//! taken: two slots that move in opposite directions at once would both be lost, and their keys
//! with them. Both ends of a move know better than the epochs, as both had their order:
//!
//! ```text
//! giver  MIGRATING ─ own epoch is beyond what the taker knows ─► not claimed
//!                  ─ the taker answers and claims it ─► the taker's, whatever the epochs
//! taker  NODE ─► no claim of the giver counts until it has answered without it,
//!                and none with an epoch that it had until then
//!             ─► while it answers that it has the slot with a newer epoch, it is not served here;
//!                after two node-timeouts of that it is the giver's again
//! ```
//! An answer is a pong to a ping that left after the order, over the connection from here: it
//! cannot be of before, as any other packet may be. Redis does nothing of this; either end alone
//! keeps its own slots when the other one is a Redis node.

use std::sync::Arc;

use crate::cluster::{Cluster, Save};
use crate::flaw::Flaw;
use crate::message::{Body, Header, Message};
use crate::node::{NodeIndex, Talk};
use crate::slots::SlotSet;

/// For so many node-timeouts a giver may not have heard that its slot is taken. One that answers
/// for longer that it has the slot, with an epoch beyond mine, has it again, by an order that this
/// node did not see: the two would argue for ever.
const STALE_TIMEOUTS: u64 = 2;

/// A slot that this node took from another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) giver: NodeIndex,
    /// Answers that were on their way then are of before.
    pub(crate) since: Talk,
    /// Claims of the giver with this epoch or an older one may be of before. `u64::MAX` until it
    /// has answered without the slot.
    pub(crate) until_epoch: u64,
    /// Since when the giver's answers claim it all the same, with an epoch beyond mine.
    pub(crate) disputed_since: Option<u64>,
}

impl Cluster {
    /// What this master claims.
    pub(crate) fn claimed_slots(&self) -> Arc<SlotSet> {
        let mut slots = Arc::clone(&self.me().slots);
        for slot in &self.withheld {
            if self.migrating.get(slot).is_some_and(|taker| self.may_take_older(*taker)) {
                Arc::make_mut(&mut slots).remove(*slot);
            }
        }
        slots
    }

    /// Whether a node may take, or have taken, a slot with an epoch that is not beyond mine, as it
    /// does not know of that one.
    fn may_take_older(&self, taker: NodeIndex) -> bool {
        self.nodes[taker].talk.known_epoch < self.me().config_epoch
    }

    /// From now on this master does not claim what may be taken so: of nobody until the taker has
    /// answered, and of the taker not before the move is over. A Redis node that heard its owner
    /// not claim a slot gives it to whoever claims it next, even if it has taken it meanwhile.
    pub(crate) fn withhold(&mut self) {
        if !self.breaks(Flaw::NoHandover) && !self.breaks(Flaw::ClaimsOpenSlots) {
            let open = self.migrating.iter().filter(|(_, taker)| self.may_take_older(**taker));
            let open: Vec<u16> = open.map(|(slot, _)| *slot).collect();
            self.withheld.extend(open);
        }
    }

    /// A packet as `to` may read it.
    pub(crate) fn without_withheld(&self, to: NodeIndex, message: Arc<Message>) -> Arc<Message> {
        let is_its = |slot: &&u16| self.migrating.get(slot) == Some(&to);
        let slots = SlotSet::of(self.withheld.iter().filter(is_its).copied());
        if slots.is_empty() {
            return message;
        }
        let mut message = Arc::unwrap_or_clone(message);
        Arc::make_mut(&mut message.header.slots).remove_all(&slots);
        if let Body::Update(update) = &mut message.body
            && update.id == self.me().id
        {
            Arc::make_mut(&mut update.slots).remove_all(&slots);
        }
        Arc::new(message)
    }

    /// A slot begins to move to `taker`.
    pub(crate) fn give(&mut self, slot: u16, taker: NodeIndex) {
        self.migrating.insert(slot, taker);
        if let Some(taken) = self.taken.get_mut(&slot).filter(|taken| taken.giver == taker) {
            taken.since = self.nodes[taker].talk;
        }
        self.withhold();
        self.ask_takers();
    }

    /// Pings those who may have taken what is not claimed here: their answers tell.
    pub(crate) fn ask_takers(&mut self) {
        let takers = self.withheld.iter().filter_map(|slot| self.migrating.get(slot).copied());
        let mut takers: Vec<_> = takers.collect();
        takers.dedup();
        takers.into_iter().for_each(|taker| self.ping(taker));
    }

    /// A slot that came from `giver` is here now.
    pub(crate) fn note_taken(&mut self, slot: u16, giver: NodeIndex) {
        if !self.breaks(Flaw::NoHandover) && !self.breaks(Flaw::YieldsTaken) {
            let since = self.nodes[giver].talk;
            let taken = Taken { giver, since, until_epoch: u64::MAX, disputed_since: None };
            self.taken.insert(slot, taken);
            if self.nodes[giver].ping_sent_at.is_none() {
                self.ping(giver);
            }
        }
    }

    /// Whether a claim counts by what both ends were told, if that decides it.
    pub(crate) fn decide_by_order(
        &self,
        (claimant, epoch): (NodeIndex, u64),
        slot: u16,
        is_answer: bool,
    ) -> Option<bool> {
        if self.importing.contains_key(&slot) {
            return Some(false);
        }
        let taken = self.taken.get(&slot).filter(|taken| taken.giver == claimant);
        let is_new = taken.is_none_or(|taken| self.nodes[claimant].talk.is_after(taken.since));
        let is_given = is_answer && is_new && self.migrating.get(&slot) == Some(&claimant);
        if is_given && !self.breaks(Flaw::NoHandover) {
            return Some(true);
        }
        taken.filter(|taken| epoch <= taken.until_epoch).map(|_| false)
    }

    /// `sender` answered: what it does not claim now, it claimed with this epoch or an older one.
    pub(crate) fn note_given_up(&mut self, sender: NodeIndex, header: &Header) {
        if self.taken.is_empty() {
            return;
        }
        let (count, own) = (self.taken.len(), self.me().config_epoch);
        let (now, stale_max) = (self.ms(), STALE_TIMEOUTS * self.settings.node_timeout);
        let talk = self.nodes[sender].talk;
        self.taken.retain(|slot, taken| {
            let is_new = taken.giver == sender && talk.is_after(taken.since);
            if is_new && !header.slots.contains(*slot) {
                taken.until_epoch = taken.until_epoch.min(header.config_epoch);
            }
            if is_new {
                let insists = header.slots.contains(*slot) && header.config_epoch > own;
                taken.disputed_since = taken.disputed_since.or(Some(now)).filter(|_| insists);
                if taken.disputed_since.is_some_and(|since| now - since > stale_max) {
                    return false;
                }
            }
            // The others have an older epoch anyway.
            taken.until_epoch > own
        });
        if self.taken.len() != count {
            self.save(Save::Later);
        }
    }

    /// Whether the giver of a slot that was taken says, having heard of it, that it has it with a
    /// newer epoch. It may have been elected in this node's place, and serve it: until that is
    /// known, this node does not.
    #[inline]
    pub(crate) fn is_disputed(&self, slot: u16) -> bool {
        let taken = self.taken.get(&slot);
        taken.is_some_and(|taken| taken.disputed_since.is_some())
    }

    /// `sender`, which may have taken slots from here, said so or not: an answer tells.
    pub(crate) fn ask_if_taken(&mut self, sender: NodeIndex, header: &Header) {
        let claims =
            |(slot, taker): (&u16, &NodeIndex)| *taker == sender && header.slots.contains(*slot);
        if self.nodes[sender].is_master() && self.migrating.iter().any(claims) {
            self.ping(sender);
        }
    }

    /// Whoever claims with a newer epoch what it neither gave nor is given has taken my place: it
    /// followed me when it had given its last slot, and was elected.
    pub(crate) fn forget_giver_that_replaced_me(
        &mut self,
        claimant: NodeIndex,
        epoch: u64,
        slots: &SlotSet,
    ) {
        if self.taken.is_empty() || epoch <= self.me().config_epoch {
            return;
        }
        let moves = |slot: &u16| {
            self.taken.get(slot).is_some_and(|taken| taken.giver == claimant)
                || self.migrating.get(slot) == Some(&claimant)
        };
        if slots.both(&self.me().slots).iter().any(|slot| !moves(&slot)) {
            self.forget_giver(claimant);
        }
    }

    /// A node is no master any more, or unknown.
    pub(crate) fn forget_giver(&mut self, giver: NodeIndex) {
        self.taken.retain(|_, taken| taken.giver != giver);
    }
}
