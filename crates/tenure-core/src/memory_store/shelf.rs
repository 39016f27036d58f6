//! Everything a store keeps about one resource beside the key itself.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::protocol::{
    CloseReason, HistoryEntry, HistoryKind, MemberRecord, TickOutcome, Token, Wish,
};
use crate::{InstanceId, ServerTime};

use super::life::Mark;

/// How many lines of history are kept per resource.
pub(super) const HISTORY_KEPT_MAX: usize = 1_000;
/// How many instances' ended attempts are remembered per resource: far more than can be in
/// flight, few enough that restarting processes do not fill the store.
pub(super) const REFUSALS_KEPT_MAX: usize = 256;
/// How many ticks are remembered in one series.
pub(super) const TICKS_KEPT_MAX: usize = 64;
/// How long a named tick may run before it counts as never begun.
pub(super) const NAMED_BEGUN_KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How many series of ticks are remembered, as long as some of them are over.
pub(super) const SERIES_KEPT_MAX: usize = 125;

/// The side records of one resource.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    /// `None` until the first term or quarantine: "never heard of this resource".
    pub(super) meta: Option<Meta>,
    /// What was here was deleted: not even a store that lost nothing else vouches for it.
    pub(super) was_emptied: bool,
    /// Attempts that are over, per instance the highest, in the order they ended.
    pub(super) refusals: VecDeque<(InstanceId, u64)>,
    pub(super) quarantine_until: ServerTime,
    pub(super) quarantine_reason: String,
    /// Whether history tells of it.
    pub(super) quarantine_is_noted: bool,
    pub(super) paused_until: ServerTime,
    pub(super) members: BTreeMap<InstanceId, Seat>,
    pub(super) history: VecDeque<HistoryEntry>,
    pub(super) ticks: Ticks,
}

/// The record of the current or last term.
#[derive(Clone, Debug)]
pub(super) struct Meta {
    pub(super) holder: Option<InstanceId>,
    pub(super) token: Token,
    pub(super) attempt: u64,
    pub(super) renewed_at: ServerTime,
    pub(super) expires_at: ServerTime,
    /// Whether the term was granted and has not been closed by anyone yet.
    pub(super) is_open: bool,
    pub(super) max_ttl: Duration,
    pub(super) written_in: Mark,
    pub(super) claim: Option<Claim>,
    pub(super) wish: Option<Wish>,
    /// What stood here before an attempt settled that no majority may have granted.
    pub(super) before: Option<Before>,
    /// Who undid an attempt last, and its number: not adopted from the same one again.
    pub(super) undone: Option<(InstanceId, Token)>,
}

impl Meta {
    pub(super) fn blank(written_in: Mark) -> Self {
        Meta {
            holder: None,
            token: Token::NONE,
            attempt: 0,
            renewed_at: ServerTime::default(),
            expires_at: ServerTime::default(),
            is_open: false,
            max_ttl: Duration::ZERO,
            written_in,
            claim: None,
            wish: None,
            before: None,
            undone: None,
        }
    }
}

/// The last term before an attempt that may come to nothing.
#[derive(Clone, Debug)]
pub(super) struct Before {
    pub(super) holder: Option<InstanceId>,
    pub(super) token: Token,
    pub(super) attempt: u64,
    pub(super) is_open: bool,
}

/// A reservation for a named successor. Kept after it was used, to answer a repeated transfer.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) to: InstanceId,
    pub(super) token: Token,
    pub(super) from: InstanceId,
    pub(super) from_token: Token,
    pub(super) is_pending: bool,
}

/// A member's place.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) record: MemberRecord,
    pub(super) ready_since: Option<ServerTime>,
    pub(super) beat_at: ServerTime,
}

/// Which recurring and named jobs have run.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticks {
    /// Numbered ticks by the length of their period in microseconds; plain numbers have none, 0.
    pub(super) series: BTreeMap<u64, BTreeMap<u64, NumberedTick>>,
    pub(super) named: BTreeMap<String, NamedTick>,
}

#[derive(Clone, Debug)]
pub(super) enum NumberedTick {
    Begun { by: InstanceId, token: Token },
    Ended(TickOutcome),
}

#[derive(Clone, Debug)]
pub(super) enum NamedTick {
    Begun { by: InstanceId, token: Token, kept_until: ServerTime },
    Ended { outcome: TickOutcome, kept_until: ServerTime },
}

impl Shelf {
    pub(super) fn refuses(&self, id: &InstanceId, attempt: u64) -> bool {
        self.refusals.iter().any(|(refused, highest)| refused == id && attempt <= *highest)
    }

    /// Attempts only grow, so everything up to `attempt` is over.
    pub(super) fn refuse_from_now_on(&mut self, id: &InstanceId, attempt: u64) {
        let before = self.refusals.iter().position(|(refused, _)| refused == id);
        let highest = before.and_then(|at| self.refusals.remove(at)).map_or(0, |entry| entry.1);
        self.refusals.push_back((id.clone(), highest.max(attempt)));
        while self.refusals.len() > REFUSALS_KEPT_MAX {
            self.refusals.pop_front();
        }
    }

    pub(super) fn remember(
        &mut self,
        at: ServerTime,
        id: InstanceId,
        token: Token,
        what: HistoryKind,
    ) {
        if self.history.len() == HISTORY_KEPT_MAX {
            self.history.pop_front();
        }
        self.history.push_back(HistoryEntry { at, id, token, what });
    }

    /// Writes down how the last term ended, unless that was done when it ended.
    pub(super) fn close_term(&mut self, at: ServerTime, reason: CloseReason, detail: &str) {
        let Some(meta) = &mut self.meta else { return };
        if !std::mem::take(&mut meta.is_open) {
            return;
        }
        meta.wish = None;
        let (Some(id), token) = (meta.holder.clone(), meta.token) else { return };
        let what = HistoryKind::Closed { reason, detail: detail.to_owned() };
        self.remember(at, id, token, what);
    }
}
