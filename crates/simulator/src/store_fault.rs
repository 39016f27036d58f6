//! What goes wrong with a store that decides alone.

use tenure_core::ServerTime;
use tenure_core::protocol::Request;

use crate::algorithm::Op;
use crate::case::{History, Replicas};
use crate::clock::MILLISECOND;
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::world::{Event, World, span};

impl World<'_> {
    pub(crate) fn inflict_on_store(&mut self, fault: Fault) {
        let now = self.now;
        match fault {
            Fault::ServerPause => {
                let lasts = self.outage();
                self.cluster.primary().paused_until = now + lasts;
            }
            Fault::Denied => {
                let lasts = self.outage();
                self.cluster.primary().denies_until = now + lasts;
            }
            Fault::RestartEmpty => self.restart_empty(),
            Fault::RestartOld | Fault::RestartTail | Fault::RestartKept => self.restart(fault),
            Fault::SlotLost | Fault::SlotMoved => self.move_slot(fault),
            Fault::Failover => self.fail_over(),
            Fault::IsolatedPrimary => self.isolate_primary(),
            Fault::FlushAmongVeterans => {
                let are_veterans =
                    self.parties.iter().all(|place| place.is_alive && place.has_seen_token);
                if are_veterans && !self.is_newcomer_under_way() {
                    self.flush();
                }
            }
            Fault::FlushForNewcomer => {
                self.flush();
                let party = self.random.below(self.parties.len() as u64) as usize;
                if Some(party) != self.leader() && self.parties[party].is_alive {
                    self.end_process(party);
                    self.after(MILLISECOND, Event::Starts { party });
                }
            }
            Fault::ClockCorrected => {
                let by = std::mem::take(&mut self.clock_ahead);
                self.cluster.primary().clock.step_back(now, by);
            }
            Fault::ServerClockBack => {
                let by = self.random.share(self.climate.lease, 200, 8_000);
                self.cluster.primary().clock.step_back(now, by);
            }
            _ => {
                let by = self.random.share(self.climate.lease, 200, 3_000);
                self.cluster.primary().clock.step_forward(now, by);
            }
        }
    }

    /// Whether a copy of a request is under way that was sent before its sender saw any token: to
    /// the store it is that of a newcomer.
    fn is_newcomer_under_way(&self) -> bool {
        self.events().any(|event| match event {
            Event::Arrive(letter) => match &letter.op {
                Op::Call(Request::Acquire(acquire)) => acquire.floor.is_none(),
                _ => false,
            },
            _ => false,
        })
    }

    fn flush(&mut self) {
        self.cluster.primary().store.flush();
        self.attach_replicas();
    }

    fn restart_empty(&mut self) {
        let down_for = self.random.share(self.climate.lease, 10, 300);
        let now = self.now;
        let node = self.cluster.primary();
        node.paused_until = now + down_for;
        let started_at = ServerTime(node.server_time(now).0 + down_for / 1_000);
        node.store.restart_empty(started_at);
        self.attach_replicas();
        let node = self.cluster.primary;
        self.break_links_to(node);
    }

    /// The store starts again with data of some age. What it says about its life follows from that.
    fn restart(&mut self, fault: Fault) {
        let down_for = self.random.share(self.climate.lease, 10, 300);
        let lost_max = self.random.share(self.climate.lease, 0, 1_000);
        let (now, node) = (self.now, self.cluster.primary);
        let data = match fault {
            Fault::RestartOld => self.cluster.nodes[node].saved.clone(),
            Fault::RestartTail => self.cluster.on_disk(now, lost_max),
            _ => None,
        };
        let vouches = self.case.history == History::Vouched;
        let keeps_life = match (fault, self.subject.flaw()) {
            // Our own store ended cleanly and finds everything as it left it.
            (Fault::RestartKept, _) => vouches,
            (_, Some(Flaw::OldMarkVouches)) => vouches,
            _ => false,
        };
        let data = data.unwrap_or_else(|| self.cluster.nodes[node].store.clone());
        self.note("store", || format!("starts again ({fault:?}), the same life: {keeps_life}"));
        match keeps_life {
            true => self.cluster.nodes[node].store = data,
            false => self.cluster.restart_with(node, now + down_for, data),
        }
        self.cluster.nodes[node].paused_until = now + down_for;
        self.attach_replicas();
        self.break_links_to(node);
    }

    /// Another node of a cluster, which has run for long, owns the slot from now on.
    fn move_slot(&mut self, fault: Fault) {
        let old = self.cluster.primary;
        let up_for = self.random.share(self.climate.lease, 10_000, 100_000);
        let reach = self.climate.lease / 4;
        let ahead = self.random.between(0, 2 * reach) as i64 - reach as i64;
        let off_ppm = self.drift();
        self.cluster.move_slot(self.now, (ahead, off_ppm, up_for), fault == Fault::SlotMoved);
        self.cluster.nodes[old].is_alive = false;
        self.break_links_to(old);
    }

    /// The next connection of a process leads to a server with old data that takes no writes: a
    /// replica, or a primary of the past.
    pub(crate) fn lead_astray(&mut self, party: usize) {
        if self.parties[party].is_alive {
            let node = self.cluster.add_stale_node();
            self.parties[party].links[0].strays_to = Some(node);
            let down_for = self.random.below(20 * MILLISECOND);
            self.break_link(party, 0, down_for);
        }
    }

    /// The replicas of the primary begin anew from a copy of it.
    pub(crate) fn attach_replicas(&mut self) {
        self.cluster.detach_replicas();
        if self.case.has(Fault::RestartTail) {
            self.cluster.keep_on_disk();
        }
        let count = match self.case.replicas {
            Replicas::None
            | Replicas::Quorum
            | Replicas::Slots
            | Replicas::Swapped
            | Replicas::Observed => 0,
            Replicas::Lagging => 1,
            Replicas::Confirming => self.climate.replicas,
        };
        for _ in 0..count {
            let reach = self.climate.lease / 1_000 * self.case.clocks_apart;
            let ahead = self.random.between(0, 2 * reach) as i64 - reach as i64;
            let off_ppm = self.drift();
            self.cluster.attach_replica(self.now, ahead, off_ppm);
        }
    }

    fn promote_replica(&mut self) {
        let is_strict = self.case.replicas == Replicas::Confirming;
        let lag = match self.random.percent(50) {
            // What was confirmed was heard of: there the lag is drawn for each write.
            _ if is_strict => 0,
            true => self.random.below(50 * MILLISECOND),
            false => self.random.below(self.climate.lag_max + 1),
        };
        self.note("store", || format!("fails over to a replica {:?} behind", span(lag)));
        let choice = match self.cluster.replicas_of(self.cluster.primary) {
            0 | 1 => 0,
            // Not always the one that heard most.
            count => self.random.below(count as u64) as usize,
        };
        self.cluster.promote_replica(self.now, lag, choice);
        // Others stay with the old primary for as long as that lives; new ones come.
        self.attach_replicas();
    }

    fn fail_over(&mut self) {
        let old = self.cluster.primary;
        self.cluster.nodes[old].is_alive = false;
        self.promote_replica();
        self.break_links_to(old);
    }

    /// The replica takes over while the old primary goes on serving whoever still reaches it.
    fn isolate_primary(&mut self) {
        let old = self.cluster.primary;
        self.promote_replica();
        for party in 0..self.parties.len() {
            if self.random.percent(50) {
                let down_for = self.outage();
                self.break_links(party, down_for);
            }
        }
        let found_out_after = self.random.share(self.climate.lease, 500, 5_000);
        self.after(found_out_after, Event::Demoted { node: old });
    }

    pub(crate) fn demoted(&mut self, node: usize) {
        self.cluster.nodes[node].is_alive = false;
        self.break_links_to(node);
    }

    fn break_links_to(&mut self, node: usize) {
        for party in 0..self.parties.len() {
            if self.parties[party].links[0].node == node {
                let down_for = self.random.share(self.climate.lease, 1, 600);
                self.break_link(party, 0, down_for);
            }
        }
    }
}
