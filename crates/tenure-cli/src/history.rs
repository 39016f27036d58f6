//! `tenure history`: the terms there were, with reasons and the gaps between them.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{CloseReason, HistoryEntry, HistoryKind, InstanceId, ServerTime, Token};

use crate::exit::Failure;
use crate::output::{OutputOptions, duration, moment, plain, table, talk};
use crate::store_options::Target;

/// The most entries that are asked for at once: what the store keeps is capped anyway.
const ENTRIES_MAX: usize = 10_000;

/// List the latest terms, newest first, with how each ended and the gap before it.
///
/// The record lives in the store beside the election, and is kept for as long as the store keeps
/// its data.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure history nightly
  tenure history nightly --count 5 --json")]
pub(crate) struct Arguments {
    /// How many terms.
    #[arg(long, short = 'n', default_value_t = 20, value_name = "N")]
    count: u16,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let store_observer = arguments.target.observer()?;
    // A term has two entries, and a quarantine may stand between two terms.
    let wanted = (usize::from(arguments.count) * 3 + 1).min(ENTRIES_MAX);
    let entries = store_observer.wait(store_observer.observer.history(wanted))?;
    // A term whose leader was not heard of again has no end in the record, and runs no more.
    let seen = store_observer.sight()?.now();
    let leader = seen.leadership.leader().and_then(|leader| leader.token);
    let mut terms = past(&entries);
    terms.truncate(arguments.count.into());
    let json = json!({
        "name": arguments.target.name,
        "terms": terms.iter().map(|term| term.as_json(leader)).collect::<Vec<_>>(),
    });
    arguments.output.print(&json, || past_text(&terms, leader));
    if let Some(hint) = store_observer.meant_text(&seen) {
        talk(&hint);
    }
    Ok(ExitCode::SUCCESS)
}

