//! Operators: they move slots, fail over, and do two things at once.

use store_cluster::{FailoverMode, NodeId, SlotChange, SlotSet};

use super::world::{Event, World};
use crate::network::Host as HostIndex;

/// Slots that are moved by one order, at most: all that a small master has.
const SLOTS_AT_ONCE: usize = 30;

/// What an operator does.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    MoveSlots,
    MoveAll,
    /// The taker has its slots; the giver hears of it.
    FinishMove {
        giver: HostIndex,
        taker: HostIndex,
        slots: Vec<u16>,
    },
    TakeSlots {
        giver: HostIndex,
        taker: HostIndex,
        slots: Vec<u16>,
    },
    Failover(HostIndex),
    Force(HostIndex),
    Takeover(HostIndex),
    TakeoverTwice(HostIndex),
    Bump(HostIndex),
    Replicate(HostIndex, HostIndex),
    Forget(HostIndex, NodeId),
    Crash(HostIndex),
    /// It crashes, and never comes back.
    Bury(HostIndex),
}

impl World {
    pub(crate) fn obey(&mut self, order: Order) {
        self.note(|| format!("operator: {order:?}"));
        match order {
            Order::MoveSlots => {
                let count = self.random.between(1, 6) as usize;
                self.move_slots(count);
            }
            Order::MoveAll => self.move_slots(SLOTS_AT_ONCE),
            Order::TakeSlots { giver, taker, slots } => self.take_slots(giver, taker, slots),
            Order::FinishMove { giver, taker, slots } => self.finish_move(giver, taker, &slots),
            Order::Failover(host) => self.fail_over(host, FailoverMode::Plain),
            Order::Force(host) => self.fail_over(host, FailoverMode::Force),
            Order::Takeover(host) => self.fail_over(host, FailoverMode::Takeover),
            Order::TakeoverTwice(host) => self.take_over_twice(host),
            Order::Bump(host) => {
                self.on(host, |core, now| core.bump_epoch(now));
            }
            Order::Replicate(host, other) => {
                let id = self.hosts[other].id;
                if self.hosts[other].is_up {
                    self.on(host, |core, now| core.replicate(now, id, true).is_ok());
                }
            }
            Order::Forget(host, id) => {
                self.on(host, |core, now| core.forget(now, id).is_ok());
            }
            Order::Crash(host) => self.crash(host),
            Order::Bury(host) => {
                self.crash(host);
                self.hosts[host].is_gone = true;
            }
        }
    }

    /// Says something to a host, if it listens. Whether it did as told.
    fn on(
        &mut self,
        host: HostIndex,
        say: impl FnOnce(&mut store_cluster::Cluster, store_cluster::Now) -> bool,
    ) -> bool {
        let real = self.queue.now();
        if !self.hosts[host].is_working(real) {
            return false;
        }
        let this = &mut self.hosts[host];
        let now = this.now(real);
        let was_voter = this.core.me().is_voter();
        this.core.handle_data(this.data_state());
        let is_done = say(&mut this.core, now);
        self.carry_out(host);
        self.judge_last_slot(host, was_voter);
        is_done
    }

    fn fail_over(&mut self, host: HostIndex, mode: FailoverMode) {
        if self.on(host, |core, now| core.fail_over(now, mode).is_ok()) {
            self.note_failover(host, mode == FailoverMode::Plain);
        }
    }

    /// Two replicas, of one master if there are two, take over at the same moment.
    fn take_over_twice(&mut self, host: HostIndex) {
        let replicas: Vec<HostIndex> = self
            .members()
            .filter(|other| self.hosts[*other].is_up && self.hosts[*other].follows().is_some())
            .collect();
        if replicas.is_empty() {
            return;
        }
        let second = *self.random.pick(&replicas);
        self.fail_over(host, FailoverMode::Takeover);
        self.fail_over(second, FailoverMode::Takeover);
    }

    fn any_master(&mut self) -> Option<HostIndex> {
        let now = self.queue.now();
        let is_master = |host: &HostIndex| {
            self.hosts[*host].is_working(now) && self.hosts[*host].core.me().is_master()
        };
        let masters: Vec<HostIndex> = self.members().filter(is_master).collect();
        (!masters.is_empty()).then(|| *self.random.pick(&masters))
    }

