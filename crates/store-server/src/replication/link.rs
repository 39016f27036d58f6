//! The link to a primary, as the loop has it: the connection, the session that applies the stream,
//! and the payload that arrives or is loaded.

use store_engine::SessionId;
use store_replica::ReplicationId;

use super::aside::IncomingAside;
use super::incoming::{Incoming, IncomingEvent};
use super::parts::PartsSender;
use crate::peers::PeerId;
use crate::persistence::Loader;

/// Everything of the link but what the machine decides. Empty on a primary.
#[derive(Default)]
pub(crate) struct Link {
    pub(crate) peer: Option<PeerId>,
    /// The session that applies the stream.
    pub(crate) session: Option<SessionId>,
    /// The history that the data had when the primary was dialled, unless other data came since.
    pub(crate) history_before: Option<ReplicationId>,
    pub(crate) incoming: Option<Incoming>,
    /// The payload that is loaded as it arrives.
    pub(crate) aside: Option<IncomingAside>,
    /// Payloads that began to arrive.
    pub(crate) payloads: u64,
    /// The payload that is being loaded.
    pub(crate) loader: Option<Box<Loader>>,
    /// What the thread of the payload told.
    pub(crate) events: Vec<IncomingEvent>,
    /// Scratch for reads.
    pub(crate) buffer: Vec<u8>,
    /// Whether there is more to read or to apply than one turn does.
    pub(crate) has_more: bool,
}

impl Link {
    /// Whether a turn has nothing to do for it.
    pub(crate) fn is_idle(&self) -> bool {
        self.peer.is_none() && self.loader.is_none() && self.events.is_empty()
    }

    /// Whether a turn is wanted at once.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_more || self.loader.is_some()
    }

    /// What takes the payload that arrives.
    pub(crate) fn parts(&self) -> Option<&PartsSender> {
        let aside = self.aside.as_ref().map(|aside| &aside.parts);
        self.incoming.as_ref().map(|incoming| &incoming.parts).or(aside)
    }

    pub(crate) fn parts_mut(&mut self) -> Option<&mut PartsSender> {
        let aside = self.aside.as_mut().map(|aside| &mut aside.parts);
        self.incoming.as_mut().map(|incoming| &mut incoming.parts).or(aside)
    }

    /// Whether the payload takes more.
    pub(crate) fn has_room(&self) -> bool {
        self.parts().is_none_or(PartsSender::has_room)
    }

    /// Bytes of the payload that have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.parts().map_or(0, PartsSender::received)
    }

    /// Whether a payload arrives.
    pub(crate) fn has_payload(&self) -> bool {
        self.parts().is_some()
    }
}
