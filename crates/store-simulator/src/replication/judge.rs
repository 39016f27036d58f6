//! What must hold, and what was seen to break it.
//!
//! The judge knows what each primary's data was at each offset of each history, and how histories
//! came from each other. It believes no server's word about its data.

use std::collections::BTreeMap;
use std::fmt;

use store_replica::{History, ReplicationId};

use super::data::Digest;
use crate::queue::Real;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A replica's data is its primary's at some offset of the same history.
    R1,
    /// A partial sync never joins two histories.
    R2,
    /// As many replicas as WAIT says have the write.
    R3,
    /// An expired key never answers on a replica, and never makes data differ at equal offsets.
    R4,
    /// Once healed, all replicas are online after few full syncs; memory is within its limits.
    R5,
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

#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// The one rule that is looked at, if it is one.
    pub(crate) only: Option<Rule>,
    pub(crate) violation: Option<Violation>,
    known: BTreeMap<(ReplicationId, u64), Digest>,
    /// From which history another came, and where.
    parents: BTreeMap<ReplicationId, (ReplicationId, u64)>,
}

impl Judge {
    pub(crate) fn broken(&mut self, rule: Rule, at: Real, what: impl FnOnce() -> String) {
        let is_watched = self.only.is_none_or(|only| only == rule);
        if is_watched && self.violation.is_none() {
            self.violation = Some(Violation { rule, at, what: what() });
        }
    }

    /// A primary has `digest` at the end of `history`.
    pub(crate) fn see_primary(&mut self, at: Real, history: &History, digest: Digest) {
        let (id, offset) = (history.id(), history.offset());
        if let Some(second) = history.second() {
            self.parents.entry(id).or_insert((second.id, second.until));
        }
        // The same offset twice: only what the core feeds by itself changes nothing.
        match self.known.get(&(id, offset)).copied() {
            Some(known) => {
                self.compare(at, known, digest, || format!("a primary at {id} {offset}"))
            }
            None => {
                self.known.insert((id, offset), digest);
            }
        }
    }

    /// A replica has `digest` at `offset` of `id`.
    pub(crate) fn see_replica(&mut self, at: Real, history: &History, digest: Digest, host: usize) {
        let (id, offset) = (history.id(), history.offset());
        match self.lookup(id, offset) {
            Some(known) => {
                self.compare(at, known, digest, || format!("server {host} at {id} {offset}"));
            }
            None => self.broken(Rule::R1, at, || {
                format!("server {host} is at {offset} of {id}, where nobody was")
            }),
        }
    }

    fn compare(&mut self, at: Real, known: Digest, seen: Digest, who: impl Fn() -> String) {
        if known.steady != seen.steady {
            self.broken(Rule::R1, at, || format!("{} has other data", who()));
        }
        if known.volatile != seen.volatile {
            self.broken(Rule::R4, at, || format!("{} has other keys that expire", who()));
        }
    }

    /// A replica with `digest` continues at the end of `history`, which has its primary's name now.
    pub(crate) fn see_continue(
        &mut self,
        at: Real,
        history: &History,
        digest: Digest,
        host: usize,
    ) {
        let (id, offset) = (history.id(), history.offset());
        if self.lookup(id, offset) != Some(digest) {
            self.broken(Rule::R2, at, || {
                format!("server {host} continues {id} at {offset} with other data")
            });
        }
    }

    /// The data at `offset` of `id`: that of the last write before it.
    fn lookup(&self, mut id: ReplicationId, offset: u64) -> Option<Digest> {
        while let Some((parent, until)) = self.parents.get(&id).filter(|parent| offset < parent.1) {
            assert!(offset < *until);
            id = *parent;
        }
        let (place, digest) = self.known.range(..=(id, offset)).next_back()?;
        (place.0 == id).then_some(*digest)
    }
}
