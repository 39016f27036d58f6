//! What the judge is shown of sentinels, and when.

use std::cmp::Reverse;

use store_replica::{History, ReplicationId};
use store_sentinel::{EventKind, FailoverStep, Output, Question, Report, ReportedRole};

use super::climate::{sentinel_named, server_address, server_at};
use super::judge::Rule;
use super::world::World;
use crate::queue::Real;

impl World {
    /// What is decided is judged when it is decided.
    pub(crate) fn judge_decision(&mut self, node: usize, output: &Output) {
        let real = self.queue.now();
        match output {
            Output::Tell(event) if event.kind == EventKind::SelectedReplica => {
                self.judge_choice(node);
            }
            Output::Tell(event) if event.kind == EventKind::NewEpoch => {
                let epoch = self.nodes[node].sentinel.current_epoch();
                self.judge.see_epoch(real, node, epoch);
            }
            Output::Tell(event) if event.kind == EventKind::TryFailover => {
                self.judge.see_try();
                let address = self.nodes[node].group().address().clone();
                let count = 1 + self.judge.count_down(real, node, &address);
                if count < self.climate.quorum {
                    let quorum = self.climate.quorum;
                    self.judge.broken(Rule::S4, real, || {
                        format!("sentinel {node} begins when {count} of {quorum} say down")
                    });
                }
                self.judge_tilt(node, "begins a failover");
                self.judge.forget_reconfigured(node);
            }
            Output::Answer { answer, .. } if answer.is_down => {
                self.judge_tilt(node, "says that the primary is down");
            }
            Output::Send { link, question: Question::Follow(Some(_)) } => {
                let at = &self.nodes[node];
                let is_leading =
                    matches!(at.group().failover_step(), Some(FailoverStep::Reconfigure { .. }));
                let dialed = at.links.get(link).and_then(|id| at.dialed.get(id));
                let Some(server) = dialed.and_then(|dialed| dialed.server) else { return };
                if is_leading {
                    let others = self.judge.see_reconfigured(real, node, server);
                    let max = self.climate.parallel_syncs;
                    if others >= max {
                        self.judge.broken(Rule::S5, real, || {
                            format!("sentinel {node} turns {} at once, not {max}", others + 1)
                        });
                    }
                }
            }
            _ => {}
        }
    }

    /// What is told is judged when it is told: before that, a crash makes it not to have been.
    pub(crate) fn judge_event(
        &mut self,
        node: usize,
        kind: EventKind,
        text: &str,
        epoch: Option<u64>,
    ) {
        let real = self.queue.now();
        match kind {
            EventKind::TryFailover => self.outcome.tries += 1,
            EventKind::PromotedReplica => self.outcome.promotions += 1,
            EventKind::Voted => {
                let mut words = text.split(' ');
                let leader = words.next().and_then(sentinel_named);
                let epoch = words.next().and_then(|word| word.parse().ok());
                if let (Some(leader), Some(epoch)) = (leader, epoch) {
                    self.judge.see_vote(real, node, leader, epoch);
                }
            }
            EventKind::ElectedLeader => {
                self.outcome.elections += 1;
                let sentinels = self.nodes.len();
                // Sentinels that have not met cannot know what a majority of all is.
                if let Some(epoch) = epoch.filter(|_| self.has_begun) {
                    self.judge.see_leader(real, node, epoch, sentinels);
                }
            }
            _ => {}
        }
    }

    /// Whoever stood still decides nothing for a while.
    pub(crate) fn judge_tilt(&mut self, node: usize, what: &str) {
        const TILT: Real = 28_000;
        let real = self.queue.now();
        let stood_still_at = self.nodes[node].stood_still_at;
        if stood_still_at.is_some_and(|at| real - at < TILT) {
            self.judge.broken(Rule::S4, real, || format!("sentinel {node} {what} in TILT"));
        }
    }

    fn judge_choice(&mut self, node: usize) {
        /// A report may be so old, and counts whole seconds.
        const AGE_SLACK: u64 = 7_000;
        let real = self.queue.now();
        let at = &self.nodes[node];
        let Some(FailoverStep::SendPromotion { to }) = at.group().failover_step() else { return };
        let Some(chosen) = server_at(to) else { return };
        let server = &self.stores.servers[chosen];
        let age = server.replication.link_down_for(server.now(real)).unwrap_or_default();
        let age_max = at.group().link_down_max(at.now(real));
        if age.as_millis() as u64 > age_max.as_millis() as u64 + AGE_SLACK {
            self.judge.broken(Rule::S3, real, || {
                format!("server {chosen} is chosen after {age:?} alone, at most {age_max:?}")
            });
        }
        let Some(history) = self.newest_history(node) else { return };
        let rank =
            |report: &Report| (!is_of(report, history), report.priority, Reverse(report.offset));
        let Some(own) = self.judge.heard.get(&(node, chosen)).map(|heard| rank(&heard.report))
        else {
            return;
        };
        let others = (0..self.climate.servers).filter(|server| *server != chosen);
        let mut good = others.filter(|server| self.is_surely_good(node, *server));
        let better = good.find(|server| rank(&self.judge.heard[&(node, *server)].report) < own);
        if let Some(better) = better {
            self.judge.broken(Rule::S3, real, || {
                format!("server {chosen} is chosen although {better} is better")
            });
        }
    }

    /// The history of the primary, where it is sure that a sentinel knows it: the primary has said
    /// it, and begun no other one since.
    fn newest_history(&self, node: usize) -> Option<History> {
        let primary = server_at(self.nodes[node].group().address())?;
        let history = self.stores.servers[primary].replication.history();
        let told = &self.judge.heard.get(&(node, primary))?.report;
        let is_known = told.role == Some(ReportedRole::Primary)
            && told.history.as_deref() == Some(history.id().as_str());
        is_known.then_some(*history)
    }

    /// Whether a replica could be chosen beyond doubt.
    fn is_surely_good(&self, node: usize, server: usize) -> bool {
        let real = self.queue.now();
        let at = &self.nodes[node];
        let open = at.dialed.values().filter(|d| d.server == Some(server) && d.is_open).count();
        let address = server_address(server);
        let is_replica = at.group().replicas().any(|replica| *replica == address);
        let pong_at = self.judge.pong_at.get(&(node, server)).copied().unwrap_or(0);
        let Some(heard) = self.judge.heard.get(&(node, server)) else { return false };
        is_replica
            && open == 2
            && real - pong_at < 900
            && real - heard.asked_at < 4_000
            && heard.report.link_down_for.as_millis() < 5_000
    }
}

/// Whether the data that a server told of is of a history, or of its start.
fn is_of(report: &Report, history: History) -> bool {
    let is = |told: &Option<String>, id: ReplicationId| told.as_deref() == Some(id.as_str());
    let is_start = history.second().is_some_and(|second| {
        // Only replicas tell how much they have.
        let is_replica = report.role == Some(ReportedRole::Replica);
        is_replica && is(&report.history, second.id) && report.offset <= second.until
    });
    let is_own = is(&report.history, history.id()) || is(&report.second_history, history.id());
    is_own || is_start
}
