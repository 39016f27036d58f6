//! Jobs that run once across the fleet, recorded inside the term of the one who runs them: see
//! `ticks.lua` of the Redis backend, which this repeats.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::InstanceId;
use crate::protocol::{Hint, Outcome, TickId, TickOutcome, Token};

use super::Step;
use super::keys::Value;
use super::record::{number, shortened};
use super::step::{SHOWN_MAX, as_number, token, whole_millis};

/// How many ticks are remembered in one series.
const ENTRIES_MAX: usize = 64;
/// How many fields are kept as long as some series are over, and how many are looked through.
const SERIES_MAX: usize = 128;
/// Microseconds that a series is kept after its last tick.
const SERIES_KEPT: i64 = 86_400_000_000;
const SCANNED_MAX: usize = 4096;
/// Series that are forgotten at once.
const FORGOTTEN_MAX: usize = 1000;
/// Bytes of a series that are read, and of a recorded failure that are told.
const SERIES_LEN_MAX: usize = 262_144;
const WORDS_MAX: usize = 2048;
/// How long a named tick may run, in milliseconds.
const BEGUN_KEPT: i64 = 604_800_000;

/// A numbered tick and the series it belongs to: the periods of one length in microseconds, or
/// the plain numbers, whose period is 0.
#[derive(Clone, Copy)]
struct SeriesTick {
    period: i64,
    number: i64,
}

impl SeriesTick {
    fn of(tick: &TickId) -> Option<Self> {
        let (number, period) = match tick {
            TickId::Number(number) => (*number, 0),
            TickId::Period { number, period } => {
                (*number, i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1))
            }
            TickId::Named(_) => return None,
        };
        Some(SeriesTick { period, number: i64::try_from(number).unwrap_or(i64::MAX) })
    }

    /// Whether `number` of the same series has begun. A store whose clock was ahead for a moment
    /// has later ones on record.
    fn is_present(self, number: i64, now: i64) -> bool {
        i128::from(number) * i128::from(self.period) <= i128::from(now)
    }

    fn field(self) -> String {
        format!("series:{}", self.period)
    }
}

/// What is on record about a tick, and about its series.
#[derive(Default)]
struct Recorded {
    /// Nothing, `begun TOKEN ID`, `ok` or `failed WORDS`.
    text: String,
    entries: Vec<(i64, String)>,
    /// What an earlier version finished last, or was told that we did.
    old_done: Option<i64>,
}

