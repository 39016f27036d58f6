//! What nodes of a cluster say to each other, and nodes.conf. The first byte chooses which.

use store_cluster::wire::{decode, encode, packet_len};
use store_cluster::{Cluster, Ends, LinkId, NODES_MAX, Now, Output, Settings};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "bus",
    about: "packets of the cluster bus from strangers and known nodes, and nodes.conf",
    run,
    words: &[
        b"RCmb",
        b"1111111111111111111111111111111111111111",
        b"2222222222222222222222222222222222222222",
        b"3333333333333333333333333333333333333333",
        b"127.0.0.1:7001@17001",
        b"myself,master",
        b"slave",
        b"fail?",
        b"0-16383",
        b"[7->-2222222222222222222222222222222222222222]",
        b"[7-<-3333333333333333333333333333333333333333]",
        b"vars currentEpoch 3 lastVoteEpoch 2\n",
        b"\x00\x00\x08\xd0",
        b"\x3f\xff\xff\xff\xff\xff\xff\xff",
    ],
};

/// Longer packets are refused, as the server does.
const PACKET_MAX: u32 = 64 * 1024;
/// A replica of one master, and another master, so that votes and claims count.
const KNOWN: &str = "\
1111111111111111111111111111111111111111 127.0.0.1:7001@17001 myself,slave \
2222222222222222222222222222222222222222 0 0 1 connected
2222222222222222222222222222222222222222 127.0.0.1:7002@17002 master - 0 0 1 connected 0-8191
3333333333333333333333333333333333333333 127.0.0.1:7003@17003 master - 0 0 2 connected 8192-16383
vars currentEpoch 2 lastVoteEpoch 1
";

fn run(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    match choice % 3 {
        0 => read_file(bytes),
        1 => hear(
            new_node(&KNOWN.replace("myself,slave", "slave").replacen(
                "master -",
                "myself,master -",
                1,
            )),
            bytes,
        ),
        _ => hear(new_node(KNOWN), bytes),
    }
}

fn now(ms: u64) -> Now {
    Now { monotonic_ms: 1_000_000 + ms, unix_ms: 1_700_000_000_000 + ms }
}

fn new_node(text: &str) -> Cluster {
    Cluster::restore(now(0), text, Settings::default(), 7).expect("the text is right")
}

/// A file that is taken is written the same way again.
fn read_file(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(mut node) = Cluster::restore(now(0), text, Settings::default(), 7) else { return };
    node.handle_tick(now(100));
    carry_out(&mut node);
}

/// Packets over one connection that another node opened, with time between them.
fn hear(mut node: Cluster, bytes: &[u8]) {
    let ends = Ends { peer: "127.0.0.1", local: "127.0.0.1" };
    let (mut rest, mut ms) = (bytes, 0);
    while let Ok(Some(len)) = packet_len(rest, PACKET_MAX) {
        let Some((packet, behind)) = rest.split_at_checked(len) else { break };
        rest = behind;
        ms += 700;
        if let Ok(message) = decode(packet) {
            let again = decode(&encode(&message)).expect("what was written can be read");
            assert_eq!(again, message, "a message is the same behind the codec");
            node.handle_message(now(ms), LinkId::Inbound(1), ends, &message);
            carry_out(&mut node);
        }
        node.handle_tick(now(ms));
        carry_out(&mut node);
    }
    assert!(node.nodes().len() <= NODES_MAX, "strangers fill the table");
}

/// What is to be written can be read, and what is to be sent can be encoded.
fn carry_out(node: &mut Cluster) {
    loop {
        match node.poll_output() {
            Output::Persist { text, .. } => {
                let read = Cluster::restore(now(0), &text, Settings::default(), 7);
                assert!(read.is_ok(), "{read:?} of\n{text}");
            }
            Output::Send { message, .. } => _ = encode(&message),
            Output::WaitUntil(_) => return,
            _ => {}
        }
    }
}
