//! One call on its way through the store: what every request reads first, and how it answers.
//!
//! This and the files beside it say in Rust what the scripts of the Redis backend say in Lua, part
//! by part and in the same order. `cargo xtask conform` compares the two, word by word.

use std::borrow::Cow;
use std::time::Duration;

use crate::protocol::{Answer, Call, Hint, LostWhy, Outcome, Request, Token, View, Wish, WishKind};
use crate::{InstanceId, ServerTime};

use super::keys::{Keys, Value, millis};
use super::life::Life;
use super::record::{Field, FieldValue, Record, number, shortened};
use super::{Names, QUARANTINE_MARK};

/// Longer leases are not ours, in milliseconds.
pub(super) const TTL_MAX: i64 = 86_400_000;
/// No pause lasts longer, in milliseconds.
const PAUSE_MAX: i64 = 31_622_400_000;
/// A token further ahead of the store's clock is a mistake or a forgery, in microseconds.
pub(super) const YEAR: i64 = 31_622_400_000_000;
/// Bytes of a foreign value that an answer carries.
pub(super) const SHOWN_MAX: usize = 512;
/// Bytes of a field of the side record that are looked at.
const FIELD_MAX: usize = 1024;
/// Abandoned attempts remembered, one per instance, and the bytes that they take at the most.
const REFUSED_MAX: usize = 128;
const REFUSED_LEN_MAX: usize = 32_768;
/// Longer than any request stays on its way, in microseconds.
const REFUSED_KEPT: i64 = 3_600_000_000;
/// Bytes of a warning.
const WARNING_LEN_MAX: usize = 300;

/// A stored moment in the future, and when it was stored as far as that is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stored {
    pub(super) until: i64,
    pub(super) from: Option<i64>,
    /// Whether both must be written again.
    pub(super) is_new: bool,
}

pub(super) struct Step<'a> {
    pub(super) call: &'a Call,
    pub(super) names: &'a Names,
    pub(super) life: &'a Life,
    /// Whether the store vouches for what it knows of this resource.
    pub(super) is_complete: bool,
    pub(super) keys: &'a mut Keys,
    pub(super) time: ServerTime,
    /// In microseconds.
    pub(super) now: i64,
    /// The longest lease that the caller knows of, in milliseconds.
    pub(super) longest: i64,
    /// The side record as it was found, and what this call made of it.
    pub(super) meta: Record,
    holder: Option<InstanceId>,
    /// In milliseconds: -2 without the key, -1 without an expiry.
    pub(super) pttl: i64,
    /// What stands at one of the keys and is not ours to touch.
    pub(super) conflict: Option<String>,
    pub(super) key_is_foreign: bool,
    pub(super) record_is_foreign: bool,
    /// The highest token known here.
    pub(super) token: Option<i64>,
    pub(super) max_ttl: i64,
    pub(super) quarantine: Stored,
    pub(super) quarantine_is_noted: bool,
    /// The highest token, lost here and seen by somebody who waited, that it ran with.
    pub(super) quarantine_covers: i64,
    pub(super) pause: Stored,
    pub(super) life_is_new: bool,
    pub(super) warnings: Vec<String>,
    pub(super) hints: Vec<Hint>,
}

impl<'a> Step<'a> {
    pub(super) fn begin(
        time: ServerTime,
        call: &'a Call,
        names: &'a Names,
        life: &'a Life,
        keys: &'a mut Keys,
    ) -> Self {
        let pttl = keys.time_left(time, call.resource.key());
        let mut step = Step {
            call,
            names,
            life,
            is_complete: life.history_is_complete,
            keys,
            time,
            now: i64::try_from(time.0).unwrap_or(i64::MAX),
            longest: whole_millis(call.fleet_max_ttl).min(TTL_MAX),
            meta: Record::default(),
            holder: None,
            pttl,
            conflict: None,
            key_is_foreign: false,
            record_is_foreign: false,
            token: None,
            max_ttl: 0,
            quarantine: Stored::default(),
            quarantine_is_noted: false,
            quarantine_covers: 0,
            pause: Stored::default(),
            life_is_new: false,
            warnings: Vec::new(),
            hints: Vec::new(),
        };
        step.read_key();
        step.read_record();
        step.read_numbers();
        step
    }

