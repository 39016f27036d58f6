//! Bytes from nobody's friend.

use std::sync::Arc;

use store_cluster::wire::{LinkError, decode, encode, packet_len};
use store_cluster::{
    Address, Body, Cluster, Ends, FailoverMode, Flags, Gossip, Header, LinkId, Message, NODES_MAX,
    NodeId, Output, Settings, SlotChange, SlotSet, Update,
};

use crate::town::{Town, address, id};

const LEN_MAX: u32 = 1 << 20;

fn some_packets() -> Vec<Vec<u8>> {
    let mut town = Town::new(1);
    let mut packets = Vec::new();
    for _ in 0..30 {
        town.now += 100;
        let now = town.time();
        town.nodes[1].handle_tick(now);
        while let output @ (Output::Send { .. } | Output::Persist { .. } | Output::Log(_)) =
            town.nodes[1].poll_output()
        {
            if let Output::Send { message, .. } = output {
                packets.push(encode(&message));
            }
        }
    }
    assert!(!packets.is_empty());
    packets
}

#[test]
fn a_packet_reads_back_and_its_length_is_found() {
    for bytes in some_packets() {
        assert_eq!(packet_len(&bytes[..7], LEN_MAX), Ok(None));
        assert_eq!(packet_len(&bytes, LEN_MAX), Ok(Some(bytes.len())));
        assert_eq!(encode(&decode(&bytes).unwrap()), bytes);
    }
}

#[test]
fn other_protocols_and_long_packets_end_the_link() {
    assert_eq!(packet_len(b"GET / HTTP", LEN_MAX), Err(LinkError::Magic));
    assert_eq!(packet_len(b"GE", LEN_MAX), Err(LinkError::Magic));
    assert_eq!(packet_len(b"RC", LEN_MAX), Ok(None));
    assert_eq!(packet_len(b"RCmb\xff\xff\xff\xff", LEN_MAX), Err(LinkError::Length(u32::MAX)));
    assert_eq!(packet_len(b"RCmb\0\0\0\x08", LEN_MAX), Err(LinkError::Length(8)));
}

#[test]
fn damaged_packets_are_dropped_and_nobody_panics() {
    let mut town = Town::new(1);
    let packets = some_packets();
    let mut state = 7_u64;
    for round in 0..3_000 {
        let mut bytes = packets[round % packets.len()].clone();
        for _ in 0..1 + round % 6 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            // Slots say nothing about lengths and names.
            let place = (state >> 33) as usize % (bytes.len() - 2048);
            let place = if place < 80 { place } else { place + 2048 };
            bytes[place] ^= 1 << (state >> 20 & 7);
        }
        bytes.truncate(bytes.len() - (state >> 40) as usize % 3);
        if let Ok(message) = decode(&bytes) {
            let now = town.time();
            let ends = Ends { peer: "10.0.0.9", local: "10.0.0.1" };
            town.nodes[0].handle_message(now, LinkId::Inbound(999), ends, &message);
            while !matches!(town.nodes[0].poll_output(), Output::WaitUntil(_)) {}
        }
    }
    assert!(town.nodes[0].nodes().len() <= store_cluster::NODES_MAX);
}