/// One stretch of the past, newest first in lists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Past {
    Term(PastTerm),
    /// Nobody could lead because the store had lost its past.
    Quarantine {
        at: ServerTime,
        detail: String,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PastTerm {
    pub(crate) id: InstanceId,
    pub(crate) token: Option<Token>,
    /// `None` when the beginning is older than the record.
    pub(crate) began_at: Option<ServerTime>,
    /// `None` while it lasts, and where the store forgot when it ended.
    pub(crate) ended_at: Option<ServerTime>,
    pub(crate) reason: Option<&'static str>,
    pub(crate) detail: String,
    /// From the end of the term before to the beginning of this one, where that is known.
    pub(crate) gap: Option<Duration>,
}

/// Joins the entries, newest first, into terms.
pub(crate) fn past(entries: &[HistoryEntry]) -> Vec<Past> {
    let mut stretches: Vec<Past> = Vec::new();
    let mut last_end: Option<ServerTime> = None;
    // Of the newest quarantine: how many stretches came before it.
    let mut before_quarantine = 0;
    for entry in entries.iter().rev() {
        match &entry.what {
            HistoryKind::Granted => {
                let gap = last_end.take().map(|end| entry.at.since(end));
                let term = PastTerm { began_at: Some(entry.at), gap, ..PastTerm::of(entry) };
                stretches.push(Past::Term(term));
            }
            HistoryKind::Closed { reason, detail } => {
                let index = open_term(&mut stretches, entry);
                let is_cut = is_told_by_store(reason.as_str()) && index < before_quarantine;
                last_end = (!is_cut).then_some(entry.at);
                if let Past::Term(term) = &mut stretches[index] {
                    term.ended_at = last_end;
                    term.reason = Some(reason.as_str());
                    term.detail.clone_from(detail);
                }
            }
            HistoryKind::Quarantined { detail } => {
                // What the store forgot may have been a later end, and other terms.
                last_end = None;
                if let Some(Past::Term(term)) = stretches.last_mut()
                    && term.reason.is_some_and(is_told_by_store)
                {
                    term.ended_at = None;
                }
                before_quarantine = stretches.len();
                stretches.push(Past::Quarantine { at: entry.at, detail: detail.clone() });
            }
            _ => {}
        }
    }
    stretches.reverse();
    stretches
}

/// Whether the store concluded the end from what it knew, rather than hearing of it.
fn is_told_by_store(reason: &str) -> bool {
    let concluded = [CloseReason::Expired, CloseReason::Vanished];
    concluded.iter().any(|one| one.as_str() == reason)
}

/// Where the term is that `entry` closes; a new one when its beginning is not in the record.
fn open_term(stretches: &mut Vec<Past>, entry: &HistoryEntry) -> usize {
    let found = stretches
        .iter()
        .rposition(|stretch| matches!(stretch, Past::Term(term) if term.token == entry.token));
    found.unwrap_or_else(|| {
        stretches.push(Past::Term(PastTerm::of(entry)));
        stretches.len() - 1
    })
}

impl PastTerm {
    fn of(entry: &HistoryEntry) -> Self {
        PastTerm {
            id: entry.id.clone(),
            token: entry.token,
            began_at: None,
            ended_at: None,
            reason: None,
            detail: String::new(),
            gap: None,
        }
    }
}

impl Past {
    /// `kind` (`term` or `quarantine`); a term has `id`, `token`, `began_at`, `ended_at`,
    /// `running`, `reason`, `detail`, `lasted_ms`, `gap_ms`; a quarantine has `at` and `detail`.
    fn as_json(&self, leader: Option<Token>) -> Value {
        match self {
            Past::Term(term) => json!({
                "kind": "term",
                "id": term.id.as_str(),
                "token": term.token.map_or(0, Token::get),
                "began_at": term.began_at.map(moment),
                "ended_at": term.ended_at.map(moment),
                "running": term.is_running(leader),
                "reason": term.reason,
                "detail": Some(&term.detail).filter(|detail| !detail.is_empty()),
                "lasted_ms": term.lasted().map(|lasted| lasted.as_millis() as u64),
                "gap_ms": term.gap.map(|gap| gap.as_millis() as u64),
            }),
            Past::Quarantine { at, detail } => {
                json!({ "kind": "quarantine", "at": moment(*at), "detail": detail })
            }
        }
    }

    fn row(&self, leader: Option<Token>) -> Vec<String> {
        let or_blank = |text: Option<String>| text.unwrap_or_default();
        match self {
            Past::Term(term) => vec![
                or_blank(term.began_at.map(moment)),
                plain(term.id.as_str()),
                term.token.map_or(0, Token::get).to_string(),
                match term.lasted() {
                    Some(lasted) => duration(lasted),
                    None if term.is_running(leader) => RUNNING.to_owned(),
                    None => "unknown".to_owned(),
                },
                or_blank(term.gap.map(duration)),
                format!("{} {}", term.reason.unwrap_or_default(), plain(&term.detail)),
            ],
            Past::Quarantine { at, detail } => {
                let told = format!("quarantine: {}", plain(detail));
                vec![moment(*at), String::new(), String::new(), String::new(), String::new(), told]
            }
        }
    }
}

impl PastTerm {
    /// Whether it is the term of whoever leads now.
    fn is_running(&self, leader: Option<Token>) -> bool {
        self.ended_at.is_none() && leader.is_some() && leader == self.token
    }

    fn lasted(&self) -> Option<Duration> {
        Some(self.ended_at?.since(self.began_at?))
    }
}

pub(crate) fn past_text(terms: &[Past], leader: Option<Token>) -> String {
    match terms.is_empty() {
        true => NO_TERMS.to_owned(),
        false => table(PAST_HEADINGS, &past_rows(terms, leader)),
    }
}

pub(crate) const NO_TERMS: &str = "no terms yet: nobody has led";
pub(crate) const PAST_HEADINGS: &[&str] = &["BEGAN", "LEADER", "TOKEN", LASTED, "GAP", "ENDED"];
pub(crate) const LASTED: &str = "LASTED";
/// How long a term lasted that has not ended.
pub(crate) const RUNNING: &str = "leads";

/// A row per stretch of the past; `leader` is the token under which somebody leads now.
pub(crate) fn past_rows(terms: &[Past], leader: Option<Token>) -> Vec<Vec<String>> {
    terms.iter().map(|term| term.row(leader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: u64, token: u64, what: HistoryKind) -> HistoryEntry {
        let token = Token::new(token);
        HistoryEntry { at: ServerTime(at), id: InstanceId::seen("ada"), token, what }
    }

    fn closed() -> HistoryKind {
        HistoryKind::Closed { reason: CloseReason::Released, detail: String::new() }
    }

    #[test]
    fn entries_become_terms_with_the_gaps_between_them() {
        let entries = [
            entry(9_000, 2, HistoryKind::Granted),
            entry(5_000, 1, closed()),
            entry(1_000, 1, HistoryKind::Granted),
        ];
        let terms = past(&entries);
        let [Past::Term(newest), Past::Term(oldest)] = terms.as_slice() else {
            panic!("two terms, not {terms:?}")
        };
        assert_eq!(newest.gap, Some(Duration::from_micros(4_000)));
        assert_eq!(newest.lasted(), None);
        assert_eq!(oldest.lasted(), Some(Duration::from_micros(4_000)));
        assert_eq!(oldest.reason, Some("released"));
    }

    /// The store came back with older data: who led until when, and who else, is forgotten.
    #[test]
    fn across_a_loss_of_data_neither_end_nor_gap_is_known() {
        let lost = || HistoryKind::Quarantined { detail: "store restarted".to_owned() };
        let expired =
            || HistoryKind::Closed { reason: CloseReason::Expired, detail: String::new() };
        let granted = || HistoryKind::Granted;
        let before = [entry(9, 2, granted()), entry(7, 0, lost()), entry(5, 1, expired())];
        let after = [entry(9, 2, granted()), entry(7, 1, expired()), entry(6, 0, lost())];
        for newer in [before, after] {
            let entries: Vec<_> = newer.into_iter().chain([entry(1, 1, granted())]).collect();
            let terms = past(&entries);
            let [Past::Term(newest), Past::Quarantine { .. }, Past::Term(oldest)] = &terms[..]
            else {
                panic!("two terms and a quarantine, not {terms:?}")
            };
            assert_eq!((newest.gap, oldest.lasted()), (None, None), "{terms:?}");
            assert_eq!(oldest.reason, Some("expired"));
        }
        // What the leader itself said counts.
        let told = [entry(7, 0, lost()), entry(5, 1, closed()), entry(1, 1, granted())];
        let terms = past(&told);
        let Some(Past::Term(term)) = terms.last() else { panic!("a term, not {terms:?}") };
        assert_eq!(term.lasted(), Some(Duration::from_micros(4)));
    }

    #[test]
    fn a_term_older_than_the_record_has_no_beginning() {
        let terms = past(&[entry(5_000, 1, closed())]);
        assert!(matches!(&terms[..], [Past::Term(term)] if term.began_at.is_none()));
    }
}
