//! Serving clients while a script runs for too long: BUSY for all, and whoever may ends it.
//!
//! The script has the engine, so clients are served through [`Busy`], and only so far as they
//! need no more of the loop: what is closed or left over is noted for the loop's next turn.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Poll, Token};
use store_cluster::Now;
use store_cluster::wire::kind_of;
use store_engine::{Busy, BusyDecision, BusyHandler, ExecuteOutcome, session_flag};
use store_resp::{Limits, Parsed};

use crate::acceptor::{Acceptor, Admission, LISTENER_BASE};
use crate::client::{Client, CloseState, ReadOutcome};
use crate::clients::Clients;
use crate::clock::{Clock, Running};
use crate::cluster::{ClusterDriver, LINK_BUFFER_MAX, Written as NodesWritten};
use crate::event_loop::{EVENTS_MAX, Message, WAKER};
use crate::migration::MigrationDriver;
use crate::peers::{BUS_BASE, PEER_BASE, PeerRead, Peers};
use crate::persistence::Persistence;
use crate::replication::ReplicationDriver;
use crate::server::StopSignal;

/// Read at once per client; nobody has much to say to a busy server.
const READ_LEN: usize = 16 * 1024;
/// A client with this much unread on either side waits for the end of the script.
const UNREAD_MAX: usize = 1024 * 1024;

/// The parts of the loop that serve clients while the engine is at work.
pub(crate) struct BusyLoop<'a> {
    pub(crate) poll: &'a mut Poll,
    /// The one whose script runs is not among them.
    pub(crate) clients: &'a mut Clients,
    pub(crate) acceptor: &'a mut Acceptor,
    pub(crate) messages: &'a Receiver<Message>,
    pub(crate) clock: &'a Clock,
    pub(crate) persistence: &'a mut Persistence,
    /// Other servers: the loop looks at their sockets afterwards.
    pub(crate) peers: &'a mut Peers,
    pub(crate) running: Running,
    pub(crate) migrations: &'a mut MigrationDriver,
    pub(crate) replication: &'a mut ReplicationDriver,
    /// The bus: other nodes must not give this one up.
    pub(crate) cluster: Option<&'a mut ClusterDriver>,
    /// What became of nodes.conf, for the loop to hear of.
    pub(crate) nodes_written: &'a mut Vec<NodesWritten>,
    /// Whether replies may leave: what they promise is durable.
    pub(crate) may_write: bool,
    pub(crate) is_stopping: &'a mut bool,
    pub(crate) stop_signal: &'a mut Option<StopSignal>,
    /// Whether that must not wait for anything.
    pub(crate) is_forced: &'a AtomicBool,
    /// None until the script has run for too long.
    pub(crate) scratch: Option<Scratch>,
}

/// What is needed only now.
pub(crate) struct Scratch {
    events: Events,
    buffer: Vec<u8>,
}

impl BusyHandler for BusyLoop<'_> {
    fn now_us(&mut self) -> Option<u64> {
        Some(self.clock.now_us())
    }

    fn loss_on_exit(&mut self) -> Option<String> {
        self.persistence.look_before_end(self.clock.now_us() / 1000).err()
    }

    fn handle_busy(&mut self, busy: &mut Busy<'_>) -> BusyDecision {
        let mut scratch = self.scratch.take().unwrap_or_else(|| self.look_everywhere(busy));
        for slot in std::mem::take(&mut self.clients.to_read) {
            self.serve(slot, busy, &mut scratch.buffer);
        }
        self.admit(busy, |acceptor, to| {
            acceptor.accept_more(to);
            acceptor.accept_again(to);
        });
        // When the system's queue fails, the loop will meet the same and say so.
        if self.poll.poll(&mut scratch.events, Some(Duration::ZERO)).is_ok() {
            for event in &scratch.events {
                match event.token() {
                    WAKER => self.take_messages(busy),
                    Token(index) if index >= PEER_BASE => self.take_peer_event(event),
                    Token(index) if index >= BUS_BASE => {}
                    Token(index) if index >= LISTENER_BASE => {
                        self.admit(busy, |acceptor, to| acceptor.accept(index - LISTENER_BASE, to));
                    }
                    Token(slot) => self.serve(slot, busy, &mut scratch.buffer),
                }
            }
        }
        self.serve_bus(busy, &mut scratch.buffer);
        self.scratch = Some(scratch);
        if busy.wants_shutdown() || self.is_forced.load(Ordering::SeqCst) && *self.is_stopping {
            return BusyDecision::StopNow;
        }
        if *self.is_stopping { BusyDecision::Stop } else { BusyDecision::Continue }
    }
}

