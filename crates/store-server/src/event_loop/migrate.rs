//! Migrations in a turn of the loop: connections are read, values are sent in pieces, and what the
//! machines ask for is done in order.

use std::io;
use std::time::Duration;

use store_cluster::{Loss, MigrationEnd, MigrationOutput};
use store_engine::{DecodeRequest, LeavingPayload, LogLevel, MigrateRequest, SessionId};

use super::EventLoop;
use crate::migration::{Encoding, Job, Restore, ValueDone};
use crate::peers::{PeerEvent, PeerId, PeerRead, Target};

/// Read at once from one connection.
const READ_LEN: usize = 16 * 1024;
/// Given to a connection at once.
const PIECE_LEN: usize = 64 * 1024;
/// Sent for all migrations in one turn: clients wait for it.
const TURN_BYTES_MAX: usize = 1024 * 1024;
/// Keys handed out in one turn, however small they are.
const TURN_KEYS_MAX: usize = 256;
/// What may wait for a connection, so that small keys leave together.
const UNSENT_MAX: usize = 256 * 1024;

/// What is left of a turn.
struct Budget {
    bytes: usize,
    keys: usize,
}

impl EventLoop {
    /// MIGRATE of a session.
    pub(super) fn begin_migration(&mut self, session: SessionId, request: MigrateRequest) {
        if self.engine.follows_another() {
            // It was asked before.
            return self.give_up_request(session, &request);
        }
        let now_ms = self.running.millis();
        self.migrations.begin(now_ms, session, request);
        self.turn_migrations();
    }

    /// RESTORE of a large payload.
    pub(super) fn begin_decoding(&mut self, session: SessionId, request: Box<DecodeRequest>) {
        let number = request.number;
        if let Err(error) = self.migrations.thread.decode(session, request) {
            self.log(LogLevel::Warning, &format!("RESTORE has no thread to decode on: {error}"));
            let reply = b"-ERR no thread to decode the value on: see the log\r\n";
            self.engine.finish_migration(session, number, reply);
        }
    }

    /// Something became of a connection that belongs to a migration, or to none.
    pub(super) fn take_migration_event(&mut self, event: &PeerEvent) {
        let now_ms = self.running.millis();
        match event {
            PeerEvent::Opened(peer) => {
                if let Some(number) = self.migrations.job_of(*peer)
                    && let Some(job) = self.migrations.jobs.get_mut(&number)
                {
                    job.is_open = true;
                    job.machine.handle_connected(now_ms, None);
                }
            }
            PeerEvent::Closed(peer, error) => {
                self.migrations.forget_kept(*peer);
                if let Some(number) = self.migrations.job_of(*peer)
                    && let Some(job) = self.migrations.jobs.get_mut(&number)
                {
                    let loss = loss_of(job, error);
                    job.forget_connection();
                    job.machine.handle_lost(now_ms, loss);
                }
            }
        }
    }

    /// One pass for all migrations.
    pub(super) fn turn_migrations(&mut self) {
        if self.migrations.is_idle() {
            return;
        }
        self.migrations.has_more = false;
        self.migrations.free_spent();
        self.take_values();
        let mut budget = Budget { bytes: TURN_BYTES_MAX, keys: TURN_KEYS_MAX };
        let numbers: Vec<u64> = self.migrations.jobs.keys().copied().collect();
        for number in numbers {
            if let Some(job) = self.migrations.jobs.remove(&number) {
                self.turn_job(number, job, &mut budget);
            }
        }
        let now_ms = self.running.millis();
        self.migrations.begin_waiting(now_ms);
        self.check_kept(now_ms);
    }

    /// Ends all migrations: what is not known to have moved stays. For a server that is a replica
    /// from now on.
    pub(super) fn give_up_migrations(&mut self) {
        let numbers: Vec<u64> = self.migrations.jobs.keys().copied().collect();
        for number in numbers {
            if let Some(mut job) = self.migrations.jobs.remove(&number) {
                job.machine.give_up();
                self.obey(number, &mut job);
            }
        }
        for (session, request) in self.migrations.take_waiting() {
            self.give_up_request(session, &request);
        }
    }

    /// Nothing was sent yet, and nothing will be.
    fn give_up_request(&mut self, session: SessionId, request: &MigrateRequest) {
        if !request.order.copies {
            request.order.keys.iter().for_each(|key| self.engine.keep_key(request.db, key));
        }
        let reply = reply_of(&MigrationEnd::Lost { is_sent: false });
        self.engine.finish_migration(session, request.number, reply.as_bytes());
    }

