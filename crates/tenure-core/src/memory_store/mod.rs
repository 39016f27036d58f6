//! The store's side of the protocol as plain data: no clock, no I/O, one call at a time.
//!
//! In: [`Call`]s, each with a reading of the store's clock. Out: the [`Answer`] and the [`Hint`]s
//! that subscribers hear. The simulator, tests of applications and elections without a store run
//! on it; it passes the same conformance suite as the Redis backend.
//!
//! ```
//! # use std::time::Duration;
//! # use tenure_core::protocol::{Call, Outcome, Request};
//! # use tenure_core::memory_store::MemoryStore;
//! # use tenure_core::{InstanceId, Resource, ServerTime};
//! let now = ServerTime(1_700_000_000_000_000);
//! let mut store = MemoryStore::new(now);
//! let call = Call {
//!     resource: Resource::named("nightly-report").unwrap(),
//!     id: InstanceId::new("web-1", 7).unwrap(),
//!     request: Request::Observe { members: false },
//!     timeout: Duration::from_secs(1),
//! };
//! let (answer, hints) = store.execute(now, &call);
//! assert_eq!(answer.outcome, Outcome::Done);
//! assert!(answer.view.holder.is_none() && hints.is_empty());
//! ```

mod keys;
mod lease;
mod life;
mod members;
mod raw;
mod shelf;
mod tampering;
#[cfg(test)]
mod tests;
mod ticks;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::protocol::{Answer, Call, Hint, Outcome, Request, Token, View};
use crate::{InstanceId, Resource, ServerTime};

use keys::{Keys, Value};
use life::Life;
pub use raw::{Fingerprint, ForeignValue};
use shelf::Shelf;

/// What stands at the key while nobody may lead.
const QUARANTINE_MARK: &str = "~quarantine";

/// A store in memory. `Clone` is a replica: the same data in another place.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    life: Life,
    keys: Keys,
    /// By the key of the resource: two names for one key share what is known about it.
    shelves: BTreeMap<String, Shelf>,
}

impl MemoryStore {
    /// A store that vouches for its history, as our own store does: it begins empty and nothing
    /// was ever lost, so the first term begins at once.
    pub fn new(now: ServerTime) -> Self {
        Self::living(Life::new(now, 1, true))
    }

    /// A store that knows no more about its past than Redis does: the process identified by `run`,
    /// started at `now`.
    pub fn redis_like(now: ServerTime, run: u64) -> Self {
        Self::living(Life::new(now, run, false))
    }

    fn living(life: Life) -> Self {
        MemoryStore { life, keys: Keys::default(), shelves: BTreeMap::new() }
    }

    /// Carries out one call, whole or not at all, and says what subscribers are to hear.
    pub fn execute(&mut self, now: ServerTime, call: &Call) -> (Answer, Vec<Hint>) {
        let key = call.resource.key();
        if !self.shelves.contains_key(key) {
            self.shelves.insert(key.to_owned(), Shelf::default());
        }
        let shelf = self.shelves.get_mut(key).expect("it was put there above");
        let (keys, life) = (&mut self.keys, &self.life);
        let mut step = Step { now, call, life, keys, shelf, hints: Vec::new() };
        let outcome = step.perform();
        let answer = Answer { outcome, view: step.view(), warnings: Vec::new() };
        (answer, step.hints)
    }

    /// The process ended and started again with nothing in it.
    pub fn restart_empty(&mut self, now: ServerTime) {
        self.forget_everything();
        self.life = self.life.after_restart(now);
    }

    /// Somebody deleted all keys. The process goes on, and ours does not vouch for its history
    /// any more.
    pub fn flush(&mut self) {
        self.forget_everything();
        self.life.history_is_complete = false;
    }

    /// Somebody deleted everything about one resource.
    pub fn forget(&mut self, now: ServerTime, resource: &Resource) {
        self.keys.delete(now, resource.key());
        let shelf = Shelf { was_emptied: true, ..Shelf::default() };
        self.shelves.insert(resource.key().to_owned(), shelf);
    }

