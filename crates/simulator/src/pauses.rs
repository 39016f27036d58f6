//! Operators pause the election: nobody begins a term meanwhile, and whoever leads keeps its own.

use tenure_core::{Reason, Token};

use crate::algorithm::Want;
use crate::clock::Real;
use crate::cluster::Node;
use crate::fault::Fault;
use crate::promise::Promise;
use crate::world::{Event, World, span};

/// How many wishes come up while the election of a healed world is paused.
const WISHES: u64 = 4;

/// What is known of the last pause.
#[derive(Debug, Default)]
pub(crate) struct PauseWatch {
    /// When it began; it may be over.
    began_at: Option<Real>,
    /// Who led then, and has no reason of its own to step down.
    keeper: Option<Holder>,
    /// Who stepped down last for a reason of its own, which takes its time.
    stepped_down: Option<Holder>,
}

/// A process in its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    party: usize,
    life: u32,
    token: Token,
}

impl World<'_> {
    /// Whether this world knows what a pause leaves as it is: nothing is lost at its store.
    pub(crate) fn watches_pauses(&self) -> bool {
        self.case.has(Fault::OperatorPauseWatched)
    }

    /// An operator pauses the election, or makes a pause longer or shorter.
    pub(crate) fn pause_election(&mut self, lasts: u64) {
        let was_paused = self.pause_left() > 0;
        self.operator_says(tenure_core::protocol::Request::Pause { lasts: span(lasts) });
        if !was_paused {
            self.pause.began_at = Some(self.now);
            let stepped_down = self.pause.stepped_down;
            self.pause.keeper = self.holder().filter(|holder| stepped_down != Some(*holder));
        }
    }

    /// For how long the election is still paused, on the clocks of all nodes that decide.
    pub(crate) fn pause_left(&self) -> u64 {
        let left = |node: &Node| {
            let until = node.store.paused_until(&self.resource);
            until.since(node.server_time(self.now)).as_nanos() as u64
        };
        let deciding = match self.quorum {
            Some(_) => &self.cluster.nodes[..],
            None => &self.cluster.nodes[self.cluster.primary..=self.cluster.primary],
        };
        deciding.iter().map(left).min().unwrap_or(0)
    }

    fn holder(&self) -> Option<Holder> {
        let party = self.leader()?;
        let place = &self.parties[party];
        Some(Holder { party, life: place.life, token: place.belief?.token? })
    }

    /// Somebody steps down. The answer to whatever a leader asked during a pause tells it that
    /// nobody could take over.
    pub(crate) fn judge_stepping_down(&mut self, party: usize, token: Token, reason: &Reason) {
        let is_given_away = matches!(reason, Reason::HandOver(_) | Reason::Failback(_));
        let began_at = self.pause.began_at.filter(|_| self.pause_left() > 0);
        let is_told = began_at.is_some_and(|began_at| began_at <= self.parties[party].heard_of);
        if is_given_away && is_told {
            let (name, left) = (self.parties[party].name, span(self.pause_left()));
            let what = format!("{name} gave its term away, paused for another {left:?}: {reason}");
            self.judge.broken(Promise::P6, self.now, what);
        } else if !reason.is_involuntary() {
            let life = self.parties[party].life;
            let holder = Holder { party, life, token };
            self.pause.stepped_down = Some(holder);
            self.pause.keeper.take_if(|keeper| *keeper == holder);
        }
    }

    /// In a healed world, again and again.
    pub(crate) fn election_pauses(&mut self) {
        let lasts = self.random.share(self.climate.lease, 1_000, 4_000);
        self.note("people", || format!("the election is paused for {:?}", span(lasts)));
        self.pause_election(lasts);
        let by_hand = self.random.percent(50);
        let ends_after = self.random.share(lasts, if by_hand { 300 } else { 980 }, 980);
        for _ in 0..WISHES {
            let delay = self.random.share(ends_after, 0, 900);
            self.after(delay, Event::PausedWish);
        }
        self.after(ends_after, Event::PauseEnds { by_hand });
    }

    pub(crate) fn paused_wish(&mut self) {
        match (self.leader(), self.random.below(12)) {
            (Some(leader), 0) => self.make_want(leader, Want::Resign),
            (Some(_), 1) => self.operate(Fault::AskToResign),
            (Some(leader), 2..=6) => self.make_want(leader, Want::HandOver),
            _ => self.operate(Fault::AskToHandOver),
        }
    }

    /// Who led when it began leads still, and soon somebody does whatever happened.
    pub(crate) fn pause_ends(&mut self, by_hand: bool) {
        let (before, after) = (self.pause.keeper.take(), self.holder());
        if before.is_some() && before != after {
            let what = format!("{before:?} led when the pause began, and {after:?} as it ends");
            self.judge.broken(Promise::P6, self.now, what);
        }
        if by_hand {
            self.operate(Fault::OperatorResume);
        }
        self.led_since_heal = self.leader().is_some();
        let over_at = self.now + self.pause_left() / 100 * 101;
        let due_at = over_at + self.leader_due_within();
        self.at(due_at, Event::LeaderDue { since: over_at });
        self.at(due_at + self.climate.lease / 2, Event::ElectionPauses);
    }
}
