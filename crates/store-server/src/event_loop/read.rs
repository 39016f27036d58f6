//! Bytes that come in, until they are requests.

use mio::Events;
use store_engine::{LogLevel, PrefetchHandle, session_flag};
use store_resp::glimpse_key;

use super::{EventLoop, UNAUTHENTICATED_INPUT_MAX};
use crate::client::{Client, CloseState, ReadOutcome};

/// A turn that has lasted this long leaves the other clients to the next one, so that replies
/// are written and timers kept.
const TURN_US_MAX: u64 = 2000;
/// Read at once per client and turn; larger requests take several turns, so that no client
/// keeps the others waiting.
const READ_LEN: usize = 64 * 1024;
/// Clients read from before the first of them is served: as many as memory can be fetched for
/// at once.
const ARRIVALS_MAX: usize = 16;
/// Bytes after which the clients read from are served: what they ask for is part of the turn,
/// whose length is looked at only in between.
const ARRIVED_LEN_MAX: usize = 16 * 1024;

/// What was read from a client and has yet to run.
#[derive(Default)]
pub(super) struct Arrival {
    slot: usize,
    buffer: Vec<u8>,
    len: usize,
    foreseen: Option<PrefetchHandle>,
}

impl EventLoop {
    /// Events tell of clients that send nothing more, and what they sent before is read first.
    pub(super) fn note_hang_ups(&mut self, events: &Events) {
        if self.clients.to_read.is_empty() {
            // Whatever is read comes with its event.
            return;
        }
        for event in events.iter().filter(|event| event.is_read_closed() || event.is_error()) {
            self.note_hang_up(event.token().0);
        }
    }

    fn note_hang_up(&mut self, slot: usize) {
        let session = self.clients.get(slot).map(|client| client.session);
        if let Some(session) = session.and_then(|id| self.engine.session_mut(id)) {
            session.flags |= session_flag::HUNG_UP;
        }
    }

    /// Reads from a client that has sent something, or that has ended and sends nothing more.
    pub(super) fn read_at_event(&mut self, slot: usize, is_ended: bool) {
        if !is_ended {
            return self.read_in_turn(slot);
        }
        self.note_hang_up(slot);
        self.read_in_turn(slot);
        // Last bytes and end come as one event: the end is read in the next turn.
        self.clients.read_later(slot);
    }

    /// Reads from a client, unless the turn has lasted long enough.
    pub(super) fn read_in_turn(&mut self, slot: usize) {
        if self.now_us - self.turn_started_us > TURN_US_MAX {
            self.clients.read_later(slot);
        } else {
            self.read_client(slot);
        }
    }

    fn read_client(&mut self, slot: usize) {
        if self.clients.get(slot).is_some_and(|client| client.has_arrived) {
            // What it sent before comes first, and may be the last that it asks for.
            self.run_arrivals();
        }
        let Some(client) = self.clients.get_mut(slot) else { return };
        if client.closing == CloseState::Now {
            return;
        }
        if let Some(outcome) = client.read_large() {
            return self.take_large(slot, outcome);
        }
        let was_handshaking = client.stream.is_handshaking();
        let mut buffer = self.read_buffers.pop().unwrap_or_else(|| vec![0; READ_LEN]);
        let outcome = client.read(&mut buffer);
        if was_handshaking {
            self.follow_handshake(slot, &outcome);
        }
        match outcome {
            ReadOutcome::Bytes(count) => {
                let measured = self.engine.measured_mut();
                measured.input_bytes += count as u64;
                measured.reads += 1;
                self.arrive(slot, buffer, count);
                return;
            }
            ReadOutcome::Nothing => {}
            ReadOutcome::Ended | ReadOutcome::Failed(_) => {
                self.clients.close_later(slot, CloseState::Now)
            }
        }
        self.read_buffers.push(buffer);
    }

    /// Goes on with a request whose large argument was read straight into its buffer.
    fn take_large(&mut self, slot: usize, outcome: ReadOutcome) {
        let ReadOutcome::Bytes(count) = outcome else {
            if !matches!(outcome, ReadOutcome::Nothing) {
                self.clients.close_later(slot, CloseState::Now);
            }
            return;
        };
        let measured = self.engine.measured_mut();
        measured.input_bytes += count as u64;
        measured.reads += 1;
        // What others sent before comes first.
        self.run_arrivals();
        self.measure_requests(None);
        self.take_input(slot, &[]);
        if self.clients.get(slot).is_some_and(|client| client.may_read) {
            self.clients.read_later(slot);
        }
    }

