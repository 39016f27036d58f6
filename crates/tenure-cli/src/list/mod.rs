//! `tenure list`: which elections there are, and their state.

mod scan;
mod summary;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::config::Config;
use tenure::{HistoryEntry, Observation, Observer, Tenure};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub(crate) use self::scan::Kind;
use self::scan::{Found, Limits};
pub(crate) use self::summary::{HEADINGS, NONE, Summary, Urgency, leads_for};
use crate::exit::{self, Failure};
use crate::output::{OutputOptions, plain, table, warn};
use crate::run::block_on;
use crate::store_options::{self, StoreOptions, blame};

/// How many elections are looked at at the same time.
const LOOKS_MAX: usize = 16;
/// Ten million keys per server.
const LIST: Limits =
    Limits { scans_max: 10_000, lasts_max: Duration::from_secs(30), with_kinds: true };
/// Enough to find a name that is nearly right, and no burden for a store that has none.
const SUGGEST: Limits =
    Limits { scans_max: 500, lasts_max: Duration::from_secs(2), with_kinds: false };

/// List all elections and jobs of a store with their state.
///
/// It finds those that somebody has led or paused, by a SCAN of the keys under the prefix (on
/// PostgreSQL, by one statement). An
/// election with a key of its own is found if the configuration names it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure list
  tenure list --store redis://redis.internal --json")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    store: StoreOptions,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = store_options::load_to_look(arguments.store.loader()?)?;
    let prefix = config.prefix.clone();
    let found = scan::scan(&config, LIST)?;
    let named = with_own_keys(&config);
    let tenure = store_options::connect(config)?;
    let mut seen = look_at_all(&tenure, &found, &named)?;
    seen.sort_by(|a, b| naturally(&a.name, &b.name));
    for why in &found.missing {
        warn(&format!("the list may not be complete: {why}"));
    }
    let json = json!({
        "store": tenure.store(),
        "prefix": prefix,
        "complete": found.missing.is_empty(),
        "elections": seen.iter().map(Seen::as_json).collect::<Vec<_>>(),
    });
    arguments.output.print(&json, || as_text(&tenure, &prefix, &seen));
    Ok(ExitCode::from(if found.is_cut_off { exit::UNREACHABLE } else { 0 }))
}

/// The names of all elections that can be found, with what they are.
pub(crate) fn names(config: &Config) -> Result<Vec<(String, Kind)>, Failure> {
    let mut kinds = scan::scan(config, LIST)?.kinds;
    for name in with_own_keys(config) {
        kinds.entry(name).or_insert(Kind::Election);
    }
    Ok(kinds.into_iter().collect())
}

/// The election that somebody probably meant who wrote `given`, which the store does not know.
/// Nothing where the store cannot be asked: it is only a suggestion.
pub(crate) fn meant(config: &Config, given: &str) -> Option<String> {
    let found = scan::scan(config, SUGGEST).ok()?;
    nearest(given, found.kinds.keys().map(String::as_str)).map(str::to_owned)
}

fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Names are typed in full, so that more is another name.
    const EDITS_MAX: usize = 3;
    let lower = given.to_lowercase();
    let edits_max = (given.chars().count() / 4).clamp(1, EDITS_MAX);
    let distance = |name: &str| strsim::damerau_levenshtein(&lower, &name.to_lowercase());
    let ranked = known.filter(|name| *name != given).map(|name| (distance(name), name));
    ranked.filter(|(edits, _)| *edits <= edits_max).min().map(|(_, name)| name)
}

/// No prefix leads to them.
fn with_own_keys(config: &Config) -> Vec<String> {
    let own = config.elections.iter().filter(|(_, election)| election.key.is_some());
    own.map(|(name, _)| name.clone()).collect()
}

/// One election, as one look showed it.
struct Seen {
    name: String,
    kind: Kind,
    /// Why nothing is known of it, where that is so.
    looked: Result<(Observation, Vec<HistoryEntry>), String>,
}

fn look_at_all(tenure: &Tenure, found: &Found, named: &[String]) -> Result<Vec<Seen>, Failure> {
    let named = named.iter().filter(|name| !found.kinds.contains_key(*name));
    let all = found.kinds.iter().map(|(name, kind)| (name, *kind, false));
    let all = all.chain(named.map(|name| (name, Kind::Election, true)));
    let mut observers = Vec::new();
    for (name, kind, is_only_named) in all {
        observers.push((tenure.observe(name)?, kind, is_only_named));
    }
    block_on(async {
        let turns = Arc::new(Semaphore::new(LOOKS_MAX));
        let mut looks = JoinSet::new();
        for (observer, kind, is_only_named) in observers {
            let (turns, tenure) = (Arc::clone(&turns), tenure.clone());
            looks.spawn(async move {
                let _turn = turns.acquire().await;
                let name = observer.resource().name().to_owned();
                let looked = look(&observer).await.map_err(|error| blame(&tenure, error).message);
                let seen = Seen { name, kind, looked };
                (!is_only_named || !seen.is_unheard_of()).then_some(seen)
            });
        }
        Ok(looks.join_all().await.into_iter().flatten().collect())
    })
}

