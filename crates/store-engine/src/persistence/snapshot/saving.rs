//! Saving to a file: when, what becomes of it, and what INFO tells of it.

use std::path::PathBuf;

use store_persist::rdb::{Head, Part};
use store_replica::Facts;

use super::{head, history_facts, path, start};
use crate::effects::ServerRequest;
use crate::engine::Engine;
use crate::keyspace::{Keyspace, SnapshotForm, SnapshotKind, SnapshotTurn};
use crate::state::{ServerState, server_gate};

/// After a failure, save points rest for this long.
const RETRY_MS: u64 = 5000;

/// A file to be written: its parts follow by [`Engine::snapshot_turn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveJob {
    /// Where it goes in the end.
    pub path: PathBuf,
    /// What it begins with.
    pub head: Head,
    /// `rdb-key-save-delay` when it began.
    pub key_delay_us: i64,
    /// On a primary that is followed, when units wait to be fetched: the data is that behind so
    /// many of them. Whoever feeds them to the stream knows what describes it, and
    /// [adds](Self::describe) it.
    pub units_before: Option<usize>,
}

impl SaveJob {
    /// The file says of which history its data is.
    pub fn describe(&mut self, facts: Facts) {
        self.head.facts.extend(history_facts(facts));
    }
}

/// Why there is no new file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveFailure {
    /// FLUSHALL, or somebody who wanted another snapshot: all is well.
    Cancelled,
    /// This went wrong.
    Failed(String),
}

/// After so many seconds with so many changes a snapshot is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds since the last one.
    pub seconds: u64,
    /// Changes since then.
    pub changes: u64,
}

/// What is known about saves.
#[derive(Clone, Debug)]
pub struct Saving {
    /// When a snapshot is due (`save`).
    pub points: Vec<SavePoint>,
    /// Unix milliseconds of the last good save, or of the start.
    pub saved_at_ms: u64,
    /// Unix milliseconds of the last attempt in the background.
    tried_at_ms: u64,
    /// Whether the last save was good.
    pub is_ok: bool,
    /// How long the last one in the background took.
    pub last_seconds: Option<u64>,
    /// The running one: when it began, and the changes by then.
    running: Option<RunningSave>,
    /// Whether one is to begin as soon as possible.
    pub is_scheduled: bool,
    /// Good saves since the start or CONFIG RESETSTAT.
    pub count: u64,
    /// Keys loaded at the start.
    pub loaded_keys: u64,
    /// Keys not loaded because they were over.
    pub loaded_ended: u64,
    is_cancelled: bool,
}

#[derive(Clone, Copy, Debug)]
struct RunningSave {
    started_at_ms: u64,
    dirty: u64,
}

impl Default for Saving {
    fn default() -> Self {
        Self {
            points: Vec::new(),
            saved_at_ms: 0,
            tried_at_ms: 0,
            is_ok: true,
            last_seconds: None,
            running: None,
            is_scheduled: false,
            count: 0,
            loaded_keys: 0,
            loaded_ended: 0,
            is_cancelled: false,
        }
    }
}

impl SavePoint {
    /// The points of the setting `save`.
    pub(crate) fn parse_all(text: &str) -> Vec<SavePoint> {
        let numbers: Vec<u64> =
            text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        let point = |pair: &[u64]| SavePoint { seconds: pair[0], changes: pair[1] };
        numbers.chunks_exact(2).map(point).collect()
    }
}

impl Saving {
    /// Whether a save runs in the background.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    #[cfg(test)]
    pub(super) fn pretend_running(&mut self) {
        self.running = Some(RunningSave { started_at_ms: 0, dirty: 0 });
    }

    /// Whether the running save is already given up.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    /// How long the running save has taken.
    pub fn running_seconds(&self, now_ms: u64) -> Option<u64> {
        self.running.map(|running| now_ms.saturating_sub(running.started_at_ms) / 1000)
    }