    /// Takes note of what a client sent. It runs when a few others have been read from: until
    /// then the memory that it needs is fetched.
    fn arrive(&mut self, slot: usize, buffer: Vec<u8>, len: usize) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        client.has_arrived = true;
        let (session, may_read) = (client.session, client.may_read);
        let key = match client.input.is_empty() {
            true => glimpse_key(&buffer[..len]),
            false => None,
        };
        let foreseen = key.and_then(|key| self.engine.foresee(session, key));
        if let Some(before) = self.arrivals.last().and_then(|arrival| arrival.foreseen) {
            self.engine.prefetch_entry(before);
        }
        self.arrivals.push(Arrival { slot, buffer, len, foreseen });
        if may_read {
            self.clients.read_later(slot);
        }
        let bytes: usize = self.arrivals.iter().map(|arrival| arrival.len).sum();
        if self.arrivals.len() == ARRIVALS_MAX || bytes >= ARRIVED_LEN_MAX {
            self.run_arrivals();
        }
    }

    /// Runs what was read, in the order in which it was.
    ///
    /// The clock is read after all of it has come. Whoever sets a lease counts it from before it
    /// asked: by the time of the turn's start, a server that was stopped before it read the request
    /// would let the lease end early.
    pub(super) fn run_arrivals(&mut self) {
        if self.arrivals.is_empty() {
            return;
        }
        self.measure_requests(None);
        if let Some(last) = self.arrivals.last().and_then(|arrival| arrival.foreseen) {
            self.engine.prefetch_entry(last);
        }
        for index in 0..self.arrivals.len() {
            if let Some(next) = self.arrivals.get(index + 1).and_then(|next| next.foreseen) {
                self.engine.prefetch_value(next);
            }
            let arrival = std::mem::take(&mut self.arrivals[index]);
            self.take_input(arrival.slot, &arrival.buffer[..arrival.len]);
            self.read_buffers.push(arrival.buffer);
        }
        self.arrivals.clear();
    }

    /// Gives what was read and has not run to its clients: they may be served in another way
    /// before their turn comes.
    pub(super) fn hand_out_arrivals(&mut self) {
        for arrival in &mut self.arrivals {
            if let Some(client) = self.clients.get_mut(arrival.slot) {
                client.input.extend(&arrival.buffer[..arrival.len]);
                arrival.len = 0;
            }
        }
    }

    /// Whether a client may write again what it could not.
    pub(super) fn awaits_room(&self, slot: usize) -> bool {
        self.clients.get(slot).is_some_and(Client::awaits_room)
    }

    /// A handshake takes long enough to count as a part of the turn. What was written meanwhile
    /// can go when it is done.
    fn follow_handshake(&mut self, slot: usize, outcome: &ReadOutcome) {
        self.measure_requests(None);
        if let ReadOutcome::Failed(error) = outcome {
            self.log(LogLevel::Verbose, &format!("Error accepting a client connection: {error}"));
        }
        self.clients.write_later(slot);
    }

    /// Runs the requests in `bytes`, or in what the client sent before and `bytes`.
    fn take_input(&mut self, slot: usize, bytes: &[u8]) {
        let Some(mut client) = self.clients.take(slot) else { return };
        client.has_arrived = false;
        if client.input.is_empty() {
            let consumed = self.run_requests(&mut client, bytes);
            let end = bytes.len() - client.parser.take_taken();
            client.input.extend(&bytes[consumed..end.max(consumed)]);
        } else {
            let wanted = client.parser.bytes_wanted();
            client.input.reserve(bytes.len().max(wanted.saturating_sub(client.input.len())));
            client.input.extend(bytes);
            self.run_waiting(&mut client);
        }
        let is_partial = !client.input.is_empty();
        if is_partial {
            self.check_input(&mut client);
        }
        self.clients.put_back(client);
        if is_partial {
            self.count_memory(slot);
        }
    }

    /// Runs the requests in what the client sent before.
    pub(super) fn run_waiting(&mut self, client: &mut Client) {
        let input = std::mem::take(&mut client.input);
        let consumed = self.run_requests(client, input.waiting());
        client.input = input;
        client.drop_consumed(consumed);
    }

    /// Closes a client that sends more than it may without asking for anything.
    fn check_input(&mut self, client: &mut Client) {
        let input_max = match self.is_authenticated(client.session) {
            true => self.engine.config().settings().clients.query_buffer_max,
            false => UNAUTHENTICATED_INPUT_MAX,
        };
        if client.query_bytes().0 > input_max {
            let text = "Closing client that reached max query buffer length";
            self.log(LogLevel::Warning, text);
            client.closing = CloseState::Now;
            self.clients.to_close.push(client.session.slot());
        }
    }
}
