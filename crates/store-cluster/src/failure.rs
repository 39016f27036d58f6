//! Who cannot be reached, by whose word, and whether requests are served.
//!
//! ```text
//! fine ── no answer for the time-out ─► suspected ── a majority of masters says so ─► failed
//!   ▲                                       │ an answer                                 │
//!   └───────────────────────────────────────┴── an answer, and the clearing rule ───────┘
//! ```

use crate::cluster::{Cluster, Save};
use crate::flaw::Flaw;
use crate::message::{Body, Flags, Message};
use crate::node::{NodeIndex, Report};
use crate::output::Event;

/// How many times the node time-out a report counts, and a failed master with slots stays failed.
const REPORT_TIMEOUTS: u64 = 2;
/// A master that starts serves nobody for so long: its replica may have been promoted meanwhile.
const START_DELAY_MS: u64 = 2_000;
const REJOIN_MIN_MS: u64 = 500;
const REJOIN_MAX_MS: u64 = 5_000;

impl Cluster {
    /// I cannot reach it.
    pub(crate) fn suspect(&mut self, index: NodeIndex) {
        if self.nodes[index].is_fine() {
            self.nodes[index].set(Flags::SUSPECTED);
            self.has_suspects = true;
            self.log(Event::Suspected(self.nodes[index].id));
        }
        self.fail_if_agreed(index);
    }

    /// `from`, a master, cannot reach it either.
    pub(crate) fn add_report(&mut self, index: NodeIndex, from: NodeIndex) {
        let at = self.ms();
        let reports = &mut self.nodes[index].reports;
        match reports.iter_mut().find(|report| report.from == from) {
            Some(report) => report.at = at,
            None => reports.push(Report { from, at }),
        }
        self.fail_if_agreed(index);
    }

    pub(crate) fn withdraw_report(&mut self, index: NodeIndex, from: NodeIndex) {
        self.nodes[index].reports.retain(|report| report.from != from);
    }

    pub(crate) fn count_reports(&mut self, index: NodeIndex) -> usize {
        let oldest = self.ms().saturating_sub(REPORT_TIMEOUTS * self.settings.node_timeout);
        if !self.breaks(Flaw::ReportsNeverExpire) {
            self.nodes[index].reports.retain(|report| report.at >= oldest);
        }
        let is_voter = |report: &&Report| self.nodes[report.from].is_voter();
        self.nodes[index].reports.iter().filter(is_voter).count()
    }

    /// Failed, if a majority of the masters with slots says so, and I do.
    fn fail_if_agreed(&mut self, index: NodeIndex) {
        if !self.nodes[index].is_suspected() || self.nodes[index].is_failed() {
            return;
        }
        let own = usize::from(self.me().is_voter());
        let agreeing = self.count_reports(index) + own;
        if agreeing < self.quorum() && !self.breaks(Flaw::FailByOwnOpinion) {
            return;
        }
        self.set_failed(index, true);
        if !self.breaks(Flaw::FailNotBroadcast) {
            let body = Body::Fail(self.nodes[index].id);
            self.broadcast(Message { header: self.header(), body });
        }
    }

    /// A majority of the masters with slots: of those that have some now, not at the last tick.
    pub(crate) fn quorum(&self) -> usize {
        self.size() / 2 + 1
    }

    pub(crate) fn set_failed(&mut self, index: NodeIndex, is_own_finding: bool) {
        let now = self.ms();
        let node = &mut self.nodes[index];
        node.clear(Flags::SUSPECTED);
        node.set(Flags::FAILED);
        node.failed_at = now;
        let id = node.id;
        self.log(Event::Failed { id, is_own_finding });
        self.save(Save::Later);
    }

    /// It answered.
    pub(crate) fn note_answer(&mut self, index: NodeIndex) {
        let now = self.ms();
        let node = &mut self.nodes[index];
        node.pong_at = Some(now);
        node.ping_sent_at = None;
        if node.is_suspected() {
            node.clear(Flags::SUSPECTED);
            let id = node.id;
            self.log(Event::Recovered(id));
        }
        self.clear_failure(index);
    }

    /// A failed node that answers is fine again: at once if it serves nothing, else only when its
    /// replicas had the time to take over and did not.
    fn clear_failure(&mut self, index: NodeIndex) {
        let now = self.ms();
        let wait = REPORT_TIMEOUTS * self.settings.node_timeout;
        let node = &self.nodes[index];
        let is_over = !node.is_voter() || now - node.failed_at.min(now) > wait;
        if node.is_failed() && is_over && !self.breaks(Flaw::FailNeverCleared) {
            self.nodes[index].clear(Flags::FAILED);
            self.log(Event::Recovered(self.nodes[index].id));
            self.save(Save::Later);
        }
    }

    /// Whether requests are served: every slot has an owner that works, and I reach most masters.
    pub(crate) fn update_state(&mut self) {
        let now = self.ms();
        let reachable = self.count_reachable();
        let first_look_at = *self.first_look_at.get_or_insert(now);
        let is_minority = reachable < self.quorum() && !self.breaks(Flaw::NoMinorityRule);
        if is_minority {
            self.minority_at = Some(now);
        }
        let is_ok = !is_minority
            && !self.is_claim_unsaved()
            && (!self.settings.requires_full_coverage || self.is_covered());
        if is_ok == self.is_ok {
            return;
        }
        if is_ok && self.me().is_master() {
            let rejoin = self.settings.node_timeout.clamp(REJOIN_MIN_MS, REJOIN_MAX_MS);
            let is_rejoining = self.minority_at.is_some_and(|at| now - at < rejoin);
            let is_starting = now - first_look_at < START_DELAY_MS;
            if is_starting || (is_rejoining && !self.breaks(Flaw::NoRejoinDelay)) {
                return;
            }
        }
        self.is_ok = is_ok;
        self.are_routes_changed = true;
        self.log(Event::StateChanged { is_ok });
    }

    /// How many masters with slots are reached.
    ///
    /// Redis waits until the others are suspected, which is up to half a time-out later. A pong
    /// older than the time-out, whoever told of it, already means that nobody here reaches them:
    /// answered pings keep it younger than half of that.
    fn count_reachable(&mut self) -> usize {
        let (now, timeout) = (self.ms(), self.settings.node_timeout);
        let (mut reachable, mut has_suspects) = (0, false);
        for (index, node) in self.nodes.iter() {
            has_suspects |= node.is_suspected();
            if node.is_voter() {
                let is_heard = node.pong_at.is_some_and(|at| now - at.min(now) <= timeout);
                reachable += usize::from(index == self.me || (node.is_fine() && is_heard));
            }
        }
        self.has_suspects = has_suspects;
        reachable
    }

    fn is_covered(&self) -> bool {
        let is_failed_owner =
            self.nodes.iter().any(|(_, node)| node.is_voter() && node.is_failed());
        self.slots_owned == usize::from(store_resp::slot::SLOT_COUNT) && !is_failed_owner
    }
}