    fn read_key(&mut self) {
        let key = self.call.resource.key();
        match self.keys.get(self.time, key).map(|entry| &entry.value) {
            None => {}
            Some(Value::Text(text)) if text.as_str().len() <= SHOWN_MAX + 1 => {
                self.holder = Some(text.clone());
            }
            Some(Value::Text(text)) => {
                let shown = shortened(text.as_str(), SHOWN_MAX + 1);
                self.holder = Some(InstanceId::seen(shown));
            }
            Some(other) => {
                self.key_is_foreign = true;
                self.conflict = Some(format!("{key} is a {}, not a string", other.kind()));
            }
        }
    }

    fn read_record(&mut self) {
        let meta = &self.names.meta;
        let found = match self.keys.get(self.time, meta).map(|entry| &entry.value) {
            None => return,
            Some(Value::Record(record)) => {
                self.meta.clone_from(record);
                self.meta.shorten(FIELD_MAX, REFUSED_LEN_MAX);
                match self.meta.get(Field::V) {
                    None => return,
                    Some(_) if self.meta.is(Field::V, "1") => return,
                    Some(version) => {
                        let version = version.text();
                        let version = shortened(&version, 20);
                        format!("{meta} has version {version}, this program knows 1")
                    }
                }
            }
            Some(other) => format!("{meta} is a {}, not a hash", other.kind()),
        };
        self.record_is_foreign = true;
        self.meta = Record::default();
        self.conflict.get_or_insert(found);
    }

    fn read_numbers(&mut self) {
        let meta = &self.names.meta;
        self.token = self.meta.number(Field::Token);
        if self.meta.get(Field::Token).is_some() && self.token.is_none() {
            let text = format!("token in {meta} is not a number below 2^53: taken as lost");
            self.warn(text);
        }
        self.max_ttl = self.meta.number(Field::MaxTtl).unwrap_or(0);
        if self.max_ttl > TTL_MAX {
            self.warn(format!("max_ttl in {meta} exceeds a day: taken as a day"));
            self.max_ttl = TTL_MAX;
        }
        let (a_day, cut_to) = (TTL_MAX * 101 / 100 + 1000, self.believed_for(0));
        self.quarantine = self.stored("quarantine", a_day, cut_to);
        self.quarantine_is_noted = self.meta.same(Field::QuarantineNoted, Field::QuarantineUntil);
        self.quarantine_covers = self.read_covered().unwrap_or(0);
        self.pause = self.stored("paused", PAUSE_MAX, PAUSE_MAX);
    }

    /// Known only where the field names the quarantine that is on record; tokens of the far
    /// future are not ours.
    fn read_covered(&self) -> Option<i64> {
        let text = self.meta.text(Field::QuarantineCovers);
        let (covered, noted) = text.split_once(' ')?;
        let names_it = self.meta.is(Field::QuarantineUntil, noted) && number(noted)? > 0;
        number(covered).filter(|covered| names_it && *covered <= self.now + YEAR)
    }

    fn stored(&mut self, name: &str, lasts_max: i64, cut_to: i64) -> Stored {
        let (until, from) = match name {
            "paused" => (Field::PausedUntil, Field::PausedFrom),
            _ => (Field::QuarantineUntil, Field::QuarantineFrom),
        };
        let mut ends = self.meta.number(until).unwrap_or(0);
        let text = self.meta.text(from);
        let pair = text.split_once(' ').filter(|(from, until)| is_digits(from) && is_digits(until));
        let noted = pair.filter(|(_, noted)| self.meta.is(until, noted));
        let mut from = noted.and_then(|(from, _)| number(from));
        let mut is_new = from.is_some_and(|from| from > self.now);
        if let Some(began) = from.filter(|_| is_new) {
            ends = self.now + (ends - began).max(0);
            from = Some(self.now);
        }
        if ends > self.now + lasts_max * 1000 {
            let meta = &self.names.meta;
            self.warn(format!("{name}_until in {meta} is too far ahead: cut short"));
            ends = self.now + cut_to * 1000;
            from = Some(self.now);
            is_new = true;
        }
        Stored { until: ends, from, is_new }
    }

