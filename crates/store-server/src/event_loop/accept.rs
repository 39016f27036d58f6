//! Clients that come: over a listener, or handed in by the program.

use std::io;
use std::time::Duration;

use mio::{Interest, Token};
use store_engine::{Origin, ServerState};

use super::{EventLoop, Message};
use crate::client::Client;
use crate::server::LogLevel;
use crate::stream::Stream;

/// Clients accepted per listener and turn, so that those connected are served meanwhile.
pub(crate) const ACCEPTS_MAX: usize = 256;

impl EventLoop {
    pub(super) fn take_messages(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Stop => self.is_stopping = true,
                Message::Attach(stream) => {
                    let origin = Origin { is_local: true, is_unix: true, ..Origin::default() };
                    let stream = mio::net::UnixStream::from_std(stream);
                    self.open(Stream::Unix(stream), origin);
                }
            }
        }
    }

    pub(super) fn accept(&mut self, index: usize) {
        let keepalive = self.engine.config().number("tcp-keepalive") as u64;
        for _ in 0..ACCEPTS_MAX {
            match self.listeners[index].accept(Duration::from_secs(keepalive)) {
                Ok((stream, origin)) => self.open(stream, origin),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        // Most likely out of descriptors: the others are served meanwhile, and
                        // the next client that comes makes us look again.
                        (self.log)(LogLevel::Warning, &format!("Accepting client: {error}"));
                        return;
                    }
                },
            }
        }
        self.to_accept.push(index);
    }

    fn open(&mut self, mut stream: Stream, origin: Origin) {
        if let Some(refusal) = refusal(self.engine.state(), &origin) {
            self.engine.measured_mut().rejected_connections += 1;
            // A client that is refused may not read; it is not worth waiting for.
            let _ = io::Write::write(&mut stream, refusal.as_bytes());
            return;
        }
        let session = self.engine.open_session(self.now_us, origin);
        let slot = session.slot();
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(slot), interest) {
            (self.log)(LogLevel::Warning, &format!("Registering client: {error}"));
            self.engine.close_session(session);
            return;
        }
        if self.clients.len() <= slot {
            self.clients.resize_with(slot + 1, || None);
        }
        self.clients[slot] = Some(Box::new(Client::new(stream, session)));
    }
}

/// What a client is told that may not come in.
pub(crate) fn refusal(state: &ServerState, origin: &Origin) -> Option<&'static str> {
    if state.sessions.count() >= state.config.tuned().clients_max {
        return Some("-ERR max number of clients reached\r\n");
    }
    let is_open = state.config.is_on("protected-mode") && !state.needs_login();
    (is_open && !origin.is_local).then_some(
        "-DENIED Redis is running in protected mode because no password is set for the \
         default user and it was reached from another machine. Set requirepass, bind to \
         loopback only, or turn protected-mode off.\r\n",
    )
}
