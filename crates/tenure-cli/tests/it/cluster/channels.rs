//! What is published on one node is heard on others.

use std::io::{Read, Write};
use std::net::TcpStream;

use testkit::{ClusterGroup, GENEROUS, RedisServer, wait_until};

use super::mixed;

/// A client that listens to a channel.
struct Listener {
    stream: TcpStream,
    heard: String,
}

impl Listener {
    fn start(server: &RedisServer, word: &str, channel: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        write!(stream, "READONLY\r\n{word} {channel}\r\n").unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut listener = Self { stream, heard: String::new() };
        wait_until("the subscription", GENEROUS, || listener.has_heard(":1\r\n"));
        listener
    }

    fn has_heard(&mut self, text: &str) -> bool {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = self.stream.read(&mut bytes) {
            self.heard.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
        self.heard.contains(text)
    }
}

#[test]
fn what_is_published_on_any_node_is_heard_on_every_node() {
    let group = ClusterGroup::start_mixed(&mixed()).steady();
    let all = || (0..group.len()).map(|place| group.server(place));
    let mut listeners: Vec<_> =
        all().map(|server| Listener::start(server, "SUBSCRIBE", "news")).collect();
    for (place, server) in all().enumerate() {
        assert_eq!(server.cli(&["PUBLISH", "news", &format!("from-{place}")]), "1");
    }
    for listener in &mut listeners {
        for place in 0..group.len() {
            let text = format!("$6\r\nfrom-{place}\r\n");
            wait_until("the message", GENEROUS, || listener.has_heard(&text));
            assert_eq!(listener.heard.matches(&text).count(), 1, "each is heard once");
        }
    }
}

#[test]
fn a_shard_channel_is_heard_on_all_nodes_of_its_shard_and_nowhere_else() {
    let group = ClusterGroup::start_mixed(&mixed()).steady();
    let owner = group.owner_of(group.slot_of("orders")).unwrap();
    let replica = group.replicas_of(owner)[0];
    let mut listeners =
        [owner, replica].map(|place| Listener::start(group.server(place), "SSUBSCRIBE", "orders"));
    for (place, text) in [(owner, "first"), (replica, "other")] {
        assert_eq!(group.server(place).cli(&["SPUBLISH", "orders", text]), "1");
        for listener in &mut listeners {
            wait_until("the message", GENEROUS, || listener.has_heard(text));
        }
    }
    for place in (0..group.len()).filter(|place| ![owner, replica].contains(place)) {
        let said = group.server(place).cli(&["SPUBLISH", "orders", "x"]);
        assert!(said.starts_with("MOVED"), "{said}");
        let said = group.server(place).cli(&["SSUBSCRIBE", "orders"]);
        assert!(said.starts_with("MOVED"), "{said}");
    }
}