    /// A replica with this data, the process `run` started at `started_at`, became the primary.
    pub fn promote(&mut self, run: u64, started_at: ServerTime) {
        self.life = self.life.of_promoted(run, started_at);
    }

    /// A replica was attached for the first time: the replication id changes, no data is lost.
    pub fn attach_first_replica(&mut self) {
        self.life = self.life.with_first_replica();
    }

    /// Lets the next acquire find no quarantine, as if it had been waited for.
    pub fn end_quarantine(&mut self, now: ServerTime, resource: &Resource) {
        let key = resource.key();
        if matches!(self.keys.get(now, key), Some(entry) if entry.is_quarantine()) {
            self.keys.delete(now, key);
        }
        if let Some(shelf) = self.shelves.get_mut(key) {
            shelf.quarantine_until = ServerTime::default();
        }
    }

    /// Lets a node that nobody holds, and that waits for nothing, know no term from `token` on, as
    /// if it had never heard of them.
    pub fn forget_terms_from(&mut self, now: ServerTime, resource: &Resource, token: Token) {
        let is_free = self.keys.get(now, resource.key()).is_none();
        let Some(shelf) = self.shelves.get_mut(resource.key()) else { return };
        if !is_free || shelf.quarantine_until > now {
            return;
        }
        if let Some(meta) = shelf.meta.as_mut().filter(|meta| meta.token >= token) {
            meta.token = Token::new(token.get().saturating_sub(1)).unwrap_or_default();
        }
    }

    /// The token of whoever holds `resource` by the protocol; [`Token::NONE`] without one.
    pub fn token_of(&self, now: ServerTime, resource: &Resource) -> Token {
        let holder = self.keys.get(now, resource.key()).and_then(keys::Entry::text);
        let meta = self.shelves.get(resource.key()).and_then(|shelf| shelf.meta.as_ref());
        match (holder, meta) {
            (Some(holder), Some(meta)) if meta.holder.as_ref() == Some(holder) => meta.token,
            _ => Token::NONE,
        }
    }

    fn forget_everything(&mut self) {
        self.keys.clear();
        self.shelves.clear();
    }
}

impl keys::Entry {
    fn text(&self) -> Option<&InstanceId> {
        match &self.value {
            Value::Text(text) => Some(text),
            Value::Other(_) => None,
        }
    }

    fn is_quarantine(&self) -> bool {
        self.text().is_some_and(is_quarantine)
    }
}

fn is_quarantine(holder: &InstanceId) -> bool {
    holder.as_str() == QUARANTINE_MARK
}

fn quarantine_mark() -> InstanceId {
    InstanceId::seen(QUARANTINE_MARK)
}

/// The reading of the store's clock that lies `duration` after `time`.
fn later(time: ServerTime, duration: Duration) -> ServerTime {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    ServerTime(time.0.saturating_add(micros))
}

/// One call on its way through the store.
struct Step<'a> {
    now: ServerTime,
    call: &'a Call,
    life: &'a Life,
    keys: &'a mut Keys,
    shelf: &'a mut Shelf,
    hints: Vec<Hint>,
}

