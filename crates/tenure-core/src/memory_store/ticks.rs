//! Jobs that run once across the fleet, recorded inside the term of the one who runs them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::InstanceId;
use crate::protocol::{Hint, Outcome, Tick, TickOutcome, Token};

use super::Step;
use super::keys::{Value, WRONG_TYPE};
use super::record::{number, shortened};
use super::step::{SHOWN_MAX, as_number, token, whole_millis};

/// How many numbered ticks may be begun and not finished.
const BEGUN_MAX: usize = 64;
/// How long a named tick may run, in milliseconds.
const BEGUN_KEPT: i64 = 604_800_000;
/// Bytes of an outcome that are looked at, and that are written.
const RECORDED_MAX: usize = 1100;
const OUTCOME_MAX: usize = 1024;
/// Beyond it others wrote there, and nothing is forgotten.
const FIELDS_MAX: usize = 1024;

impl Step<'_> {
    pub(super) fn tick_begin(&mut self, term: Token, tick: &Tick, reruns: bool) -> Outcome {
        self.settle_life(0);
        if !self.is_mine(as_number(term)) {
            return self.lost();
        }
        let recorded = match self.tick_read(tick) {
            Ok(recorded) => recorded,
            Err(conflict) => return conflict,
        };
        let mine = format!("begun {term} {}", self.call.id);
        let may_rerun = reruns && recorded.starts_with("begun ");
        if !recorded.is_empty() && recorded != mine && !may_rerun {
            return tick_answer(&recorded);
        }
        match tick {
            Tick::Number(number) => {
                self.tick_fields().insert(format!("begun:{number}"), mine);
                self.tick_prune(-1);
            }
            Tick::Named(name) => self.set_tick(name, &mine, BEGUN_KEPT),
        }
        Outcome::TickRuns
    }

    pub(super) fn tick_finish(
        &mut self,
        term: Token,
        tick: &Tick,
        outcome: &TickOutcome,
        keep: Duration,
    ) -> Outcome {
        self.settle_life(0);
        if !self.is_mine(as_number(term)) {
            return self.lost();
        }
        let recorded = match self.tick_read(tick) {
            Ok(recorded) => recorded,
            Err(conflict) => return conflict,
        };
        let outcome = match outcome {
            TickOutcome::Succeeded => "ok".to_owned(),
            TickOutcome::Failed(words) => format!("failed {words}"),
        };
        let outcome = shortened(&outcome, OUTCOME_MAX);
        match tick {
            Tick::Number(number) => {
                if recorded.is_empty() || recorded.starts_with("begun ") {
                    let fields = self.tick_fields();
                    fields.insert("done".to_owned(), number.to_string());
                    fields.insert("outcome".to_owned(), outcome.to_owned());
                    self.tick_prune(i64::try_from(*number).unwrap_or(i64::MAX));
                }
            }
            Tick::Named(name) => {
                let keep = whole_millis(keep.max(Duration::from_millis(1)));
                self.set_tick(name, outcome, keep);
            }
        }
        self.hints.push(Hint::TickFinished);
        Outcome::Done
    }

    pub(super) fn tick_look(&mut self, tick: &Tick) -> Outcome {
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        match self.tick_read(tick) {
            Ok(recorded) if recorded.is_empty() => Outcome::TickUnknown,
            Ok(recorded) => tick_answer(&recorded),
            Err(conflict) => conflict,
        }
    }

    fn tick_key(&self, tick: &Tick) -> String {
        match tick {
            Tick::Number(_) => self.call.resource.side_key("ticks"),
            Tick::Named(name) => self.call.resource.side_key(&format!("tick:{name}")),
        }
    }

    /// What is recorded: nothing, `begun TOKEN ID`, `ok` or `failed WORDS`.
    fn tick_read(&self, tick: &Tick) -> Result<String, Outcome> {
        let key = self.tick_key(tick);
        let conflict = || Outcome::Conflict { what: format!("{key} holds something else") };
        let recorded = match (tick, self.keys.get(self.time, &key).map(|entry| &entry.value)) {
            (_, None) => "",
            (Tick::Named(_), Some(Value::Text(text))) => shortened(text.as_str(), RECORDED_MAX + 1),
            (Tick::Number(tick), Some(Value::Hash(fields))) => {
                let done = fields.get("done").and_then(|done| number(done));
                let tick = i64::try_from(*tick).unwrap_or(i64::MAX);
                let recorded = match done {
                    Some(done) if tick == done => fields.get("outcome").map_or("ok", |o| o),
                    Some(done) if tick < done => "ok",
                    _ => fields.get(&format!("begun:{tick}")).map_or("", |begun| begun),
                };
                shortened(recorded, RECORDED_MAX)
            }
            _ => return Err(conflict()),
        };
        Ok(recorded.to_owned())
    }

    fn set_tick(&mut self, name: &str, value: &str, kept: i64) {
        let key = self.call.resource.side_key(&format!("tick:{name}"));
        self.keys.set(self.time, &key, Value::Text(InstanceId::seen(value)), Some(kept));
    }

    fn tick_fields(&mut self) -> &mut BTreeMap<String, String> {
        let key = self.call.resource.side_key("ticks");
        match self.keys.value_or(self.time, &key, || Value::Hash(BTreeMap::new())) {
            Value::Hash(fields) => fields,
            other => unreachable!("{WRONG_TYPE}: {other:?} was read as a hash just before"),
        }
    }

    /// Begun numbers up to `done` are settled; of others that nobody finished the lowest go first.
    fn tick_prune(&mut self, done: i64) {
        let key = self.call.resource.side_key("ticks");
        let fields = self.tick_fields();
        let count = fields.len();
        if count > FIELDS_MAX {
            return self.warn(format!("{key} has {count} fields: nothing in it is forgotten"));
        }
        let begun = |field: &String| number(field.strip_prefix("begun:")?);
        let mut numbers: Vec<i64> = fields.keys().filter_map(begun).collect();
        numbers.sort_unstable();
        let surplus = numbers.len().saturating_sub(BEGUN_MAX);
        for (index, number) in numbers.into_iter().enumerate() {
            if number <= done || index < surplus {
                fields.remove(&format!("begun:{number}"));
            }
        }
    }
}

fn tick_answer(recorded: &str) -> Outcome {
    let begun = recorded.strip_prefix("begun ").and_then(|begun| begun.split_once(' '));
    if let Some((term, by)) = begun
        && let Some(term) = number(term)
    {
        let by = InstanceId::seen(shortened(by, SHOWN_MAX));
        return Outcome::TickUnfinished { by, token: token(Some(term)) };
    }
    Outcome::TickDone(match recorded {
        "ok" => TickOutcome::Succeeded,
        recorded => {
            let words = recorded.strip_prefix("failed ").unwrap_or(recorded);
            TickOutcome::Failed(shortened(words, SHOWN_MAX).to_owned())
        }
    })
}
