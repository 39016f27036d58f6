//! Clients that come, and words of the handle.

use super::{EventLoop, Message};
use crate::acceptor::{Acceptor, Admission};
use store_engine::Engine;

impl EventLoop {
    pub(super) fn take_messages(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Stop(signal) => (self.is_stopping, self.stop_signal) = (true, signal),
                Message::File(event) => self.persistence.handle_event(self.now_us / 1000, event),
                Message::Resolved(resolved) => self.take_resolved(resolved),
                Message::Payload(event) => self.replication.link.events.push(event),
                Message::Value(done) => self.migrations.done.push(done),
                Message::SentinelFile(written) => self.sentinel_file_written(written),
                Message::NodesFile(written) => self.nodes_written.push(written),
                // Whoever asked may have stopped waiting.
                Message::AreYouAlive(answer) => drop(answer.try_send(())),
                Message::Attach(stream) => {
                    self.admit(|acceptor, admission| acceptor.attach(stream, admission));
                }
            }
        }
    }

    /// Lets the acceptor take clients in, and follows what came of it.
    pub(super) fn admit(&mut self, accept: impl FnOnce(&mut Acceptor, &mut Admission<'_, Engine>)) {
        let mut admission = Admission {
            registry: self.poll.registry(),
            clients: &mut self.clients,
            sessions: &mut self.engine,
            now_us: self.now_us,
        };
        accept(&mut self.acceptor, &mut admission);
        self.follow_acceptor();
    }

    /// Counts and logs what the acceptor cannot, because it also works while a script runs.
    pub(super) fn follow_acceptor(&mut self) {
        self.engine.measured_mut().rejected_connections += self.acceptor.take_rejected();
        for (level, line) in self.acceptor.take_notes() {
            self.log(level, &line);
        }
    }

    /// Listens where changed settings say.
    pub(super) fn change_listeners(&mut self) {
        let Some(change) = self.shared.sockets.take_change() else { return };
        self.acceptor.change_listeners(self.poll.registry(), change);
        self.follow_acceptor();
        let ports = self.shared.sockets.ports();
        self.engine.identity_mut().tcp_port = ports.tcp.or(ports.tls).unwrap_or(0);
    }
}
