//! One election: whether it can have a leader, and whether that leader lasts.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::{HistoryEntry, Leadership, Member, Observation, Vacancy};

use super::finding::{Code, Finding};
use crate::history::{Past, PastTerm, past};
use crate::members::{is_alive, silence};
use crate::output::{duration, plain};

/// How far back changes of leader are counted.
const FLAPPING_WITHIN: Duration = Duration::from_secs(10 * 60);
/// More terms than this within that time are too many.
const TERMS_MAX: usize = 5;

/// What was seen of an election.
pub(super) struct ElectionFacts<'a> {
    pub(super) seen: &'a Observation,
    pub(super) history: &'a [HistoryEntry],
}

impl ElectionFacts<'_> {
    pub(super) fn findings(&self) -> Vec<Finding> {
        if self.never_started() {
            let what = "nobody has ever taken part under this name".to_owned();
            let next = "check name, --prefix and --store; start a candidate with `tenure run`";
            // What somebody else wrote into the record may be why.
            let never_started = Finding::new(Code::NeverStarted, what, next);
            return [never_started].into_iter().chain(self.warnings()).collect();
        }
        let mut found = Vec::new();
        found.extend(self.holder());
        found.extend(self.leader());
        found.extend(self.candidates());
        found.extend(self.not_acquired());
        found.extend(self.pause());
        found.extend(self.duplicates());
        found.extend(self.leases());
        found.extend(self.flapping());
        found.extend(self.warnings());
        found
    }

    fn never_started(&self) -> bool {
        let vacant = matches!(self.seen.leadership, Leadership::Vacant(Vacancy::Free));
        vacant && self.seen.members.is_empty() && self.history.is_empty()
    }

    fn living(&self) -> Vec<&Member> {
        let now = self.seen.server_time;
        self.seen.members.iter().filter(|member| is_alive(now, member)).collect()
    }

    /// What stands at the key.
    fn holder(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let Leadership::Led { leader, remaining } = &self.seen.leadership else { return found };
        let id = plain(leader.id.as_str());
        if leader.foreign {
            let what = format!("the key holds {id:?}, which no instance of this protocol wrote");
            let next = "let one program use the key, or set fleet_max_ttl to its longest lease; \
                        choose another --key otherwise; if nothing uses it any more, `tenure clear \
                        --force` ends it";
            found.push(Finding::new(Code::ForeignKey, what, next));
        }
        if remaining.is_none() {
            let what = format!("the key of {id} never expires, so it blocks the election");
            let next = "candidates heal it after a lease; `tenure clear` does so at once";
            found.push(Finding::new(Code::KeyWithoutTtl, what, next));
        }
        found
    }

    /// Whether the leader lives and works.
    fn leader(&self) -> Option<Finding> {
        let leader = self.seen.leadership.leader().filter(|leader| !leader.foreign)?;
        let member = self.seen.members.iter().find(|member| member.id == leader.id)?;
        let id = plain(leader.id.as_str());
        if member.record.stalled {
            let what = format!("{id} leads but its work makes no progress");
            return Some(Finding::new(Code::LeaderStalled, what, "look at the work's own log"));
        }
        if is_alive(self.seen.server_time, member) {
            return None;
        }
        let silent = duration(silence(self.seen.server_time, member));
        let what = format!("{id} holds the lease but has been silent for {silent}");
        let next = "look at that host; `tenure clear` ends the term if it is gone";
        Some(Finding::new(Code::LeaderSilent, what, next))
    }

    fn candidates(&self) -> Option<Finding> {
        let led = self.seen.leadership.leader().is_some();
        match self.living().as_slice() {
            [] if !led => {
                let what =
                    "no candidate has sent a heartbeat recently, so nobody can lead".to_owned();
                let next = "start one with `tenure run`; nothing to do for a job of `tenure once`, \
                            which takes part only while it runs";
                Some(Finding::new(Code::NoCandidate, what, next))
            }
            [one] => {
                let what = format!(
                    "{} is the only candidate: when it stops, nobody takes over",
                    plain(one.id.as_str())
                );
                Some(Finding::new(Code::OneCandidate, what, "start a second one on another host"))
            }
            _ => None,
        }
    }

    /// Why nobody leads although somebody would.
    fn not_acquired(&self) -> Option<Finding> {
        let Leadership::Vacant(why) = &self.seen.leadership else { return None };
        match why {
            Vacancy::Paused { left } => {
                let what = format!("an operator paused it, {} left", duration(*left));
                Some(Finding::new(Code::Paused, what, "`tenure resume` ends the pause"))
            }
            Vacancy::Quarantine { left, why } => {
                let what = format!(
                    "an earlier leader may still believe in its lease, {} left: {}",
                    duration(*left),
                    plain(why)
                );
                let next = "wait: it ends by itself (after a clean restart of Tenure's own store \
                            there is no such wait)";
                Some(Finding::new(Code::Quarantine, what, next))
            }
            _ => {
                let living = self.living();
                let none_ready = !living.iter().any(|member| {
                    member.record.ready && !member.record.stalled && !member.record.departing
                });
                (!living.is_empty() && none_ready).then(|| {
                    let what = "there are candidates, but none is ready".to_owned();
                    let next = "`tenure members` shows why; a stalled one is ready again after a \
                                successful health check";
                    Finding::new(Code::NoneReady, what, next)
                })
            }
        }
    }

    /// A pause that does not show yet: somebody leads, or something else lasts longer.
    fn pause(&self) -> Option<Finding> {
        let is_told = matches!(self.seen.leadership, Leadership::Vacant(Vacancy::Paused { .. }));
        let left = self.seen.paused_for.filter(|_| !is_told)?;
        let then = match self.seen.leadership.leader() {
            Some(_) => "nobody follows the leader until then",
            None => "nobody leads before it ends",
        };
        let what = format!("an operator paused it, {} left: {then}", duration(left));
        Some(Finding::new(Code::Paused, what, "`tenure resume` ends the pause"))
    }

    fn duplicates(&self) -> Vec<Finding> {
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        let living = self.living();
        for member in &living {
            *by_name.entry(member.id.name()).or_default() += 1;
        }
        let twice = by_name.into_iter().filter(|(_, count)| *count > 1);
        twice
            .map(|(name, count)| {
                let what = format!("{count} processes call themselves {}", plain(name));
                let next = "give each its own --id: a hand-over to that name is ambiguous";
                Finding::new(Code::DuplicateId, what, next)
            })
            .collect()
    }

    fn leases(&self) -> Option<Finding> {
        let mut ttls: Vec<Duration> = self.living().iter().map(|m| m.record.ttl).collect();
        ttls.sort_unstable();
        let (shortest, longest) = (ttls.first()?, ttls.last()?);
        (shortest != longest).then(|| {
            let what =
                format!("members use ttls from {} to {}", duration(*shortest), duration(*longest));
            let next = "give all the same ttl, or set fleet_min_ttl and fleet_max_ttl to those";
            Finding::new(Code::DifferentTtls, what, next)
        })
    }

    fn flapping(&self) -> Option<Finding> {
        let now = self.seen.server_time;
        let stretches = past(self.history);
        let terms: Vec<&PastTerm> = stretches
            .iter()
            .filter_map(|stretch| match stretch {
                Past::Term(term) => Some(term),
                Past::Quarantine { .. } => None,
            })
            .filter(|term| term.began_at.is_some_and(|at| now.since(at) <= FLAPPING_WITHIN))
            .collect();
        if terms.len() <= TERMS_MAX {
            return None;
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for reason in terms.iter().filter_map(|term| term.reason) {
            *reasons.entry(reason).or_default() += 1;
        }
        let shown: Vec<_> = reasons.iter().map(|(word, count)| format!("{count} {word}")).collect();
        let what = format!(
            "{} terms within {} ({})",
            terms.len(),
            duration(FLAPPING_WITHIN),
            shown.join(", ")
        );
        let next = "lease-ended or expired: a longer ttl or a nearer store; released: the program \
                    keeps ending, see its log";
        Some(Finding::new(Code::FrequentChanges, what, next))
    }

    fn warnings(&self) -> Vec<Finding> {
        let next = "a right that is missing: see docs/acl.md; a key that another program wrote: \
                    remove it, or choose another --key";
        let each = |warning: &String| Finding::new(Code::StoreWarning, plain(warning), next);
        self.seen.warnings.iter().map(each).collect()
    }
}