    fn move_slots(&mut self, count: usize) {
        let (Some(giver), Some(taker)) = (self.any_master(), self.any_master()) else { return };
        if giver == taker {
            return;
        }
        let owned: Vec<u16> = self.hosts[giver].core.me().slots.iter().collect();
        let start = match count >= owned.len() {
            true => 0,
            false => self.random.below((owned.len() - count) as u64) as usize,
        };
        let slots: Vec<u16> = owned.into_iter().skip(start).take(count).collect();
        let (from, to) = (self.hosts[giver].id, self.hosts[taker].id);
        for slot in &slots {
            let importing = SlotChange::Importing(from);
            let migrating = SlotChange::Migrating(to);
            let is_open = self.on(taker, |c, now| c.set_slot(now, *slot, importing, false).is_ok())
                && self.on(giver, |c, now| c.set_slot(now, *slot, migrating, false).is_ok());
            if !is_open {
                return;
            }
        }
        let delay = self.random.between(1, 2_000);
        self.queue.after(delay, Event::Order(Order::TakeSlots { giver, taker, slots }));
    }

    fn take_slots(&mut self, giver: HostIndex, taker: HostIndex, slots: Vec<u16>) {
        // Slots that are on their way elsewhere by now are left alone.
        let is_owner = |slot: &u16| {
            let core = &self.hosts[giver].core;
            core.owner(*slot) == Some(core.my_index())
        };
        let slots: Vec<u16> = slots.into_iter().filter(is_owner).collect();
        if slots.is_empty() || self.is_healed() {
            return;
        }
        let id = self.hosts[taker].id;
        let from = self.hosts[giver].id;
        for slot in &slots {
            let is_importing = self.on(taker, |core, now| {
                let importing = SlotChange::Importing(from);
                core.set_slot(now, *slot, importing, false).is_ok()
            });
            let node = SlotChange::Node(id);
            if !is_importing
                || !self.on(taker, |c, now| c.set_slot(now, *slot, node, false).is_ok())
            {
                break;
            }
            self.outcome.slots_moved += 1;
            self.judge.has_voters_by_hand = true;
        }
        let delay = self.random.between(800, 2_500);
        self.queue.after(delay, Event::Order(Order::FinishMove { giver, taker, slots }));
    }

    fn finish_move(&mut self, giver: HostIndex, taker: HostIndex, slots: &[u16]) {
        let id = self.hosts[taker].id;
        for slot in slots {
            let this = &self.hosts[taker];
            let has_it = this.is_up
                && this.held.is_empty()
                && this.core.owner(*slot) == Some(this.core.my_index());
            let node = SlotChange::Node(id);
            if has_it {
                self.on(giver, |core, now| core.set_slot(now, *slot, node, false).is_ok());
            }
        }
    }

    /// The only master is dead for good: nobody can vote, so an operator decides.
    fn take_over_all(&mut self) {
        let now = self.queue.now();
        let is_heir = |host: &HostIndex| {
            self.hosts[*host].is_working(now) && self.hosts[*host].follows().is_some()
        };
        if let Some(heir) = self.members().find(is_heir) {
            self.obey(Order::Takeover(heir));
        }
    }

    /// Closes what is open, and gives slots that nobody claims to somebody.
    pub(crate) fn fix(&mut self) {
        self.note(|| "operator: fix".to_owned());
        let mut claimed = SlotSet::default();
        for host in self.members() {
            if self.hosts[host].is_serving_master() {
                let slots = std::sync::Arc::clone(&self.hosts[host].core.me().slots);
                slots.iter().for_each(|slot| _ = claimed.insert(slot));
            }
            for slot in self.hosts[host].core.open_slots() {
                let stable = SlotChange::Stable;
                self.on(host, |core, now| core.set_slot(now, slot, stable, false).is_ok());
            }
        }
        let missing = SlotSet::of((0..16_384).filter(|slot| !claimed.contains(*slot)));
        if missing.is_empty() {
            return;
        }
        let is_serving = |host: &HostIndex| self.hosts[*host].is_serving_master();
        let Some(host) = self.members().find(is_serving) else { return self.take_over_all() };
        let core = &self.hosts[host].core;
        let owned = SlotSet::of(missing.iter().filter(|slot| core.owner(*slot).is_some()));
        self.note(|| format!("operator: {host} gets {missing:?}"));
        self.on(host, |core, now| {
            _ = core.delete_slots(now, &owned);
            core.add_slots(now, &missing).is_ok()
        });
        self.on(host, |core, now| core.bump_epoch(now));
    }
}
