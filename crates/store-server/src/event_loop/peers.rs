//! Other servers that this one connected to.

use mio::event::Event;

use super::EventLoop;
use crate::peers::Resolved;

impl EventLoop {
    pub(super) fn take_peer_event(&mut self, event: &Event) {
        let now_ms = self.running.millis();
        let peer = self.peers.handle_event(self.poll.registry(), now_ms, event);
        if let Some(driver) = &mut self.cluster {
            driver.ready.insert(peer);
        }
    }

    pub(super) fn take_resolved(&mut self, resolved: Resolved) {
        let now_ms = self.running.millis();
        self.peers.handle_resolved(self.poll.registry(), now_ms, resolved);
    }

    /// One pass for the servers that this one connected to.
    #[inline]
    pub(super) fn turn_peers(&mut self) {
        if self.sentinel.is_some() || self.cluster.is_some() || self.has_peers() {
            self.turn_with_peers();
        }
    }

    /// Whether this server is connected to others, or has something to do for one.
    #[inline]
    fn has_peers(&self) -> bool {
        let is_alone = self.peers.is_idle() && self.replication.link.is_idle();
        !is_alone || !self.migrations.is_idle()
    }

    fn turn_with_peers(&mut self) {
        self.check_peers();
        match self.sentinel.is_some() {
            true => self.turn_sentinel(),
            false => {
                self.turn_link();
                self.turn_migrations();
                self.turn_cluster();
            }
        }
    }

    /// Ends attempts to connect that took too long.
    fn check_peers(&mut self) {
        let Some(at_ms) = self.peers.wakes_at_ms() else { return };
        let now_ms = self.running.millis();
        if at_ms <= now_ms {
            self.peers.handle_time(self.poll.registry(), now_ms);
        }
    }

    /// How long nothing can be due.
    pub(super) fn peers_wait_ms(&self) -> Option<u64> {
        if self.peers.has_event() {
            return Some(0);
        }
        let at_ms = self.peers.wakes_at_ms()?;
        Some(at_ms.saturating_sub(self.running.millis()))
    }
}
