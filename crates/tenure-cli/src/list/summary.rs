//! One election on one line: its state in a word, who leads, and what an operator should know.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::{HistoryEntry, HistoryKind, Leadership, Observation, Vacancy};

use super::Kind;
use crate::members::is_alive;
use crate::output::{duration, plain};
use crate::who::leadership_json;

pub(crate) const HEADINGS: [&str; 8] =
    ["NAME", "STATE", "LEADER", "FOR", "LEASE", "TOKEN", "ALIVE", "NOTE"];
/// What a cell says that has nothing to say.
pub(crate) const NONE: &str = "-";

/// How soon somebody should look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Nobody leads, or nobody can tell.
    Trouble,
    /// Something that an operator has done, or should know.
    Noteworthy,
    Fine,
}

/// An election that was looked at.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Kind,
    pub(crate) seen: &'a Observation,
    /// For how long its leader has led.
    pub(crate) leads_for: Option<Duration>,
}

/// For how long the leader has led, as the latest entries of the history tell.
pub(crate) fn leads_for(seen: &Observation, history: &[HistoryEntry]) -> Option<Duration> {
    let token = seen.leadership.leader()?.token?;
    let is_its = |entry: &&HistoryEntry| {
        entry.token == Some(token) && matches!(entry.what, HistoryKind::Granted)
    };
    Some(seen.server_time.since(history.iter().find(is_its)?.at))
}

impl Summary<'_> {
    /// The fields of `who`, and `kind`, `state`, `leads_for_ms`, `members`, `paused_for_ms`,
    /// `warnings`.
    pub(crate) fn as_json(&self) -> Value {
        let mut json = leadership_json(self.name, &self.seen.leadership);
        json["kind"] = json!(self.kind.word());
        json["state"] = json!(self.state());
        json["leads_for_ms"] = json!(self.leads_for.map(|length| length.as_millis() as u64));
        json["members"] = json!(self.alive());
        json["paused_for_ms"] = json!(self.seen.paused_for.map(|left| left.as_millis() as u64));
        json["warnings"] = json!(self.seen.warnings);
        json
    }

    /// In a word.
    pub(crate) fn state(&self) -> &'static str {
        match &self.seen.leadership {
            Leadership::Led { leader, .. } if leader.foreign => "foreign",
            Leadership::Led { .. } if self.kind == Kind::Job => "running",
            Leadership::Led { .. } => "led",
            Leadership::Vacant(Vacancy::Paused { .. }) => "paused",
            Leadership::Vacant(Vacancy::Quarantine { .. }) => "quarantine",
            Leadership::Vacant(Vacancy::Reserved { .. }) => "reserved",
            Leadership::Vacant(Vacancy::Unconfirmed { .. }) => "unconfirmed",
            // A job is idle between its ticks.
            Leadership::Vacant(_) if self.kind == Kind::Job => "idle",
            Leadership::Vacant(_) => "vacant",
        }
    }

    pub(crate) fn urgency(&self) -> Urgency {
        match self.state() {
            "vacant" | "unconfirmed" => Urgency::Trouble,
            "led" | "running" | "idle" if self.note().is_empty() => Urgency::Fine,
            _ => Urgency::Noteworthy,
        }
    }

    fn alive(&self) -> usize {
        let members = &self.seen.members;
        members.iter().filter(|member| is_alive(self.seen.server_time, member)).count()
    }

    /// A cell for each of the headings.
    pub(crate) fn row(&self) -> Vec<String> {
        let leader = self.seen.leadership.leader();
        let left = match &self.seen.leadership {
            Leadership::Led { remaining, .. } => remaining.map_or("no end".to_owned(), duration),
            Leadership::Vacant(_) => NONE.to_owned(),
        };
        let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
        vec![
            plain(self.name),
            self.state().to_owned(),
            or_none(leader.map(|leader| plain(leader.id.as_str()))),
            or_none(self.leads_for.map(duration)),
            left,
            or_none(leader.and_then(|leader| leader.token).map(|token| token.to_string())),
            self.alive().to_string(),
            self.note(),
        ]
    }

    /// What an operator should know beside the state.
    fn note(&self) -> String {
        let pause = self.seen.paused_for.map(|left| format!("paused for {}", duration(left)));
        let warnings = self.seen.warnings.iter().map(|warning| plain(warning));
        pause.into_iter().chain(warnings).collect::<Vec<_>>().join("; ")
    }
}
