//! What waits until nodes.conf is written.

use std::collections::VecDeque;
use std::sync::Arc;

use store_cluster::{Body, LinkId, Message};
use store_engine::SessionId;

/// Packets that wait, at most. A disk may stand still for hours while others are pinged; a packet
/// that is not sent is as one that the network lost.
const BYTES_MAX: usize = 64 * 1024 * 1024;
/// About what a packet takes, besides a message for subscribers.
const PACKET_BYTES: usize = 4 * 1024;

pub(super) enum Held {
    /// The write of this number.
    Write(u64),
    Send(LinkId, Arc<Message>),
    /// OK for this session.
    Reply(SessionId),
}

#[derive(Default)]
pub(super) struct HeldQueue {
    items: VecDeque<Held>,
    /// Of packets.
    bytes: usize,
}

impl HeldQueue {
    pub(super) fn push(&mut self, held: Held) {
        self.items.push_back(held);
    }

    pub(super) fn push_packet(&mut self, link: LinkId, message: Arc<Message>) {
        let bytes = self.bytes + bytes_of(&message);
        // One that is larger than the limit must be able to leave, too.
        if self.bytes == 0 || bytes <= BYTES_MAX {
            self.bytes = bytes;
            self.items.push_back(Held::Send(link, message));
        }
    }

    pub(super) fn front(&self) -> Option<&Held> {
        self.items.front()
    }

    pub(super) fn pop(&mut self) -> Option<Held> {
        let held = self.items.pop_front();
        if let Some(Held::Send(_, message)) = &held {
            self.bytes -= bytes_of(message);
        }
        held
    }
}

fn bytes_of(message: &Message) -> usize {
    match &message.body {
        Body::Publish(publication) => {
            PACKET_BYTES + publication.channel.len() + publication.message.len()
        }
        _ => PACKET_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use store_cluster::{Address, Flags, Header, NodeId, SlotSet};

    use super::*;

    #[test]
    fn a_disk_that_stands_still_does_not_fill_the_memory() {
        let header = Header {
            sender: NodeId::from_bytes([7; 20]),
            current_epoch: 1,
            config_epoch: 1,
            offset: 0,
            slots: Arc::new(SlotSet::default()),
            master: None,
            address: Address::default(),
            flags: Flags::MASTER,
            is_ok: true,
            is_paused: false,
            is_forced: false,
            hostname: None,
        };
        let ping = Arc::new(Message { header, body: Body::Ping(Vec::new()) });
        let mut queue = HeldQueue::default();
        queue.push(Held::Write(1));
        for _ in 0..100_000 {
            queue.push_packet(LinkId::Inbound(1), Arc::clone(&ping));
        }
        queue.push(Held::Write(2));
        assert_eq!(queue.items.len(), 2 + BYTES_MAX / PACKET_BYTES);
        assert!(matches!(queue.front(), Some(Held::Write(1))), "the order stays");
        while queue.pop().is_some() {}
        assert_eq!(queue.bytes, 0);
    }
}
