//! Replication in a turn of the loop: the machine hears of units, sessions and time, and what it
//! asks for is done in order.

use store_engine::{ReplicationRequest, SessionId};
use store_replica::Output;

use super::EventLoop;
use crate::replication::{link_words, tell_facts};

impl EventLoop {
    /// One pass for replication, when all units have been fed: what is due is decided and done.
    /// Bytes for replicas leave with the replies, behind what must be durable first.
    pub(super) fn turn_replication(&mut self) {
        let now = self.replication.now();
        let is_paused = self.engine.state().pause.is_some();
        self.replication.machine.set_paused(is_paused);
        if self.replication.is_due(now) {
            self.replication.machine.handle_time(now);
        }
        self.replication.machine.handle_turn_end(now);
        self.carry_out();
        tell_facts(&self.replication, &mut self.engine);
    }

    /// Does what the machine asks for, in order, until it only waits.
    pub(super) fn carry_out(&mut self) {
        while let Some(output) = self.replication.next_output() {
            self.do_output(output);
        }
    }

    /// A session asks for something. All that was written before it has been fed.
    pub(super) fn ask_replication(&mut self, id: SessionId, request: ReplicationRequest) {
        let session = self.replication.know(id);
        let now = self.replication.now();
        let machine = &mut self.replication.machine;
        match request {
            ReplicationRequest::Wait { count } => {
                let wrote_at = self.engine.session_mut(id).map_or(0, |it| it.wrote_at);
                // A wait that ended by its time may still be there.
                machine.stop_waiting(session);
                if let Some(count) = machine.wait(now, session, wrote_at, count, None) {
                    self.engine.finish_wait(id, count);
                }
            }
            ReplicationRequest::Follow(primary) => {
                self.engine.resume_session(id);
                self.follow(primary);
            }
            // The commands refuse before they get here.
            ReplicationRequest::Replconf(_)
            | ReplicationRequest::Psync(_)
            | ReplicationRequest::Sync => self.engine.resume_session(id),
        }
    }

    fn do_output(&mut self, output: Output) {
        match output {
            Output::Waited { session, count } => {
                if let Some(id) = self.replication.session(session) {
                    self.engine.finish_wait(id, count);
                }
            }
            Output::Reply { session, bytes } => {
                if let Some(id) = self.replication.session(session)
                    && let Some(session) = self.engine.session_mut(id)
                {
                    session.output.extend_from_slice(&bytes);
                    self.clients.write_later(id.slot());
                }
            }
            Output::Become(_)
            | Output::Dial(_)
            | Output::LinkSend(_)
            | Output::LinkClose
            | Output::Payload(_)
            | Output::Load
            | Output::DropPayload
            | Output::Linked { .. } => self.do_link_output(output),
            Output::Log(event) => {
                if let Some((level, line)) = link_words(&event) {
                    self.log(level, &line);
                }
            }
            // Nobody can follow yet.
            _ => {}
        }
    }

    /// A client is gone.
    pub(super) fn session_closed(&mut self, id: SessionId) {
        self.replication.forget(id);
    }
}
