//! The store's side of the protocol as plain data: no clock, no I/O, one call at a time.
//!
//! In: [`Call`]s, each with a reading of the store's clock. Out: the [`Answer`] and the [`Hint`]s
//! that subscribers hear. The simulator, tests of applications and elections without a store run
//! on it. It keeps what the Redis backend keeps, key by key and field by field, so that
//! `cargo xtask conform` can compare the two after every request.
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
//!     fleet_max_ttl: Duration::from_secs(10),
//! };
//! let (answer, hints) = store.execute(now, &call);
//! assert_eq!(answer.outcome, Outcome::Done);
//! assert!(answer.view.holder.is_none() && hints.is_empty());
//! ```

mod acquire;
mod journal;
mod keys;
mod lease;
mod life;
mod members;
mod operate;
mod portable;
mod raw;
mod record;
mod step;
mod tampering;
#[cfg(test)]
mod tests;
mod ticks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::{Answer, Call, Hint, Outcome, Request, Token};
use crate::{InstanceId, Resource, ServerTime, StoreError};

use keys::{Keys, Value};
pub use life::Life;
pub(crate) use portable::Part;
pub use raw::{Fingerprint, ForeignCommand, ForeignValue, Shown};
pub use record::FIELDS;
use record::Field;
use step::Step;

/// What stands at the key while nobody may lead.
const QUARANTINE_MARK: &str = "~quarantine";
/// The longest pause that is written: a forgotten one ends at last.
const PAUSE_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A store in memory. `Clone` is a replica: the same data in another place.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    life: Life,
    keys: Keys,
    /// The names of a resource's side keys, by its key: made once.
    names: BTreeMap<String, Arc<Names>>,
    /// Resources about which everything was deleted: not even a store that lost nothing else
    /// vouches for them.
    emptied: BTreeSet<String>,
}

/// The side keys of one resource.
#[derive(Debug)]
struct Names {
    meta: String,
    history: String,
    beats: String,
    members: String,
}

impl Names {
    fn of(resource: &Resource) -> Self {
        Names {
            meta: resource.side_key("meta"),
            history: resource.side_key("history"),
            beats: resource.side_key("beats"),
            members: resource.side_key("members"),
        }
    }
}

impl MemoryStore {
    /// A store that vouches for its history, as our own store does: it begins empty and nothing
    /// was ever lost, so the first term begins at once.
    pub fn new(now: ServerTime) -> Self {
        Self::living(Life::own(now, 1))
    }

    /// A store that knows no more about its past than Redis does: the process identified by `run`,
    /// started at `now`.
    pub fn redis_like(now: ServerTime, run: u64) -> Self {
        Self::living(Life::redis_like(now, run))
    }

    fn living(life: Life) -> Self {
        MemoryStore {
            life,
            keys: Keys::default(),
            names: BTreeMap::new(),
            emptied: BTreeSet::new(),
        }
    }

    /// Carries out one call, whole or not at all, and says what subscribers are to hear.
    pub fn execute(&mut self, now: ServerTime, call: &Call) -> (Answer, Vec<Hint>) {
        let names = self.names_of(&call.resource);
        self.keys.remove_if_expired(now, call.resource.key());
        let mut step = Step::begin(now, call, &names, &self.life, &mut self.keys);
        step.is_complete &= !self.emptied.contains(call.resource.key());
        let outcome = step.perform();
        let (mut answer, hints) = step.answer(outcome);
        if matches!(call.request, Request::Release { .. }) {
            // What a release cannot write with its two keys follows in the same batch.
            let mut note = Step::begin(now, call, &names, &self.life, &mut self.keys);
            note.note();
            answer.warnings.append(&mut note.warnings);
        }
        (answer, hints)
    }

    /// Carries out one call as a replica does, or a primary that takes no writes: whoever cannot
    /// write has no say about terms, and answers only those who read.
    pub fn execute_read_only(
        &mut self,
        now: ServerTime,
        call: &Call,
    ) -> Result<(Answer, Vec<Hint>), StoreError> {
        match call.request {
            Request::Observe { .. } | Request::History { .. } | Request::TickLook { .. } => {
                Ok(self.execute(now, call))
            }
            _ => Err(StoreError::wrong_node("READONLY it takes no writes")),
        }
    }

    fn names_of(&mut self, resource: &Resource) -> Arc<Names> {
        let key = resource.key();
        if let Some(names) = self.names.get(key) {
            return Arc::clone(names);
        }
        let names = Arc::new(Names::of(resource));
        self.names.insert(key.to_owned(), Arc::clone(&names));
        names
    }

