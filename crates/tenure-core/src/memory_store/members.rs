//! Who takes part: see `roster.lua` of the Redis backend, which this repeats.

use std::collections::BTreeMap;

use crate::InstanceId;
use crate::protocol::{Hint, MEMBERS_LISTED_MAX, Member, MemberRecord, Outcome};
use crate::record_text;

use super::Step;
use super::keys::{Value, WRONG_TYPE};
use super::record::{Field, number};
use super::step::{SHOWN_MAX, moment, whole_millis};

/// How many members are kept, and how many are struck at once.
const KEPT_MAX: usize = 4096;
const PRUNED_AT_ONCE: usize = 64;
/// Bytes of a record that are believed to be ours, and of all records in one answer.
const RECORD_MAX: usize = 32_768;
const LISTED_BYTES_MAX: usize = 8_388_608;
/// A beat further ahead than this came from another clock, in milliseconds.
const AHEAD_MAX: i64 = 60_000;

/// What stands about a member.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// What it told itself, and since when it has been ready.
    Itself { since: i64, record: MemberRecord },
    /// What somebody else wrote.
    Raw(String),
}

impl Told {
    /// As the store keeps it.
    pub(super) fn text(&self) -> String {
        match self {
            Told::Itself { since, record } => format!("{since} {}", record_text::encode(record)),
            Told::Raw(text) => text.clone(),
        }
    }

    fn since(&self) -> Option<i64> {
        match self {
            Told::Itself { since, .. } => Some(*since),
            Told::Raw(text) => number(text.split_once(' ')?.0),
        }
    }
}

impl PartialEq for Told {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Told::Itself { since, record },
                Told::Itself { since: other_since, record: other },
            ) => since == other_since && record == other,
            _ => self.text() == other.text(),
        }
    }
}

