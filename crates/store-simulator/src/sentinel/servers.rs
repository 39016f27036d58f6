//! Who accepts connections: servers, as sentinels see them, and sentinels, as others see them.

use std::fmt::Write;

use store_replica::{Address, ReplicaState, Role};
use store_resp::{Limits, OwnedRequest, Parsed, RequestParser};

use super::climate::{server_address, server_at};
use super::world::World;
use crate::network::{ConnectionId, Delivery, Host, Side};

/// A connection, at the one who accepted it.
#[derive(Debug)]
pub(crate) struct Accepted {
    host: Host,
    unparsed: Vec<u8>,
    parser: RequestParser,
    is_subscribed: bool,
    /// What a transaction holds.
    queued: Option<Vec<OwnedRequest>>,
    /// The primary that a sentinel asked about and was not answered yet. What it asks besides waits
    /// behind that.
    pub(crate) asked_about: Option<Address>,
}

impl World {
    pub(crate) fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Knock(id) => self.knock(id),
            Delivery::Opened(id) => {
                let node = self.node_at(self.network.host(id, Side::Dialer));
                self.opened(node.expect("only sentinels dial here"), id);
            }
            Delivery::Bytes(id, to, bytes) => {
                if self.network.arrive(id, to, &bytes) {
                    self.read(id, to);
                }
            }
            Delivery::Closed(id, at) => {
                if self.network.end(id, at) {
                    self.closed(id, at);
                }
            }
        }
    }

    fn knock(&mut self, id: ConnectionId) {
        let host = self.network.host(id, Side::Listener);
        let is_up = match self.node_at(host) {
            Some(node) => self.nodes[node].is_up,
            None => self.stores.servers[host].is_up,
        };
        if !is_up {
            return self.network.reset(id, &mut self.queue, &mut self.random);
        }
        if self.network.accept(id, &mut self.queue, &mut self.random) {
            let accepted = Accepted {
                host,
                unparsed: Vec::new(),
                parser: RequestParser::default(),
                is_subscribed: false,
                queued: None,
                asked_about: None,
            };
            self.accepted.insert(id, accepted);
        }
    }

    pub(crate) fn opened(&mut self, node: usize, id: ConnectionId) {
        let real = self.queue.now();
        let at = &mut self.nodes[node];
        if at.is_paused(real) {
            return at.missed.push(Delivery::Opened(id));
        }
        if let Some(dialed) = at.dialed.get_mut(&id) {
            dialed.is_open = true;
            let link = dialed.link;
            self.input(node, |sentinel, now| sentinel.handle_link_up(now, link, "10.0.0.2"));
        }
    }

    pub(crate) fn read(&mut self, id: ConnectionId, to: Side) {
        let real = self.queue.now();
        let host = self.network.host(id, to);
        let node = self.node_at(host);
        if node.is_some_and(|node| !self.nodes[node].is_up || self.nodes[node].is_paused(real)) {
            return;
        }
        match (to, node) {
            (Side::Dialer, Some(node)) => self.read_dialed(node, id),
            (Side::Dialer, None) => {}
            (Side::Listener, _) => self.read_requests(host, id),
        }
    }

    pub(crate) fn closed(&mut self, id: ConnectionId, at: Side) {
        let real = self.queue.now();
        let host = self.network.host(id, at);
        let node = self.node_at(host);
        if let Some(node) = node.filter(|node| self.nodes[*node].is_paused(real)) {
            return self.nodes[node].missed.push(Delivery::Closed(id, at));
        }
        match (at, node) {
            (Side::Dialer, Some(node)) => {
                if let Some(dialed) = self.nodes[node].dialed.remove(&id) {
                    self.nodes[node].links.remove(&dialed.link);
                    self.input(node, |sentinel, now| sentinel.handle_link_down(now, dialed.link));
                }
            }
            _ => _ = self.accepted.remove(&id),
        }
    }

    fn read_requests(&mut self, host: Host, id: ConnectionId) {
        let bytes = self.network.read(id, Side::Listener);
        let Some(accepted) = self.accepted.get_mut(&id) else { return };
        accepted.unparsed.extend(bytes);
        while let Some(accepted) = self.accepted.get_mut(&id).filter(|it| it.asked_about.is_none())
        {
            match accepted.parser.parse(&accepted.unparsed, &Limits::default()) {
                Ok(Parsed::Request { consumed }) => {
                    let request = accepted.parser.request(&accepted.unparsed).to_owned();
                    accepted.unparsed.drain(..consumed);
                    accepted.parser.clear();
                    let words: Vec<&[u8]> = request.as_request().args_from(0).collect();
                    match self.node_at(host) {
                        Some(node) => self.answer_peer(node, id, &words),
                        None => self.answer(host, id, &request, &words),
                    }
                }
                Ok(Parsed::Empty { consumed }) => _ = accepted.unparsed.drain(..consumed),
                Ok(Parsed::Incomplete) => return,
                Err(error) => panic!("a sentinel sent nonsense: {error}"),
            }
        }
    }

    /// Goes on with requests that waited behind an answer.
    pub(crate) fn read_on(&mut self, host: Host) {
        let has_more = |accepted: &Accepted| accepted.host == host && !accepted.unparsed.is_empty();
        let waiting = self.accepted.iter().filter(|(_, accepted)| has_more(accepted));
        let waiting: Vec<ConnectionId> = waiting.map(|(id, _)| *id).collect();
        for id in waiting {
            self.read_requests(host, id);
        }
    }

    /// A server answers a sentinel.
    fn answer(&mut self, server: usize, id: ConnectionId, request: &OwnedRequest, words: &[&[u8]]) {
        let Some(accepted) = self.accepted.get_mut(&id) else { return };
        let is_loading = self.stores.servers[server].loading.is_some();
        let text: Vec<u8> = match (words[0], &mut accepted.queued) {
            (b"EXEC", queued) => {
                let queued = queued.take().unwrap_or_default();
                self.run_transaction(server, id, &queued);
                let mut text = format!("*{}\r\n", queued.len());
                text.push_str(&"+OK\r\n".repeat(queued.len()));
                text.into_bytes()
            }
            (_, Some(queued)) => {
                queued.push(request.clone());
                b"+QUEUED\r\n".to_vec()
            }
            (b"MULTI", queued) => {
                *queued = Some(Vec::new());
                b"+OK\r\n".to_vec()
            }
            (b"PING", _) if is_loading => b"-LOADING data\r\n".to_vec(),
            (b"PING", _) => b"+PONG\r\n".to_vec(),
            (b"INFO", _) => {
                let info = self.info(server);
                format!("${}\r\n{info}\r\n", info.len()).into_bytes()
            }
            (b"SUBSCRIBE", _) => {
                accepted.is_subscribed = true;
                let channel = String::from_utf8_lossy(words[1]);
                format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len())
                    .into_bytes()
            }
            (b"PUBLISH", _) => {
                self.publish(server, words[1], words[2]);
                b":1\r\n".to_vec()
            }
            _ => b"+OK\r\n".to_vec(),
        };
        self.send(id, Side::Listener, &text);
    }

    fn publish(&mut self, server: usize, channel: &[u8], text: &[u8]) {
        let mut message = b"*3\r\n$7\r\nmessage\r\n".to_vec();
        for word in [channel, text] {
            message.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            message.extend_from_slice(word);
            message.extend_from_slice(b"\r\n");
        }
        let is_listening = |accepted: &Accepted| accepted.host == server && accepted.is_subscribed;
        let listeners: Vec<ConnectionId> =
            self.accepted.iter().filter(|(_, a)| is_listening(a)).map(|(id, _)| *id).collect();
        for id in listeners {
            self.send(id, Side::Listener, &message);
        }
    }

    /// SLAVEOF, and all other clients are gone.
    fn run_transaction(&mut self, server: usize, by: ConnectionId, queued: &[OwnedRequest]) {
        for request in queued {
            let words: Vec<&[u8]> = request.as_request().args_from(0).collect();
            match words[..] {
                [b"SLAVEOF", b"NO", b"ONE"] => {
                    self.note(|| format!("server {server} is told to be a primary"));
                    self.stores.promote(server);
                }
                [b"SLAVEOF", _, port] => {
                    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
                    let address = Address { host: String::new(), port: port.unwrap_or(0) };
                    if let Some(primary) = server_at(&address) {
                        self.note(|| format!("server {server} is told to follow {primary}"));
                        self.stores.follow(server, primary);
                    }
                }
                _ => {}
            }
        }
        let is_other =
            |id: &ConnectionId, accepted: &Accepted| accepted.host == server && *id != by;
        let others: Vec<ConnectionId> =
            self.accepted.iter().filter(|(id, a)| is_other(id, a)).map(|(id, _)| *id).collect();
        for id in others {
            self.accepted.remove(&id);
            self.network.close(id, Side::Listener, &mut self.queue, &mut self.random);
        }
    }

    /// What INFO says of a server.
    fn info(&self, index: usize) -> String {
        let server = &self.stores.servers[index];
        let now = server.now(self.queue.now());
        let mut text = format!("run_id:run{index:03}life{:030}\r\n", server.life);
        let put = |text: &mut String, name: &str, value: &dyn std::fmt::Display| {
            write!(text, "{name}:{value}\r\n").expect("a string takes everything");
        };
        match server.replication.role() {
            Role::Primary => put(&mut text, "role", &"master"),
            Role::Replica(primary) => {
                let primary = server_address(usize::from(primary.port));
                let is_up = server.replication.is_linked();
                put(&mut text, "role", &"slave");
                put(&mut text, "master_host", &primary.host);
                put(&mut text, "master_port", &primary.port);
                put(&mut text, "master_link_status", &if is_up { "up" } else { "down" });
                if let Some(down_for) = server.replication.link_down_for(now) {
                    put(&mut text, "master_link_down_since_seconds", &down_for.as_secs());
                }
                put(&mut text, "slave_repl_offset", &server.replication.history().offset());
                put(&mut text, "slave_priority", &self.climate.priorities[index]);
            }
        }
        let replicas = server.replication.replicas().iter();
        let known = replicas.filter(|replica| replica.state() != ReplicaState::Greeting);
        for (place, replica) in known.enumerate() {
            let Address { host, port } = server_address(usize::from(replica.address().port));
            put(&mut text, &format!("slave{place}"), &format!("ip={host},port={port}"));
        }
        let history = server.replication.history();
        put(&mut text, "master_replid", &history.id());
        if let Some(second) = history.second() {
            put(&mut text, "master_replid2", &second.id);
            put(&mut text, "second_repl_offset", &(second.until + 1));
        }
        text
    }

    /// Connections that a host had accepted are no more.
    pub(crate) fn forget_accepted(&mut self, host: Host) {
        self.accepted.retain(|_, accepted| accepted.host != host);
    }
}
