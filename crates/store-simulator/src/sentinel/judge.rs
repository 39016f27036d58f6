//! What must hold, and what was seen to break it.
//!
//! The judge sees what leaves sentinels and what servers really are. What a flawed sentinel is made
//! to believe does not reach it.

use std::collections::BTreeMap;
use std::fmt;

use store_replica::Address;
use store_sentinel::Report;

use crate::queue::Real;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// In an epoch a sentinel votes once, and at most one is elected, by a majority of all, once
    /// they have met.
    S1,
    /// An epoch's configuration is one address, and once healed all sentinels and servers agree.
    S2,
    /// Nobody is promoted who was without its primary for too long, or while a better one is there:
    /// one that has the data of the primary's newest history, then by priority and offset.
    S3,
    /// A failover begins when a quorum holds the primary for down, and never in TILT.
    S4,
    /// No more replicas are turned to the new primary at once than `parallel-syncs` says.
    S5,
    /// An epoch counts the failovers that were tried: nobody believes one that leaves no room for
    /// more.
    S6,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// When, in milliseconds.
    pub at: Real,
    /// How.
    pub what: String,
}

/// What a server told a sentinel last, and when.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) asked_at: Real,
    pub(crate) report: Report,
}

#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The one rule that is looked at, if it is one.
    pub(crate) only: Option<Rule>,
    pub(crate) violation: Option<Violation>,
    /// Who voted for whom, by epoch.
    votes: BTreeMap<u64, BTreeMap<usize, usize>>,
    leaders: BTreeMap<u64, usize>,
    /// How many failovers were begun, those included that a crash made not to have been.
    begun: u64,
    addresses: BTreeMap<u64, Address>,
    /// When a sentinel last said that a primary is down.
    said_down: BTreeMap<(usize, Address), Real>,
    /// By sentinel and server.
    pub(crate) heard: BTreeMap<(usize, usize), Heard>,
    pub(crate) pong_at: BTreeMap<(usize, usize), Real>,
    /// Servers that a sentinel told to follow a new primary, and when.
    reconfigured: BTreeMap<usize, BTreeMap<usize, Real>>,
}

impl Judge {
    pub(crate) fn broken(&mut self, rule: Rule, at: Real, what: impl FnOnce() -> String) {
        let is_watched = self.only.is_none_or(|only| only == rule);
        if is_watched && self.violation.is_none() {
            self.violation = Some(Violation { rule, at, what: what() });
        }
    }

    /// A vote left its voter.
    pub(crate) fn see_vote(&mut self, at: Real, voter: usize, leader: usize, epoch: u64) {
        let before = *self.votes.entry(epoch).or_default().entry(voter).or_insert(leader);
        if before != leader {
            self.broken(Rule::S1, at, || {
                format!("sentinel {voter} voted for {before} and for {leader} in epoch {epoch}")
            });
        }
    }

    /// A sentinel holds itself for elected.
    pub(crate) fn see_leader(&mut self, at: Real, leader: usize, epoch: u64, sentinels: usize) {
        let before = *self.leaders.entry(epoch).or_insert(leader);
        if before != leader {
            self.broken(Rule::S1, at, || format!("{before} and {leader} lead in epoch {epoch}"));
        }
        let votes = self.votes.get(&epoch);
        let votes = votes.map_or(0, |votes| votes.values().filter(|for_| **for_ == leader).count());
        if votes < sentinels / 2 + 1 {
            self.broken(Rule::S1, at, || {
                format!(
                    "sentinel {leader} leads in epoch {epoch} with {votes} of {sentinels} votes"
                )
            });
        }
    }

    /// A failover begins.
    pub(crate) fn see_try(&mut self) {
        self.begun += 1;
    }

    /// A sentinel's epoch is greater than before. Whoever begins a failover tells that afterwards.
    pub(crate) fn see_epoch(&mut self, at: Real, who: usize, epoch: u64) {
        let begun = self.begun;
        if epoch > begun + 1 {
            self.broken(Rule::S6, at, || {
                format!("sentinel {who} is in epoch {epoch} after {begun} failovers")
            });
        }
    }

    /// A sentinel's configuration.
    pub(crate) fn see_configuration(
        &mut self,
        at: Real,
        who: usize,
        epoch: u64,
        address: &Address,
    ) {
        if epoch == 0 {
            return;
        }
        let known = self.addresses.entry(epoch).or_insert_with(|| address.clone());
        if known != address {
            let known = known.clone();
            self.broken(Rule::S2, at, || {
                format!("epoch {epoch} is {known}, and {address} for sentinel {who}")
            });
        }
    }

    /// Where the primary was before an epoch, as far as an epoch said so.
    pub(crate) fn address_before(&self, epoch: u64) -> Option<Address> {
        self.addresses.range(..epoch).next_back().map(|(_, address)| address.clone())
    }

    /// A sentinel says that a primary is down.
    pub(crate) fn see_down(&mut self, at: Real, who: usize, address: &Address) {
        self.said_down.insert((who, address.clone()), at);
    }

    /// How many other sentinels have said so of late.
    pub(crate) fn count_down(&self, at: Real, but: usize, address: &Address) -> usize {
        /// An answer counts for five seconds, and may have been on its way for long.
        const LATE_MAX: Real = 40_000;
        let is_late = |said_at: Real| at - said_at > LATE_MAX;
        let said = self.said_down.iter();
        said.filter(|((who, of), said_at)| *who != but && of == address && !is_late(**said_at))
            .count()
    }

    /// A sentinel that leads a failover tells a server to follow the new primary. How many others
    /// it has told that have not come so far.
    pub(crate) fn see_reconfigured(&mut self, at: Real, who: usize, server: usize) -> usize {
        /// Who has not followed by then is not waited for.
        const WAIT_MAX: Real = 9_900;
        let told = self.reconfigured.entry(who).or_default();
        told.retain(|_, told_at| at - *told_at < WAIT_MAX);
        told.insert(server, at);
        told.len() - 1
    }

    /// A server told a sentinel that it follows.
    pub(crate) fn see_followed(&mut self, who: usize, server: usize) {
        self.reconfigured.entry(who).or_default().remove(&server);
    }

    /// A failover begins, or the process does: nobody has been told anything.
    pub(crate) fn forget_reconfigured(&mut self, who: usize) {
        self.reconfigured.remove(&who);
    }

    /// A process began anew: what the last one heard is gone.
    pub(crate) fn forget_heard(&mut self, who: usize) {
        self.heard.retain(|(sentinel, _), _| *sentinel != who);
        self.pong_at.retain(|(sentinel, _), _| *sentinel != who);
        self.forget_reconfigured(who);
    }
}
