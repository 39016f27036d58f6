//! Jobs that run once across the fleet, recorded inside the term of the one who runs them.

use std::time::Duration;

use crate::protocol::{Outcome, Tick, TickOutcome, Token};

use super::shelf::{NamedTick, TICKS_BEGUN_MAX, Ticks};
use super::{Step, later};

impl Step<'_> {
    pub(super) fn tick_begin(&mut self, token: Token, tick: &Tick, rerun_crashed: bool) -> Outcome {
        if let Some(why) = self.not_mine(token) {
            return Outcome::Lost(why);
        }
        match self.tick_look(tick) {
            Outcome::TickDone(outcome) => return Outcome::TickDone(outcome),
            // The same term asks again because it missed the answer: it has not run yet.
            Outcome::TickUnfinished { token: begun_under, by }
                if begun_under != token && !rerun_crashed =>
            {
                return Outcome::TickUnfinished { by, token: begun_under };
            }
            _ => {}
        }
        let by = self.call.id.clone();
        match tick {
            Tick::Number(number) => self.shelf.ticks.begin(*number, by, token),
            Tick::Named(name) => {
                self.shelf.ticks.named.insert(name.clone(), NamedTick::Begun { by, token });
            }
        }
        Outcome::TickRuns
    }

    pub(super) fn tick_finish(
        &mut self,
        token: Token,
        tick: &Tick,
        outcome: &TickOutcome,
        keep: Duration,
    ) -> Outcome {
        if let Some(why) = self.not_mine(token) {
            return Outcome::Lost(why);
        }
        let ticks = &mut self.shelf.ticks;
        match tick {
            Tick::Number(number) => {
                if ticks.last.as_ref().is_none_or(|(last, _)| last < number) {
                    ticks.last = Some((*number, outcome.clone()));
                    ticks.begun.retain(|begun, _| begun > number);
                }
            }
            Tick::Named(name) => {
                let kept_until = later(self.now, keep);
                let ended = NamedTick::Ended { outcome: outcome.clone(), kept_until };
                ticks.named.insert(name.clone(), ended);
                self.forget_old_ticks();
            }
        }
        self.hints.push(crate::protocol::Hint::TickFinished);
        Outcome::Done
    }

    fn forget_old_ticks(&mut self) {
        let now = self.now;
        self.shelf.ticks.named.retain(|_, tick| match tick {
            NamedTick::Begun { .. } => true,
            NamedTick::Ended { kept_until, .. } => now <= *kept_until,
        });
    }

    pub(super) fn tick_look(&self, tick: &Tick) -> Outcome {
        match tick {
            Tick::Number(number) => self.numbered_tick(*number),
            Tick::Named(name) => match self.shelf.ticks.named.get(name) {
                Some(NamedTick::Begun { by, token }) => {
                    Outcome::TickUnfinished { by: by.clone(), token: *token }
                }
                Some(NamedTick::Ended { outcome, kept_until }) if self.now <= *kept_until => {
                    Outcome::TickDone(outcome.clone())
                }
                _ => Outcome::TickUnknown,
            },
        }
    }

    /// Everything up to the highest finished number counts as done, whatever became of it.
    fn numbered_tick(&self, number: u64) -> Outcome {
        match (&self.shelf.ticks.last, self.shelf.ticks.begun.get(&number)) {
            (Some((last, outcome)), _) if *last == number => Outcome::TickDone(outcome.clone()),
            (Some((last, _)), _) if *last > number => Outcome::TickDone(TickOutcome::Succeeded),
            (_, Some((by, token))) => Outcome::TickUnfinished { by: by.clone(), token: *token },
            _ => Outcome::TickUnknown,
        }
    }
}

impl Ticks {
    /// Of numbers that nobody finishes, the lowest are forgotten first.
    fn begin(&mut self, number: u64, by: crate::InstanceId, token: Token) {
        self.begun.insert(number, (by, token));
        while self.begun.len() > TICKS_BEGUN_MAX {
            self.begun.pop_first();
        }
    }
}
