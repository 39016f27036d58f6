//! Several nodes that decide together, and what goes wrong with them.
//!
//! At most a minority of the nodes is faulty at a time where that is promised. A node counts as
//! faulty until it had time to be asked, to wait out its quarantine and to be adopted again.

use tenure_core::Token;
use tenure_core::memory_store::MemoryStore;

use crate::case::{History, Leases, Replicas};
use crate::clock::{Real, SECOND};
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::world::{World, span};

/// In how many worlds of several nodes one clock is far ahead.
const CLOCK_AHEAD_PERCENT: u64 = 30;
/// By how much at the most: no node believes a token that lies over a year ahead of its clock.
const CLOCK_AHEAD_MAX: u64 = 2 * 366 * 24 * 60 * 60 * SECOND;

/// One thing that may happen to one of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeFault {
    /// The process ends and starts again later with all of its data.
    Crash,
    /// It starts again with nothing.
    RestartEmpty,
    /// It starts again with what it had saved some time ago.
    RestartOld,
    /// It stands still.
    Pause,
    /// Somebody makes it a replica for a while: it takes no writes.
    ReadOnly,
    /// Some clients do not reach it.
    Cut,
    /// Some clients reach it, but do not hear it.
    CutReplies,
    /// Some clients reach it slowly.
    Slow,
    /// Somebody deletes all keys.
    Flush,
    /// Somebody deletes the leader's key.
    Delete,
    /// Its clock jumps forward.
    ClockForward,
    /// Its clock jumps back.
    ClockBack,
}

impl NodeFault {
    /// Whether it makes a node give its vote away without knowing that it lost anything. Only the
    /// lease on the others stands against that, so they must have it: not while a term is being
    /// settled, and not where the last renewal did not reach them.
    fn frees_silently(self) -> bool {
        matches!(self, NodeFault::ClockForward | NodeFault::Delete)
    }
}