impl Step<'_> {
    pub(super) fn tick_begin(&mut self, term: Token, tick: &TickId, reruns: bool) -> Outcome {
        self.settle_life(0);
        if !self.is_mine(as_number(term)) {
            return self.lost();
        }
        let recorded = match self.tick_read(tick) {
            Ok(recorded) => recorded,
            Err(conflict) => return conflict,
        };
        let mine = format!("begun {term} {}", self.call.id);
        let may_rerun = reruns && is_begun(&recorded.text);
        if !recorded.text.is_empty() && recorded.text != mine && !may_rerun {
            return tick_answer(&recorded.text);
        }
        match (SeriesTick::of(tick), tick) {
            (Some(place), _) => self.tick_write(place, recorded, Some(mine)),
            (None, TickId::Named(name)) => self.set_tick(name, &mine, BEGUN_KEPT),
            (None, _) => {}
        }
        Outcome::TickRuns
    }

    pub(super) fn tick_finish(
        &mut self,
        term: Token,
        tick: &TickId,
        outcome: &TickOutcome,
        keep: Duration,
    ) -> Outcome {
        let outcome = match outcome {
            TickOutcome::Succeeded => "ok".to_owned(),
            TickOutcome::Failed(words) => format!("failed {words}"),
        };
        self.tick_end(term, tick, &outcome, keep)
    }

    /// The work could not be started: as if nobody had begun it.
    pub(super) fn tick_reopen(&mut self, term: Token, tick: &TickId) -> Outcome {
        self.tick_end(term, tick, "", Duration::from_millis(1))
    }

    fn tick_end(&mut self, term: Token, tick: &TickId, outcome: &str, keep: Duration) -> Outcome {
        self.settle_life(0);
        if !self.is_mine(as_number(term)) {
            return self.lost();
        }
        let recorded = match self.tick_read(tick) {
            Ok(recorded) => recorded,
            Err(conflict) => return conflict,
        };
        let outcome = shortened(outcome, WORDS_MAX);
        let is_open = recorded.text.is_empty() || is_begun(&recorded.text);
        match (SeriesTick::of(tick), tick) {
            (Some(place), _) => {
                // A record is one line.
                let outcome = match is_open {
                    true => outcome.replace(['\r', '\n'], " "),
                    false => recorded.text.clone(),
                };
                self.tick_write(place, recorded, Some(outcome).filter(|text| !text.is_empty()));
            }
            (None, TickId::Named(name)) if !outcome.is_empty() => {
                let keep = whole_millis(keep.max(Duration::from_millis(1)));
                self.set_tick(name, outcome, keep);
            }
            (None, _) if is_open => drop(self.keys.delete(self.time, &self.tick_key(tick))),
            (None, _) => {}
        }
        self.hints.push(Hint::TickFinished);
        Outcome::Done
    }

    pub(super) fn tick_look(&mut self, tick: &TickId) -> Outcome {
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        match self.tick_read(tick) {
            Ok(recorded) if recorded.text.is_empty() => Outcome::TickUnknown,
            Ok(recorded) => tick_answer(&recorded.text),
            Err(conflict) => conflict,
        }
    }

    fn tick_key(&self, tick: &TickId) -> String {
        match tick {
            TickId::Named(name) => self.call.resource.side_key(&format!("tick:{name}")),
            _ => self.call.resource.side_key("ticks"),
        }
    }

    fn tick_read(&self, tick: &TickId) -> Result<Recorded, Outcome> {
        let key = self.tick_key(tick);
        match (SeriesTick::of(tick), self.keys.get(self.time, &key).map(|entry| &entry.value)) {
            (_, None) => Ok(Recorded::default()),
            (None, Some(Value::Text(text))) => {
                let text = shortened(text.as_str(), WORDS_MAX + 1).to_owned();
                Ok(Recorded { text, ..Recorded::default() })
            }
            (Some(place), Some(Value::Hash(fields))) => Ok(self.numbered_tick(place, fields)),
            _ => Err(Outcome::Conflict { what: format!("{key} holds something else") }),
        }
    }

    /// A number is done once it ended, or once a later one did that has begun by now.
    fn numbered_tick(&self, place: SeriesTick, fields: &BTreeMap<String, String>) -> Recorded {
        let field = |name: &str| fields.get(name).map_or("", String::as_str);
        let entries = series_read(shortened(field(&place.field()), SERIES_LEN_MAX));
        let old_done = number(field("done"));
        let found = self.series_find(place, &entries);
        let is_of_old = old_done.is_some() && {
            let noted = field("done_of").split_once('@').map(|(noted, _)| noted);
            noted.filter(|noted| noted.bytes().all(|b| b.is_ascii_digit())) != Some(field("done"))
        };
        let text = match old_done.filter(|_| is_of_old) {
            _ if !found.is_empty() && !is_begun(&found) => found,
            Some(old) if old == place.number => {
                fields.get("outcome").map_or("ok", String::as_str).to_owned()
            }
            Some(old) if old > place.number && place.is_present(old, self.now) => "ok".to_owned(),
            _ if !found.is_empty() => found,
            _ => field(&format!("begun:{}", place.number)).to_owned(),
        };
        Recorded { text, entries, old_done }
    }

    fn series_find(&self, place: SeriesTick, entries: &[(i64, String)]) -> String {
        let (mut begun, mut is_passed) = ("", false);
        for (number, record) in entries {
            if *number == place.number && !is_begun(record) {
                return record.clone();
            } else if *number == place.number {
                begun = record;
            } else if *number > place.number && !is_begun(record) {
                is_passed |= place.is_present(*number, self.now);
            }
        }
        if is_passed { "ok".to_owned() } else { begun.to_owned() }
    }

    fn set_tick(&mut self, name: &str, value: &str, kept: i64) {
        let key = self.call.resource.side_key(&format!("tick:{name}"));
        self.keys.set(self.time, &key, Value::Text(InstanceId::seen(value)), Some(kept));
    }

    /// Records `record` for the numbered tick, or nothing.
    fn tick_write(&mut self, place: SeriesTick, recorded: Recorded, record: Option<String>) {
        let Recorded { mut entries, old_done, .. } = recorded;
        entries.retain(|(number, _)| *number != place.number);
        entries.extend(record.clone().map(|record| (place.number, record)));
        let now = self.now;
        prune(&mut entries, |number| place.is_present(number, now));
        let lines: Vec<_> =
            entries.iter().map(|(number, record)| format!("{number} {record}")).collect();
        let key = self.call.resource.side_key("ticks");
        let value = self.keys.value_or(self.time, &key, || Value::Hash(BTreeMap::new()));
        let Value::Hash(fields) = value else { return };
        fields.insert(place.field(), lines.join("\n"));
        let ended = record.filter(|record| !is_begun(record));
        if let Some(record) = ended.filter(|_| old_done.unwrap_or(-1) <= place.number) {
            let SeriesTick { number, period } = place;
            fields.insert("done".to_owned(), number.to_string());
            fields.insert("outcome".to_owned(), record);
            fields.insert("done_of".to_owned(), format!("{number}@{period}"));
        }
        forget_series(fields, &place.field(), now);
    }
}