#[test]
fn a_stranger_is_answered_and_believed_nothing() {
    let mut town = Town::new(0);
    let mut stranger = Town::new(0);
    let now = stranger.time();
    stranger.nodes[0].handle_tick(now);
    let mut header = None;
    for _ in 0..20 {
        if let Output::Send { message, .. } = stranger.nodes[0].poll_output() {
            header = Some(message.header.clone());
        }
        stranger.now += 200;
        let now = stranger.time();
        stranger.nodes[0].handle_tick(now);
    }
    let mut header = header.expect("a node sends pings");
    header.sender = id(77);
    (header.current_epoch, header.config_epoch) = (1_000_000, 1_000_000);
    let before = town.nodes[1].config_text();
    for body in [Body::Ping(Vec::new()), Body::Fail(id(0)), Body::AuthRequest, Body::AuthAck] {
        let now = town.time();
        let message = Message { header: header.clone(), body };
        let ends = Ends { peer: "10.9.9.9", local: "10.0.0.2" };
        town.nodes[1].handle_message(now, LinkId::Inbound(5), ends, &message);
        let mut answers = 0;
        loop {
            match town.nodes[1].poll_output() {
                Output::Send { message, .. } => {
                    assert!(matches!(message.body, Body::Pong(_)));
                    answers += 1;
                }
                Output::WaitUntil(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(answers, usize::from(matches!(message.body, Body::Ping(_))));
    }
    assert_eq!(town.nodes[1].config_text(), before);
}

/// The greatest epoch that is believed of anybody.
const EPOCH_MAX: u64 = u64::MAX / 4;

/// Draws what a liar says: names, epochs, slots and roles that are possible, in any combination.
struct Liar(u64);

impl Liar {
    fn draw(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (self.0 >> 33) as usize % below
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.draw(items.len())].clone()
    }

    fn id(&mut self) -> NodeId {
        match self.draw(5) {
            4 => id(100 + self.draw(100)),
            known => id(known),
        }
    }

    fn epoch(&mut self) -> u64 {
        self.pick(&[0, 1, 4, 5, 1_000, EPOCH_MAX - 1, EPOCH_MAX, EPOCH_MAX + 1])
    }

    fn slots(&mut self) -> Arc<SlotSet> {
        let some = |first: u16, last: u16| SlotSet::of(first..last);
        let sets = [some(0, 0), some(0, 5_500), some(5_500, 11_000), some(0, 16_384), some(7, 9)];
        Arc::new(self.pick(&sets))
    }

    fn flags(&mut self) -> Flags {
        Flags(self.draw(1024) as u16)
    }

    fn address(&mut self) -> Address {
        let place = self.draw(5);
        match place {
            4 => Address::default(),
            place => address(place),
        }
    }

    fn gossip(&mut self) -> Vec<Gossip> {
        let count = self.draw(4);
        let one = |liar: &mut Self| Gossip {
            id: liar.id(),
            ping_sent: liar.pick(&[0, 1, u32::MAX]),
            pong_received: liar.pick(&[0, 1, 1_700_000_000, u32::MAX]),
            address: liar.address(),
            flags: liar.flags(),
        };
        (0..count).map(|_| one(self)).collect()
    }

    fn body(&mut self) -> Body {
        match self.draw(9) {
            0 | 1 => Body::Ping(self.gossip()),
            2 | 3 => Body::Pong(self.gossip()),
            4 => Body::Meet(self.gossip()),
            5 => Body::Fail(self.id()),
            6 => {
                let (id, config_epoch, slots) = (self.id(), self.epoch(), self.slots());
                Body::Update(Update { id, config_epoch, slots })
            }
            7 => self.pick(&[Body::AuthRequest, Body::AuthAck]),
            _ => Body::ManualStart,
        }
    }

    fn message(&mut self) -> Message {
        let header = Header {
            sender: self.id(),
            current_epoch: self.epoch(),
            config_epoch: self.epoch(),
            offset: self.pick(&[0, 100, u64::MAX]),
            slots: self.slots(),
            master: match self.draw(2) {
                0 => None,
                _ => Some(self.id()),
            },
            address: self.address(),
            flags: self.flags(),
            is_ok: self.draw(2) == 0,
            is_paused: self.draw(4) == 0,
            is_forced: self.draw(4) == 0,
            hostname: None,
        };
        Message { header, body: self.body() }
    }
}

/// Whoever is in the cluster may lie; no node must end, or be unable to start again.
#[test]
fn nodes_that_lie_in_any_combination_end_nobody() {
    for seed in 0..8 {
        let (mut liar, mut town) = (Liar(seed), Town::new(1));
        for round in 0..3_000 {
            let message = liar.message();
            let victim = if liar.draw(2) == 0 { 0 } else { 3 };
            if let Ok(message) = decode(&encode(&message)) {
                let link = LinkId::Inbound(liar.draw(6) as u64);
                let (now, ends) = (town.time(), Ends { peer: "10.0.0.2", local: "10.0.0.1" });
                town.nodes[victim].handle_message(now, link, ends, &message);
            }
            let (now, other, slot) = (town.time(), liar.id(), liar.draw(16_384) as u16);
            let node = &mut town.nodes[victim];
            // What an operator says meanwhile may be refused.
            _ = match liar.draw(12) {
                0 => node.fail_over(now, FailoverMode::Takeover),
                1 => node.fail_over(now, FailoverMode::Force),
                2 => node.set_slot(now, slot, SlotChange::Importing(other), false),
                3 => node.set_slot(now, slot, SlotChange::Node(other), false),
                4 => node.replicate(now, other, true),
                5 => node.forget(now, other),
                _ => Ok(()),
            };
            while !matches!(town.nodes[victim].poll_output(), Output::WaitUntil(_)) {}
            if round % 50 == 0 {
                town.now += 100;
                let now = town.time();
                town.nodes[victim].handle_tick(now);
                let text = town.nodes[victim].config_text();
                let again = Cluster::restore(now, &text, Settings::default(), 1);
                assert!(again.is_ok(), "seed {seed}: {:?} in {text}", again.err());
            }
        }
        assert!([0, 3].iter().all(|node| town.nodes[*node].nodes().len() <= NODES_MAX));
    }
}

/// One packet with the greatest epoch must not make the next one, which somebody takes, a word that
/// nobody believes.
#[test]
fn whoever_claims_the_greatest_epoch_leaves_room_for_others() {
    let mut town = Town::new(1);
    let mut header = None;
    for _ in 0..30 {
        town.now += 100;
        let now = town.time();
        town.nodes[1].handle_tick(now);
        while let output @ (Output::Send { .. } | Output::Persist { .. } | Output::Log(_)) =
            town.nodes[1].poll_output()
        {
            if let Output::Send { message, .. } = output {
                header = Some(message.header.clone());
            }
        }
    }
    let mut header = header.expect("a node sends pings");
    header.current_epoch = EPOCH_MAX;
    let message = Message { header, body: Body::Ping(Vec::new()) };
    for node in [0, 2, 3] {
        let (now, ends) = (town.time(), Ends { peer: "10.0.0.2", local: "10.0.0.1" });
        town.nodes[node].handle_message(now, LinkId::Inbound(999), ends, &message);
        while !matches!(town.nodes[node].poll_output(), Output::WaitUntil(_)) {}
    }
    let now = town.time();
    town.nodes[3].fail_over(now, FailoverMode::Takeover).unwrap();
    let mut packets = Vec::new();
    loop {
        match town.nodes[3].poll_output() {
            Output::Send { message, .. } => packets.push(encode(&message)),
            Output::WaitUntil(_) => break,
            _ => {}
        }
    }
    assert!(!packets.is_empty(), "it tells everybody");
    assert!(packets.iter().all(|packet| decode(packet).is_ok()), "and is understood");
    let text = town.nodes[3].config_text();
    assert!(Cluster::restore(now, &text, Settings::default(), 1).is_ok(), "{text}");
}