    pub(super) fn warn(&mut self, text: String) {
        self.warnings.push(shortened(&text, WARNING_LEN_MAX).to_owned());
    }

    pub(super) fn remaining(&self, until: i64) -> i64 {
        (until - self.now).max(0).saturating_add(999) / 1000
    }

    // ------------------------------------------------------------------ writes

    /// Writes one field of the side record. Where something else stands there nothing is written.
    pub(super) fn hset(&mut self, field: Field, value: impl Into<FieldValue>) {
        let empty = || Value::Record(Box::default());
        match self.keys.value_or(self.time, &self.names.meta, empty) {
            Value::Record(record) => record.set(field, value),
            _ => debug_assert!(false, "a foreign record is a conflict"),
        }
    }

    pub(super) fn set_key(&mut self, holder: &InstanceId, ttl: i64) {
        let value = Value::Text(holder.clone());
        self.keys.set(self.time, self.call.resource.key(), value, Some(ttl));
        self.holder = Some(holder.clone());
        self.pttl = ttl;
    }

    pub(super) fn delete_key(&mut self) {
        self.keys.delete(self.time, self.call.resource.key());
        self.holder = None;
        self.pttl = -2;
    }

    pub(super) fn pexpire(&mut self, ttl: i64) {
        self.keys.expire(self.time, self.call.resource.key(), ttl);
        self.pttl = ttl;
    }

    // ------------------------------------------------------------------ who holds it

