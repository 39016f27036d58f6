//! Whoever reaches the port of the bus can send what they like.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use store_cluster::wire::{HEADER_LEN, encode};
use store_cluster::{Address, Body, Flags, Gossip, Header, Message, NodeId, Publication, SlotSet};
use testkit::GENEROUS;

use super::Node;
use crate::replication::support::text;

fn dial(node: &Node) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", node.bus_port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn message(sender: u8, body: Body) -> Vec<u8> {
    let address = Address { ip: "127.0.0.1".into(), port: 7, plain_port: 0, bus_port: 9 };
    let header = Header {
        sender: NodeId::from_bytes([sender; 20]),
        current_epoch: 1 << 60,
        config_epoch: 1 << 60,
        offset: u64::MAX,
        slots: SlotSet::of(0..16_384).into(),
        master: None,
        address,
        flags: Flags::MASTER,
        is_ok: true,
        is_paused: true,
        is_forced: true,
        hostname: None,
    };
    encode(&Message { header, body })
}

/// Whether the node closes the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn what_is_not_the_bus_is_closed_and_what_is_wrong_is_dropped() {
    let node = Node::alone(&[]);
    let mut client = node.connect();
    let mut too_long = message(1, Body::AuthRequest);
    too_long[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut too_short = message(1, Body::AuthRequest);
    too_short[4..8].copy_from_slice(&((HEADER_LEN - 1) as u32).to_be_bytes());
    for bytes in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), too_long, too_short] {
        let mut stream = dial(&node);
        stream.write_all(&bytes).unwrap();
        assert!(is_closed(&mut stream));
    }
    // Wrong versions, kinds, ids and counts are dropped, and the connection stays.
    let mut stream = dial(&node);
    let good = message(1, Body::Ping(Vec::new()));
    for (at, value) in [(8, 9_u8), (12, 0x7f), (14, 0xff), (40, b'x'), (2168, 0xff)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        stream.write_all(&bytes).unwrap();
    }
    stream.write_all(&good).unwrap();
    let mut answer = [0; HEADER_LEN];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer[..4], b"RCmb", "a stranger's ping is answered");
    assert_eq!(text(&client.words("SET foo bar")), "OK");
}

#[test]
fn a_stranger_changes_nothing_and_fills_no_memory() {
    let node = Node::alone(&[]);
    let mut client = node.connect();
    let mut stream = dial(&node);
    // From whoever asks, it learns under which address it is reached.
    stream.write_all(&message(7, Body::Ping(Vec::new()))).unwrap();
    stream.read_exact(&mut [0; HEADER_LEN]).unwrap();
    let before = text(&client.words("CLUSTER NODES"));
    let gossip = |id: u8| Gossip {
        id: NodeId::from_bytes([id; 20]),
        ping_sent: u32::MAX,
        pong_received: u32::MAX,
        address: Address { ip: "127.0.0.1".into(), port: 1, plain_port: 0, bus_port: 2 },
        flags: Flags::MASTER,
    };
    let own = NodeId::parse(node.id().as_bytes()).unwrap();
    let publication =
        Publication { channel: b"ch"[..].into(), message: b"x"[..].into(), is_sharded: false };
    for body in [
        Body::Ping((0..200).map(gossip).collect()),
        Body::Pong((0..200).map(gossip).collect()),
        Body::Fail(own),
        Body::AuthRequest,
        Body::AuthAck,
        Body::ManualStart,
        Body::Publish(publication),
        Body::Other(9),
        Body::Other(99),
    ] {
        stream.write_all(&message(7, body)).unwrap();
    }
    // Many of them: most are closed, and clients are served.
    let mut crowd: Vec<TcpStream> = (0..600).map(|_| dial(&node)).collect();
    let packet = message(7, Body::Ping(Vec::new()));
    for stream in &mut crowd {
        // One that was closed cannot be written to.
        let _ = stream.write_all(&packet[..1000]);
    }
    assert_eq!(text(&client.words("SET foo bar")), "OK");
    assert_eq!(text(&client.words("CLUSTER NODES")), before);
    assert!(text(&client.words("CLUSTER INFO")).contains("cluster_current_epoch:0"));
    assert!(is_answered(&node, &packet), "there is room for one more");
    // Those that say nothing do not stay for ever.
    client.words("CONFIG SET cluster-node-timeout 500");
    for stream in crowd.iter_mut().rev().take(3) {
        assert!(is_closed(stream));
    }
}

fn is_answered(node: &Node, packet: &[u8]) -> bool {
    let mut stream = dial(node);
    stream.write_all(packet).is_ok() && stream.read_exact(&mut [0; HEADER_LEN]).is_ok()
}

#[test]
fn a_stranger_that_asks_and_does_not_read_is_closed() {
    let node = Node::alone(&[]);
    let mut stream = dial(&node);
    stream.set_write_timeout(Some(GENEROUS)).unwrap();
    let packet = message(7, Body::Ping(Vec::new()));
    // More than the system keeps of it on the way, and much less than a node is let wait for.
    let packets = 96 * 1024 * 1024 / packet.len();
    let is_closed = (0..packets).any(|_| stream.write_all(&packet).is_err());
    assert!(is_closed, "nothing stops it");
    assert!(is_answered(&node, &packet));
}
