//! Bytes for replicas: answers, then the payload, then the stream, as fast as each one takes them.

use std::io::{self, IoSlice};

use store_engine::{LogLevel, SessionId};
use store_replica::{ReplicaState, SnapshotTarget};

use super::EventLoop;
use crate::client::{Client, CloseState};
use crate::replication::Next;

/// Written to one replica in one turn, so that clients are not kept waiting.
const TURN_BYTES_MAX: usize = 1024 * 1024;

/// Blocks of the stream that are written at once: what a turn with many writes fills.
const STRETCHES_MAX: usize = 16;

/// What became of an attempt to send something.
enum Sent {
    /// So many bytes.
    Bytes(usize),
    /// The next thing may follow.
    Next,
    /// There is nothing, or no room.
    Nothing,
}

impl EventLoop {
    /// Goes on with the payload, if there is one.
    pub(super) fn walk_payload(&mut self) {
        let Some(payload) = &mut self.replication.payload else { return };
        let clock = &self.clock;
        let walked = payload.walk(&mut self.engine, || clock.now_us());
        let (result, target) = (payload.take_encoded(), payload.target());
        match (walked, result) {
            (Err(reason), _) | (Ok(()), Some(Err(reason))) => self.fail_payload(&reason),
            (Ok(()), Some(Ok(len))) => {
                if target == SnapshotTarget::Disk {
                    let line = "Background saving terminated with success";
                    self.log(LogLevel::Notice, line);
                }
                self.keep_payload(len);
            }
            (Ok(()), None) => {}
        }
    }

    /// The payload is whole, and is kept for those who read it: the next one may be made.
    fn keep_payload(&mut self, len: u64) {
        self.replication.unread.extend(self.replication.payload.take());
        let now = self.replication.now();
        self.replication.machine.handle_snapshot_made(now, len);
        self.carry_out();
    }

    fn fail_payload(&mut self, reason: &str) {
        let line = format!("Background transfer error: {reason}");
        self.log(LogLevel::Warning, &line);
        if let Some(payload) = self.replication.payload.take() {
            payload.cancel(&mut self.engine);
        }
        let now = self.replication.now();
        self.replication.machine.handle_snapshot_failed(now);
        self.carry_out();
    }

    /// Writes to all replicas what they may have.
    pub(super) fn write_replicas(&mut self) {
        self.replication.has_more = false;
        if self.failure.is_some() {
            // What the stream has was not made durable here.
            return;
        }
        let reads = |state: ReplicaState| state != ReplicaState::Greeting;
        let replicas = self.replication.machine.replicas().iter().filter(|it| reads(it.state()));
        let mut sessions = std::mem::take(&mut self.replication.reading);
        sessions.extend(replicas.map(|replica| replica.session()));
        for session in sessions.drain(..) {
            if let Some(id) = self.replication.session(session) {
                self.write_replica(id, session);
            }
        }
        self.replication.reading = sessions;
        self.drop_read_payloads();
    }

    fn write_replica(&mut self, id: SessionId, session: store_replica::SessionId) {
        let mut left = TURN_BYTES_MAX;
        while left > 0 {
            match self.send_next(id, session) {
                Ok(Sent::Bytes(count)) => left = left.saturating_sub(count),
                Ok(Sent::Next) => {}
                Ok(Sent::Nothing) => return,
                Err(_) => return self.clients.close_later(id.slot(), CloseState::Now),
            }
        }
        self.replication.has_more = true;
    }

    fn send_next(&mut self, id: SessionId, session: store_replica::SessionId) -> io::Result<Sent> {
        let Some(client) = self.clients.get_mut(id.slot()).filter(|it| it.session == id) else {
            return Ok(Sent::Nothing);
        };
        let Some(output) = self.engine.session_mut(id).map(|it| &mut it.output) else {
            return Ok(Sent::Nothing);
        };
        if client.is_choked || client.closing == CloseState::Now {
            return Ok(Sent::Nothing);
        }
        if !output.is_empty() {
            let count = client.write(output, &mut self.spare_output)?;
            return Ok(Sent::Bytes(count));
        }
        let mut payload = self.replication.payload_of(session);
        let next = payload.as_mut().map_or(Ok(Next::Nothing), |it| it.next(session))?;
        let count = match next {
            Next::Bytes(bytes) => {
                let count = client.write_bytes(&[bytes])?;
                if let Some(payload) = payload {
                    payload.advance(session, count);
                }
                if count > 0 {
                    let now = self.replication.now();
                    self.replication.machine.handle_progress(now, session);
                }
                count
            }
            Next::End => {
                if let Some(payload) = payload {
                    payload.forget_reader(session);
                }
                let now = self.replication.now();
                self.replication.machine.handle_payload_sent(now, session);
                self.carry_out();
                return Ok(Sent::Next);
            }
            Next::Nothing => {
                if payload.is_some() {
                    // It has all that there is: another one may hold the rest up.
                    let now = self.replication.now();
                    self.replication.machine.handle_progress(now, session);
                }
                let machine = &mut self.replication.machine;
                let mut stretches = [&[][..]; STRETCHES_MAX];
                let stretch_count = machine.stretches_for(session, &mut stretches);
                if stretch_count == 0 {
                    return Ok(Sent::Nothing);
                }
                let count = client.write_bytes(&stretches[..stretch_count])?;
                machine.handle_stream_written(session, count);
                count
            }
        };
        let facts = self.engine.replication_facts_mut();
        facts.sent_bytes += count as u64;
        Ok(if count == 0 { Sent::Nothing } else { Sent::Bytes(count) })
    }

    /// Payloads go that all who waited for them have.
    fn drop_read_payloads(&mut self) {
        let read = self.replication.unread.extract_if(.., |payload| payload.is_read());
        if read.filter(|payload| !payload.is_file()).count() == 0 {
            return;
        }
        let up = self.replication.machine.replicas().iter();
        let count = up.filter(|it| it.state() == ReplicaState::AwaitAck).count();
        let line =
            format!("Diskless rdb transfer, done reading from pipe, {count} replicas still up.");
        self.log(LogLevel::Notice, &line);
    }
}

impl Client {
    /// Writes once, past the replies: for what many clients get.
    fn write_bytes(&mut self, parts: &[&[u8]]) -> io::Result<usize> {
        use std::io::Write;
        let mut slices = [IoSlice::new(&[]); STRETCHES_MAX];
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let written = loop {
            let written = match parts {
                [only] => self.stream.write(only),
                _ => self.stream.write_vectored(&slices[..parts.len().min(STRETCHES_MAX)]),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_choked = true;
                    break 0;
                }
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                written => break written?,
            }
        };
        if self.stream.has_unsent() {
            match self.stream.flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_choked = true,
                sent => sent?,
            }
        }
        Ok(written)
    }
}
