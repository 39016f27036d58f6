//! The judge of P7: what became of each tick, and what may still be done about it.

use tenure_core::Token;
use tenure_core::protocol::TickId;

use crate::algorithm::JobReport;

/// All ticks that anybody began or recorded.
#[derive(Debug, Default)]
pub(crate) struct TickJudge {
    ticks: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    tick: TickId,
    /// The terms in which its work was begun.
    begun: Vec<Option<Token>>,
    /// Whether a store ever let somebody begin it.
    is_opened: bool,
    /// Whether a store has taken down how it ended.
    is_written: bool,
    /// Whether that counts: where replicas must confirm it, they have.
    is_recorded: bool,
}

impl TickJudge {
    /// Work of `tick` begins. What is wrong with that comes back.
    pub(crate) fn begins(
        &mut self,
        tick: &TickId,
        token: Option<Token>,
        reruns_crashed: bool,
    ) -> Option<String> {
        let known = self.known(tick);
        let began_before = known.begun.iter().any(|begun| *begun != token);
        known.begun.push(token);
        if known.is_recorded {
            return Some(format!("{tick:?} was recorded as done and is begun again"));
        }
        (began_before && !reruns_crashed)
            .then(|| format!("{tick:?} is begun again, although it must not be run twice"))
    }

    /// A store let somebody begin `tick`, whatever came of that.
    pub(crate) fn is_opened(&mut self, tick: &TickId) {
        self.known(tick).is_opened = true;
    }

    /// A store has taken down how `tick` ended.
    pub(crate) fn is_written(&mut self, tick: &TickId) {
        self.known(tick).is_written = true;
    }

    /// So it counts.
    pub(crate) fn is_recorded(&mut self, tick: &TickId) {
        self.known(tick).is_recorded = true;
    }

    /// A runner says what became of its run. `micros` is what the clock of a store that never
    /// jumped may show at the most.
    pub(crate) fn reported(
        &mut self,
        tick: &TickId,
        how: JobReport,
        (reruns_crashed, micros): (bool, u64),
    ) -> Option<String> {
        let is_done = self.is_done(tick, micros);
        let known = self.known(tick);
        match how {
            JobReport::Ran if !known.is_recorded => {
                Some(format!("{tick:?} was reported as done without a record"))
            }
            JobReport::RefusedAsDone if !is_done => {
                Some(format!("{tick:?} was refused as done, and nobody did it"))
            }
            JobReport::RefusedAsUnfinished if !known.is_opened || reruns_crashed => {
                Some(format!("{tick:?} was refused as begun, and may be run"))
            }
            _ => None,
        }
    }

    /// Whether the work of `tick` was begun and its end taken down, or that of a later period that
    /// has come since. A period that has not come itself was numbered by a clock that is ahead;
    /// then any later one is later by that clock, too.
    fn is_done(&self, tick: &TickId, micros: u64) -> bool {
        let is_done = |known: &&Known| known.is_written && !known.begun.is_empty();
        self.ticks.iter().filter(is_done).any(|known| match (&known.tick, tick) {
            (TickId::Period { number: done, period: of }, TickId::Period { number, period }) => {
                let has_come =
                    |number: u64| u128::from(number) * of.as_micros() <= u128::from(micros);
                let is_later = done > number && (has_come(*done) || !has_come(*number));
                of == period && (done == number || is_later)
            }
            (done, asked) => done == asked,
        })
    }

    fn known(&mut self, tick: &TickId) -> &mut Known {
        let at = self.ticks.iter().position(|known| known.tick == *tick);
        let at = at.unwrap_or_else(|| {
            let (tick, begun) = (tick.clone(), Vec::new());
            let (is_opened, is_written, is_recorded) = (false, false, false);
            self.ticks.push(Known { tick, begun, is_opened, is_written, is_recorded });
            self.ticks.len() - 1
        });
        &mut self.ticks[at]
    }
}