impl Step<'_> {
    fn perform(&mut self) -> Outcome {
        if let Some(what) = self.conflict() {
            return self.refuse_in_conflict(what);
        }
        match &self.call.request {
            Request::Acquire(_) | Request::Observe { .. } => {}
            Request::Renew { ttl, .. } => self.notice_other_life(*ttl),
            Request::Adopt { ttl, fleet_max_ttl, .. } => {
                self.notice_other_life(*ttl.max(fleet_max_ttl));
            }
            _ => self.notice_other_life(Duration::ZERO),
        }
        match &self.call.request {
            Request::Acquire(ask) => self.acquire(ask),
            Request::Renew { token, ttl, .. } => self.renew(*token, *ttl),
            Request::Adopt { token, ttl, fleet_max_ttl } => {
                self.adopt(*token, *ttl, *ttl.max(fleet_max_ttl))
            }
            Request::Release { token, reason } => self.release(*token, *reason),
            Request::Abandon { attempt } => self.abandon(*attempt),
            Request::Transfer { token, to, claim_ttl } => self.transfer(*token, to, *claim_ttl),
            Request::PassOn { token, to, claim_ttl } => self.pass_on(*token, to, *claim_ttl),
            Request::Clear { reason, quarantine } => self.clear(reason, *quarantine),
            Request::Pause { lasts } => self.pause(*lasts),
            Request::Resume => self.pause(Duration::ZERO),
            Request::Observe { .. } => Outcome::Done,
            Request::Beat { record, .. } => self.beat(record),
            Request::Leave => self.leave(),
            Request::Ask { token, wish, stands_for } => self.wish(*token, wish, *stands_for),
            Request::Refuse { token, reason } => self.refuse_wish(*token, reason),
            Request::History { count } => {
                Outcome::History(self.shelf.history.iter().rev().take(*count).cloned().collect())
            }
            Request::TickBegin { token, tick, rerun_crashed } => {
                self.tick_begin(*token, tick, *rerun_crashed)
            }
            Request::TickFinish { token, tick, outcome, keep } => {
                self.tick_finish(*token, tick, outcome, *keep)
            }
            Request::TickReopen { token, tick } => self.tick_reopen(*token, tick),
            Request::TickLook { tick } => self.tick_look(tick),
        }
    }

    /// What stands at a key of this resource and is not ours to touch.
    fn conflict(&self) -> Option<String> {
        let resource = &self.call.resource;
        let described = |key: &str| match self.keys.get(self.now, key).map(|entry| &entry.value) {
            Some(Value::Other(kind)) => Some(format!("key {key:?} holds a {kind}, not a string")),
            _ => None,
        };
        if let Some(what) = described(resource.key()) {
            return Some(what);
        }
        if self.keys.has_foreign_types() {
            return described(&resource.side_key("meta"));
        }
        None
    }

    /// Foreign data is reported and left alone; who lost the lease to it is told so.
    fn refuse_in_conflict(&mut self, what: String) -> Outcome {
        use crate::protocol::LostWhy;
        match &self.call.request {
            Request::Renew { .. }
            | Request::Adopt { .. }
            | Request::Release { .. }
            | Request::Transfer { .. }
            | Request::PassOn { .. }
            | Request::Refuse { .. }
            | Request::TickBegin { .. }
            | Request::TickFinish { .. }
            | Request::TickReopen { .. } => Outcome::Lost(LostWhy::Overwritten(what)),
            _ => Outcome::Conflict { what },
        }
    }

    /// The value at the key, whoever wrote it.
    fn holder(&self) -> Option<&InstanceId> {
        self.keys.get(self.now, self.call.resource.key()).and_then(keys::Entry::text)
    }

    fn view(&self) -> View {
        let entry = self.keys.get(self.now, self.call.resource.key());
        let holder = entry.and_then(keys::Entry::text);
        let meta = self.shelf.meta.as_ref();
        let ours = meta.filter(|meta| holder.is_some() && meta.holder.as_ref() == holder);
        let token = ours.map_or(Token::NONE, |meta| meta.token);
        let wish = ours.and_then(|meta| meta.wish.as_ref());
        View {
            holder: holder.cloned(),
            pttl: entry.and_then(|entry| entry.time_left(self.now)),
            token,
            foreign: ours.is_none() && holder.is_some_and(|holder| !is_quarantine(holder)),
            reserved: self.pending_claim().is_some_and(|claim| Some(&claim.to) == holder),
            unconfirmed: false,
            quarantine_why: holder
                .filter(|holder| is_quarantine(holder))
                .map(|_| self.shelf.quarantine_reason.clone()),
            partial: false,
            server_time: self.now,
            incarnation: self.life.incarnation().to_owned(),
            wish: wish.filter(|wish| wish.token == token && wish.until > self.now).cloned(),
            paused_for: self.paused_for(),
            members: self.wants_members().then(|| self.members()),
        }
    }

    fn wants_members(&self) -> bool {
        match &self.call.request {
            Request::Acquire(ask) => ask.members,
            Request::Observe { members } | Request::Beat { members, .. } => *members,
            _ => false,
        }
    }
}
