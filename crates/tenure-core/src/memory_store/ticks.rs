//! Jobs that run once across the fleet, recorded inside the term of the one who runs them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ServerTime;
use crate::protocol::{Outcome, Tick, TickOutcome, Token};

use super::shelf::{
    NAMED_BEGUN_KEPT, NamedTick, NumberedTick, SERIES_KEPT_MAX, TICKS_KEPT_MAX, Ticks,
};
use super::{Step, later};

/// A numbered tick and the series it belongs to: the periods of one length in microseconds, or
/// the plain numbers, whose period is 0.
#[derive(Clone, Copy)]
struct Place {
    period: u64,
    number: u64,
}

impl Place {
    fn of(tick: &Tick) -> Option<Self> {
        match tick {
            Tick::Number(number) => Some(Place { period: 0, number: *number }),
            Tick::Period { number, period } => {
                let period = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
                Some(Place { period, number: *number })
            }
            Tick::Named(_) => None,
        }
    }

    /// Whether `number` of the same series has begun. A store whose clock was ahead for a moment
    /// has later ones on record.
    fn is_present(self, number: u64, now: ServerTime) -> bool {
        u128::from(number) * u128::from(self.period) <= u128::from(now.0)
    }
}

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
        match (Place::of(tick), tick) {
            (Some(place), _) => self.write_tick(place, Some(NumberedTick::Begun { by, token })),
            (None, Tick::Named(name)) => {
                let kept_until = later(self.now, NAMED_BEGUN_KEPT);
                let begun = NamedTick::Begun { by, token, kept_until };
                self.shelf.ticks.named.insert(name.clone(), begun);
            }
            (None, _) => {}
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
        match (Place::of(tick), tick) {
            (Some(place), _) => {
                let outcome = match self.numbered_tick(place) {
                    Outcome::TickDone(first) => first,
                    _ => in_one_line(outcome),
                };
                self.write_tick(place, Some(NumberedTick::Ended(outcome)));
            }
            (None, Tick::Named(name)) => {
                let kept_until = later(self.now, keep);
                let ended = NamedTick::Ended { outcome: outcome.clone(), kept_until };
                self.shelf.ticks.named.insert(name.clone(), ended);
                self.forget_old_ticks();
            }
            (None, _) => {}
        }
        self.hints.push(crate::protocol::Hint::TickFinished);
        Outcome::Done
    }

    /// The work could not be started: as if nobody had begun it.
    pub(super) fn tick_reopen(&mut self, token: Token, tick: &Tick) -> Outcome {
        if let Some(why) = self.not_mine(token) {
            return Outcome::Lost(why);
        }
        let is_done = matches!(self.tick_look(tick), Outcome::TickDone(_));
        match (Place::of(tick), tick) {
            (Some(place), _) if !is_done => self.write_tick(place, None),
            (None, Tick::Named(name)) if !is_done => {
                self.shelf.ticks.named.remove(name);
            }
            _ => {}
        }
        self.hints.push(crate::protocol::Hint::TickFinished);
        Outcome::Done
    }

    fn forget_old_ticks(&mut self) {
        let now = self.now;
        self.shelf.ticks.named.retain(|_, tick| match tick {
            NamedTick::Begun { kept_until, .. } | NamedTick::Ended { kept_until, .. } => {
                now <= *kept_until
            }
        });
    }

    pub(super) fn tick_look(&self, tick: &Tick) -> Outcome {
        if let Some(place) = Place::of(tick) {
            return self.numbered_tick(place);
        }
        let Tick::Named(name) = tick else { return Outcome::TickUnknown };
        match self.shelf.ticks.named.get(name) {
            Some(NamedTick::Begun { by, token, kept_until }) if self.now <= *kept_until => {
                Outcome::TickUnfinished { by: by.clone(), token: *token }
            }
            Some(NamedTick::Ended { outcome, kept_until }) if self.now <= *kept_until => {
                Outcome::TickDone(outcome.clone())
            }
            _ => Outcome::TickUnknown,
        }
    }

    /// A number is done once it ended, or once a later one did that has begun by now.
    fn numbered_tick(&self, place: Place) -> Outcome {
        let Some(series) = self.shelf.ticks.series.get(&place.period) else {
            return Outcome::TickUnknown;
        };
        let own = series.get(&place.number);
        if let Some(NumberedTick::Ended(outcome)) = own {
            return Outcome::TickDone(outcome.clone());
        }
        let is_passed = series.iter().any(|(number, tick)| {
            let has_ended = matches!(tick, NumberedTick::Ended(_));
            *number > place.number && has_ended && place.is_present(*number, self.now)
        });
        match own {
            _ if is_passed => Outcome::TickDone(TickOutcome::Succeeded),
            Some(NumberedTick::Begun { by, token }) => {
                Outcome::TickUnfinished { by: by.clone(), token: *token }
            }
            _ => Outcome::TickUnknown,
        }
    }

    fn write_tick(&mut self, place: Place, tick: Option<NumberedTick>) {
        let now = self.now;
        let series = self.shelf.ticks.series.entry(place.period).or_default();
        match tick {
            Some(tick) => series.insert(place.number, tick),
            None => series.remove(&place.number),
        };
        prune(series, |number| place.is_present(number, now));
        self.shelf.ticks.forget_series(now);
    }
}

/// Of ticks that a later one settles, and beyond the bound, those go that are missed least.
fn prune(series: &mut BTreeMap<u64, NumberedTick>, is_present: impl Fn(u64) -> bool) {
    let settled = series
        .iter()
        .rev()
        .find(|(number, tick)| matches!(tick, NumberedTick::Ended(_)) && is_present(**number));
    if let Some(settled) = settled.map(|(number, _)| *number) {
        series.retain(|number, _| *number >= settled);
    }
    while series.len() > TICKS_KEPT_MAX {
        let is_begun = |tick: &NumberedTick| matches!(tick, NumberedTick::Begun { .. });
        let begun = series.iter().find(|(_, tick)| is_begun(tick)).map(|(number, _)| *number);
        match begun {
            Some(number) => drop(series.remove(&number)),
            None => drop(series.pop_last()),
        }
    }
}

/// A record of a numbered tick is one line.
fn in_one_line(outcome: &TickOutcome) -> TickOutcome {
    match outcome {
        TickOutcome::Succeeded => TickOutcome::Succeeded,
        TickOutcome::Failed(words) => TickOutcome::Failed(words.replace(['\r', '\n'], " ")),
    }
}

impl Ticks {
    /// Series whose last tick lies in the past are over: nobody asks for them again.
    fn forget_series(&mut self, now: ServerTime) {
        if self.series.len() <= SERIES_KEPT_MAX {
            return;
        }
        self.series.retain(|period, series| {
            let next = series.last_key_value().map_or(0, |(number, _)| u128::from(*number) + 1);
            *period == 0 || next * u128::from(*period) > u128::from(now.0)
        });
    }
}