impl World<'_> {
    pub(crate) fn add_nodes(&mut self) {
        for _ in 1..self.climate.nodes {
            let reach = self.climate.lease / 4;
            let ahead = self.random.between(0, 2 * reach) as i64 - reach as i64;
            let (off_ppm, up_for) = (self.drift(), self.random.between(SECOND, 100 * SECOND));
            self.cluster.add_node(ahead, off_ppm, up_for);
        }
        self.set_a_clock_ahead();
        // Nodes that know nothing yet quarantine the first who ask, each at its own time.
        for node in &mut self.cluster.nodes {
            node.faulty_until = self.climate.lease * 4;
        }
    }

    /// In some worlds the clock of one node is far ahead for ever: tokens must not follow it.
    fn set_a_clock_ahead(&mut self) {
        if self.quorum.is_none() || !self.random.percent(CLOCK_AHEAD_PERCENT) {
            return;
        }
        let by = match self.random.percent(50) {
            true => CLOCK_AHEAD_MAX,
            false => self.random.share(self.climate.lease, 1_000, 100_000),
        };
        self.cluster.nodes[0].clock.step_forward(0, by);
    }

    /// Something happens to a node such that no more than a minority is faulty.
    pub(crate) fn strike_node(&mut self, fault: NodeFault) {
        let node = self.node_to_strike(fault);
        if let Some(node) = node.filter(|node| !fault.frees_silently() || self.others_hold(*node)) {
            self.inflict_on_node(node, fault);
        }
    }

    /// The same, whether or not the others hold what this node holds.
    pub(crate) fn strike_exposed_node(&mut self, fault: NodeFault) {
        if let Some(node) = self.node_to_strike(fault) {
            self.inflict_on_node(node, fault);
        }
    }

    /// Something happens to any node.
    pub(crate) fn strike_any_node(&mut self, fault: NodeFault) {
        let node = self.random.below(self.cluster.nodes.len() as u64) as usize;
        self.inflict_on_node(node, fault);
    }

    fn node_to_strike(&mut self, fault: NodeFault) -> Option<usize> {
        let quorum = self.quorum?;
        let faulty_max = quorum.nodes() - quorum.majority();
        let node = match fault {
            // Clocks stay wrong: those of a majority must never be.
            NodeFault::ClockForward | NodeFault::ClockBack => faulty_max,
            _ => quorum.nodes(),
        };
        let node = self.random.below(node as u64) as usize;
        let is_faulty = |node: usize| self.cluster.nodes[node].faulty_until > self.now;
        let faulty: Vec<usize> = (0..quorum.nodes()).filter(|node| is_faulty(*node)).collect();
        let others = faulty.iter().filter(|other| **other != node).count();
        (others < faulty_max).then_some(node)
    }

    /// Whether all other nodes that are as they should be hold what this one holds, for as long.
    fn others_hold(&self, node: usize) -> bool {
        let sound = |other: &usize| self.cluster.nodes[*other].faulty_until <= self.now;
        let mut others = (0..self.cluster.nodes.len()).filter(|other| *other != node).filter(sound);
        let Some((holder, token, ends_at)) = self.held_by(node) else { return true };
        others.all(|other| {
            self.held_by(other).is_some_and(|(other_holder, other_token, other_ends_at)| {
                (other_holder, other_token) == (holder, token) && other_ends_at >= ends_at
            })
        })
    }

    /// Who holds a node, under which token and until when.
    fn held_by(&self, node: usize) -> Option<(&str, Option<Token>, Real)> {
        let node = &self.cluster.nodes[node];
        let (time, key) = (node.server_time(self.now), self.resource.key());
        let left = node.store.time_left(time, key)?.as_nanos() as u64;
        let ends_at = node.clock.real_at(node.clock.at(self.now) + left)?;
        Some((node.store.get(time, key)?, node.store.token_of(time, &self.resource), ends_at))
    }

    fn inflict_on_node(&mut self, node: usize, fault: NodeFault) {
        let lasts = match fault {
            NodeFault::Flush | NodeFault::Delete => 0,
            NodeFault::ClockForward | NodeFault::ClockBack => 0,
            _ => self.outage(),
        };
        self.note("node", || format!("{node}: {fault:?} for {:?}", span(lasts)));
        // To be noticed, to wait out a quarantine, to be adopted.
        let faulty_until = self.now + lasts + self.climate.lease * 5 / 2;
        let known = &mut self.cluster.nodes[node];
        known.faulty_until = known.faulty_until.max(faulty_until);
        let until = self.now + lasts;
        match fault {
            NodeFault::Crash | NodeFault::RestartEmpty | NodeFault::RestartOld => {
                self.restart_node(node, fault, until);
            }
            NodeFault::Pause => known.paused_until = until,
            NodeFault::ReadOnly => known.read_only_until = until,
            NodeFault::Cut | NodeFault::CutReplies | NodeFault::Slow => {
                self.disturb_node(node, fault, until);
            }
            NodeFault::Flush => known.store.flush(),
            NodeFault::Delete => {
                let time = known.server_time(self.now);
                known.store.delete(time, self.resource.key());
            }
            NodeFault::ClockForward => {
                let by = self.random.share(self.climate.lease, 200, 3_000);
                self.cluster.nodes[node].clock.step_forward(self.now, by);
            }
            NodeFault::ClockBack => {
                let by = self.random.share(self.climate.lease, 200, 3_000);
                self.cluster.nodes[node].clock.step_back(self.now, by);
            }
        }
    }

    fn restart_node(&mut self, node: usize, fault: NodeFault, until: Real) {
        let now = self.now;
        self.cluster.nodes[node].paused_until = until;
        let saved: MemoryStore = match (fault, &self.cluster.nodes[node].saved) {
            (NodeFault::RestartOld, Some(saved)) => saved.clone(),
            _ => self.cluster.nodes[node].store.clone(),
        };
        match fault {
            NodeFault::RestartEmpty => {
                let known = &mut self.cluster.nodes[node];
                let started_at = known.server_time(until);
                known.store.restart_empty(started_at);
            }
            _ if self.keeps_life(fault) => self.cluster.nodes[node].store = saved,
            _ => self.cluster.restart_with(node, now, saved),
        }
        for party in 0..self.parties.len() {
            let again = self.random.share(self.climate.lease, 1, 300);
            self.break_link(party, node, until - now + again);
        }
    }

    /// Our own store continues its life after a clean end, unless older data was put in its place.
    fn keeps_life(&self, fault: NodeFault) -> bool {
        let believes_old_data = self.subject.flaw() == Some(Flaw::OldMarkVouches);
        self.case.history == History::Vouched && (fault == NodeFault::Crash || believes_old_data)
    }

    fn disturb_node(&mut self, node: usize, fault: NodeFault, until: Real) {
        for party in 0..self.parties.len() {
            if self.random.percent(40) {
                continue;
            }
            let link = &mut self.parties[party].links[node];
            match fault {
                NodeFault::Cut => {
                    link.loses_requests_until = until;
                    link.loses_replies_until = until;
                    link.deaf_until = until;
                }
                NodeFault::CutReplies => link.loses_replies_until = until,
                _ => link.slow_until = until,
            }
        }
    }

    /// Nodes save what they have, now and then.
    pub(crate) fn save_nodes(&mut self) {
        let node = match self.case.replicas {
            Replicas::Quorum => self.random.below(self.cluster.nodes.len() as u64) as usize,
            _ if !self.case.has(Fault::RestartOld) && !self.case.has(Fault::Astray) => return,
            // After leases were raised, snapshots from before are the interesting ones.
            _ if self.case.leases == Leases::Raised && self.lease_now == self.climate.lease => {
                return;
            }
            _ if self.random.percent(70) => return,
            _ => self.cluster.primary,
        };
        let node = &mut self.cluster.nodes[node];
        node.saved = Some(node.store.clone());
    }

    /// The token that most nodes know of.
    pub(crate) fn majority_token(&self) -> Option<Token> {
        let (now, resource) = (self.now, &self.resource);
        let nodes = self.cluster.nodes.iter();
        let tokens: Vec<Option<Token>> =
            nodes.map(|node| node.store.token_of(node.server_time(now), resource)).collect();
        let count = |token: &&Option<Token>| tokens.iter().filter(|other| other == token).count();
        tokens.iter().max_by_key(count).copied().unwrap_or_default()
    }
}
