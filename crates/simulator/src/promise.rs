//! What is promised, and the judge who watches a world for a broken promise.

use std::fmt;

use tenure_core::{InstanceId, Moment, Token};

use crate::algorithm::Belief;
use crate::case::Case;
use crate::clock::Real;
use crate::tick_judge::TickJudge;

/// The promises of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// No two terms are valid at one real time.
    P1,
    /// Tokens grow in the order of grants.
    P2,
    /// A closed term stays closed.
    P3,
    /// A paused or cut-off holder is false at its first check after its end.
    P4,
    /// Renewing, releasing, handing over and abandoning never touch another term.
    P5,
    /// Once healed, with a ready candidate, there is a leader in bounded time, and it stays.
    P6,
    /// A tick that is done is never begun again, and one that is not is never refused.
    P7,
    /// Nothing that the world does makes the core panic or ask without end.
    Sound,
}

impl Promise {
    /// All of them.
    pub const ALL: &[Promise] = &[
        Promise::P1,
        Promise::P2,
        Promise::P3,
        Promise::P4,
        Promise::P5,
        Promise::P6,
        Promise::P7,
        Promise::Sound,
    ];
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Promise::Sound => f.write_str("panic"),
            numbered => write!(f, "{numbered:?}"),
        }
    }
}

/// A promise that a world saw broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub promise: Promise,
    /// When, in nanoseconds of real time since the world began.
    pub at: u64,
    /// What was seen.
    pub what: String,
}

/// Remembers what must never come again.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    granted: Vec<(Token, InstanceId)>,
    /// Promises that this world is not about.
    ignores: Vec<Promise>,
    /// Where two may lead at once, a late answer may begin an earlier term after a later one.
    two_may_lead: bool,
    begun: Vec<Option<Token>>,
    closed: Vec<Option<Token>>,
    violation: Option<Violation>,
    pub(crate) ticks: TickJudge,
}

impl Judge {
    pub(crate) fn of(case: &Case) -> Self {
        Judge { two_may_lead: case.excused.contains(&Promise::P1), ..Judge::default() }
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    pub(crate) fn into_violation(self) -> Option<Violation> {
        self.violation
    }

    pub(crate) fn ignore(&mut self, promises: &[Promise]) {
        self.ignores.extend_from_slice(promises);
    }

    pub(crate) fn terms(&self) -> u64 {
        self.begun.len() as u64
    }

    /// The first broken promise is the one that counts: later ones may follow from it.
    pub(crate) fn broken(&mut self, promise: Promise, at: Real, what: String) {
        if self.violation.is_none() && !self.ignores.contains(&promise) {
            self.violation = Some(Violation { promise, at, what });
        }
    }

    /// A store granted `token`; the same attempt may be granted its term again.
    pub(crate) fn grant(&mut self, now: Real, token: Token, id: &InstanceId) {
        let last = self.granted.last();
        if last.is_some_and(|(last, _)| *last >= token) {
            if !self.granted.iter().any(|(known, to)| *known == token && to == id) {
                let what = format!("{token:?} was granted after {:?}", last.map(|(last, _)| *last));
                self.broken(Promise::P2, now, what);
            }
            return;
        }
        self.granted.push((token, id.clone()));
    }

    /// Somebody's belief changed at `local`, on its own clock, from `before` to `after`.
    pub(crate) fn belief(
        &mut self,
        now: Real,
        local: Moment,
        before: Option<Belief>,
        after: Option<Belief>,
    ) {
        let (before_token, after_token) = (before.map(|b| b.token), after.map(|b| b.token));
        if before_token == after_token {
            if let (Some(before), Some(after)) = (before, after)
                && before.until <= local
                && after.until > before.until
            {
                let what = format!("term {:?} was over and is valid again", after.token);
                self.broken(Promise::P3, now, what);
            }
            return;
        }
        if let Some(token) = before_token {
            self.closed.push(token);
        }
        if let Some(token) = after_token {
            self.begin(now, token);
        }
    }

    fn begins_out_of_order(&self, token: Option<Token>) -> bool {
        !self.two_may_lead && self.begun.last().is_some_and(|last| *last >= token)
    }

    fn begin(&mut self, now: Real, token: Option<Token>) {
        if token.is_some() {
            if self.closed.contains(&token) {
                self.broken(Promise::P3, now, format!("term {token:?} was closed and began again"));
            } else if self.begins_out_of_order(token) {
                let last = self.begun.last().copied().unwrap_or_default();
                self.broken(Promise::P2, now, format!("{token:?} began after {last:?}"));
            }
        }
        self.begun.push(token);
    }
}
