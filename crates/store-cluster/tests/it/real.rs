//! The same words as a real redis-server in cluster mode.

#![expect(clippy::disallowed_methods, reason = "the core is pure, what drives it here is not")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use store_cluster::wire::{decode, encode, packet_len};
use store_cluster::{Address, Body, Cluster, Ends, Flags, LinkId, NodeId, Now, Output, Settings};
use testkit::RedisServer;

/// For whatever must happen some day.
const BOUND: Duration = Duration::from_secs(60);

fn started() -> RedisServer {
    let args =
        ["--cluster-enabled", "yes", "--cluster-announce-hostname", "h.example", "--save", ""];
    let server = RedisServer::builder().args(args).start();
    assert_eq!(server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "100", "16000", "16383"]), "OK");
    assert_eq!(server.cli(&["CLUSTER", "SET-CONFIG-EPOCH", "7"]), "OK");
    server
}

fn bus_port(server: &RedisServer) -> u16 {
    let nodes = server.cli(&["CLUSTER", "NODES"]);
    let port = nodes.split(['@', ',', ' ']).nth(2).and_then(|text| text.parse().ok());
    port.unwrap_or_else(|| panic!("CLUSTER NODES said {nodes:?}"))
}

/// The next whole packet.
fn read_packet(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> Vec<u8> {
    let until = Instant::now() + BOUND;
    loop {
        if let Some(len) = packet_len(buffer, 1 << 20).expect("redis-server speaks the bus")
            && buffer.len() >= len
        {
            return buffer.drain(..len).collect();
        }
        assert!(Instant::now() < until, "no packet came");
        let mut bytes = [0; 8192];
        match socket.read(&mut bytes) {
            Ok(0) => panic!("redis-server closed the link"),
            Ok(len) => buffer.extend_from_slice(&bytes[..len]),
            Err(_) => {}
        }
    }
}

/// A core that listens on loopback and is introduced to the server.
struct Peer {
    core: Cluster,
    began_at: Instant,
    listener: TcpListener,
}

impl Peer {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback works");
        listener.set_nonblocking(true).expect("loopback works");
        let bus_port = listener.local_addr().expect("loopback works").port();
        let address = Address { ip: "127.0.0.1".into(), port: 7, plain_port: 0, bus_port };
        let settings = Settings { address, ..Settings::default() };
        let (began_at, now) = (Instant::now(), Now { monotonic_ms: 1, unix_ms: 1 });
        let core = Cluster::new(now, NodeId::from_bytes([0xab; 20]), settings, 3);
        Self { core, began_at, listener }
    }

    fn now(&self) -> Now {
        let unix = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("loopback works");
        let monotonic_ms = 1 + self.began_at.elapsed().as_millis() as u64;
        Now { monotonic_ms, unix_ms: unix.as_millis() as u64 }
    }

    /// Drives it until `is_done`, checking that every packet reads back as it came.
    fn run_until(&mut self, is_done: impl Fn(&Cluster) -> bool) {
        let until = Instant::now() + BOUND;
        let mut sockets: Vec<(LinkId, TcpStream, Vec<u8>)> = Vec::new();
        while !is_done(&self.core) {
            assert!(Instant::now() < until, "{}", self.core.config_text());
            if let Ok((socket, _)) = self.listener.accept() {
                socket.set_nonblocking(true).expect("loopback works");
                sockets.push((LinkId::Inbound(sockets.len() as u64), socket, Vec::new()));
            }
            self.core.handle_tick(self.now());
            self.carry_out(&mut sockets);
            for place in 0..sockets.len() {
                self.read(&mut sockets, place);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn read(&mut self, sockets: &mut Vec<(LinkId, TcpStream, Vec<u8>)>, place: usize) {
        let mut bytes = [0; 8192];
        while let Ok(len @ 1..) = sockets[place].1.read(&mut bytes) {
            sockets[place].2.extend_from_slice(&bytes[..len]);
        }
        while let Ok(Some(len)) = packet_len(&sockets[place].2, 1 << 20)
            && sockets[place].2.len() >= len
        {
            let packet: Vec<u8> = sockets[place].2.drain(..len).collect();
            let message = decode(&packet).expect("redis-server's packets can be read");
            assert_eq!(encode(&message), packet, "and written the same");
            let ends = Ends { peer: "127.0.0.1", local: "127.0.0.1" };
            self.core.handle_message(self.now(), sockets[place].0, ends, &message);
            self.carry_out(sockets);
        }
    }

    fn carry_out(&mut self, sockets: &mut Vec<(LinkId, TcpStream, Vec<u8>)>) {
        loop {
            match self.core.poll_output() {
                Output::Dial { link, address } => {
                    let socket = TcpStream::connect((&*address.ip, address.bus_port))
                        .expect("loopback works");
                    socket.set_nonblocking(true).expect("loopback works");
                    sockets.push((link, socket, Vec::new()));
                    self.core.handle_link_up(self.now(), link);
                }
                Output::Send { link, message } => {
                    let socket = sockets.iter_mut().find(|(name, ..)| *name == link);
                    if let Some((_, socket, _)) = socket {
                        _ = socket.write_all(&encode(&message));
                    }
                }
                Output::WaitUntil(_) => return,
                _ => {}
            }
        }
    }
}

#[test]
fn a_ping_is_answered_by_a_pong_that_reads_back_byte_for_byte() {
    let server = started();
    let peer = Peer::new();
    let mut socket = TcpStream::connect(("127.0.0.1", bus_port(&server))).expect("loopback works");
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("loopback works");
    let mut town = crate::town::Town::new(0);
    let mut ping = None;
    while ping.is_none() {
        town.now += 1_000;
        let now = town.time();
        town.nodes[0].handle_tick(now);
        while let output @ (Output::Send { .. } | Output::Log(_) | Output::Persist { .. }) =
            town.nodes[0].poll_output()
        {
            if let Output::Send { message, .. } = output {
                ping = Some(message);
            }
        }
    }
    socket.write_all(&encode(&ping.expect("loopback works"))).unwrap();
    let packet = read_packet(&mut socket, &mut Vec::new());
    let message = decode(&packet).expect("loopback works");
    assert_eq!(encode(&message), packet);
    assert!(matches!(message.body, Body::Pong(_)));
    let header = &message.header;
    assert_eq!(header.sender.to_string(), server.cli(&["CLUSTER", "MYID"]));
    assert_eq!(header.address.port, server.port());
    assert_eq!(header.slots.ranges(), [(0, 100), (16_000, 16_383)]);
    assert_eq!((header.config_epoch, header.current_epoch), (7, 7));
    assert_eq!(header.hostname.as_deref(), Some("h.example"));
    assert!(header.flags.has(Flags::MASTER) && header.master.is_none() && !header.is_ok);
    drop(peer);
}

#[test]
fn a_real_server_and_a_core_become_one_cluster() {
    let server = started();
    let mut peer = Peer::new();
    let id = NodeId::parse(server.cli(&["CLUSTER", "MYID"]).as_bytes()).expect("loopback works");
    let address = Address {
        ip: "127.0.0.1".into(),
        port: server.port(),
        plain_port: 0,
        bus_port: bus_port(&server),
    };
    let now = peer.now();
    peer.core.meet(now, address).expect("loopback works");
    peer.run_until(|core| {
        let known = core.nodes().find(id).map(|index| &core.nodes()[index]);
        known.is_some_and(|node| node.slots.len() == 485 && node.config_epoch == 7)
            && server.cli(&["CLUSTER", "NODES"]).lines().count() == 2
            && !server.cli(&["CLUSTER", "NODES"]).contains("handshake")
    });
    let slots = store_cluster::SlotSet::of(101..16_000);
    let now = peer.now();
    peer.core.add_slots(now, &slots).expect("loopback works");
    peer.run_until(|core| {
        core.is_ok() && server.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok")
    });
    // And its file is one that we can read.
    let text = std::fs::read_to_string(server.folder().join("nodes.conf")).expect("loopback works");
    let read = Cluster::restore(peer.now(), &text, Settings::default(), 1).expect("loopback works");
    assert_eq!((read.me().id, read.nodes().len()), (id, 2));
}
