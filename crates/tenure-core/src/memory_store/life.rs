//! Which life of the store this is, and what that says about leases granted before.

use std::time::Duration;

use crate::{ServerTime, Token};

use super::shelf::Meta;
use super::{Step, later};
use crate::protocol::{Acquire, HistoryKind};

/// Added to the longest lease before an old process counts as one that has seen every lease end.
const UPTIME_MARGIN: Duration = Duration::from_secs(1);

/// One life of a store, from start to end, as it tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) mark: Mark,
    /// The replication id from before a promotion.
    pub(super) replication_before: Option<u64>,
    pub(super) started_at: ServerTime,
    /// Whether the store vouches that nothing it was ever told is missing.
    pub(super) history_is_complete: bool,
    incarnation: String,
}

/// The incarnation that a record was written under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    run: u64,
    replication: u64,
}

impl Life {
    pub(super) fn new(now: ServerTime, run: u64, history_is_complete: bool) -> Self {
        Life {
            history_is_complete,
            started_at: now,
            replication_before: None,
            ..Life::marked(Mark { run, replication: scatter(run) })
        }
    }

    fn marked(mark: Mark) -> Self {
        Life {
            mark,
            replication_before: None,
            started_at: ServerTime::default(),
            history_is_complete: false,
            incarnation: format!("{:016x}-{:016x}", mark.run, mark.replication),
        }
    }

    /// The next life after a restart that kept nothing.
    pub(super) fn after_restart(&self, now: ServerTime) -> Self {
        Life::new(now, scatter(self.mark.run ^ now.0), false)
    }

    /// The life of a replica, started at `started_at`, that takes over from this primary.
    pub(super) fn of_promoted(&self, run: u64, started_at: ServerTime) -> Self {
        Life {
            replication_before: Some(self.mark.replication),
            started_at,
            ..Life::marked(Mark { run, replication: scatter(run ^ self.mark.replication) })
        }
    }

    /// The same process after a replica was attached for the first time: only the id is new.
    pub(super) fn with_first_replica(&self) -> Self {
        let replication = scatter(self.mark.replication);
        Life {
            started_at: self.started_at,
            history_is_complete: self.history_is_complete,
            ..Life::marked(Mark { replication, ..self.mark })
        }
    }

    pub(super) fn incarnation(&self) -> &str {
        &self.incarnation
    }
}

/// Spreads a number over all bits, so that derived ids do not look alike.
fn scatter(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

impl Step<'_> {
    /// Longer than any lease that may still be believed in when leases of `ttl` are asked for.
    pub(super) fn believed_for(&self, ttl: Duration) -> Duration {
        let longest = self.shelf.meta.as_ref().map_or(ttl, |meta| meta.max_ttl.max(ttl));
        longest.saturating_mul(101) / 100 + Duration::from_millis(2)
    }

    /// Notices that the record was written in another life of the store. Leases from then may be
    /// missing here, so nobody is let in before they must have ended.
    pub(super) fn notice_other_life(&mut self, ttl: Duration) {
        let lasts = self.believed_for(ttl);
        let Some(meta) = &mut self.shelf.meta else { return };
        let before = std::mem::replace(&mut meta.written_in, self.life.mark);
        let data_may_be_missing = before.run != self.life.mark.run
            || before != self.life.mark && self.life.replication_before.is_some();
        if data_may_be_missing {
            self.begin_quarantine(lasts, "the store restarted or failed over");
        }
    }

    /// Notices that the store has forgotten a term that somebody may still believe in. A
    /// quarantine that runs already covers what was lost before it began.
    pub(super) fn notice_lost_history(&mut self, ask: &Acquire, longest: Duration) {
        let Some(why) = self.lost_history(ask, longest) else { return };
        if self.quarantine_left().is_none() {
            self.begin_quarantine(self.believed_for(longest), why);
            self.note_quarantine(ask.floor);
        }
        let meta = self.shelf.meta.get_or_insert_with(|| Meta::blank(self.life.mark));
        meta.token = meta.token.max(ask.floor);
        meta.max_ttl = meta.max_ttl.max(longest);
    }

    fn lost_history(&self, ask: &Acquire, longest: Duration) -> Option<&'static str> {
        let is_complete = self.life.history_is_complete && !self.shelf.was_emptied;
        let uptime = Duration::from_secs(self.now.since(self.life.started_at).as_secs());
        match &self.shelf.meta {
            Some(meta) if meta.token < ask.floor => Some("the store forgot a term"),
            Some(_) => None,
            None if ask.floor.is_some() => Some("the store forgot this resource"),
            None if is_complete || ask.fresh_store => None,
            None if self.life.replication_before.is_some() => {
                Some("the store failed over and does not know this resource")
            }
            None if !ask.age_counts => Some("the store has no record of earlier terms"),
            None if uptime > self.believed_for(longest) + UPTIME_MARGIN => None,
            None => Some("the store started a short while ago and does not know this resource"),
        }
    }

    /// From now on nobody is granted a term for a while. A mark that keeps rivals out already is
    /// made to last as long.
    pub(super) fn begin_quarantine(&mut self, lasts: Duration, reason: &str) {
        let until = later(self.now, lasts);
        self.shelf.quarantine_until = self.shelf.quarantine_until.max(until);
        self.shelf.quarantine_reason = reason.to_owned();
        self.shelf.quarantine_is_noted = false;
        if self.holder().is_some_and(super::is_quarantine) {
            self.mark_quarantine();
        }
    }

    pub(super) fn note_quarantine(&mut self, floor: Token) {
        let detail = self.shelf.quarantine_reason.clone();
        let token = self.shelf.meta.as_ref().map_or(floor, |meta| meta.token.max(floor));
        let id = self.call.id.clone();
        self.shelf.quarantine_is_noted = true;
        self.shelf.remember(self.now, id, token, HistoryKind::Quarantined { detail });
    }

    /// Keeps everyone out, programs that only know `SET NX` included, until the quarantine ends.
    pub(super) fn mark_quarantine(&mut self) -> Option<Duration> {
        let left = self.quarantine_left()?;
        let mark = super::keys::Value::Text(super::quarantine_mark());
        self.keys.set(self.now, self.call.resource.key(), mark, Some(left));
        Some(left)
    }

    pub(super) fn quarantine_left(&self) -> Option<Duration> {
        self.left_until(self.shelf.quarantine_until)
    }

    /// The time from now to `until` in whole milliseconds, rounded up; `None` when it has passed.
    pub(super) fn left_until(&self, until: ServerTime) -> Option<Duration> {
        let micros = until.0.checked_sub(self.now.0).filter(|micros| *micros > 0)?;
        Some(Duration::from_millis(micros.div_ceil(1_000)))
    }
}