impl BusyLoop<'_> {
    /// The loop has taken events whose turn had not come when the script began, and the system
    /// tells each only once: so everyone is asked.
    fn look_everywhere(&mut self, busy: &mut Busy<'_>) -> Scratch {
        // Replies from before the script are about to leave. When what they promise cannot be
        // made durable they stay, and the loop ends the server after the script.
        let (now_ms, units) = (self.clock.now_us() / 1000, busy.take_units());
        self.may_write = self.persistence.before_early_replies(now_ms, &units).is_ok();
        self.replication.take_units(&units);
        self.take_messages(busy);
        self.acceptor.look_everywhere();
        if let Some(driver) = &mut self.cluster {
            driver.ready.extend(driver.of_peers.keys());
        }
        let slots = self.clients.iter().map(|client| client.session.slot());
        let slots: Vec<usize> = slots.collect();
        self.clients.to_read.extend(slots);
        Scratch { events: Events::with_capacity(EVENTS_MAX), buffer: vec![0; READ_LEN] }
    }

    fn take_peer_event(&mut self, event: &Event) {
        let now_ms = self.running.millis();
        let peer = self.peers.handle_event(self.poll.registry(), now_ms, event);
        if let Some(driver) = &mut self.cluster {
            driver.ready.insert(peer);
        }
    }

    /// Answers other nodes. What changes data or roles waits for the end of the script.
    fn serve_bus(&mut self, busy: &mut Busy<'_>, buffer: &mut [u8]) {
        let bulk_max = busy.config().settings().clients.bulk_max;
        let packet_max = u32::try_from(2 * bulk_max).unwrap_or(u32::MAX);
        let (Some(driver), Some(state)) = (self.cluster.as_deref_mut(), busy.cluster_mut()) else {
            return;
        };
        let (registry, monotonic_ms) = (self.poll.registry(), self.running.millis());
        let now = Now { monotonic_ms, unix_ms: self.clock.now_us() / 1000 };
        let mut later = Vec::new();
        for peer in std::mem::take(&mut driver.ready) {
            let Some(link) = driver.of_peers.get(&peer).copied() else { continue };
            if !driver.is_full()
                && let PeerRead::Bytes(len) = self.peers.read(registry, peer, buffer)
                && let Ok(packets) = driver.take_bytes(link, &buffer[..len], packet_max)
            {
                for packet in packets {
                    // One that makes no sense is dropped.
                    let _ = driver.hear(state, now, link, &packet);
                }
            }
            later.extend(self.peers.may_read(peer).then_some(peer));
        }
        driver.ready.extend(later);
        if monotonic_ms >= driver.wakes_at_ms {
            state.machine.handle_tick(now);
        }
        driver.sort_outputs(state, monotonic_ms);
        while let Some((link, message)) = driver.next_packet(&state.machine) {
            if let Some(peer) = driver.links.get(&link).map(|connection| connection.peer) {
                let limit = driver.buffer_max(link, LINK_BUFFER_MAX);
                self.peers.send_within(registry, peer, driver.encode(&message), limit);
                state.sent.add(kind_of(&message.body));
            }
        }
        driver.forget_encoded();
    }

    fn take_messages(&mut self, busy: &mut Busy<'_>) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Stop(signal) => (*self.is_stopping, *self.stop_signal) = (true, signal),
                Message::File(event) => {
                    self.persistence.handle_event(self.clock.now_us() / 1000, event);
                }
                Message::Resolved(resolved) => {
                    let now_ms = self.running.millis();
                    self.peers.handle_resolved(self.poll.registry(), now_ms, resolved);
                }
                Message::Payload(event) => self.replication.link.events.push(event),
                // A sentinel runs no scripts of clients.
                Message::SentinelFile(_) => {}
                Message::Value(done) => self.migrations.done.push(done),
                Message::NodesFile(written) => self.nodes_written.push(written),
                Message::AreYouAlive(answer) => drop(answer.try_send(())),
                Message::Attach(stream) => {
                    self.admit(busy, |acceptor, to| acceptor.attach(stream, to));
                }
            }
        }
    }

    /// Lets the acceptor take clients in; the loop hears of the rest afterwards.
    fn admit<'b>(
        &mut self,
        busy: &mut Busy<'b>,
        accept: impl FnOnce(&mut Acceptor, &mut Admission<'_, Busy<'b>>),
    ) {
        let mut admission = Admission {
            registry: self.poll.registry(),
            clients: self.clients,
            sessions: busy,
            now_us: self.clock.now_us(),
        };
        accept(self.acceptor, &mut admission);
    }

    /// Reads what a client says, answers it, and writes what it has not got yet.
    fn serve(&mut self, slot: usize, busy: &mut Busy<'_>, buffer: &mut [u8]) {
        let Some(mut client) = self.clients.take(slot) else {
            // The one whose script runs: the loop looks at it afterwards.
            return self.later(slot);
        };
        client.waits_to_read = false;
        if client.closing == CloseState::Open {
            self.read(&mut client, busy, buffer);
        }
        if client.closing == CloseState::Open {
            self.answer(&mut client, busy);
        }
        if self.may_write && client.closing != CloseState::Now && write(&mut client, busy).is_err()
        {
            client.closing = CloseState::Now;
        }
        match client.closing {
            CloseState::Open => {}
            CloseState::AfterOutput => self.clients.to_write.push(slot),
            CloseState::Now => self.clients.to_close.push(slot),
        }
        self.clients.put_back(client);
    }

    fn later(&mut self, slot: usize) {
        if !self.clients.to_read.contains(&slot) {
            self.clients.to_read.push(slot);
        }
    }

    /// Reads once, unless too much is waiting.
    fn read(&mut self, client: &mut Client, busy: &mut Busy<'_>, buffer: &mut [u8]) {
        let slot = client.session.slot();
        let Some(session) = busy.session_mut(client.session) else { return };
        if session.output.unread() > UNREAD_MAX || client.input.len() > UNREAD_MAX {
            return self.later(slot);
        }
        match client.read(buffer) {
            ReadOutcome::Bytes(count) => {
                client.input.extend(&buffer[..count]);
                if client.may_read {
                    self.later(slot);
                }
            }
            ReadOutcome::Nothing => {}
            ReadOutcome::Ended | ReadOutcome::Failed(_) => client.closing = CloseState::Now,
        }
    }

    /// Answers whole requests; the rest of the input stays.
    fn answer(&mut self, client: &mut Client, busy: &mut Busy<'_>) {
        let waiting = std::mem::take(&mut client.input);
        let (input, mut at) = (waiting.waiting(), 0);
        while let Some(session) = busy.session_mut(client.session)
            && !session.has(session_flag::BLOCKED)
        {
            let authenticated = !session.has(session_flag::NEEDS_AUTH);
            let bulk_max = busy.config().settings().clients.bulk_max;
            let limits = Limits { authenticated, bulk_max, ..Limits::default() };
            match client.parser.parse(&input[at..], &limits) {
                Ok(Parsed::Incomplete) => break,
                Ok(Parsed::Empty { consumed }) => at += consumed,
                Ok(Parsed::Request { consumed }) => {
                    let request = client.parser.request(&input[at..]);
                    let outcome = busy.execute(client.session, request);
                    client.parser.clear();
                    at += consumed;
                    if outcome == ExecuteOutcome::Closing {
                        at = input.len();
                        break;
                    }
                }
                Err(error) => {
                    if let Some(session) = busy.session_mut(client.session) {
                        let line = format!("-ERR Protocol error: {error}\r\n");
                        session.output.extend_from_slice(line.as_bytes());
                    }
                    client.closing = CloseState::AfterOutput;
                    at = input.len();
                    break;
                }
            }
        }
        client.parser.clear();
        client.input = waiting;
        client.drop_consumed(at);
    }
}

fn write(client: &mut Client, busy: &mut Busy<'_>) -> io::Result<()> {
    let Some(session) = busy.session_mut(client.session) else { return Ok(()) };
    client.write(&mut session.output, &mut Vec::new()).map(drop)
}
