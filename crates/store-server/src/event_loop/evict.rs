//! What clients hold: it counts for `maxmemory`, and beyond `maxmemory-clients` the largest are
//! closed.
//!
//! A client is counted anew whenever it was read from or written to, by itself or by others, so a
//! turn costs as much as clients took part in it; only going over the limit costs a look at all
//! of them.

use store_engine::{LogLevel, session_flag};

use super::EventLoop;
use crate::client::CloseState;

impl EventLoop {
    /// Counts what a client holds now.
    pub(super) fn count_memory(&mut self, slot: usize) {
        let Some(client) = self.clients.get(slot) else { return };
        if let Some(session) = self.engine.session_mut(client.session) {
            self.clients.count_memory(session);
        }
    }

    /// Counts all clients whose replies share values with the keyspace: what is removed there
    /// becomes theirs.
    pub(super) fn count_shared(&mut self) {
        if self.engine.count_orphans() {
            self.clients.slots().for_each(|slot| self.count_memory(slot));
        }
    }

    /// Closes the largest clients until the others keep within the limit. Those who said CLIENT
    /// NO-EVICT stay, and so do replicas.
    pub(super) fn evict_clients(&mut self) {
        self.engine.set_clients_memory(self.clients.memory);
        let memory_max = self.engine.config().settings().clients.memory_max;
        if memory_max == 0 || self.clients.memory <= memory_max {
            return;
        }
        let mut by_size = Vec::new();
        for client in self.clients.iter().filter(|client| client.closing == CloseState::Open) {
            let session = self.engine.session_mut(client.session);
            const STAYS: u32 = session_flag::NO_EVICT | session_flag::REPLICA;
            if session.is_some_and(|session| !session.has(STAYS)) {
                by_size.push((client.counted_memory, client.session.slot()));
            }
        }
        by_size.sort_unstable_by(|a, b| b.cmp(a));
        let mut left = self.clients.memory;
        for (memory, slot) in by_size {
            if left <= memory_max {
                break;
            }
            left -= memory;
            self.engine.measured_mut().evicted_clients += 1;
            self.log(LogLevel::Notice, &format!("Evicting client that holds {memory} bytes"));
            self.clients.close_later(slot, CloseState::Now);
        }
    }
}
