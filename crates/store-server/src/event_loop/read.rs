//! Bytes that come in, until they are requests.

use super::{EventLoop, UNAUTHENTICATED_INPUT_MAX};
use crate::client::{Client, Fate, ReadOutcome};
use crate::server::LogLevel;

/// A turn that has lasted this long leaves the other clients to the next one, so that replies
/// are written and timers kept.
const TURN_US_MAX: u64 = 2000;

impl EventLoop {
    /// Reads from a client, unless the turn has lasted long enough.
    pub(super) fn read_in_turn(&mut self, slot: usize) {
        if self.now_us - self.turn_started_us > TURN_US_MAX {
            self.read_later(slot);
        } else {
            self.read_client(slot);
        }
    }

    pub(super) fn read_later(&mut self, slot: usize) {
        if let Some(client) = self.clients.get_mut(slot).and_then(Option::as_mut)
            && !client.waits_to_read
        {
            client.waits_to_read = true;
            self.to_read.push(slot);
        }
    }

    fn read_client(&mut self, slot: usize) {
        let Some(client) = self.clients.get_mut(slot).and_then(Option::as_mut) else { return };
        if client.fate == Fate::Closes {
            return;
        }
        let was_handshaking = client.stream.is_handshaking();
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = client.read(&mut buffer);
        if was_handshaking {
            self.follow_handshake(slot, &outcome);
        }
        match outcome {
            ReadOutcome::Bytes(count) => {
                let may_read = self.may_read(slot);
                let measured = self.engine.measured_mut();
                measured.input_bytes += count as u64;
                measured.reads += 1;
                self.take_input(slot, &buffer[..count]);
                if may_read {
                    self.read_later(slot);
                }
            }
            ReadOutcome::Nothing => {}
            ReadOutcome::Ended | ReadOutcome::Failed(_) => self.doom(slot, Fate::Closes),
        }
        self.buffer = buffer;
    }

    fn may_read(&self, slot: usize) -> bool {
        self.clients[slot].as_ref().is_some_and(|client| client.may_read)
    }

    /// A handshake takes long enough to count as a part of the turn. What was written meanwhile
    /// can go when it is done.
    fn follow_handshake(&mut self, slot: usize, outcome: &ReadOutcome) {
        self.measure_requests(None);
        if let ReadOutcome::Failed(error) = outcome {
            self.log(LogLevel::Verbose, &format!("Error accepting a client connection: {error}"));
        }
        self.resume_writing(slot);
    }

    /// Runs the requests in `bytes`, or in what the client sent before and `bytes`.
    fn take_input(&mut self, slot: usize, bytes: &[u8]) {
        let Some(mut client) = self.clients[slot].take() else { return };
        if client.input.is_empty() {
            let consumed = self.run_requests(&mut client, bytes);
            client.input.extend_from_slice(&bytes[consumed..]);
        } else {
            let wanted = client.parser.bytes_wanted();
            client.input.reserve(bytes.len().max(wanted.saturating_sub(client.input.len())));
            client.input.extend_from_slice(bytes);
            self.run_waiting(&mut client);
        }
        let is_partial = !client.input.is_empty();
        if is_partial {
            self.check_input(&mut client);
        }
        self.clients[slot] = Some(client);
        if is_partial {
            self.count_memory(slot);
        }
    }

    /// Runs the requests in what the client sent before.
    pub(super) fn run_waiting(&mut self, client: &mut Client) {
        let input = std::mem::take(&mut client.input);
        let consumed = self.run_requests(client, &input);
        client.input = input;
        client.drop_consumed(consumed);
    }

    /// Closes a client that sends more than it may without asking for anything.
    fn check_input(&mut self, client: &mut Client) {
        let input_max = match self.is_authenticated(client.session) {
            true => self.engine.config().query_buffer_max(),
            false => UNAUTHENTICATED_INPUT_MAX,
        };
        if client.input.len() > input_max {
            let text = "Closing client that reached max query buffer length";
            self.log(LogLevel::Warning, text);
            client.fate = Fate::Closes;
            self.to_close.push(client.session.slot());
        }
    }
}
