//! Sessions that wait for keys of a slot that is served somewhere else now.

use store_cluster::Refusal;
use store_resp::slot::slot_of;

use super::route::refusal_text;
use crate::command::flag;
use crate::engine::Engine;
use crate::error::CommandError;
use crate::session::{Session, SessionId, session_flag};

impl Engine {
    /// Sends away who waits for keys that this node does not serve any more: nothing would ever
    /// come of it.
    pub fn redirect_waiting(&mut self) {
        if self.keyspace.waiting.is_empty() {
            return;
        }
        let waiting = self.state.sessions.iter().filter_map(|session| {
            let refusal = self.refuse_waiting_session(session)?;
            let cluster = self.state.cluster.as_ref()?;
            let text = refusal_text(cluster, &refusal, self.state.config.settings(), session);
            Some((session.id, text))
        });
        let waiting: Vec<(SessionId, String)> = waiting.collect();
        for (id, text) in waiting {
            self.refuse_waiting(id, &CommandError::new(text));
        }
    }

    fn refuse_waiting_session(&self, session: &Session) -> Option<Refusal> {
        let blocked = session.blocked.as_ref()?;
        // All keys are of one slot.
        let key = blocked.keys.first()?;
        let only_reads = !self.state.registry.row(blocked.row).command.has(flag::WRITE);
        let reads_replica = session.has(session_flag::READS_REPLICA) && only_reads;
        let cluster = self.state.cluster.as_ref()?;
        cluster.machine.refuse_waiting(slot_of(key), reads_replica)
    }
}
