//! Bytes from nobody's friend.

use store_cluster::wire::{LinkError, decode, encode, packet_len};
use store_cluster::{Body, Ends, LinkId, Message, Output};

use crate::town::{Town, id};

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
