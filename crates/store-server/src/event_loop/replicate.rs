//! Replication in a turn of the loop: the machine hears of units, sessions and time, and what it
//! asks for is done in order.

use std::io;

use store_engine::{
    Asker, CommandError, LogLevel, ReplicationRequest, SessionId, SnapshotForm, SnapshotKind,
    session_flag,
};
use store_replica::{
    CloseReason, FailoverError, Output, ReplicaState, SnapshotContent, SnapshotNeeds,
    SnapshotTarget,
};

use super::EventLoop;
use crate::client::CloseState;
use crate::persistence::dir;
use crate::replication::{Payload, PayloadJob, closing_words, settings_of, tell_facts, words};

impl EventLoop {
    /// One pass for replication, when all units have been fed: what is due is decided and done.
    /// Bytes for replicas leave with the replies, behind what must be durable first.
    pub(super) fn turn_replication(&mut self) {
        let now = self.replication.now();
        let is_paused = self.engine.state().is_paused();
        self.replication.machine.set_paused(is_paused);
        if self.replication.is_due(now) {
            self.replication.machine.handle_time(now);
        }
        self.replication.machine.handle_turn_end(now);
        self.carry_out();
        self.start_wanted_snapshot();
        self.continue_ending();
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
            ReplicationRequest::Wait { count, wait } => return self.begin_wait(id, count, wait),
            ReplicationRequest::Shutdown => return self.end_after_replicas(Some(id)),
            ReplicationRequest::AbortShutdown => return self.abort_ending(id),
            ReplicationRequest::Follow(primary, asker) => {
                if asker == Asker::Waits {
                    self.engine.resume_session(id);
                }
                self.follow(primary);
                tell_facts(&self.replication, &mut self.engine);
                return;
            }
            ReplicationRequest::Failover(request, asker) => {
                let outcome = machine.start_failover(now, request);
                return self.answer_failover((id, asker), outcome);
            }
            ReplicationRequest::AbortFailover(asker) => {
                let outcome = machine.abort_failover(now);
                return self.answer_failover((id, asker), outcome);
            }
            ReplicationRequest::ChangeId => {
                machine.change_id();
                return self.answer_ok(id);
            }
            ReplicationRequest::Replconf(request) => {
                machine.handle_replconf(now, session, request.as_request());
            }
            ReplicationRequest::Psync(request) => {
                self.introduce_replica(id);
                let machine = &mut self.replication.machine;
                machine.handle_psync(now, session, request.as_request());
            }
            ReplicationRequest::Sync => {
                self.introduce_replica(id);
                self.replication.machine.handle_sync(now, session);
            }
        }
        self.carry_out();
        self.mark_replica(id);
        tell_facts(&self.replication, &mut self.engine);
        self.engine.resume_session(id);
    }

    /// Answered before anything is done: a change of the role sends away whoever waits.
    fn answer_failover(
        &mut self,
        (id, asker): (SessionId, Asker),
        outcome: Result<(), FailoverError>,
    ) {
        match (outcome, asker) {
            (Ok(()), Asker::Waits) => self.answer_ok(id),
            (Ok(()), Asker::WentOn) => {}
            (Err(error), Asker::Waits) => {
                let error = CommandError::new(format!("ERR {error}"));
                self.engine.refuse_waiting(id, &error);
            }
            // Something changed since it was answered.
            (Err(error), Asker::WentOn) => self.log(LogLevel::Warning, &error.to_string()),
        }
        self.carry_out();
        tell_facts(&self.replication, &mut self.engine);
    }

    pub(super) fn answer_ok(&mut self, id: SessionId) {
        if let Some(session) = self.engine.session_mut(id) {
            session.output.extend_from_slice(b"+OK\r\n");
        }
        self.engine.resume_session(id);
        tell_facts(&self.replication, &mut self.engine);
    }

    fn hold_for_failover(&mut self, is_held: bool) {
        self.replication.holds.for_failover = is_held;
        self.follow_holds();
    }

    /// Another node is to take this one's place.
    pub(super) fn hold_for_cluster(&mut self, is_held: bool) {
        self.replication.holds.for_cluster = is_held;
        self.follow_holds();
    }

    /// Writes are held while anything wants them to be.
    pub(super) fn follow_holds(&mut self) {
        let holds = self.replication.holds;
        self.engine.hold_writes(holds.for_end || holds.for_failover || holds.for_cluster);
    }

    /// WAIT. The time of an earlier one may be up without the machine knowing of it.
    fn begin_wait(&mut self, id: SessionId, count: usize, wait: u64) {
        let session = self.replication.begin_wait(id, wait);
        let now = self.replication.now();
        let machine = &mut self.replication.machine;
        let wrote_at = self.engine.session_mut(id).map_or(0, |it| it.wrote_at);
        // One that wrote nothing asks about all that there is.
        let wrote_at = if wrote_at == 0 { machine.history().offset() } else { wrote_at };
        machine.stop_waiting(session);
        if let Some(count) = machine.wait(now, session, wrote_at, count, None) {
            self.engine.finish_wait(id, wait, count);
        }
    }

    /// The machine learns where a replica connects from.
    fn introduce_replica(&mut self, id: SessionId) {
        let Some(session) = self.engine.session_mut(id) else { return };
        let address = &session.origin.address;
        let ip = address.rsplit_once(':').map_or(address.as_str(), |(ip, _)| ip);
        let ip = ip.trim_matches(['[', ']']).to_owned();
        let (now, session) = (self.replication.now(), self.replication.know(id));
        self.replication.machine.set_peer(now, session, &ip);
    }

    /// A session whose PSYNC was accepted is a replica's from now on.
    fn mark_replica(&mut self, id: SessionId) {
        let machine = &self.replication.machine;
        let mut replicas = machine.replicas().iter().filter(|it| it.session().0 == id.number);
        let follows = replicas.any(|replica| replica.state() != ReplicaState::Greeting);
        if follows && let Some(session) = self.engine.session_mut(id) {
            session.flags |= session_flag::REPLICA;
            let gathers = self.engine.config().settings().replica.gathers_writes;
            if let Some(client) = self.clients.of(id) {
                client.stream.gather_writes(gathers);
            }
        }
    }

    /// The settings changed.
    pub(super) fn set_replication(&mut self) {
        let settings = settings_of(&self.engine, self.shared.sockets.ports());
        if settings != *self.replication.machine.settings() {
            self.replication.machine.set_settings(settings);
            tell_facts(&self.replication, &mut self.engine);
        }
    }

    fn do_output(&mut self, output: Output) {
        match output {
            Output::Reply { session, bytes } => {
                if let Some(id) = self.replication.session(session)
                    && let Some(session) = self.engine.session_mut(id)
                {
                    session.output.extend_from_slice(&bytes);
                    self.clients.write_later(id.slot());
                }
            }
            Output::Close { session, reason } => self.close_replica(session, reason),
            Output::StartSnapshot(needs) => {
                self.replication.wanted = Some(needs);
                self.start_wanted_snapshot();
            }
            Output::CancelSnapshot => self.cancel_payload(),
            Output::Waited { session, count } => {
                if let Some((id, wait)) = self.replication.end_wait(session) {
                    self.engine.finish_wait(id, wait, count);
                }
            }
            Output::Log(event) => {
                for (level, line) in words(&self.replication, &self.engine, &event) {
                    self.log(level, &line);
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
            Output::PauseWrites => self.hold_for_failover(true),
            Output::Unpause => self.hold_for_failover(false),
            // What waits is not an output here.
            Output::WaitUntil(_) => {}
        }
    }

    fn close_replica(&mut self, session: store_replica::SessionId, reason: CloseReason) {
        let Some(id) = self.replication.session(session) else { return };
        if let Some((level, line)) = closing_words(&self.engine, id, reason) {
            self.log(level, &line);
        }
        self.replication.forget_reader(session);
        if self.clients.of(id).is_some() {
            let closing = match reason {
                CloseReason::PayloadOnly | CloseReason::SnapshotFailed => CloseState::AfterOutput,
                _ => CloseState::Now,
            };
            self.clients.close_later(id.slot(), closing);
        }
    }

    /// Begins the snapshot that the machine asked for, once no other one runs. Payloads that others
    /// still read are in nobody's way.
    fn start_wanted_snapshot(&mut self) {
        let Some(needs) = self.replication.wanted else { return };
        if self.engine.has_snapshot() || self.replication.payload.is_some() {
            return;
        }
        self.replication.wanted = None;
        let now = self.replication.now();
        match self.begin_payload(needs) {
            Ok(payload) => {
                self.replication.payload = Some(payload);
                self.replication.machine.handle_snapshot_started(now);
                let readers = self.replication.machine.in_transfer();
                if let Some(payload) = &mut self.replication.payload {
                    payload.set_readers(readers);
                }
            }
            Err(error) => {
                let line = format!("Can't BGSAVE for replication: {error}");
                self.log(LogLevel::Warning, &line);
                self.replication.machine.handle_snapshot_failed(now);
            }
        }
        self.carry_out();
    }

    /// The snapshot holds the data of this moment, and so does the stream up to its offset:
    /// everything was fed, and everything is fed from now on.
    fn begin_payload(&mut self, needs: SnapshotNeeds) -> io::Result<Payload> {
        debug_assert!(self.engine.units().is_empty(), "what was written must be fed first");
        self.engine.set_feeding_stream(true);
        let place = match needs.target {
            SnapshotTarget::Sockets => "replicas sockets",
            SnapshotTarget::Disk => "disk",
        };
        self.log(LogLevel::Notice, &format!("Starting BGSAVE for SYNC with target: {place}"));
        let facts = self.replication.machine.facts();
        let mut facts = facts.ok_or_else(|| io::Error::other("nothing describes the data"))?;
        if self.replication.machine.is_primary() {
            // The next write names its database.
            facts.db = 0;
        }
        let settings = &self.engine.config().settings().snapshot;
        let (compresses, key_delay_us) = (settings.compresses, settings.save_delay_us);
        let has_keys = needs.content == SnapshotContent::All;
        let head = self.engine.payload_head(facts, needs.content);
        let job = PayloadJob { target: needs.target, head, has_keys, key_delay_us };
        let waker = self.shared.waker.clone();
        // A loop that cannot be woken looks once its clients have something to say.
        let payload = Payload::begin(job, &dir(self.engine.config()), move || _ = waker.wake())?;
        if has_keys {
            let form = SnapshotForm::Rdb { compresses };
            let is_begun = self.engine.start_snapshot(self.now_us, SnapshotKind::Replica, form);
            debug_assert!(is_begun, "no other snapshot runs");
        }
        Ok(payload)
    }

    fn cancel_payload(&mut self) {
        self.replication.wanted = None;
        if let Some(payload) = self.replication.payload.take() {
            let line = "Diskless rdb transfer, last replica dropped, killing fork child.";
            self.log(LogLevel::Notice, line);
            payload.cancel(&mut self.engine);
        }
    }

    /// A client is gone.
    pub(super) fn session_closed(&mut self, id: SessionId) {
        if self.replication.forget(id) {
            self.replication.forget_reader(store_replica::SessionId(id.number));
            self.carry_out();
            tell_facts(&self.replication, &mut self.engine);
        }
    }
}