    /// When the last file was written is told to clients and stays; waits go on as they were.
    pub(crate) fn clock_stepped(&mut self, step_ms: i64) {
        self.tried_at_ms = self.tried_at_ms.saturating_add_signed(step_ms);
        if let Some(running) = &mut self.running {
            running.started_at_ms = running.started_at_ms.saturating_add_signed(step_ms);
        }
    }

    /// When the first save point that has enough changes is due.
    fn due_at_ms(&self, dirty: u64) -> Option<u64> {
        if dirty == 0 || self.running.is_some() {
            return None;
        }
        let enough = self.points.iter().filter(|point| dirty >= point.changes);
        // Later than so many seconds, as in Redis.
        let due = enough.map(|point| self.saved_at_ms + point.seconds * 1000 + 1).min()?;
        let retry_at = if self.is_ok { 0 } else { self.tried_at_ms + RETRY_MS };
        Some(due.max(retry_at))
    }

    /// Whether writes are refused because saving fails.
    fn refuses_writes(&self, server_stops: bool) -> bool {
        !self.is_ok && !self.points.is_empty() && server_stops
    }
}

/// Opens or shuts the gate that refuses writes while saving fails.
pub(crate) fn guard_writes(server: &mut ServerState) {
    let stops = server.config.settings().snapshot.stops_writes;
    match server.saving.refuses_writes(stops) {
        true => server.gates |= server_gate::SAVING_FAILS,
        false => server.gates &= !server_gate::SAVING_FAILS,
    }
}

/// Begins a save in the background. False while the walker is busy.
pub(crate) fn begin_save(db: &mut Keyspace, server: &mut ServerState) -> bool {
    let compresses = server.config.settings().snapshot.compresses;
    if !start(db, server, SnapshotKind::Save, SnapshotForm::Rdb { compresses }) {
        return false;
    }
    let key_delay_us = server.config.settings().snapshot.save_delay_us;
    let waits = db.changes.feeds_stream && !db.changes.units.is_empty();
    // Of a unit that is being built a part may be in the snapshot and a part not.
    let units_before = (waits && !db.changes.is_unit_open()).then_some(db.changes.units.len());
    let head = head(db, server, false);
    let job = SaveJob { path: path(server), head, key_delay_us, units_before };
    let now_ms = db.now_ms();
    server.saving.running = Some(RunningSave { started_at_ms: now_ms, dirty: db.dirty });
    server.saving.tried_at_ms = now_ms;
    server.saving.is_scheduled = false;
    server.saving.is_cancelled = false;
    server.effects.requests.push(ServerRequest::SaveStarted(Box::new(job)));
    true
}

/// Saves while everybody waits. Fails with a reason.
pub(crate) fn save_now(db: &mut Keyspace, server: &mut ServerState) -> Result<(), String> {
    if server.gates & server_gate::TORN != 0 {
        return Err("a script was ended in the middle of its writes".to_owned());
    }
    while db.has_snapshot() {
        if db.snapshot_kind().is_some() {
            return Err("another snapshot is running".to_owned());
        }
        db.snapshot_turn(0);
    }
    let compresses = server.config.settings().snapshot.compresses;
    start(db, server, SnapshotKind::Save, SnapshotForm::Rdb { compresses });
    let key_delay_us = server.config.settings().snapshot.save_delay_us;
    let head = head(db, server, false);
    let job = SaveJob { path: path(server), head, key_delay_us, units_before: None };
    let dirty = db.dirty;
    let written = server.platform.save_snapshot(&job, &mut || next_parts(db));
    // A file that could not be written leaves the walk in the middle.
    db.abandon_snapshot("the file could not be written");
    while db.has_snapshot() {
        db.snapshot_turn(0);
    }
    if written.is_ok() {
        let now_ms = db.now_ms();
        note(db, server, now_ms, dirty, true);
    }
    written
}

fn next_parts(db: &mut Keyspace) -> Option<Vec<Part>> {
    match db.snapshot_turn(0) {
        SnapshotTurn::More(parts) | SnapshotTurn::Waiting(parts) | SnapshotTurn::Done(parts) => {
            Some(parts)
        }
        SnapshotTurn::Idle | SnapshotTurn::Abandoned(_) | SnapshotTurn::Settling => None,
    }
}