impl Step<'_> {
    pub(super) fn beat_alone(&mut self, record: &MemberRecord) -> Outcome {
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        let ttl = whole_millis(record.ttl);
        self.settle_life(ttl);
        self.shorten_stale_lease(ttl);
        self.beat(record, ttl);
        Outcome::Done
    }

    /// Records the caller as alive now, with what it says about itself.
    pub(super) fn beat(&mut self, record: &MemberRecord, ttl: i64) {
        let before = self.told();
        let last = self.last_beat();
        let mut since = 0;
        if record.ready {
            since = before.as_ref().and_then(Told::since).unwrap_or(0);
            let was_silent = self.now_ms() - last > 3 * ttl && !self.holds_key();
            if since == 0 || since > self.now || was_silent {
                since = self.now;
            }
        }
        self.write_beat();
        let told = Told::Itself { since, record: record.clone() };
        if before.as_ref() != Some(&told) && self.write_told(told) {
            self.hints.push(Hint::Members);
        }
        self.prune(ttl);
    }

    fn told(&mut self) -> Option<Told> {
        match self.keys.get(self.time, &self.names.members).map(|entry| &entry.value) {
            None => None,
            Some(Value::Members(members)) => members.get(&self.call.id).cloned(),
            Some(_) => {
                self.warn_of_type("members");
                None
            }
        }
    }

    fn last_beat(&mut self) -> i64 {
        match self.keys.get(self.time, &self.names.beats).map(|entry| &entry.value) {
            None => 0,
            Some(Value::Beats(beats)) => beats.get(&self.call.id).copied().unwrap_or(0),
            Some(_) => {
                self.warn_of_type("members");
                0
            }
        }
    }

    fn write_beat(&mut self) {
        let now_ms = self.now_ms();
        let empty = || Value::Beats(BTreeMap::new());
        match self.keys.value_or(self.time, &self.names.beats, empty) {
            Value::Beats(beats) => drop(beats.insert(self.call.id.clone(), now_ms)),
            _ => self.warn_of_type("members"),
        }
    }

    fn write_told(&mut self, told: Told) -> bool {
        let empty = || Value::Members(BTreeMap::new());
        match self.keys.value_or(self.time, &self.names.members, empty) {
            Value::Members(members) => {
                members.insert(self.call.id.clone(), told);
                true
            }
            _ => {
                self.warn_of_type("members");
                false
            }
        }
    }

    fn warn_of_type(&mut self, what: &str) {
        self.warn(format!("{what}: {WRONG_TYPE}"));
    }

    fn beats(&mut self) -> Option<&mut BTreeMap<InstanceId, i64>> {
        match self.keys.get_mut(self.time, &self.names.beats).map(|entry| &mut entry.value) {
            Some(Value::Beats(beats)) => Some(beats),
            _ => None,
        }
    }

    /// Forgets members that have long been silent, came from the future or exceed the bound.
    fn prune(&mut self, ttl: i64) {
        let silent_before = self.now_ms() - 10 * ttl.max(self.max_ttl);
        let (latest, holder) =
            (self.now_ms() + AHEAD_MAX, self.key_exists().then(|| self.holder()));
        match self.keys.get(self.time, &self.names.beats).map(|entry| &entry.value) {
            Some(Value::Beats(_)) | None => {}
            Some(_) => {
                // Three commands find the same.
                (0..3).for_each(|_| self.warn_of_type("members"));
            }
        }
        if let Some(beats) = self.beats() {
            let gone: Vec<InstanceId> = lowest(beats)
                .into_iter()
                .filter(|(beat, _)| *beat <= silent_before)
                .take(PRUNED_AT_ONCE)
                .map(|(_, id)| id)
                .filter(|id| holder.as_deref() != Some(id.as_str()))
                .collect();
            self.strike(&gone);
        }
        let Some(beats) = self.beats() else { return self.prune_records() };
        beats.retain(|_, beat| *beat < latest);
        let surplus = beats.len().saturating_sub(KEPT_MAX).min(PRUNED_AT_ONCE);
        if surplus > 0 {
            let lowest = lowest(beats).into_iter().take(surplus);
            let gone: Vec<_> = lowest.map(|(_, id)| id).collect();
            self.strike(&gone);
        }
        self.drop_if_empty();
        self.prune_records();
    }

    fn prune_records(&mut self) {
        match self.keys.get(self.time, &self.names.members).map(|entry| &entry.value) {
            None => {}
            Some(Value::Members(members)) if members.len() <= 2 * KEPT_MAX => {}
            Some(Value::Members(_)) => {
                self.keys.delete(self.time, &self.names.members);
            }
            Some(_) => self.warn_of_type("members"),
        }
    }

    fn strike(&mut self, ids: &[InstanceId]) {
        if ids.is_empty() {
            return;
        }
        match self.keys.get_mut(self.time, &self.names.beats).map(|entry| &mut entry.value) {
            Some(Value::Beats(beats)) => beats.retain(|id, _| !ids.contains(id)),
            Some(_) => self.warn_of_type("members"),
            None => {}
        }
        match self.keys.get_mut(self.time, &self.names.members).map(|entry| &mut entry.value) {
            Some(Value::Members(members)) => members.retain(|id, _| !ids.contains(id)),
            Some(_) => self.warn_of_type("members"),
            None => {}
        }
        self.drop_if_empty();
    }

    /// A collection without elements does not exist.
    fn drop_if_empty(&mut self) {
        for key in [&self.names.beats, &self.names.members] {
            let is_empty = match self.keys.get(self.time, key).map(|entry| &entry.value) {
                Some(Value::Beats(beats)) => beats.is_empty(),
                Some(Value::Members(members)) => members.is_empty(),
                _ => false,
            };
            if is_empty {
                self.keys.delete(self.time, key);
            }
        }
    }

    pub(super) fn leave(&mut self) -> Outcome {
        if let Some(what) = self.conflict.clone() {
            return Outcome::Conflict { what };
        }
        self.settle_life(0);
        self.strike(std::slice::from_ref(&self.call.id));
        self.hints.push(Hint::Members);
        Outcome::Done
    }

    /// The members, last heard first. Who holds the resource is heard by renewing.
    pub(super) fn list_members(&mut self) -> Vec<Member> {
        let mut scored = match self.keys.get(self.time, &self.names.beats).map(|e| &e.value) {
            None => Vec::new(),
            Some(Value::Beats(beats)) => lowest(beats),
            Some(_) => {
                self.warn_of_type("members");
                Vec::new()
            }
        };
        scored.reverse();
        scored.truncate(MEMBERS_LISTED_MAX);
        let records_are_foreign = match self.keys.get(self.time, &self.names.members) {
            None => false,
            Some(entry) => !matches!(entry.value, Value::Members(_)),
        };
        if records_are_foreign {
            // Asked for so many at a time.
            scored.chunks(256).for_each(|_| self.warn_of_type("members"));
        }
        let (mut members, mut bytes, mut unreadable) = (Vec::new(), 0, 0);
        for (beat, id) in scored {
            match self.listed(&id, beat, &mut bytes) {
                Some(member) => members.push(member),
                None => unreadable += 1,
            }
        }
        if unreadable > 0 {
            let beats = &self.names.beats;
            self.warn(format!("{unreadable} entries of {beats} cannot be ours: left out"));
        }
        members
    }

    fn listed(&self, id: &InstanceId, beat: i64, bytes: &mut usize) -> Option<Member> {
        if id.as_str().len() > SHOWN_MAX || beat < 0 {
            return None;
        }
        let told = match self.keys.get(self.time, &self.names.members).map(|e| &e.value) {
            Some(Value::Members(members)) => members.get(id),
            _ => None,
        };
        let (since, record) = match told {
            Some(Told::Itself { since, record }) => (Some(*since), record.clone()),
            Some(Told::Raw(text)) => {
                if text.len() > RECORD_MAX || *bytes + text.len() > LISTED_BYTES_MAX {
                    return None;
                }
                *bytes += text.len();
                let (since, record) = text.split_once(' ').unwrap_or(("", ""));
                (number(since), record_text::decode(record))
            }
            None => (None, MemberRecord::default()),
        };
        let is_holder = self.key_exists()
            && self.holder() == id.as_str()
            && self.meta.is(Field::Holder, id.as_str());
        let renewed_at = self.meta.number(Field::RenewedAt).unwrap_or(0) / 1000;
        let beat = if is_holder { beat.max(renewed_at) } else { beat }.min(self.now_ms());
        let ready_since = since.filter(|since| *since > 0 && record.ready).map(moment);
        Some(Member { id: id.clone(), record, ready_since, beat_at: moment(beat * 1000) })
    }
}

/// The members by their beats, the oldest first; equal ones by their ids.
fn lowest(beats: &BTreeMap<InstanceId, i64>) -> Vec<(i64, InstanceId)> {
    let mut scored: Vec<_> = beats.iter().map(|(id, beat)| (*beat, id.clone())).collect();
    scored.sort();
    scored
}