    fn take_values(&mut self) {
        for done in std::mem::take(&mut self.migrations.done) {
            match done {
                ValueDone::Encoded { job: number, encoding, payload } => {
                    let Some(job) = self.migrations.jobs.get_mut(&number) else { continue };
                    if let Some(wanted) = job.encoding.take_if(|it| it.number == encoding) {
                        job.outbox.push_restore(&wanted.restore, payload);
                        job.machine.handle_prepared(self.running.millis());
                    }
                }
                ValueDone::Decoded { session, request, value } => {
                    let number = request.number;
                    let rest = self.engine.finish_restore(self.now_us, session, number, value);
                    self.migrations.spend(*request, rest);
                }
            }
        }
    }

    fn turn_job(&mut self, number: u64, mut job: Job, budget: &mut Budget) {
        self.read_answers(&mut job);
        job.machine.handle_time(self.running.millis());
        if self.obey(number, &mut job) {
            return;
        }
        self.send_keys(number, &mut job, budget);
        if !self.obey(number, &mut job) {
            self.migrations.jobs.insert(number, job);
        }
    }

    fn read_answers(&mut self, job: &mut Job) {
        let mut buffer = std::mem::take(&mut self.migrations.buffer);
        buffer.resize(READ_LEN, 0);
        while let Some(peer) = job.peer.filter(|peer| self.peers.may_read(*peer)) {
            let PeerRead::Bytes(len) = self.peers.read(self.poll.registry(), peer, &mut buffer)
            else {
                break;
            };
            let now_ms = self.running.millis();
            match job.take_bytes(&buffer[..len]) {
                Ok(replies) => replies
                    .iter()
                    .for_each(|refusal| job.machine.handle_reply(now_ms, refusal.as_deref())),
                Err(()) => {
                    self.close_of(job);
                    job.machine.handle_lost(now_ms, Loss::Closed);
                }
            }
        }
        self.migrations.buffer = buffer;
    }

    /// Does what the machine asks for. True when it is over.
    fn obey(&mut self, number: u64, job: &mut Job) -> bool {
        let mut moved = Vec::new();
        let mut end = None;
        // A key that is only copied never was on its way from here: it may be, by another request.
        let copies = job.machine.order().copies;
        while let Some(output) = job.machine.poll_output() {
            match output {
                MigrationOutput::Connect { is_fresh } => self.connect_job(job, is_fresh),
                MigrationOutput::Send(words) => {
                    job.outbox.push(words.iter().map(Vec::as_slice));
                    self.send_piece(job, &mut Budget { bytes: PIECE_LEN, keys: 0 });
                }
                MigrationOutput::Moved(_) | MigrationOutput::Stays(_) if copies => {}
                MigrationOutput::Moved(key) => moved.push(key),
                MigrationOutput::Stays(key) => self.engine.keep_key(job.db, &key),
                MigrationOutput::Finish { end: how, keeps_connection } => {
                    end = Some((how, keeps_connection));
                }
            }
        }
        if !moved.is_empty() {
            self.engine.finish_moved(self.now_us, (job.session, number), job.db, &moved);
        }
        let Some((end, keeps_connection)) = end else { return false };
        self.finish_job(number, job, &end, keeps_connection);
        true
    }

    fn finish_job(&mut self, number: u64, job: &mut Job, end: &MigrationEnd, keeps: bool) {
        self.engine.finish_migration(job.session, number, reply_of(end).as_bytes());
        let db = job.machine.order().db;
        match job.peer.filter(|_| keeps) {
            Some(peer) => {
                let (now_ms, endpoint) = (self.running.millis(), job.endpoint.clone());
                if let Some(oldest) = self.migrations.keep(now_ms, endpoint, peer, db) {
                    self.peers.close(self.poll.registry(), oldest);
                }
            }
            None => self.close_of(job),
        }
    }

    fn connect_job(&mut self, job: &mut Job, is_fresh: bool) {
        self.close_of(job);
        let now_ms = self.running.millis();
        let kept = match is_fresh {
            true => None,
            false => self.migrations.take_kept(&job.endpoint),
        };
        if let Some((peer, db)) = kept {
            (job.peer, job.is_open) = (Some(peer), true);
            return job.machine.handle_connected(now_ms, Some(db));
        }
        let timeout = Duration::from_millis(job.machine.order().timeout_ms);
        let (host, port) = (&job.endpoint.host, job.endpoint.port);
        // Other nodes of a cluster that encrypts its bus are reached at their TLS ports.
        let is_encrypted = self.engine.config().settings().tls.encrypts_bus;
        let tls = is_encrypted.then(|| self.shared.sockets.dialer.clone());
        let target = Target { host, port, tls, timeout };
        job.peer = Some(self.peers.dial(self.poll.registry(), now_ms, &target));
    }

