//! Replies that go out: once per turn, large ones earlier.

use store_engine::{LogLevel, OutputLimit, OutputLimits, Session, session_flag};

use super::{EventLoop, UNAUTHENTICATED_OUTPUT_MAX};
use crate::client::{Client, CloseState};

impl EventLoop {
    /// Somebody else wrote to the client's output. One that takes no more for now is looked at
    /// by its limits instead.
    pub(super) fn write_told(&mut self, slot: usize) {
        let Some(client) = self.clients.get(slot) else { return };
        if !client.is_choked {
            return self.clients.write_later(slot);
        }
        let session = self.engine.session_mut(client.session);
        let left = session.map_or(0, |session| session.output.unread());
        self.check_output(slot, left);
        if self.clients.get(slot).is_some_and(|client| client.closing == CloseState::Now) {
            self.clients.to_close.push(slot);
        }
        self.count_memory(slot);
    }

    /// Replies leave before the stream does, unless somebody waits for replicas: then every step
    /// before theirs makes the wait longer.
    pub(super) fn write_out(&mut self) {
        if !self.replication.is_active() {
            return self.write_clients();
        }
        if self.replication.machine.has_waits() {
            self.write_replicas();
            self.write_clients();
        } else {
            self.write_clients();
            self.write_replicas();
        }
    }

    fn write_clients(&mut self) {
        let (mut written, mut writes) = (0, 0);
        let mut to_write = std::mem::take(&mut self.clients.to_write);
        for slot in to_write.drain(..) {
            let Some(client) = self.clients.get_mut(slot) else { continue };
            client.wants_write = false;
            let Some(session) = self.engine.session_mut(client.session) else { continue };
            match client.write(&mut session.output, &mut self.spare_output) {
                Ok(count) => {
                    written += count as u64;
                    writes += u64::from(count > 0);
                }
                Err(_) => client.closing = CloseState::Now,
            }
            let left = session.output.unread();
            if left > 0 {
                self.check_output(slot, left);
            } else if client.closing == CloseState::AfterOutput && !client.stream.has_unsent() {
                client.closing = CloseState::Now;
            }
            if self.clients.get(slot).is_some_and(|client| client.closing == CloseState::Now) {
                self.clients.to_close.push(slot);
            }
            self.count_memory(slot);
        }
        // Nothing above asks for more writes, so the list comes back with its memory.
        self.clients.to_write = to_write;
        let measured = self.engine.measured_mut();
        measured.output_bytes += written;
        measured.writes += writes;
    }

    /// Writes the replies of a client that is being served once they are `len` bytes, so that the
    /// next such client finds their buffer in the processor's cache. With an append-only file they
    /// wait for the end of the turn, when what they promise is durable.
    #[inline]
    pub(super) fn write_early(&mut self, client: &mut Client, len: usize) {
        let propagates = self.engine.is_feeding_file();
        let Some(session) = self.engine.session_mut(client.session) else { return };
        if session.output.unread() < len || client.is_choked || propagates {
            return;
        }
        match client.write(&mut session.output, &mut self.spare_output) {
            Ok(count) => {
                let measured = self.engine.measured_mut();
                measured.output_bytes += count as u64;
                measured.writes += 1;
            }
            Err(_) => {
                client.closing = CloseState::Now;
                self.clients.to_close.push(client.session.slot());
            }
        }
    }

    /// Closes a client that does not read what it asked for.
    pub(super) fn check_output(&mut self, slot: usize, left: usize) {
        let now_ms = self.now_us / 1000;
        let limits = self.engine.config().settings().clients.output_limits;
        let Some(client) = self.clients.get_mut(slot) else { return };
        let Some(session) = self.engine.session_mut(client.session) else { return };
        let limit = limit_of(&limits, session);
        let over_soft = limit.soft > 0 && left > limit.soft;
        let since = match client.over_soft_since_ms {
            _ if !over_soft => None,
            Some(since) => Some(since),
            None => Some(now_ms),
        };
        client.over_soft_since_ms = since;
        self.watches_output |= since.is_some();
        let soft_ms = limit.soft_seconds * 1000;
        let is_over = limit.hard > 0 && left > limit.hard
            || since.is_some_and(|since| now_ms.saturating_sub(since) >= soft_ms)
            || session.has(session_flag::NEEDS_AUTH) && left > UNAUTHENTICATED_OUTPUT_MAX;
        if is_over {
            client.closing = CloseState::Now;
            let text = "Closing client that does not read its replies";
            self.log(LogLevel::Warning, text);
        }
    }
}

/// The limit of a session's class. What a replica gets of the stream is not among its replies.
pub(super) fn limit_of(limits: &OutputLimits, session: &Session) -> OutputLimit {
    match () {
        () if session.has(session_flag::REPLICA) => limits.replica,
        () if session.has(session_flag::SUBSCRIBED) => limits.pubsub,
        () => limits.normal,
    }
}