    /// The value at the key; empty where there is none.
    pub(super) fn holder(&self) -> Cow<'static, str> {
        match &self.holder {
            Some(holder) => Cow::Owned(holder.as_str().to_owned()),
            None => Cow::Borrowed(""),
        }
    }

    pub(super) fn key_exists(&self) -> bool {
        self.pttl != -2
    }

    pub(super) fn is_quarantined(&self) -> bool {
        self.key_exists() && self.holder.as_ref().is_some_and(super::is_quarantine)
    }

    /// Whether the key names the caller, whatever became of the side record.
    pub(super) fn holds_key(&self) -> bool {
        self.key_exists() && self.holder.as_ref() == Some(&self.call.id)
    }

    /// Whether the key and the side record name the same holder.
    pub(super) fn holder_is_recorded(&self) -> bool {
        match &self.holder {
            Some(holder) => self.meta.is(Field::Holder, holder.as_str()),
            None => self.meta.is(Field::Holder, ""),
        }
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.key_exists()
            && !self.meta.is_empty(Field::Claim)
            && self.meta.is(Field::Claim, &self.holder())
            && self.meta.same(Field::Holder, Field::Claim)
            && self.meta.same(Field::ClaimToken, Field::Token)
    }

    pub(super) fn is_unconfirmed(&self) -> bool {
        self.meta.get(Field::Token).is_some() && self.meta.same(Field::Unconfirmed, Field::Token)
    }

    pub(super) fn grant_note(&self, term: i64) -> String {
        format!("{term} {}", self.call.id)
    }

    /// Whether the side record says that this term is the caller's, and the key does, too.
    pub(super) fn names_me(&self, term: Option<i64>) -> bool {
        self.conflict.is_none()
            && self.holds_key()
            && self.meta.is(Field::Holder, self.call.id.as_str())
            && term.is_some()
            && self.token == term
    }

    /// Whether the caller holds exactly this term, for those that end it.
    fn is_surely_mine(&self, term: i64) -> bool {
        if self.conflict.is_some() || !self.holds_key() {
            return false;
        }
        self.names_me(Some(term))
            || self.meta.is(Field::Grant, &self.grant_note(term)) && !self.is_reserved()
            || self.token.is_none() && self.meta.get(Field::Grant).is_none()
    }

    /// Whether the caller holds this term, for those that go on with it. The key is the lease.
    pub(super) fn is_mine(&self, term: i64) -> bool {
        if self.conflict.is_some() || !self.holds_key() || self.is_reserved() {
            return self.is_surely_mine(term);
        }
        let tells_of_another = self.token.is_some_and(|token| {
            token != term
                && self.meta.is(Field::Holder, self.call.id.as_str())
                && self.meta.is(Field::Grant, &self.grant_note(token))
        });
        !tells_of_another
    }

    /// The same as `is_surely_mine` for those that write about the term.
    pub(super) fn holds(&mut self, term: i64) -> bool {
        let holds = self.is_surely_mine(term);
        if holds {
            self.mend(term);
        }
        holds
    }

    /// Puts the side record of a term that goes on right.
    pub(super) fn mend(&mut self, term: i64) {
        let note = self.grant_note(term);
        if self.names_me(Some(term)) && self.meta.is(Field::Grant, &note) {
            return;
        }
        let (meta, key) = (&self.names.meta, self.call.resource.key());
        self.warn(format!(
            "{meta} was changed by somebody else: it names the holder of {key} again"
        ));
        let id = self.call.id.clone();
        self.hset(Field::V, "1");
        self.hset(Field::Holder, &id);
        self.hset(Field::Token, term);
        self.hset(Field::Open, "1");
        self.hset(Field::Grant, note.as_str());
        self.meta.set(Field::Holder, &id);
        self.token = Some(term);
        self.meta.set(Field::Token, term);
        self.meta.set(Field::Open, "1");
        self.meta.set(Field::Grant, note);
    }

    // ------------------------------------------------------------------ attempts that are over

    fn refused_attempts(&self) -> (Vec<String>, i64) {
        let (mut others, mut highest) = (Vec::new(), -1);
        let text = self.meta.text(Field::Refused);
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let mut words = line.splitn(3, ' ');
            let (Some(at), Some(attempt), Some(id)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if id == self.call.id.as_str() {
                highest = highest.max(number(attempt).unwrap_or(-1));
            } else if number(at).unwrap_or(0) > self.now - REFUSED_KEPT {
                others.push(line.to_owned());
            }
        }
        (others, highest)
    }

    pub(super) fn refuse_from_now_on(&mut self, attempt: i64) {
        let (mut lines, highest) = self.refused_attempts();
        lines.push(format!("{} {} {}", self.now, highest.max(attempt), self.call.id));
        let surplus = lines.len().saturating_sub(REFUSED_MAX);
        lines.drain(..surplus);
        let text = lines.join("\n") + "\n";
        self.hset(Field::Refused, text);
    }

    pub(super) fn is_refused(&self, attempt: i64) -> bool {
        attempt <= self.refused_attempts().1
    }

    // ------------------------------------------------------------------ answers

    pub(super) fn lost(&self) -> Outcome {
        Outcome::Lost(if let Some(conflict) = &self.conflict {
            LostWhy::Overwritten(conflict.clone())
        } else if !self.key_exists() {
            LostWhy::KeyVanished
        } else if !self.holds_key() {
            LostWhy::HeldBy(self.shown_holder())
        } else if !self.meta.is(Field::Holder, self.call.id.as_str()) || self.token.is_none() {
            let (meta, key) = (&self.names.meta, self.call.resource.key());
            LostWhy::Overwritten(format!("{meta} does not name the holder of {key}"))
        } else {
            LostWhy::OtherTerm(token(self.token))
        })
    }

    fn shown_holder(&self) -> InstanceId {
        match &self.holder {
            Some(holder) if holder.as_str().len() > SHOWN_MAX => {
                InstanceId::seen(shortened(holder.as_str(), SHOWN_MAX))
            }
            Some(holder) => holder.clone(),
            None => InstanceId::seen(""),
        }
    }

    pub(super) fn quarantine_why(&self) -> String {
        match self.meta.is_empty(Field::QuarantineWhy) {
            true => "somebody else put the resource into quarantine".to_owned(),
            false => shortened(&self.meta.text(Field::QuarantineWhy), SHOWN_MAX).to_owned(),
        }
    }

    /// Whether a wish of any kind stands.
    pub(super) fn has_wish(&self) -> bool {
        !self.meta.is_empty(Field::Wish)
            && self.meta.same(Field::WishToken, Field::Token)
            && self.meta.number(Field::WishUntil).unwrap_or(0) > self.now
    }

    fn wish_now(&self) -> Option<Wish> {
        if !self.has_wish() {
            return None;
        }
        let until = self.meta.number(Field::WishUntil).unwrap_or(0);
        let shown = |field| shortened(&self.meta.text(field), SHOWN_MAX).to_owned();
        let kind = match self.meta.text(Field::Wish).as_ref() {
            "resign" => WishKind::Resign,
            "hand-over" => WishKind::HandOver { to: shown(Field::WishTo) },
            // A wish of a newer version: nothing that this program could fulfil.
            _ => return None,
        };
        Some(Wish {
            kind,
            by: InstanceId::seen(&shown(Field::WishBy)),
            token: token(self.token),
            until: moment(until.min(self.now + TTL_MAX * 1000)),
            refused: Some(shown(Field::WishRefused)).filter(|reason| !reason.is_empty()),
        })
    }

    pub(super) fn answer(mut self, outcome: Outcome) -> (Answer, Vec<Hint>) {
        let is_observed = matches!(self.call.request, Request::Observe { .. });
        let members = wants_members(&self.call.request).then(|| match self.conflict {
            Some(_) if !is_observed => Vec::new(),
            _ => self.list_members(),
        });
        let view = View { members, ..self.view() };
        (Answer { outcome, view, warnings: self.warnings }, self.hints)
    }

    fn view(&self) -> View {
        let exists = self.key_exists();
        let is_readable = exists && self.conflict.is_none();
        let is_ours = is_readable && self.token.is_some() && self.holder_is_recorded();
        let left = self.remaining(self.pause.until);
        View {
            holder: exists.then(|| self.shown_holder()),
            pttl: (self.pttl >= 0).then(|| as_duration(self.pttl)),
            token: if is_ours { token(self.token) } else { None },
            foreign: is_readable && !is_ours && !self.is_quarantined(),
            reserved: self.is_reserved(),
            unconfirmed: is_ours && self.is_unconfirmed(),
            quarantine_why: self.is_quarantined().then(|| self.quarantine_why()),
            partial: false,
            server_time: self.time,
            incarnation: self.life.incarnation(),
            wish: if is_ours { self.wish_now() } else { None },
            paused_for: (left > 0).then(|| as_duration(left)),
            members: None,
        }
    }

    pub(super) fn now_ms(&self) -> i64 {
        millis(self.time)
    }
}

