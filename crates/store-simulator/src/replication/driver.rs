//! What a server does around its core: it carries out, and decides nothing.

use store_replica::{
    Address, Event as Told, Output, Role, SnapshotNeeds, SnapshotTarget, Transaction,
};
use store_resp::OwnedRequest;

use super::climate::TRIMS_WITHIN;
use super::data::{Aside, LinkSession};
use super::flaw::Flaw;
use super::judge::Rule;
use super::server::Outgoing;
use super::world::{Event, World};
use crate::network::{Delivery, Host, Side};

/// Where a server is reached.
pub(crate) fn address_of(host: Host) -> Address {
    Address { host: "host".to_owned(), port: host as u16 }
}

impl World {
    pub(crate) fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Knock(id) => {
                let host = self.network.host(id, Side::Listener);
                match self.servers[host].is_up {
                    true => self.accept(host, id),
                    false => self.network.reset(id, &mut self.queue, &mut self.random),
                }
            }
            Delivery::Opened(id) => {
                let host = self.network.host(id, Side::Dialer);
                let server = &mut self.servers[host];
                if server.upstream == Some(id) {
                    let now = server.now(self.queue.now());
                    server.replication.handle_link_up(now);
                    self.turn(host);
                }
            }
            Delivery::Bytes(id, to, bytes) => {
                if self.network.arrive(id, to, &bytes) {
                    self.turn(self.network.host(id, to));
                }
            }
            Delivery::Closed(id, at) => {
                let host = self.network.host(id, at);
                if self.network.end(id, at) {
                    self.connection_ended(host, id, at);
                    self.turn(host);
                }
            }
        }
    }

    /// One pass of a server's loop.
    pub(crate) fn turn(&mut self, host: Host) {
        let server = &mut self.servers[host];
        if !server.is_up {
            return;
        }
        let real = self.queue.now();
        let now = server.now(real);
        let is_paused = server.is_paused(real);
        server.replication.set_paused(is_paused);
        server.replication.handle_time(now);
        self.carry_out(host);
        self.read_upstream(host);
        self.read_peers(host);
        self.apply_stream(host);
        let server = &mut self.servers[host];
        server.replication.handle_turn_end(now);
        self.carry_out(host);
        self.pump(host);
        self.judge_host(host);
        if let Output::WaitUntil(Some(at)) = self.servers[host].replication.poll_output() {
            self.set_wake(host, at);
        }
    }

    /// Does what the core wants, in order. When it wants to be woken is asked at the end of a turn.
    pub(crate) fn carry_out(&mut self, host: Host) {
        while self.servers[host].replication.has_output() {
            let output = self.servers[host].replication.poll_output();
            self.do_output(host, output);
        }
    }

    fn set_wake(&mut self, host: Host, at: store_replica::Moment) {
        let server = &mut self.servers[host];
        let ahead = at.since(store_replica::Moment::default()).as_millis() as u64;
        let real = server.clock.real_at(ahead).max(self.queue.now() + 1);
        if server.wakes_at.is_none_or(|wakes_at| wakes_at > real || wakes_at <= self.queue.now()) {
            server.wakes_at = Some(real);
            self.queue.at(real, Event::Wake(host, server.life));
        }
    }

    fn do_output(&mut self, host: Host, output: Output) {
        self.note(|| format!("server {host}: {}", brief(&output)));
        let real = self.queue.now();
        let server = &mut self.servers[host];
        let now = server.now(real);
        match output {
            Output::Become(role) => self.become_role(host, &role),
            Output::Reply { session, bytes } => {
                if let Some(peer) = server.peers.get_mut(&session) {
                    peer.out.extend(bytes);
                }
            }
            Output::Close { session, .. } => self.close_peer(host, session),
            Output::StartSnapshot(needs) => self.want_snapshot(host, needs),
            Output::CancelSnapshot => {
                server.outgoing.retain(|outgoing| outgoing.is_made);
                if !server.has(Flaw::SnapshotNotCancelled) {
                    server.wanted = None;
                }
            }
            Output::Waited { session, count } => {
                if let Some(write) = server.waiting.remove(&session) {
                    self.judge_wait(host, write, count);
                }
            }
            Output::Dial(address) => {
                let path = (host, usize::from(address.port));
                let id = self.network.dial(path, &mut self.queue, &mut self.random);
                let server = &mut self.servers[host];
                (server.upstream, server.guessed_load) = (Some(id), server.load);
            }
            Output::LinkSend(bytes) => self.send_upstream(host, bytes),
            Output::LinkClose => self.close_upstream(host),
            Output::Payload(bytes) => self.take_payload(host, &bytes),
            Output::Load => self.start_load(host),
            Output::DropPayload => (server.incoming, server.loading) = (None, None),
            Output::Linked { db } => {
                server.link = LinkSession { db, queued: None };
                server.read_ahead.clear();
            }
            Output::PauseWrites => {
                server.is_paused_for_failover = true;
                server.replication.set_paused(true);
            }
            Output::Unpause => {
                server.is_paused_for_failover = false;
                let is_paused = server.is_paused(real);
                server.replication.set_paused(is_paused);
            }
            Output::Log(Told::LinkContinued) => {
                server.refused = 0;
                let (history, digest) = (*server.replication.history(), server.data.digest());
                self.judge.see_continue(real, &history, digest, host);
            }
            Output::Log(Told::LinkSynced) => {
                server.skips_select = server.has(Flaw::NoSelectAfterFullSync);
            }
            Output::Log(_) | Output::WaitUntil(_) => _ = now,
        }
    }

    fn become_role(&mut self, host: Host, role: &Role) {
        let server = &mut self.servers[host];
        server.reign += 1;
        server.refused = 0;
        server.waiting.clear();
        server.blocked.clear();
        server.old_ids.clear();
        if let Role::Replica(_) = role {
            server.paused_until = 0;
        }
        self.judge_host(host);
    }

    /// Another snapshot may be running, for a file of the server's own.
    fn want_snapshot(&mut self, host: Host, needs: SnapshotNeeds) {
        if !self.climate.snapshots_wait || self.is_healed() || self.random.percent(70) {
            return self.start_snapshot(host, needs);
        }
        let delay = self.random.between(1, 2_000);
        let server = &mut self.servers[host];
        server.wanted = Some(needs);
        self.queue.after(delay, Event::MayStartSnapshot { host, life: server.life });
    }

    pub(crate) fn start_wanted_snapshot(&mut self, host: Host, life: u32) {
        let real = self.queue.now();
        let server = &mut self.servers[host];
        let wanted = server.wanted.filter(|_| server.is_up && server.life == life);
        let Some(needs) = wanted else { return };
        server.wanted = None;
        if server.replication.facts().is_none() {
            let what = || format!("server {host} sends data that nothing describes");
            return self.judge.broken(Rule::R2, real, what);
        }
        self.start_snapshot(host, needs);
        self.carry_out(host);
        self.turn(host);
    }

    fn start_snapshot(&mut self, host: Host, needs: SnapshotNeeds) {
        let is_healed = self.is_healed();
        let fails = !is_healed && self.random.percent(5);
        self.tickets_made += 1;
        let server = &mut self.servers[host];
        let now = server.now(self.queue.now());
        if fails {
            return server.replication.handle_snapshot_failed(now);
        }
        // A primary's payload names no database: its next write does.
        let is_primary = server.replication.is_primary();
        let db = server.replication.facts().map_or(0, |facts| facts.db);
        let db = if is_primary { 0 } else { db };
        let ticket = self.tickets_made;
        server.outgoing.push(Outgoing {
            bytes: server.data.encode(db).into(),
            is_diskless: needs.target == SnapshotTarget::Sockets,
            is_made: false,
            ticket,
        });
        server.replication.handle_snapshot_started(now);
        for session in server.replication.in_transfer() {
            if let Some(peer) = server.peers.get_mut(&session) {
                (peer.payload, peer.payload_sent) = (Some(ticket), 0);
            }
        }
        let delay = self.random.between(1, 300);
        self.queue.after(delay, Event::Saved { host, ticket });
    }

    pub(crate) fn finish_save(&mut self, host: Host, ticket: u64) {
        let fails = !self.is_healed() && self.random.percent(5);
        let real = self.queue.now();
        let server = &mut self.servers[host];
        let now = server.now(real);
        let Some(index) = server.outgoing.iter().position(|o| o.ticket == ticket) else { return };
        if fails {
            server.outgoing.remove(index);
            server.replication.handle_snapshot_failed(now);
        } else {
            server.outgoing[index].is_made = true;
            let len = server.outgoing[index].bytes.len() as u64;
            server.replication.handle_snapshot_made(now, len);
        }
        self.carry_out(host);
        self.turn(host);
    }

    fn send_upstream(&mut self, host: Host, mut bytes: Vec<u8>) {
        let server = &self.servers[host];
        let is_ack = bytes.starts_with(b"*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK");
        if is_ack && server.has(Flaw::AckBeforeApply) {
            let offset = server.replication.read_offset().to_string();
            bytes =
                format!("*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n${}\r\n{offset}\r\n", offset.len())
                    .into_bytes();
        }
        if let Some(id) = server.upstream {
            self.network.send((id, Side::Dialer), &bytes, &mut self.queue, &mut self.random);
        }
    }

    fn close_upstream(&mut self, host: Host) {
        let server = &mut self.servers[host];
        server.link = LinkSession::default();
        server.read_ahead.clear();
        if let Some(id) = server.upstream.take() {
            self.network.close(id, Side::Dialer, &mut self.queue, &mut self.random);
        }
    }

    fn read_upstream(&mut self, host: Host) {
        let server = &self.servers[host];
        let Some(id) = server.upstream else { return };
        if !server.replication.wants_link_bytes() {
            return;
        }
        let was_full = self.network.room(id, Side::Listener) == 0;
        let bytes = self.network.read(id, Side::Dialer);
        if bytes.is_empty() {
            return;
        }
        if was_full {
            let writer = self.network.host(id, Side::Listener);
            self.queue.after(0, Event::Turn(writer));
        }
        let server = &mut self.servers[host];
        let now = server.now(self.queue.now());
        server.replication.handle_link_bytes(now, &bytes);
        self.carry_out(host);
    }

    /// Applies some of the stream; a slow server rests then.
    fn apply_stream(&mut self, host: Host) {
        let real = self.queue.now();
        if self.servers[host].rests_until > real {
            return;
        }
        for _ in 0..self.climate.applies_max {
            if !self.apply_request(host) {
                return;
            }
            self.carry_out(host);
            self.judge_host(host);
        }
        // A healed server keeps up with its primary, or nothing could be said about the end.
        let rest = if self.is_healed() { 1 } else { self.climate.applies_every };
        self.servers[host].rests_until = real + rest;
        self.queue.after(rest, Event::Turn(host));
    }

    fn apply_request(&mut self, host: Host) -> bool {
        let real = self.queue.now();
        let server = &mut self.servers[host];
        let now = server.now(real);
        if server.has(Flaw::OffsetAtRead) {
            return self.apply_read_ahead(host);
        }
        let Some(request) = server.replication.next_request(now) else { return false };
        let is_select = request.arg(0) == b"SELECT";
        let aside = match is_select && std::mem::take(&mut server.skips_select) {
            true => Aside::Nothing,
            false => server.link.run(&mut server.data, request),
        };
        if aside == Aside::Acknowledge {
            server.replication.handle_getack();
        }
        let is_open = server.link.queued.is_some() && !server.has(Flaw::PsyncInsideMulti);
        let transaction = if is_open { Transaction::Open } else { Transaction::Closed };
        server.replication.handle_applied(now, server.link.db, transaction);
        true
    }

    /// The flaw: everything is confirmed as it is read, and applied later.
    fn apply_read_ahead(&mut self, host: Host) -> bool {
        let server = &mut self.servers[host];
        let now = server.now(self.queue.now());
        while let Some(request) = server.replication.next_request(now) {
            let request: OwnedRequest = request.to_owned();
            if request.as_request().arg(0) == b"REPLCONF" {
                server.replication.handle_getack();
            }
            server.read_ahead.push_back(request);
            server.replication.handle_applied(now, server.link.db, Transaction::Closed);
        }
        let Some(request) = server.read_ahead.pop_front() else { return false };
        server.link.run(&mut server.data, request.as_request());
        true
    }

    /// What is to be said about a server's data now.
    pub(crate) fn judge_host(&mut self, host: Host) {
        let real = self.queue.now();
        let server = &self.servers[host];
        let replication = &server.replication;
        let Some(backlog) = replication.backlog() else { return };
        let (history, digest) = (replication.history(), server.data.digest());
        match replication.is_primary() {
            true => self.judge.see_primary(real, history, digest),
            // What was read ahead counts once nothing is left of it.
            false if server.read_ahead.is_empty() => {
                self.judge.see_replica(real, history, digest, host);
            }
            false => {}
        }
        let end = history.offset();
        let unsent = replication.replicas().iter().map(|r| r.unsent(end)).max().unwrap_or(0);
        let memory = backlog.memory();
        self.judge_memory(host, memory, unsent);
    }

    fn judge_memory(&mut self, host: Host, memory: usize, unsent: u64) {
        let real = self.queue.now();
        if self.climate.unsent_max().is_some_and(|max| unsent > max) {
            self.judge.broken(Rule::R5, real, || format!("server {host}: {unsent} bytes unsent"));
        }
        let server = &mut self.servers[host];
        if memory <= self.climate.memory_max(unsent) {
            server.large_since = None;
        } else if real - *server.large_since.get_or_insert(real) > TRIMS_WITHIN {
            self.judge.broken(Rule::R5, real, || format!("server {host}: {memory} bytes kept"));
        }
    }
}

fn brief(output: &Output) -> String {
    match output {
        Output::Reply { session, bytes } => format!("to {session:?}: {}", text(bytes)),
        Output::LinkSend(bytes) => format!("to its primary: {}", text(bytes)),
        Output::Payload(bytes) => format!("{} bytes of payload", bytes.len()),
        other => format!("{other:?}"),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", " ")
}
