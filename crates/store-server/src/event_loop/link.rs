//! The link to a primary in a turn of the loop: bytes are read, the stream is applied, a payload is
//! loaded in slices. The machine says what is wanted.

use std::io;

use store_engine::{Applied, LogLevel, Origin, SessionId};
use store_replica::{Address, Facts, LinkPhase, Output, Role, Transaction, asks_for_ack};

use super::EventLoop;
use crate::peers::{PeerEvent, PeerRead, Target};
use crate::replication::{tell_description, tell_facts};

/// Read at once from the primary.
const READ_LEN: usize = 64 * 1024;
/// What a turn may spend on the link: clients wait for it.
const LINK_US_MAX: u64 = 2000;
/// Requests of the stream between two looks at the clock.
const APPLIED_MAX: usize = 64;

impl EventLoop {
    /// The settings say whom to follow from the start.
    pub(super) fn follow_configured(&mut self) {
        if let Some(primary) = self.engine.config().settings().replica.primary.clone() {
            self.follow(Some(primary));
        }
    }

    /// The data was loaded from a snapshot that says of which history it is: a replica asks its
    /// primary to go on from there, and a primary's replicas may.
    pub(super) fn restore_history(&mut self, history: Facts) {
        let configured = self.engine.config().settings().replica.primary.clone();
        let primary = configured.or_else(|| self.master_in_cluster());
        let role = primary.map_or(Role::Primary, Role::Replica);
        let now = self.replication.now();
        self.replication.machine.restore(now, history, &role);
        if role == Role::Primary {
            // Before the first write, which is to be counted.
            tell_facts(&self.replication, &mut self.engine);
        }
    }

    /// REPLICAOF.
    pub(super) fn follow(&mut self, primary: Option<Address>) {
        let now = self.replication.now();
        match primary {
            Some(primary) => _ = self.replication.machine.follow(now, primary),
            None => self.replication.machine.promote(now),
        }
        self.carry_out();
    }

    /// One pass for the link, before what requests caused is done.
    pub(super) fn turn_link(&mut self) {
        self.take_peer_events();
        if self.replication.link.is_idle() {
            return;
        }
        for event in std::mem::take(&mut self.replication.link.events) {
            self.take_payload_event(event);
        }
        if self.replication.link.loader.is_some() {
            self.load_slice();
        }
        self.read_link();
        self.take_peer_events();
        // Whoever waited for what was applied goes on in this turn, and may save.
        tell_description(&self.replication, &mut self.engine);
    }

    fn take_peer_events(&mut self) {
        while let Some(event) = self.peers.poll_event() {
            let now = self.replication.now();
            match event {
                PeerEvent::Opened(id) if Some(id) == self.replication.link.peer => {
                    self.log(LogLevel::Notice, "Non blocking connect for SYNC fired the event.");
                    self.replication.machine.handle_link_up(now);
                }
                PeerEvent::Closed(id, error) if Some(id) == self.replication.link.peer => {
                    self.link_lost(&error);
                }
                other => {
                    self.take_migration_event(&other);
                    self.take_bus_peer_event(&other);
                }
            }
            self.carry_out();
        }
    }

    pub(super) fn link_lost(&mut self, error: &io::Error) {
        match self.replication.machine.link_phase() {
            Some(LinkPhase::Connected) => {
                self.log(LogLevel::Warning, "Connection with master lost.");
                self.log(LogLevel::Notice, "Caching the disconnected master state.");
            }
            _ => {
                let line = format!("Error condition on socket for SYNC: {error}");
                self.log(LogLevel::Warning, &line);
            }
        }
        self.close_link();
        let now = self.replication.now();
        self.replication.machine.handle_link_down(now);
        self.carry_out();
    }

    /// CLIENT KILL, for the session that applies the stream. The link is opened again.
    pub(super) fn close_killed_link(&mut self, id: SessionId) {
        if self.replication.link.session == Some(id) {
            self.link_lost(&io::Error::other("closed by CLIENT KILL"));
        }
    }

