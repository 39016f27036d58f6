//! Names of hosts become addresses on threads, since the system may take long to answer.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use super::PeerId;
use crate::event_loop::Message;
use crate::persistence::Mailbox;

/// Names that are looked up at once, each on a thread: an answer that does not come must not keep
/// the others waiting.
const LOOK_UPS_MAX: usize = 8;

/// What became of a name.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// Who asked.
    pub(super) peer: PeerId,
    pub(super) found: io::Result<Vec<SocketAddr>>,
}

/// Starts the threads, and counts them.
pub(super) struct Resolver {
    mailbox: Mailbox,
    /// Held by each thread while it runs.
    running: Arc<()>,
}

impl Resolver {
    pub(super) fn new(mailbox: Mailbox) -> Self {
        Self { mailbox, running: Arc::new(()) }
    }

    /// Has a name looked up; the answer comes as a message. Fails when there is no thread for it.
    /// Nobody waits for a thread: at the end of the server it may still wait for the system.
    pub(super) fn look_up(&self, peer: PeerId, host: &str, port: u16) -> io::Result<()> {
        if Arc::strong_count(&self.running) > LOOK_UPS_MAX {
            return Err(io::Error::other("too many names are being looked up"));
        }
        let (mailbox, running) = (self.mailbox.clone(), Arc::clone(&self.running));
        let host = host.to_owned();
        std::thread::Builder::new().name("tenure-names".to_owned()).spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
            drop(running);
            mailbox.post(Message::Resolved(Resolved { peer, found }));
        })?;
        Ok(())
    }
}
