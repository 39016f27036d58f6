//! How long requests took, for statistics, the slow log and the latency monitor.
//!
//! ```text
//! execute ─► Unmeasured ─► finish(micros): shared among the requests since the last finish
//! EXEC, script ─► call_measured: by the handler's clock, each command by itself
//! ```
//! The engine has no clock: the driver tells how long requests took together. What was refused,
//! queued, or waits for a key, took no time; what waited is measured when it is served.

use store_resp::{OwnedRequest, Request};

use crate::command::{Command, flag};
use crate::context::{Caller, Context};
use crate::engine::Engine;
use crate::gate;
use crate::registry::RowId;
use crate::session::{Blocked, SessionId, session_flag};
use crate::slow_log::commands::{self as slow_log, Slow};
use crate::state::ServerState;

/// What was executed since the driver last told how long things took.
#[derive(Debug, Default)]
pub(crate) struct Unmeasured {
    /// Rows of requests that ran.
    rows: Vec<RowId>,
    /// The row of the last request, if it ran.
    last: Option<RowId>,
    /// All requests, whatever became of them.
    requests: usize,
    /// Requests that waited and no longer do.
    served: Vec<Served>,
    /// What the last tick did.
    tick: TickWork,
}

/// A request that waited until a key had what it wants, or until somebody ended its wait.
#[derive(Debug)]
struct Served {
    session: SessionId,
    row: RowId,
    request: OwnedRequest,
}

/// What a tick did that may take long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TickWork {
    pub(crate) expired: bool,
    pub(crate) evicted: bool,
}

impl Unmeasured {
    /// A request was executed; `row` is its row if it ran to its end.
    #[inline]
    pub(crate) fn add(&mut self, row: Option<RowId>) {
        self.requests += 1;
        self.last = row;
        self.rows.extend(row);
    }

    /// A session no longer waits.
    pub(crate) fn add_served(&mut self, session: SessionId, blocked: Blocked) {
        self.rows.push(blocked.row);
        let request = blocked.asked.unwrap_or(blocked.request);
        self.served.push(Served { session, row: blocked.row, request });
    }

    /// CLIENT UNBLOCK ended the wait of a session, and noted it.
    pub(crate) fn add_unblocked(&mut self, blocked: &Blocked) {
        self.rows.push(blocked.row);
    }

    pub(crate) fn set_tick(&mut self, work: TickWork) {
        self.tick = work;
    }
}

impl Engine {
    /// Forgets the requests executed and not measured.
    pub(crate) fn forget_unmeasured(&mut self) {
        self.unmeasured = Unmeasured::default();
    }

    /// Whether the request just executed can only have taken so little time that it need not
    /// be measured alone.
    #[inline]
    pub fn was_quick(&self, request: Request<'_>) -> bool {
        let row = self.unmeasured.last.map(|row| self.state().registry.row(row).command);
        row.is_none_or(|command| is_quick(self.state(), command, request))
    }

    /// How many requests were executed since the last [`finish`](Self::finish).
    #[inline]
    pub fn unmeasured(&self) -> usize {
        self.unmeasured.requests
    }

    /// Tells how long the requests executed since the last call took together, for statistics
    /// and the slow log. `last` is the one that ran last, unless all were quick.
    pub fn finish(&mut self, last: Option<(SessionId, Request<'_>)>, micros: u64) {
        let at_us = self.keyspace().now_us();
        let row = self.unmeasured.last.take();
        self.unmeasured.requests = 0;
        if micros >= self.state().slow_from_us
            && let (Some((id, request)), Some(row)) = (last, row)
        {
            self.note_slow(id, Slow { at_us, micros, row, request, waited: false });
        }
        let each = micros.checked_div(self.unmeasured.rows.len() as u64).unwrap_or(0);
        if !self.unmeasured.served.is_empty() {
            self.finish_served(at_us, each);
        }
        let mut left = micros;
        while let Some(row) = self.unmeasured.rows.pop() {
            // What does not divide goes to the one charged last.
            let share = if self.unmeasured.rows.is_empty() { left } else { each };
            charge(self.state_mut(), row, share);
            left -= share;
        }
    }

    #[cold]
    fn finish_served(&mut self, at_us: u64, micros: u64) {
        let served = std::mem::take(&mut self.unmeasured.served);
        if micros < self.state().slow_from_us {
            return;
        }
        for Served { session, row, request } in &served {
            let request = request.as_request();
            self.note_slow(*session, Slow { at_us, micros, row: *row, request, waited: true });
        }
    }

    #[cold]
    fn note_slow(&mut self, id: SessionId, slow: Slow<'_>) {
        let Some(session) = self.session_mut(id) else { return };
        let (address, name) = (session.origin.address.clone(), session.name.clone());
        slow_log::note_slow(self.state_mut(), slow, (&address, &name));
    }

    /// Tells how long the last [`tick`](Self::tick) took, for the latency monitor.
    pub fn finish_tick(&mut self, micros: u64) {
        let work = std::mem::take(&mut self.unmeasured.tick);
        let at_s = self.keyspace().now_us() / 1_000_000;
        let events = [("expire-cycle", work.expired), ("eviction-cycle", work.evicted)];
        for (event, _) in events.into_iter().filter(|(_, ran)| *ran) {
            slow_log::note_latency(self.state_mut(), event, at_s, micros);
        }
    }
}

/// Runs a command inside of EXEC or a script, and measures it as if a client had asked for it.
pub(crate) fn call_measured(cx: &mut Context<'_>, request: Request<'_>) {
    let row = cx.row;
    let command = cx.server.registry.row(row).command;
    if is_quick(cx.server, command, request) {
        gate::call(cx, request);
        // Less than a microsecond: Redis counts as much.
        return charge(cx.server, row, 0);
    }
    let started_at_us = cx.busy_handler.now_us();
    let rested = cx.session.has(session_flag::RESTS);
    gate::call(cx, request);
    let ended_at_us = cx.busy_handler.now_us();
    let (Some(started), Some(ended)) = (started_at_us, ended_at_us) else {
        return charge(cx.server, row, 0);
    };
    // DEBUG SLEEP: the driver rests later, but this command is why.
    let rests = cx.session.has(session_flag::RESTS) && !rested;
    let rest_us = if rests { cx.server.effects.rest_us } else { 0 };
    let micros = ended.saturating_sub(started) + rest_us;
    charge(cx.server, row, micros);
    if micros >= cx.server.slow_from_us {
        let slow = Slow { at_us: cx.db.now_us(), micros, row, request, waited: false };
        // What a script calls comes from no connection.
        let client = match cx.caller {
            Caller::Script => ("?:0", &[][..]),
            _ => (cx.session.origin.address.as_str(), cx.session.name.as_slice()),
        };
        slow_log::note_slow(cx.server, slow, client);
    }
}

/// Whether a request can only take so little time that a look at the clock would cost more.
#[inline]
fn is_quick(server: &ServerState, command: &Command, request: Request<'_>) -> bool {
    const QUICK_ARGS_MAX: usize = 8;
    /// Below this the slow log is meant to have nearly everything.
    const SLOW_FROM_US_MIN: u64 = 1000;
    request.len() <= QUICK_ARGS_MAX
        && server.slow_from_us >= SLOW_FROM_US_MIN
        && command.has(flag::FAST)
}

#[inline]
fn charge(server: &mut ServerState, row: RowId, micros: u64) {
    server.registry.stats_mut(row).micros += micros;
    if server.tracks_latency {
        server.registry.histogram_mut(row).add(micros);
    }
}
