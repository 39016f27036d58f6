//! The history of terms: a capped stream.

use std::collections::VecDeque;

use crate::InstanceId;
use crate::protocol::{CloseReason, HistoryEntry, HistoryKind, Outcome};

use super::Step;
use super::keys::{StreamEntry, Value, WRONG_TYPE};
use super::record::{Field, number, shortened};
use super::step::{SHOWN_MAX, moment, token};

/// How many lines of history are kept per resource.
const HISTORY_KEPT_MAX: usize = 1_000;
/// Fields of an entry that are looked at, names and values.
const FIELDS_MAX: usize = 32;

impl Step<'_> {
    pub(super) fn journal(
        &mut self,
        at: i64,
        what: &str,
        id: &str,
        term: i64,
        reason: &str,
        detail: &str,
    ) {
        let entry = [
            ("at", at.to_string()),
            ("what", what.to_owned()),
            ("id", shortened(id, SHOWN_MAX).to_owned()),
            ("token", term.to_string()),
            ("reason", reason.to_owned()),
            ("detail", shortened(detail, SHOWN_MAX).to_owned()),
        ];
        let entry = entry.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let empty = || Value::Stream(VecDeque::new());
        match self.keys.value_or(self.time, &self.names.history, empty) {
            Value::Stream(entries) => {
                if entries.len() == HISTORY_KEPT_MAX {
                    entries.pop_front();
                }
                entries.push_back(entry);
            }
            _ => self.warn(format!("history: {WRONG_TYPE}")),
        }
    }

    /// A release names only two keys; what history shall say of it waits in the side record.
    pub(super) fn journal_unrecorded(&mut self) -> bool {
        let text = self.meta.text(Field::Unrecorded).into_owned();
        let words: Vec<&str> = text.split(' ').collect();
        let [at, term, id, reason] = words[..] else { return false };
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let is_of_term = self.meta.text(Field::WishToken) == term;
        let (Ok(at), Ok(term)) = (at.parse(), term.parse()) else { return false };
        if id.is_empty() || !is_word(reason) {
            return false;
        }
        let detail = match is_of_term && self.was_asked_for(at, reason) {
            true => format!("asked by {}", self.meta.text(Field::WishBy)),
            false => String::new(),
        };
        self.journal(at, "closed", id, term, reason, &detail);
        true
    }

    /// Whether somebody had asked for the end of a term, and was not refused. Only the field `wish`
    /// is emptied when a term ends: the others still tell.
    fn was_asked_for(&self, at: i64, reason: &str) -> bool {
        reason == CloseReason::Released.as_str()
            && !self.meta.is_empty(Field::WishBy)
            && self.meta.is_empty(Field::WishRefused)
            && at <= self.meta.number(Field::WishUntil).unwrap_or(0)
    }

    /// What follows a release: what it could not write with its two keys.
    pub(super) fn note(&mut self) {
        if self.conflict.is_none() && self.journal_unrecorded() {
            self.hset(Field::Unrecorded, "");
        }
        let now_ms = self.now_ms();
        match self.keys.get_mut(self.time, &self.names.beats).map(|entry| &mut entry.value) {
            Some(Value::Beats(beats)) => {
                if let Some(beat) = beats.get_mut(&self.call.id) {
                    *beat = now_ms;
                }
            }
            Some(_) => self.warn(format!("members: {WRONG_TYPE}")),
            None => {}
        }
    }

    pub(super) fn history(&mut self, count: usize) -> Outcome {
        let key = &self.names.history;
        match self.keys.get(self.time, key).map(|entry| &entry.value) {
            None => Outcome::History(Vec::new()),
            Some(Value::Stream(entries)) => {
                let latest = entries.iter().rev().take(count.clamp(1, HISTORY_KEPT_MAX));
                let looked_at = latest.len();
                let parsed: Vec<_> = latest.filter_map(parse_entry).collect();
                let unreadable = looked_at - parsed.len();
                if unreadable > 0 {
                    let what = "entries of the history cannot be read: left out";
                    self.warn(format!("{unreadable} {what}"));
                }
                Outcome::History(parsed)
            }
            Some(_) => Outcome::Conflict { what: format!("{key} is not a stream") },
        }
    }
}

fn parse_entry(entry: &StreamEntry) -> Option<HistoryEntry> {
    let field = |name: &str| {
        let found = entry.iter().take(FIELDS_MAX).find(|(found, _)| found == name);
        found.map(|(_, value)| shortened(value, SHOWN_MAX))
    };
    let detail = || field("detail").map(str::to_owned);
    let what = match field("what")? {
        "granted" => HistoryKind::Granted,
        "closed" => {
            HistoryKind::Closed { reason: CloseReason::parse(field("reason")?)?, detail: detail()? }
        }
        "quarantined" => HistoryKind::Quarantined { detail: detail()? },
        _ => return None,
    };
    let at = moment(number(field("at")?)?);
    let id = InstanceId::seen(field("id")?);
    Some(HistoryEntry { at, id, token: token(number(field("token")?)), what })
}
