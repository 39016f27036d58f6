//! An end that waits for replicas: nothing more is written, and they get what they lack, for at
//! most `shutdown-timeout`.

use store_engine::{CommandError, LogLevel, ServerRequest, SessionId};
use store_replica::Replica;

use super::EventLoop;
use crate::replication::{Ending, tell_facts};

impl EventLoop {
    /// Whether the server may end as far as replicas are concerned. Begins to wait for them when
    /// it is first asked.
    pub(super) fn may_leave_replicas(&mut self) -> bool {
        if self.shared.is_forced.load(std::sync::atomic::Ordering::SeqCst) {
            return true;
        }
        if self.replication.has_waited {
            return true;
        }
        if self.replication.ending.is_none() {
            self.begin_ending(None);
        }
        if !self.is_ending_due() {
            return false;
        }
        self.stop_waiting_for_replicas();
        self.replication.has_waited = true;
        true
    }

    /// SHUTDOWN: ends when replicas have everything.
    pub(super) fn end_after_replicas(&mut self, id: Option<SessionId>) {
        match &mut self.replication.ending {
            Some(ending) => ending.sessions.extend(id),
            None => self.begin_ending(id),
        }
        self.continue_ending();
        tell_facts(&self.replication, &mut self.engine);
    }

    pub(super) fn hold_for_end(&mut self, is_held: bool) {
        self.replication.holds.for_end = is_held;
        self.follow_holds();
    }

    fn begin_ending(&mut self, id: Option<SessionId>) {
        let wait = self.engine.config().settings().process.shutdown_wait;
        let offset = self.replication.machine.history().offset();
        let until = self.replication.now() + wait;
        let sessions = id.into_iter().collect();
        self.replication.ending = Some(Ending { offset, until, sessions });
        if !self.is_ending_due() {
            self.log(LogLevel::Notice, "Waiting for replicas before shutting down.");
            // Asked before writes are held: what is fed by itself waits for them, too.
            self.replication.machine.want_acks();
            let now = self.replication.now();
            self.replication.machine.handle_turn_end(now);
            self.hold_for_end(true);
        }
    }

    /// Whether all replicas that are online have everything, or the time is up.
    fn is_ending_due(&self) -> bool {
        let Some(ending) = &self.replication.ending else { return false };
        let lags = |it: &Replica| it.is_online() && it.acked() < ending.offset;
        ending.until <= self.replication.now()
            || !self.replication.machine.replicas().iter().any(lags)
    }

    /// Goes on with an end that waits, when it waits no longer. One for a signal is looked at by
    /// the loop itself.
    pub(super) fn continue_ending(&mut self) {
        let asked = self.replication.ending.as_ref().is_some_and(|it| !it.sessions.is_empty());
        if !asked || !self.is_ending_due() {
            return;
        }
        let mut sessions = self.stop_waiting_for_replicas().into_iter();
        // What cannot be written is known before the command looks.
        let now_ms = self.now_us / 1000;
        let _ = self.persistence.prepare_end(now_ms, &mut self.engine);
        if let Some(first) = sessions.next() {
            self.engine.ask_again(self.now_us, first);
        }
        if self.engine.effects().requests.contains(&ServerRequest::Shutdown) {
            // What was held back is not written any more: it would be lost.
            return;
        }
        self.hold_for_end(false);
        let error = CommandError::text("ERR Errors trying to SHUTDOWN. Check logs.");
        sessions.for_each(|id| self.engine.refuse_waiting(id, &error));
    }

    /// Says who lags. Returns who asked.
    fn stop_waiting_for_replicas(&mut self) -> Vec<SessionId> {
        let Some(ending) = self.replication.ending.take() else { return Vec::new() };
        let now = self.replication.now();
        let online = self.replication.machine.replicas().iter().filter(|it| it.is_online());
        let (behind, rest): (Vec<_>, Vec<_>) = online.partition(|it| it.acked() < ending.offset);
        let mut lines = Vec::new();
        for replica in &behind {
            lines.push(format!(
                "Lagging replica {} reported offset {} behind master, lag={}, state=online.",
                replica.address(),
                ending.offset - replica.acked(),
                replica.lag(now).as_secs(),
            ));
        }
        if !behind.is_empty() || !rest.is_empty() {
            let (good, all) = (rest.len(), behind.len() + rest.len());
            lines.push(format!("{good} of {all} replicas are in sync when shutting down."));
        }
        lines.iter().for_each(|line| self.log(LogLevel::Notice, line));
        ending.sessions
    }

    /// SHUTDOWN ABORT: whoever asked for the end is told, and everybody goes on.
    pub(super) fn abort_ending(&mut self, id: SessionId) {
        if let Some(ending) = self.replication.ending.take() {
            self.log(LogLevel::Notice, "Shutdown manually aborted.");
            self.hold_for_end(false);
            (self.is_stopping, self.stop_signal) = (false, None);
            let error = CommandError::text("ERR Errors trying to SHUTDOWN. Check logs.");
            ending.sessions.into_iter().for_each(|id| self.engine.refuse_waiting(id, &error));
        }
        self.answer_ok(id);
    }
}
