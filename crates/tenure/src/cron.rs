//! Ticks that are due by a cron expression, in a time zone.

use croner::parser::{CronParser, Seconds, Year};
use croner::{Cron, JobType};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan, Zoned};
use tenure_core::job_run::{DueTimes, JobTick};

use crate::{Error, ServerTime, Tick};

/// The fields of an expression, in their order.
const FIELDS: [&str; 5] = ["minute", "hour", "day of the month", "month", "day of the week"];
/// A moment to try an expression at: the beginning of 2026.
const TRIED_AT: ServerTime = ServerTime(1_767_225_600_000_000);
/// Longer than any time of day is repeated.
const LOOKED_AHEAD: SignedDuration = SignedDuration::from_hours(25);

impl Tick {
    /// The latest time that this cron expression names in this time zone (`Europe/Berlin`, `UTC`)
    /// and that has come by the store's clock. It has five fields: minute, hour, day of the month,
    /// month, day of the week. Needs the feature `cron`.
    ///
    /// A time that the zone skips is due when the gap ends, and one that it repeats is due once,
    /// the first time; with `*` in the hour, it is due as often as the clock shows it. All due
    /// times of a job share one record, so all its instances must use the same expression and zone.
    /// Fails if the expression or the zone cannot be used.
    pub fn cron(expression: &str, zone: &str) -> Result<Self, Error> {
        let cron = parse(expression).map_err(|why| Error::Setting { setting: "cron", why })?;
        let zone = TimeZone::get(zone).map_err(|_| {
            let why = format!("there is no time zone {zone:?}: name one such as Europe/Berlin");
            Error::Setting { setting: "tz", why }
        })?;
        let schedule = Schedule { names_hours: names_hours(expression, &cron), cron, zone };
        if schedule.latest(TRIED_AT).is_none() {
            let why = format!("{expression:?} names no time at all: check day and month");
            return Err(Error::Setting { setting: "cron", why });
        }
        let due = move |time| schedule.latest(time).unwrap_or(ServerTime(0));
        Ok(Tick(JobTick::Due(DueTimes::new(due))))
    }
}