    /// The connection and the session that applied its stream go, with half a transaction.
    fn close_link(&mut self) {
        if let Some(peer) = self.replication.link.peer.take() {
            self.peers.close(self.poll.registry(), peer);
        }
        if let Some(session) = self.replication.link.session.take() {
            self.engine.close_session(session);
        }
    }

    /// Does what the machine asks for on behalf of the link.
    pub(super) fn do_link_output(&mut self, output: Output) {
        match output {
            Output::Become(role) => self.change_role(role),
            Output::Dial(address) => self.dial_primary(&address),
            Output::LinkSend(bytes) => {
                if let Some(peer) = self.replication.link.peer {
                    self.peers.send(self.poll.registry(), peer, &bytes);
                }
            }
            Output::LinkClose => self.close_link(),
            Output::Payload(bytes) => self.take_payload(bytes),
            Output::Load => self.finish_payload(),
            Output::DropPayload => self.drop_payload(),
            Output::Linked { db } => self.open_link_session(db),
            _ => {}
        }
    }

    fn change_role(&mut self, role: Role) {
        match role {
            Role::Replica(primary) => {
                self.give_up_migrations();
                self.engine.become_replica(&primary.host, primary.port);
            }
            Role::Primary => {
                self.engine.become_primary();
                self.begin_incarnation();
            }
        }
    }

    /// What was acknowledged before may be missing from here on: elections are told so, and so is
    /// the next start.
    pub(super) fn begin_incarnation(&mut self) {
        self.engine.begin_incarnation();
        self.persistence.begin_life(&self.engine);
    }

    fn dial_primary(&mut self, primary: &Address) {
        self.close_link();
        self.log(LogLevel::Notice, &format!("Connecting to MASTER {primary}"));
        self.log(LogLevel::Notice, "MASTER <-> REPLICA sync started");
        let timeout = self.replication.machine.settings().timeout;
        let dialer = &self.shared.sockets.dialer;
        let is_encrypted = self.engine.config().settings().tls.encrypts_replication;
        let tls = is_encrypted.then(|| dialer.clone());
        let target = Target { host: &primary.host, port: primary.port, tls, timeout };
        let now_ms = self.running.millis();
        let peer = self.peers.dial(self.poll.registry(), now_ms, &target);
        self.replication.link.peer = Some(peer);
        self.replication.link.history_before = Some(self.replication.machine.history().id());
    }

    fn open_link_session(&mut self, db: usize) {
        let databases = self.engine.database_count();
        if db >= databases {
            // What follows names no database, and would go to another one.
            self.log_inapplicable(Some(databases));
            let now = self.replication.now();
            return self.replication.machine.handle_inapplicable(now);
        }
        let id = self.replication.machine.history().id();
        if self.replication.link.history_before.take().is_some_and(|before| before != id) {
            // It goes on under another name: there was a promotion, and what the old primary
            // acknowledged last may be missing.
            self.begin_incarnation();
        }
        if let Some(session) = self.replication.link.session.take() {
            self.engine.close_session(session);
        }
        let address = match self.replication.machine.role() {
            Role::Replica(primary) => primary.to_string(),
            Role::Primary => String::new(),
        };
        let origin = Origin { address, ..Origin::default() };
        self.replication.link.session = Some(self.engine.open_link(self.now_us, origin, db));
    }

