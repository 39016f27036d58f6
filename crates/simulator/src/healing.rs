//! How faults end, and what is due in a world without them.

use tenure_core::Reason;
use tenure_core::protocol::Request;

use crate::algorithm::Want;
use crate::clock::{MILLISECOND, Real, SECOND};
use crate::fault::Fault;
use crate::network::RECONNECTS_WITHIN;
use crate::party::Link;
use crate::promise::Promise;
use crate::world::{Event, World, span};

/// How soon after a release a healed world must have its next leader.
const RELEASE_HEARD_WITHIN: u64 = SECOND + RECONNECTS_WITHIN;

impl World<'_> {
    /// Everything works again: from here on a leader is due.
    pub(crate) fn heal(&mut self) {
        self.note("world", || "all faults are healed");
        self.healed_at = Some(self.now);
        self.led_since_heal = self.leader().is_some();
        for node in 0..self.cluster.nodes.len() {
            self.cluster.nodes[node].paused_until = 0;
            self.cluster.nodes[node].denies_until = 0;
            self.cluster.nodes[node].read_only_until = 0;
            let is_current = self.quorum.is_some() || node == self.cluster.primary;
            self.cluster.nodes[node].is_alive &= is_current;
        }
        self.operator_says(Request::Resume);
        for party in 0..self.parties.len() {
            self.heal_party(party);
        }
        let due_at = self.now + self.leader_due_within();
        self.settled_at = due_at;
        self.at(due_at, Event::LeaderDue { since: self.now });
        let lease = self.climate.lease;
        if self.case.has(Fault::Astray) {
            self.at(due_at + lease / 4, Event::Stray);
        }
        self.at(due_at + lease / 2, Event::Unseat);
        self.at(due_at + 2 * lease, Event::Unseat);
        if self.watches_pauses() {
            self.at(due_at + 2 * lease + 2 * RELEASE_HEARD_WITHIN, Event::ElectionPauses);
        }
    }

    fn heal_party(&mut self, party: usize) {
        let now = self.now;
        if self.parties[party].is_held(now) {
            self.parties[party].paused_until = now;
            self.parties[party].starved_until = now;
            self.after(0, Event::Resumed { party });
        }
        if self.parties[party].clock.real_at(u64::MAX / 2).is_none() {
            let off_ppm = self.drift();
            self.after(0, Event::Thawed { party, off_ppm });
        }
        self.parties[party].beats_fail_until = 0;
        self.parties[party].links.iter_mut().for_each(Link::heal);
        if !self.parties[party].is_alive {
            return self.start_process(party);
        }
        if self.parties[party].work.is_told_to_stop {
            self.stop_work(party);
        }
        let down_for = self.random.below(RECONNECTS_WITHIN);
        self.break_links(party, down_for);
        self.make_want(party, Want::Ready(true));
        self.make_want(party, Want::Paused(false));
    }

    /// Q + ttl + 1 s, for the longest lease that any process was told of, on a store clock that may
    /// be slow, plus the time to connect again.
    pub(crate) fn leader_due_within(&self) -> Real {
        let ttl = self.climate.lease;
        let quarantine = self.fleet_longest.max(ttl) / 100 * 101 + 2 * MILLISECOND;
        let due =
            (quarantine + ttl + self.climate.lock_delay) / 100 * 101 + SECOND + RECONNECTS_WITHIN;
        // Whoever runs jobs finishes one, and asks again, before it leads by another.
        if self.case.runs_jobs() { due + 2 * ttl } else { due }
    }

    pub(crate) fn leader_due(&mut self, since: Real) {
        if !self.led_since_heal {
            let (within, healed_at) = (span(self.now - since), self.healed_at);
            let after = if healed_at == Some(since) { "healing" } else { "a pause" };
            let what = format!("nobody led within {within:?} after {after}");
            self.judge.broken(Promise::P6, self.now, what);
        }
        // Whatever was asked before healing has come to its end by now.
        for party in self.parties.iter_mut().filter(|party| party.is_alive) {
            let unsettled = party.algorithm.unsettled_hand_overs();
            if unsettled > 0 {
                let what = format!("{} has {unsettled} hand-overs without one outcome", party.name);
                self.judge.broken(Promise::P6, self.now, what);
            }
        }
    }

    /// After a release the next leader comes at once, unless a loss of data that this case does not
    /// cover is noticed only then, or somebody saw a term on an isolated primary that nobody
    /// confirmed: either costs one more quarantine.
    pub(crate) fn successor_due_within(&self) -> u64 {
        // A forged word that somebody leads again puts everybody off once more.
        let is_heard = !self.storms && !self.case.has(Fault::IsolatedPrimary);
        match self.case.is_promised() && is_heard {
            // The word has to find its way back from a server that takes no writes.
            true if self.case.has(Fault::Astray) => RELEASE_HEARD_WITHIN + self.climate.lease / 2,
            true => RELEASE_HEARD_WITHIN,
            false => self.leader_due_within(),
        }
    }

    pub(crate) fn successor_due(&mut self, terms: u64, within: u64) {
        if self.judge.terms() <= terms {
            let within = span(within);
            let what = format!("nobody led within {within:?} after the leader stepped down");
            self.judge.broken(Promise::P6, self.now, what);
        }
    }

    /// In a healed world a leader keeps its term until it gives it up.
    pub(crate) fn judge_deposed(&mut self, party: usize, reason: &Reason) {
        if self.now >= self.settled_at && matches!(reason, Reason::Lost(_)) {
            let name = self.parties[party].name;
            let what = format!("{name} was deposed in a healed world: {reason}");
            self.judge.broken(Promise::P6, self.now, what);
        }
    }

    /// Connections come and go in healed worlds too, and some find a server with old data first.
    pub(crate) fn stray(&mut self) {
        if let Some(leader) = self.leader() {
            self.lead_astray(leader);
        }
    }

    pub(crate) fn unseat(&mut self) {
        if self.case.runs_jobs() {
            return;
        }
        if self.case.has(Fault::Astray) && self.random.percent(50) {
            self.stray();
        }
        match self.leader() {
            Some(leader) if self.random.percent(50) => self.make_want(leader, Want::Resign),
            Some(_) => self.operate(Fault::AskToResign),
            None => {}
        }
    }
}