    /// Forgets keys that have ended, as a store does in its own time: a clock that steps back does
    /// not bring them back.
    pub fn remove_expired(&mut self, now: ServerTime) {
        self.keys.remove_expired(now);
    }

    /// Which life of the store this is.
    pub fn life(&self) -> &Life {
        &self.life
    }

    /// The store lives another life with the data that it has: a restart that kept them, or a
    /// restart with older data where this is an older copy.
    pub fn set_life(&mut self, life: Life) {
        self.life = life;
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
        let beside = resource.side_key("");
        self.keys.delete_where(|key| key.starts_with(&beside));
        self.emptied.insert(resource.key().to_owned());
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
        if self.keys.get(now, key).and_then(keys::Entry::text).is_some_and(is_quarantine) {
            self.keys.delete(now, key);
        }
        if let Some(record) = self.record_mut(now, resource) {
            record.set(Field::QuarantineUntil, 0);
        }
    }

    /// Lets a node that nobody holds, and that waits for nothing, know no term from `token` on, as
    /// if it never knew them.
    pub fn forget_terms_from(&mut self, now: ServerTime, resource: &Resource, token: Token) {
        let is_free = self.keys.get(now, resource.key()).is_none();
        let Some(record) = self.record_mut(now, resource) else { return };
        let number = step::as_number(token);
        let ends = record.number(Field::QuarantineUntil).unwrap_or(0);
        let is_waiting = ends > i64::try_from(now.0).unwrap_or(i64::MAX);
        let is_later = record.number(Field::Token).is_some_and(|known| known >= number);
        if is_free && !is_waiting && is_later {
            record.set(Field::Token, (number - 1).max(0));
        }
    }

    /// The token of whoever holds `resource` by the protocol.
    pub fn token_of(&self, now: ServerTime, resource: &Resource) -> Option<Token> {
        let holder = self.keys.get(now, resource.key()).and_then(keys::Entry::text);
        match (holder, self.record(now, resource.side_key("meta").as_str())) {
            (Some(holder), Some(record)) if record.is(Field::Holder, holder.as_str()) => {
                step::token(record.number(Field::Token))
            }
            _ => None,
        }
    }

    fn record(&self, now: ServerTime, meta: &str) -> Option<&record::Record> {
        match self.keys.get(now, meta).map(|entry| &entry.value) {
            Some(Value::Record(record)) => Some(record),
            _ => None,
        }
    }

    fn record_mut(&mut self, now: ServerTime, resource: &Resource) -> Option<&mut record::Record> {
        let meta = resource.side_key("meta");
        match self.keys.get_mut(now, &meta).map(|entry| &mut entry.value) {
            Some(Value::Record(record)) => Some(record),
            _ => None,
        }
    }

    fn forget_everything(&mut self) {
        self.keys.clear();
        self.emptied.clear();
    }
}

fn is_quarantine(holder: &InstanceId) -> bool {
    holder.as_str() == QUARANTINE_MARK
}

impl Step<'_> {
    fn perform(&mut self) -> Outcome {
        match &self.call.request {
            Request::Acquire(ask) => self.acquire(ask),
            Request::Renew { token, ttl, fleet_max_ttl } => {
                self.renew(*token, *ttl, *fleet_max_ttl)
            }
            Request::Adopt { token, ttl, fleet_max_ttl } => {
                self.adopt(*token, *ttl, *fleet_max_ttl)
            }
            Request::Release { token, reason } => self.release(*token, *reason),
            Request::Abandon { attempt } => self.abandon(*attempt),
            Request::Transfer { token, to, claim_ttl } => self.transfer(*token, to, *claim_ttl),
            Request::PassOn { token, to, claim_ttl } => self.pass_on(*token, to, *claim_ttl),
            Request::Clear { reason, quarantine } => self.clear(reason, *quarantine),
            Request::Pause { lasts } => {
                let lasts = (*lasts).clamp(Duration::from_millis(1), PAUSE_MAX);
                self.pause(step::whole_millis(lasts))
            }
            Request::Resume => self.pause(0),
            Request::Observe { .. } => self.observe(),
            Request::Beat { record, .. } => self.beat_alone(record),
            Request::Leave => self.leave(),
            Request::Ask { token, wish, stands_for } => self.ask(*token, wish, *stands_for),
            Request::Refuse { token, reason } => self.refuse(*token, reason),
            Request::History { count } => self.history(*count),
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
}
