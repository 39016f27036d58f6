//! Ticks that are due by a cron expression, in a time zone.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use tenure_core::job_run::{DueTimes, JobTick};

use crate::{Error, ServerTime, Tick};

/// The fields of an expression, in their order.
const FIELDS: [&str; 5] = ["minute", "hour", "day of the month", "month", "day of the week"];
/// A moment to try an expression at: the beginning of 2026.
const TRIED_AT: ServerTime = ServerTime(1_767_225_600_000_000);

impl Tick {
    /// The latest time that this cron expression names in this time zone (`Europe/Berlin`, `UTC`)
    /// and that has come by the store's clock. It has five fields: minute, hour, day of the month,
    /// month, day of the week. Needs the feature `cron`.
    ///
    /// A time that the zone skips is due when the gap ends, and one that it repeats is due once,
    /// the first time. All due times of a job share one record, so all its instances must use the
    /// same expression and zone. Fails if the expression or the zone cannot be used.
    pub fn cron(expression: &str, zone: &str) -> Result<Self, Error> {
        let cron = parse(expression).map_err(|why| Error::Setting { setting: "cron", why })?;
        let zone = TimeZone::get(zone).map_err(|_| {
            let why = format!("there is no time zone {zone:?}: name one such as Europe/Berlin");
            Error::Setting { setting: "tz", why }
        })?;
        if latest(&cron, &zone, TRIED_AT).is_none() {
            let why = format!("{expression:?} names no time at all: check day and month");
            return Err(Error::Setting { setting: "cron", why });
        }
        let due = move |time| latest(&cron, &zone, time).unwrap_or(ServerTime(0));
        Ok(Tick(JobTick::Due(DueTimes::new(due))))
    }
}

fn parse(expression: &str) -> Result<Cron, String> {
    let parser = CronParser::builder();
    let parser = parser.seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let words: Vec<&str> = expression.split_whitespace().collect();
    let is_nickname = words.len() == 1 && expression.trim().starts_with('@');
    if words.len() != FIELDS.len() && !is_nickname {
        let fields = FIELDS.join(", ");
        return Err(format!("{expression:?} has {} fields, not 5: {fields}", words.len()));
    }
    parser.parse(expression).map_err(|error| {
        let is_wrong = |at: usize| {
            let mut alone = ["*"; 5];
            alone[at] = words[at];
            parser.parse(&alone.join(" ")).is_err()
        };
        match (0..words.len().min(FIELDS.len())).find(|at| !is_nickname && is_wrong(*at)) {
            Some(at) => format!("{:?} is no {} (field {})", words[at], FIELDS[at], at + 1),
            None => format!("{expression:?} cannot be used: {error}"),
        }
    })
}

/// The latest due time that is not after `time`.
fn latest(cron: &Cron, zone: &TimeZone, time: ServerTime) -> Option<ServerTime> {
    let time = Timestamp::from_microsecond(i64::try_from(time.0).ok()?).ok()?;
    let found: Zoned = cron.find_previous_occurrence(&time.to_zoned(zone.clone()), true).ok()?;
    u64::try_from(found.timestamp().as_second()).ok().map(|due| ServerTime(due * 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The due times in this span of UTC, as the store's clock would meet them minute by minute.
    fn due(expression: &str, from: &str, to: &str) -> Vec<String> {
        let (cron, zone) = (parse(expression).unwrap(), TimeZone::get("Europe/Berlin").unwrap());
        let at = |text: &str| text.parse::<Timestamp>().unwrap().as_microsecond() as u64;
        let mut found = Vec::new();
        for time in (at(from)..at(to)).step_by(60_000_000) {
            let due = latest(&cron, &zone, ServerTime(time + 1_500_000)).unwrap();
            assert!(found.last().is_none_or(|last| *last <= due), "{expression} goes back");
            if due.0 >= at(from) && found.last() != Some(&due) {
                found.push(due);
            }
        }
        let text = |due: &ServerTime| Timestamp::from_microsecond(due.0 as i64).unwrap();
        found.iter().map(|due| text(due).to_string()).collect()
    }

    #[test]
    fn a_month_with_a_change_of_the_clocks_has_one_due_time_a_day() {
        for (from, to, days) in [
            ("2026-03-01T00:00:00Z", "2026-03-31T12:00:00Z", 31),
            ("2026-10-01T00:00:00Z", "2026-10-31T12:00:00Z", 31),
        ] {
            assert_eq!(due("0 3 * * *", from, to).len(), days);
            assert_eq!(due("30 2 * * *", from, to).len(), days);
        }
    }

    #[test]
    fn a_skipped_time_is_due_after_the_gap_and_a_repeated_one_once() {
        let skipped = due("30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z");
        assert_eq!(skipped, ["2026-03-29T01:00:00Z"]);
        let repeated = due("30 2 * * *", "2026-10-25T00:00:00Z", "2026-10-25T12:00:00Z");
        assert_eq!(repeated, ["2026-10-25T00:30:00Z"]);
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_field() {
        for (expression, zone, words) in [
            ("0 25 * * *", "UTC", "\"25\" is no hour (field 2)"),
            ("0 3 * * MOM", "UTC", "(field 5)"),
            ("0 3 * *", "UTC", "has 4 fields, not 5"),
            ("", "UTC", "has 0 fields"),
            ("0 0 30 2 *", "UTC", "names no time at all"),
            ("0 3 * * *", "Europe/Berlim", "no time zone \"Europe/Berlim\""),
        ] {
            let error = Tick::cron(expression, zone).unwrap_err().to_string();
            assert!(error.contains(words), "{expression}: {error}");
        }
    }
}