fn note(db: &mut Keyspace, server: &mut ServerState, now_ms: u64, dirty: u64, is_ok: bool) {
    server.saving.is_ok = is_ok;
    if is_ok {
        db.dirty = db.dirty.saturating_sub(dirty);
        server.saving.saved_at_ms = now_ms;
        server.saving.count += 1;
    }
    guard_writes(server);
}

/// Whether BGSAVE could begin at once.
fn ready_to_save(db: &Keyspace) -> bool {
    !db.has_snapshot()
}

/// Gives a running save up because nobody wants it any more.
pub(crate) fn stop_saving(db: &mut Keyspace, server: &mut ServerState, reason: &str) {
    if server.saving.is_running() {
        server.saving.is_cancelled = true;
        db.abandon_snapshot(reason);
        server.effects.requests.push(ServerRequest::SaveCancelled);
    }
    server.saving.is_scheduled = false;
}

impl Engine {
    /// Tells what became of the file of the running save. The reason of a failure is logged by
    /// the driver.
    pub fn finish_save(&mut self, now_us: u64, result: Result<(), SaveFailure>) {
        let now_ms = now_us / 1000;
        let Some(running) = self.state.saving.running.take() else { return };
        let was_cancelled = std::mem::take(&mut self.state.saving.is_cancelled);
        let seconds = now_ms.saturating_sub(running.started_at_ms) / 1000;
        self.state.saving.last_seconds = Some(seconds);
        match result {
            Err(SaveFailure::Cancelled) => {}
            Err(SaveFailure::Failed(_)) if was_cancelled => {}
            done => {
                note(&mut self.keyspace, &mut self.state, now_ms, running.dirty, done.is_ok());
            }
        }
    }

    /// Begins a save when one is due.
    pub(crate) fn save_if_due(&mut self) {
        let saving = &self.state.saving;
        let now_ms = self.keyspace.now_ms();
        let is_due = saving.due_at_ms(self.keyspace.dirty).is_some_and(|at| at <= now_ms);
        let is_whole = !self.state.persistence.is_half_loaded();
        let may_begin = is_whole && !saving.is_running() && ready_to_save(&self.keyspace);
        if (is_due || saving.is_scheduled) && may_begin {
            if is_due {
                let line = "Changes enough for a snapshot. Saving...".to_owned();
                self.state.effects.requests.push(ServerRequest::Log(line));
            }
            if !self.is_quiet() {
                // What time has done so far is before the snapshot, as a whole.
                self.deliver(None);
            }
            begin_save(&mut self.keyspace, &mut self.state);
        }
    }

    /// When [`save_if_due`](Self::save_if_due) is to be called.
    pub(crate) fn save_due_at_ms(&self) -> Option<u64> {
        let is_half_loaded = self.state.persistence.is_half_loaded();
        if self.keyspace.has_snapshot() || self.state.saving.is_running() || is_half_loaded {
            return None;
        }
        if self.state.saving.is_scheduled {
            return Some(0);
        }
        self.state.saving.due_at_ms(self.keyspace.dirty)
    }

    /// Saves before the server ends, if the settings ask for it or `asked` does. Half of what is
    /// being loaded is not saved: it would take the place of a file that is whole. Fails with a
    /// reason, and then the data is in memory only.
    pub fn save_before_end(&mut self, now_us: u64, asked: bool) -> Result<(), String> {
        self.keyspace.begin(now_us, 0);
        save_before_end(&mut self.keyspace, &mut self.state, asked)
    }
}

/// See [`Engine::save_before_end`].
pub(crate) fn save_before_end(
    db: &mut Keyspace,
    server: &mut ServerState,
    asked: bool,
) -> Result<(), String> {
    let is_wanted = asked || !server.saving.points.is_empty();
    if !is_wanted || server.persistence.is_half_loaded() {
        return Ok(());
    }
    stop_saving(db, server, "the server ends");
    db.abandon_snapshot("the server ends");
    save_now(db, server)
}