    /// Reads and applies for as long as a turn allows.
    fn read_link(&mut self) {
        let mut buffer = std::mem::take(&mut self.replication.link.buffer);
        buffer.resize(READ_LEN, 0);
        let ends_at_us = self.clock.now_us() + LINK_US_MAX;
        self.replication.link.has_more = loop {
            self.measure_requests(None);
            let is_behind = self.apply_stream(ends_at_us);
            let Some(peer) = self.replication.link.peer else { break false };
            let is_wanted = self.replication.machine.wants_link_bytes();
            let may_read = self.peers.may_read(peer) && self.replication.link.has_room();
            if is_behind || self.now_us >= ends_at_us {
                break is_behind || is_wanted && may_read;
            }
            if !is_wanted || !may_read {
                break false;
            }
            let PeerRead::Bytes(len) = self.peers.read(self.poll.registry(), peer, &mut buffer)
            else {
                break false;
            };
            self.engine.replication_facts_mut().received_bytes += len as u64;
            let now = self.replication.now();
            self.replication.machine.handle_link_bytes(now, &buffer[..len]);
            self.carry_out();
        };
        self.replication.link.buffer = buffer;
    }

    /// Applies requests of the stream. True when there are more than the time allows.
    fn apply_stream(&mut self, ends_at_us: u64) -> bool {
        let Some(id) = self.replication.link.session else { return false };
        let now = self.replication.now();
        let mut applied_count = 0;
        while let Some(request) = self.replication.machine.next_request(now) {
            if self.engine.needs_busy_handler(request) {
                let request = request.to_owned();
                let applied = self.apply_with(id, request.as_request());
                self.measure_requests(Some((id, request.as_request())));
                applied_count = 0;
                if !self.take_applied(applied) {
                    return false;
                }
                if self.now_us >= ends_at_us {
                    break;
                }
                continue;
            }
            let asks = asks_for_ack(request);
            let applied = match asks {
                true => None,
                false => Some(self.engine.apply_request(self.now_us, id, request)),
            };
            applied_count += 1;
            let is_quick = self.engine.was_quick(request);
            if !is_quick || applied_count == APPLIED_MAX {
                let before = std::mem::replace(&mut self.now_us, self.clock.now_us());
                self.engine.finish(Some((id, request)), self.now_us - before);
                applied_count = 0;
            }
            let Some(applied) = applied else {
                self.replication.machine.handle_getack();
                let session = self.engine.session_mut(id);
                let (db, memory) = session.map_or((0, None), |it| (it.db, it.queued_memory()));
                self.count_applied(db, memory);
                continue;
            };
            if !self.take_applied(applied) {
                return false;
            }
            if self.now_us >= ends_at_us {
                break;
            }
        }
        self.carry_out();
        self.now_us >= ends_at_us && self.replication.machine.next_request(now).is_some()
    }

    /// Tells the machine what became of a request. False when the link ends by it.
    fn take_applied(&mut self, applied: Applied) -> bool {
        if let Some(error) = &applied.error {
            self.log_refused(error);
        }
        // A script that was ended together with the server did not do what it did at the primary.
        let is_ended = self.is_stopping && applied.error.is_some();
        let now = self.replication.now();
        if !applied.is_open {
            self.log_inapplicable(applied.lacks_database);
            self.replication.machine.handle_inapplicable(now);
        } else if applied.lacks_write || is_ended {
            self.replication.machine.handle_failed_write(now, applied.db);
        } else {
            self.count_applied(applied.db, applied.queued_memory);
            return true;
        }
        let goes_on = self.replication.machine.is_linked();
        self.carry_out();
        goes_on
    }

    fn count_applied(&mut self, db: usize, queued_memory: Option<usize>) {
        let (now, machine) = (self.replication.now(), &mut self.replication.machine);
        match queued_memory {
            Some(memory) => machine.handle_queued(now, db, memory),
            None => machine.handle_applied(now, db, Transaction::Closed),
        }
    }

    fn log_inapplicable(&mut self, lacks_database: Option<usize>) {
        if let Some(databases) = lacks_database {
            let line = format!(
                "MASTER uses a database that this replica does not have: databases is {databases}. \
                 Start this replica with as many as the master has"
            );
            self.log(LogLevel::Warning, &line);
        }
    }

    fn log_refused(&mut self, error: &str) {
        let line = format!(
            "== CRITICAL == This replica is sending an error to its master: '{error}' after \
             processing a command of its stream: their data may differ"
        );
        self.log(LogLevel::Warning, &line);
    }
}