async fn look(observer: &Observer) -> Result<(Observation, Vec<HistoryEntry>), tenure::Error> {
    /// The beginning of the latest term is among them.
    const ENTRIES: usize = 2;
    let seen = observer.look().await?;
    // Since when it leads is a courtesy.
    let history = match seen.leadership.leader() {
        Some(_) => observer.history(ENTRIES).await.unwrap_or_default(),
        None => Vec::new(),
    };
    Ok((seen, history))
}

impl Seen {
    fn is_unheard_of(&self) -> bool {
        let nothing = |seen: &Observation| {
            let is_vacant = seen.leadership.leader().is_none();
            is_vacant && seen.members.is_empty() && seen.paused_for.is_none()
        };
        self.looked.as_ref().is_ok_and(|(seen, _)| nothing(seen))
    }

    fn summary(&self) -> Result<Summary<'_>, &str> {
        match &self.looked {
            Ok((seen, history)) => {
                let leads_for = leads_for(seen, history);
                Ok(Summary { name: &self.name, kind: self.kind, seen, leads_for })
            }
            Err(why) => Err(why),
        }
    }

    /// That of its summary; or `name`, `kind`, `state` and `error`.
    fn as_json(&self) -> Value {
        match self.summary() {
            Ok(summary) => summary.as_json(),
            Err(why) => json!({
                "name": self.name, "kind": self.kind.word(), "state": "error", "error": why,
            }),
        }
    }

    fn row(&self) -> Vec<String> {
        match self.summary() {
            Ok(summary) => summary.row(),
            Err(why) => unseen_row(&self.name, "error", why),
        }
    }
}

/// The line of an election of which nothing is known, with the reason.
pub(crate) fn unseen_row(name: &str, state: &str, why: &str) -> Vec<String> {
    let mut row = vec![plain(name), state.to_owned()];
    row.resize(HEADINGS.len() - 1, NONE.to_owned());
    row.push(plain(why));
    row
}

fn as_text(tenure: &Tenure, prefix: &str, seen: &[Seen]) -> String {
    if seen.is_empty() {
        let place = plain(&tenure.store());
        return format!("no elections at {place} under the prefix {}", plain(prefix));
    }
    let mut rows: Vec<Vec<String>> = seen.iter().map(Seen::row).collect();
    let headings = without_empty_notes(&mut rows);
    table(headings, &rows)
}

/// Takes the last column out where nobody has anything to note.
pub(crate) fn without_empty_notes(rows: &mut [Vec<String>]) -> &'static [&'static str] {
    let (_, before) = HEADINGS.split_last().expect("there are headings");
    if rows.iter().any(|row| row.last().is_some_and(|note| !note.is_empty())) {
        return &HEADINGS;
    }
    rows.iter_mut().for_each(|row| drop(row.pop()));
    before
}

/// Names as people order them: job-2 before job-10.
pub(crate) fn naturally(a: &str, b: &str) -> std::cmp::Ordering {
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

/// Digits are compared by their length and then as they are, which is as numbers.
fn parts(name: &str) -> Vec<(bool, usize, String)> {
    let mut parts: Vec<(bool, usize, String)> = Vec::new();
    for c in name.chars() {
        let is_text = !c.is_ascii_digit();
        match parts.last_mut() {
            Some((kind, _, text)) if *kind == is_text => text.push(c),
            _ => parts.push((is_text, 0, c.to_string())),
        }
    }
    for (is_text, length, text) in &mut parts {
        if !*is_text {
            *text = text.trim_start_matches('0').to_owned();
            *length = text.len();
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_by_the_numbers_in_them() {
        let mut names = ["job-10", "job-2", "job", "alpha", "job-02", "job-1b", "job-1"];
        names.sort_by(|a, b| naturally(a, b));
        assert_eq!(names, ["alpha", "job", "job-1", "job-1b", "job-02", "job-2", "job-10"]);
    }

    #[test]
    fn only_a_name_that_is_nearly_right_is_suggested() {
        let known = ["nightly-report", "mailer", "job-1"];
        let of = |given| nearest(given, known.into_iter());
        assert_eq!(of("nightly-reprot"), Some("nightly-report"));
        assert_eq!(of("Nightly_report"), Some("nightly-report"));
        assert_eq!(of("maler"), Some("mailer"));
        for other in ["report", "billing", "nightly", "x"] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