    fn close_of(&mut self, job: &mut Job) {
        if let Some(peer) = job.forget_connection() {
            self.peers.close(self.poll.registry(), peer);
        }
    }

    /// Hands keys to the connection as long as it takes them and the turn allows it.
    fn send_keys(&mut self, number: u64, job: &mut Job, budget: &mut Budget) {
        loop {
            let is_last = !self.gather_keys(number, job, budget);
            self.send_piece(job, budget);
            if is_last || !job.outbox.is_empty() || self.migrations.has_more {
                return;
            }
        }
    }

    /// Takes keys until there is enough to send. False when no more are to be had for now.
    fn gather_keys(&mut self, number: u64, job: &mut Job, budget: &mut Budget) -> bool {
        while !job.outbox.is_full() {
            if budget.keys == 0 {
                self.migrations.has_more = true;
                return false;
            }
            let Some(key) = job.machine.next_key() else { return false };
            budget.keys -= 1;
            let now_ms = self.running.millis();
            let Some(value) = self.engine.leaving_value(self.now_us, job.db, &key) else {
                job.machine.handle_gone(now_ms);
                continue;
            };
            let is_by_slot = self.engine.keyspace().is_by_slot();
            let command: &[u8] = if is_by_slot { b"RESTORE-ASKING" } else { b"RESTORE" };
            let restore = Restore { command, key, ttl_ms: value.ttl_ms, replaces: job.replaces };
            match value.payload {
                LeavingPayload::Encoded(payload) => {
                    job.outbox.push_restore(&restore, payload);
                    job.machine.handle_prepared(now_ms);
                }
                payload @ LeavingPayload::Shared { .. } => {
                    self.encode_elsewhere(number, job, restore, payload);
                    return false;
                }
            }
        }
        true
    }

    fn encode_elsewhere(
        &mut self,
        number: u64,
        job: &mut Job,
        restore: Restore,
        payload: LeavingPayload,
    ) {
        let encoding = self.migrations.next_encoding();
        match self.migrations.thread.encode(number, encoding, payload) {
            Ok(()) => job.encoding = Some(Encoding { number: encoding, restore }),
            Err(error) => {
                let line = format!("MIGRATE has no thread to encode on: {error}");
                self.log(LogLevel::Warning, &line);
                job.machine.give_up();
            }
        }
    }

    /// Gives the connection what it takes of what waits.
    fn send_piece(&mut self, job: &mut Job, budget: &mut Budget) {
        let Some(peer) = job.peer else { return };
        while !job.outbox.is_empty() && self.peers.unsent(peer) < UNSENT_MAX {
            if budget.bytes == 0 {
                self.migrations.has_more = true;
                return;
            }
            let piece = job.outbox.next(PIECE_LEN.min(budget.bytes));
            let len = piece.len();
            self.peers.send(self.poll.registry(), peer, piece);
            if let Some(large) = job.outbox.take(len) {
                self.migrations.thread.free(large);
            }
            budget.bytes -= len;
            job.machine.handle_sent(self.running.millis());
        }
    }

    /// Kept connections that ended or that nobody used go.
    fn check_kept(&mut self, now_ms: u64) {
        let mut gone = self.migrations.take_unused(now_ms);
        let readable = self.migrations.kept().filter(|peer| self.peers.may_read(*peer));
        let readable: Vec<PeerId> = readable.collect();
        for peer in readable {
            // Nothing was asked, so that whatever comes is of no use.
            let read = self.peers.read(self.poll.registry(), peer, &mut [0; 16]);
            if matches!(read, PeerRead::Bytes(_)) {
                self.migrations.forget_kept(peer);
                gone.push(peer);
            }
        }
        for peer in gone {
            self.peers.close(self.poll.registry(), peer);
        }
    }
}

/// What the session reads.
fn reply_of(end: &MigrationEnd) -> String {
    match end {
        MigrationEnd::Moved => "+OK\r\n".to_owned(),
        end => format!("-{}\r\n", end.to_string().replace(['\r', '\n'], " ")),
    }
}

/// Redis says of a refused connection that it cannot be written to.
fn loss_of(job: &Job, error: &io::Error) -> Loss {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Loss::Closed,
        _ if job.is_open => Loss::Closed,
        _ => Loss::Unreachable,
    }
}
