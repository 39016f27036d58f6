//! Several nodes that decide together, and what goes wrong with them.
//!
//! At most a minority of the nodes is faulty at a time where that is promised. A node counts as
//! faulty until it had time to be asked, to wait out its quarantine and to be adopted again.

use tenure_core::Token;
use tenure_core::memory_store::MemoryStore;

use crate::case::Replicas;
use crate::clock::{Real, SECOND};
use crate::world::{World, span};

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
    /// lease on the others stands against that, so they must have it: not within the few round
    /// trips in which a term is being settled.
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
        // Nodes that know nothing yet quarantine the first who ask, each at its own time.
        for node in &mut self.cluster.nodes {
            node.faulty_until = self.climate.lease * 4;
        }
    }

    /// Something happens to a node such that no more than a minority is faulty.
    pub(crate) fn strike_node(&mut self, fault: NodeFault) {
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
        if fault.frees_silently() && !self.nodes_agree() {
            return None;
        }
        let faulty: Vec<usize> = (0..quorum.nodes()).filter(|node| is_faulty(*node)).collect();
        let others = faulty.iter().filter(|other| **other != node).count();
        (others < faulty_max).then_some(node)
    }

    /// Whether all nodes that are as they should be hold the same term, or none.
    fn nodes_agree(&self) -> bool {
        let (now, resource) = (self.now, &self.resource);
        let sound = self.cluster.nodes.iter().filter(|node| node.faulty_until <= now);
        let mut holds = sound.map(|node| {
            let time = node.server_time(now);
            (node.store.get(time, resource.key()), node.store.token_of(time, resource))
        });
        let first = holds.next();
        holds.all(|held| Some(held) == first)
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
            _ => self.cluster.restart_with(node, now, saved),
        }
        for party in 0..self.parties.len() {
            let again = self.random.share(self.climate.lease, 1, 300);
            self.break_link(party, node, until - now + again);
        }
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
        if self.case.replicas != Replicas::Quorum {
            return;
        }
        let node = self.random.below(self.cluster.nodes.len() as u64) as usize;
        let node = &mut self.cluster.nodes[node];
        node.saved = Some(node.store.clone());
    }

    /// The token that most nodes know of.
    pub(crate) fn majority_token(&self) -> Token {
        let (now, resource) = (self.now, &self.resource);
        let nodes = self.cluster.nodes.iter();
        let tokens: Vec<Token> =
            nodes.map(|node| node.store.token_of(node.server_time(now), resource)).collect();
        let count = |token: &&Token| tokens.iter().filter(|other| other == token).count();
        tokens.iter().max_by_key(count).copied().unwrap_or_default()
    }
}
