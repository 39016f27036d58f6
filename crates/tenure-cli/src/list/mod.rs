//! `tenure list`: which elections there are, and their state.

mod scan;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::config::Config;
use tenure::{HistoryEntry, HistoryKind, Leadership, Observation, Observer, Tenure};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::scan::{Found, Kind, Limits};
use crate::exit::{self, Failure};
use crate::members::is_alive;
use crate::output::{OutputOptions, duration, plain, table, warn};
use crate::run::block_on;
use crate::store_options::{self, StoreOptions, blame};
use crate::who::leadership_json;

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
/// It finds those that somebody has led or paused, by a SCAN of the keys under the prefix. An
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

    /// The fields of `who`, and `kind`, `state`, `leads_for_ms`, `members`, `paused_for_ms`,
    /// `warnings`; or `name`, `kind`, `state` and `error`.
    fn as_json(&self) -> Value {
        let (seen, _) = match &self.looked {
            Ok(looked) => looked,
            Err(why) => {
                return json!({
                    "name": self.name, "kind": self.kind.word(), "state": "error", "error": why,
                });
            }
        };
        let mut json = leadership_json(&self.name, &seen.leadership);
        json["kind"] = json!(self.kind.word());
        json["state"] = json!(self.state());
        json["leads_for_ms"] = json!(self.leads_for().map(|length| length.as_millis() as u64));
        json["members"] = json!(self.alive());
        json["paused_for_ms"] = json!(seen.paused_for.map(|left| left.as_millis() as u64));
        json["warnings"] = json!(seen.warnings);
        json
    }

    /// In a word.
    fn state(&self) -> &'static str {
        let Ok((seen, _)) = &self.looked else { return "error" };
        match &seen.leadership {
            Leadership::Led { leader, .. } if leader.foreign => "foreign",
            Leadership::Led { .. } if self.kind == Kind::Job => "running",
            Leadership::Led { .. } => "led",
            Leadership::Vacant(why) => {
                match leadership_json("", &Leadership::Vacant(why.clone()))["vacancy"].as_str() {
                    Some("paused") => "paused",
                    Some("quarantine") => "quarantine",
                    Some("reserved") => "reserved",
                    Some("unconfirmed") => "unconfirmed",
                    // A job is idle between its ticks.
                    _ if self.kind == Kind::Job => "idle",
                    _ => "vacant",
                }
            }
        }
    }

    fn leads_for(&self) -> Option<Duration> {
        let (seen, history) = self.looked.as_ref().ok()?;
        let token = seen.leadership.leader()?.token?;
        let is_its = |entry: &&HistoryEntry| {
            entry.token == Some(token) && matches!(entry.what, HistoryKind::Granted)
        };
        let granted = history.iter().find(is_its)?;
        Some(seen.server_time.since(granted.at))
    }

    fn alive(&self) -> usize {
        let Ok((seen, _)) = &self.looked else { return 0 };
        seen.members.iter().filter(|member| is_alive(seen.server_time, member)).count()
    }

    fn row(&self) -> Vec<String> {
        let Ok((seen, _)) = &self.looked else {
            let none = || "-".to_owned();
            let (name, state) = (plain(&self.name), self.state().to_owned());
            return vec![name, state, none(), none(), none(), none(), none(), self.note()];
        };
        let leader = seen.leadership.leader();
        let left = match &seen.leadership {
            Leadership::Led { remaining, .. } => remaining.map_or("no end".to_owned(), duration),
            Leadership::Vacant(_) => "-".to_owned(),
        };
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            plain(&self.name),
            self.state().to_owned(),
            or_none(leader.map(|leader| plain(leader.id.as_str()))),
            or_none(self.leads_for().map(duration)),
            left,
            or_none(leader.and_then(|leader| leader.token).map(|token| token.to_string())),
            self.alive().to_string(),
            self.note(),
        ]
    }

    /// What an operator should know beside the state.
    fn note(&self) -> String {
        let (seen, _) = match &self.looked {
            Ok(looked) => looked,
            Err(why) => return plain(why),
        };
        let pause = seen.paused_for.map(|left| format!("paused for {}", duration(left)));
        let warnings = seen.warnings.iter().map(|warning| plain(warning));
        pause.into_iter().chain(warnings).collect::<Vec<_>>().join("; ")
    }
}

fn as_text(tenure: &Tenure, prefix: &str, seen: &[Seen]) -> String {
    if seen.is_empty() {
        let place = plain(&tenure.store());
        return format!("no elections at {place} under the prefix {}", plain(prefix));
    }
    let mut headings = vec!["NAME", "STATE", "LEADER", "FOR", "LEASE", "TOKEN", "ALIVE", "NOTE"];
    let mut rows: Vec<Vec<String>> = seen.iter().map(Seen::row).collect();
    if rows.iter().all(|row| row.last().is_none_or(String::is_empty)) {
        headings.pop();
        rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    table(&headings, &rows)
}

/// Names as people order them: job-2 before job-10.
fn naturally(a: &str, b: &str) -> std::cmp::Ordering {
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