/// Whether the expression is about hours that people name, such as 3 or 2,14, rather than about how
/// much time passes: those are due on each day, whatever becomes of the clocks.
fn names_hours(expression: &str, cron: &Cron) -> bool {
    match expression.split_whitespace().nth(1) {
        Some(hours) => !hours.contains('*'),
        None => cron.determine_job_type() == JobType::FixedTime,
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

/// An expression in a time zone.
struct Schedule {
    cron: Cron,
    zone: TimeZone,
    names_hours: bool,
}

impl Schedule {
    /// The latest due time that is not after `time`.
    fn latest(&self, time: ServerTime) -> Option<ServerTime> {
        let time = Timestamp::from_microsecond(i64::try_from(time.0).ok()?).ok()?;
        let due = match self.names_hours {
            true => self.latest_of_day(time)?,
            false => self.previous(&time.to_zoned(self.zone.clone()))?.timestamp(),
        };
        u64::try_from(due.as_second()).ok().map(|due| ServerTime(due * 1_000_000))
    }

    /// The same where hours are named. They are looked for on a calendar without changes of the
    /// clocks: the library, looking back through a skipped hour, names its end also for times that
    /// come later on that day.
    fn latest_of_day(&self, time: Timestamp) -> Option<Timestamp> {
        // Where an hour repeats, what is due in its first pass may bear a later time of the day.
        let local = self.zone.to_datetime(time).checked_add(LOOKED_AHEAD).ok()?;
        let mut named = local.to_zoned(TimeZone::UTC).ok()?;
        loop {
            named = self.previous(&named)?;
            let due = first_instant(&self.zone, named.datetime())?;
            if due <= time {
                return Some(due);
            }
            named = named.checked_sub(1.second()).ok()?;
        }
    }

    fn previous(&self, from: &Zoned) -> Option<Zoned> {
        self.cron.find_previous_occurrence(from, true).ok()
    }
}

/// When a clock on the wall first shows this time, or the end of the gap that has it.
fn first_instant(zone: &TimeZone, shown: DateTime) -> Option<Timestamp> {
    let shown = zone.to_ambiguous_timestamp(shown);
    let AmbiguousOffset::Gap { .. } = shown.offset() else { return shown.earlier().ok() };
    // By the offset before the gap it lies behind the change, and no other change comes between.
    let behind = shown.later().ok()?.checked_add(1.nanosecond()).ok()?;
    zone.preceding(behind).next().map(|change| change.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> u64 {
        text.parse::<Timestamp>().unwrap().as_microsecond() as u64
    }

    /// The due times in this span of UTC, as the store's clock would meet them every ten minutes.
    fn due_in(zone: &str, expression: &str, from: u64, to: u64) -> Vec<String> {
        let (cron, zone) = (parse(expression).unwrap(), TimeZone::get(zone).unwrap());
        let schedule = Schedule { names_hours: names_hours(expression, &cron), cron, zone };
        let mut found = Vec::new();
        const STEP: u64 = 600_000_000;
        for time in (from..to).step_by(STEP as usize) {
            let due = schedule.latest(ServerTime(time + 1_500_000)).unwrap();
            assert!(found.last().is_none_or(|last| *last <= due), "{expression} goes back");
            if due.0 >= from && found.last() != Some(&due) {
                assert!(due.0 > time - STEP, "{expression} comes late: {due:?}");
                found.push(due);
            }
        }
        let text = |due: &ServerTime| Timestamp::from_microsecond(due.0 as i64).unwrap();
        found.iter().map(|due| text(due).to_string()).collect()
    }

    fn due(expression: &str, from: &str, to: &str) -> Vec<String> {
        due_in("Europe/Berlin", expression, at(from), at(to))
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
    fn every_time_of_the_day_is_due_once_a_day_however_the_clocks_change() {
        const AROUND: u64 = 26 * 3_600_000_000;
        let zones = [
            ("Europe/Berlin", "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"),
            ("America/New_York", "2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"),
            // The gap begins at one, ends at midnight, lasts half an hour, lasts two.
            ("Europe/Dublin", "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"),
            ("America/Nuuk", "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T15:30:00Z", "2026-04-04T15:00:00Z"),
            ("Antarctica/Troll", "2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z"),
        ];
        for (zone, gap, fold) in zones {
            for (minute, hour) in (0..24).flat_map(|hour| [(0, hour), (30, hour), (59, hour)]) {
                for change in [gap, fold] {
                    let expression = format!("{minute} {hour} * * *");
                    let (from, to) = (at(change) - AROUND, at(change) + AROUND);
                    let days: Vec<String> = due_in(zone, &expression, from, to)
                        .iter()
                        .map(|due| local_day(zone, due.parse().unwrap()))
                        .collect();
                    let counts = [1, 0].map(|before| {
                        let day = Timestamp::from_microsecond((at(change) - before) as i64);
                        let day = local_day(zone, day.unwrap());
                        days.iter().filter(|known| **known == day).count()
                    });
                    // The last hour of the day before was skipped.
                    let is_moved = zone == "America/Nuuk" && change == gap && hour == 23;
                    let expected = if is_moved { [0, 2] } else { [1, 1] };
                    assert_eq!(counts, expected, "{expression} in {zone} around {change}");
                }
            }
        }
    }

    fn local_day(zone: &str, time: Timestamp) -> String {
        time.to_zoned(TimeZone::get(zone).unwrap()).date().to_string()
    }

    #[test]
    fn a_gap_across_midnight_and_a_day_that_is_left_out_lose_no_due_time() {
        // Summer began in Lebanon at midnight: there was no 0:30 on that Sunday.
        let beirut = "Asia/Beirut";
        let (from, to) = (at("2025-03-29T20:00:00Z"), at("2025-03-30T20:00:00Z"));
        assert_eq!(due_in(beirut, "30 0 * * *", from, to), ["2025-03-29T22:00:00Z"]);
        // Samoa had no 30 December 2011; what was due then is due when the 31st begins.
        let (from, to) = (at("2011-12-30T00:00:00Z"), at("2011-12-31T00:00:00Z"));
        let found = due_in("Pacific/Apia", "0 12 * * *", from, to);
        assert_eq!(found, ["2011-12-30T10:00:00Z", "2011-12-30T22:00:00Z"]);
    }

    #[test]
    fn a_skipped_time_is_due_after_the_gap_and_a_repeated_one_once() {
        let skipped = due("30 2 * * *", "2026-03-29T00:00:00Z", "2026-03-29T12:00:00Z");
        assert_eq!(skipped, ["2026-03-29T01:00:00Z"]);
        let repeated = due("30 2 * * *", "2026-10-25T00:00:00Z", "2026-10-25T12:00:00Z");
        assert_eq!(repeated, ["2026-10-25T00:30:00Z"]);
    }

    #[test]
    fn several_hours_of_a_day_are_as_good_as_one_and_every_hour_follows_the_clock() {
        let spring = |expression| due(expression, "2026-03-29T00:00:00Z", "2026-03-29T12:30:00Z");
        let autumn = |expression| due(expression, "2026-10-25T00:00:00Z", "2026-10-25T12:30:00Z");
        let twice_a_day = ["2026-03-29T01:00:00Z", "2026-03-29T12:00:00Z"];
        assert_eq!(spring("0 2,14 * * *"), twice_a_day);
        // At 2:00 in summer, and 14:00 in winter is after the span.
        assert_eq!(autumn("0 2,14 * * *"), ["2026-10-25T00:00:00Z"]);
        assert_eq!(spring("0 * * * *").len(), 13);
        assert_eq!(autumn("0 * * * *").len(), 13);
        assert_eq!(spring("@hourly").len(), 13);
        assert_eq!(spring("@daily"), Vec::<String>::new());
    }

    /// Each minute of the days around a change is looked at as a person looks at the clock.
    #[test]
    fn with_a_star_in_the_hour_it_is_due_whenever_the_clock_shows_it() {
        const MINUTE: u64 = 60_000_000;
        const AROUND: u64 = 26 * 60 * MINUTE;
        type Shows = fn(i8, i8) -> bool;
        let expressions: [(&str, Shows); 4] = [
            ("0 * * * *", |_, minute| minute == 0),
            ("30 */2 * * *", |hour, minute| hour % 2 == 0 && minute == 30),
            ("*/20 * * * *", |_, minute| minute % 20 == 0),
            ("15 */23 * * *", |hour, minute| hour % 23 == 0 && minute == 15),
        ];
        let changes = [
            ("Europe/Berlin", "2026-03-29T01:00:00Z"),
            ("Europe/Berlin", "2026-10-25T01:00:00Z"),
            ("America/Nuuk", "2026-03-29T01:00:00Z"),
            ("America/Nuuk", "2026-10-25T01:00:00Z"),
            ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
            ("Australia/Lord_Howe", "2026-04-04T15:00:00Z"),
            ("Antarctica/Troll", "2026-03-29T01:00:00Z"),
            ("Antarctica/Troll", "2026-10-25T01:00:00Z"),
            ("Asia/Kathmandu", "2026-03-29T01:00:00Z"),
        ];
        for ((zone_name, change), (expression, shows)) in
            changes.into_iter().flat_map(|change| expressions.map(|shown| (change, shown)))
        {
            let (cron, zone) = (parse(expression).unwrap(), TimeZone::get(zone_name).unwrap());
            let schedule = Schedule { names_hours: names_hours(expression, &cron), cron, zone };
            let (mut shown, from) = (None, at(change) - AROUND);
            for minute in 0..2 * AROUND / MINUTE {
                let now = from + minute * MINUTE;
                let local = Timestamp::from_microsecond(now as i64).unwrap();
                let local = local.to_zoned(schedule.zone.clone());
                if shows(local.hour(), local.minute()) {
                    shown = Some(ServerTime(now));
                }
                if shown.is_some() {
                    let due = schedule.latest(ServerTime(now + 1_500_000));
                    assert_eq!(due, shown, "{expression} in {zone_name} at {local}");
                }
            }
        }
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
