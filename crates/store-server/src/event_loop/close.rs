//! Clients that go: those who idle or stall are told to, and all are let go at the turn's end.

use store_engine::session_flag;

use super::EventLoop;
use crate::client::CloseState;

/// How long a client may take to authenticate.
const AUTHENTICATION_MS_MAX: u64 = 60_000;
/// Between looks for clients that idle or stall.
const CLIENT_CHECK_MS: u64 = 1000;

impl EventLoop {
    /// Whether any rule about idle or stalled clients is in force.
    pub(super) fn checks_clients(&self) -> bool {
        if self.engine.state().debug.pauses_cron {
            return false;
        }
        let config = self.engine.config();
        let has_clients = self.engine.state().sessions.count() > 0;
        let has_rule = config.settings().clients.idle_seconds_max > 0 || self.engine.needs_login();
        has_clients && (has_rule || self.watches_output)
    }

    /// Closes clients that idle for too long, or do not authenticate.
    pub(super) fn check_clients(&mut self, now_ms: u64) {
        if now_ms < self.next_client_check_ms || !self.checks_clients() {
            return;
        }
        self.next_client_check_ms = now_ms + CLIENT_CHECK_MS;
        self.check_soft_limits();
        let idle_ms_max = self.engine.config().settings().clients.idle_seconds_max * 1000;
        for slot in self.clients.slots() {
            let Some(client) = self.clients.get(slot) else { continue };
            let Some(session) = self.engine.session_mut(client.session) else { continue };
            let waits = session.has(session_flag::BLOCKED | session_flag::SUBSCRIBED)
                || session.has(session_flag::MONITOR | session_flag::REPLICA);
            let idle_ms = now_ms.saturating_sub(session.asked_at_ms);
            let age_ms = now_ms.saturating_sub(session.opened_at_ms);
            let idles = idle_ms_max > 0 && idle_ms > idle_ms_max && !waits;
            let stalls = session.has(session_flag::NEEDS_AUTH) && age_ms > AUTHENTICATION_MS_MAX;
            if idles || stalls {
                self.clients.close_later(slot, CloseState::Now);
            }
        }
    }

    /// Looks again at clients with too much unread output: the time they may have it runs
    /// without anything being written.
    fn check_soft_limits(&mut self) {
        if !std::mem::take(&mut self.watches_output) {
            return;
        }
        for slot in self.clients.slots() {
            let Some(client) = self.clients.get(slot) else { continue };
            if client.over_soft_since_ms.is_none() || client.closing == CloseState::Now {
                continue;
            }
            let session = self.engine.session_mut(client.session);
            let left = session.map_or(0, |session| session.output.unread());
            self.check_output(slot, left);
            if self.clients.get(slot).is_some_and(|client| client.closing == CloseState::Now) {
                self.clients.to_close.push(slot);
            }
        }
    }

    pub(super) fn close_clients(&mut self) {
        for slot in std::mem::take(&mut self.clients.to_close) {
            if let Some(mut client) = self.clients.take(slot) {
                // It is closed next; deregistering cannot matter.
                let _ = self.poll.registry().deregister(&mut client.stream);
                self.shrinking.note_freed(client.counted_memory);
                self.clients.memory = self.clients.memory.saturating_sub(client.counted_memory);
                self.engine.close_session(client.session);
                self.session_closed(client.session);
            }
        }
    }
}