fn is_begun(record: &str) -> bool {
    record.starts_with("begun ")
}

fn series_read(lines: &str) -> Vec<(i64, String)> {
    let entry = |line: &str| {
        let (digits, record) = line.split_once(' ').filter(|(_, record)| !record.is_empty())?;
        Some((number(digits)?, record.to_owned()))
    };
    lines.split('\n').filter_map(entry).take(ENTRIES_MAX + 1).collect()
}

/// Of ticks that a later one settles, and beyond the bound, those go that are missed least.
fn prune(entries: &mut Vec<(i64, String)>, is_present: impl Fn(i64) -> bool) {
    let ended = entries.iter().filter(|(_, record)| !is_begun(record));
    let settled = ended.map(|(number, _)| *number).filter(|number| is_present(*number)).max();
    entries.retain(|(number, _)| *number >= settled.unwrap_or(-1));
    entries.sort_by_key(|(number, _)| *number);
    while entries.len() > ENTRIES_MAX {
        let begun = entries.iter().position(|(_, record)| is_begun(record));
        entries.remove(begun.unwrap_or(entries.len() - 1));
    }
}

/// Series whose last tick is long over: nobody asks for them again. Those who wait for the outcome
/// of a tick, or came late with it, ask within a day.
fn forget_series(fields: &mut BTreeMap<String, String>, written: &str, now: i64) {
    if fields.len() <= SERIES_MAX || fields.len() > SCANNED_MAX {
        return;
    }
    let is_over = |(field, lines): (&String, &String)| {
        let period = number(field.strip_prefix("series:")?).filter(|period| *period > 1)?;
        let numbers = lines.split('\n').filter_map(|line| number(line.split_once(' ')?.0));
        let next = i128::from(numbers.max().unwrap_or(-1)) + 1;
        let ends = next * i128::from(period) + i128::from(SERIES_KEPT);
        (ends <= i128::from(now) && field != written).then(|| field.clone())
    };
    let gone: Vec<String> = fields.iter().filter_map(is_over).take(FORGOTTEN_MAX).collect();
    gone.iter().for_each(|field| drop(fields.remove(field)));
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
            let words = shortened(recorded, WORDS_MAX);
            TickOutcome::Failed(words.strip_prefix("failed ").unwrap_or(words).to_owned())
        }
    })
}