/// Whether the answer to a request lists the members.
fn wants_members(request: &Request) -> bool {
    match request {
        Request::Acquire(ask) => ask.members,
        Request::Observe { members } | Request::Beat { members, .. } => *members,
        _ => false,
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whole milliseconds, rounded up: a lease of half a millisecond must not become none.
pub(super) fn whole_millis(duration: Duration) -> i64 {
    let millis = duration.as_nanos().div_ceil(1_000_000).min(u128::from(Token::MAX.get()));
    i64::try_from(millis).expect("bounded above")
}

pub(super) fn as_duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

pub(super) fn moment(micros: i64) -> ServerTime {
    ServerTime(u64::try_from(micros).unwrap_or(0))
}

/// A number of the record as a token.
pub(super) fn token(number: Option<i64>) -> Option<Token> {
    number.and_then(|number| u64::try_from(number).ok()).and_then(Token::new)
}

/// The number of a term that is granted. A record in which somebody wrote zero has the first.
pub(super) fn granted_token(number: i64) -> Token {
    const FIRST: Token = Token::new(1).expect("not zero");
    token(Some(number)).unwrap_or(FIRST)
}

/// A token as a number of the record.
pub(super) fn as_number(token: Token) -> i64 {
    i64::try_from(token.get()).expect("tokens stay below 2^53")
}

/// What stands at the key while nobody may lead.
pub(super) fn quarantine_mark() -> InstanceId {
    InstanceId::seen(QUARANTINE_MARK)
}
