//! The same machines and a real redis-server, over a real socket.

#![expect(clippy::disallowed_methods, reason = "the core is pure, what drives it here is not")]

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use store_replica::{
    Address, FailoverRequest, Moment, Output, Replication, Secrets, SessionId, Settings,
    Transaction,
};
use store_resp::{Limits, Parsed, RequestParser};
use testkit::RedisServer;

use crate::pair::encoded;

/// For whatever must happen some day.
const BOUND: Duration = Duration::from_secs(60);
const REPLICA: SessionId = SessionId(1);

/// A core with a clock and randomness of its own.
struct Node {
    core: Replication,
    began_at: Instant,
}

impl Node {
    fn new() -> Self {
        let mut state = u64::from(std::process::id());
        let secrets = Secrets::new(move |bytes| {
            for byte in bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                *byte = (state >> 40) as u8;
            }
        });
        let settings = Settings {
            diskless_delay: Duration::ZERO,
            announce_ip: Some("127.0.0.1".to_owned()),
            ..Settings::default()
        };
        Self {
            core: Replication::new(Moment::default(), settings, secrets),
            began_at: Instant::now(),
        }
    }

    fn now(&self) -> Moment {
        Moment::from_ms(self.began_at.elapsed().as_millis() as u64)
    }
}

/// Reads what is there; `None` at the end of the connection.
fn read(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    match socket.read(&mut bytes) {
        Ok(0) => None,
        Ok(len) => Some(bytes[..len].to_vec()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Some(Vec::new())
        }
        Err(_) => None,
    }
}

fn patient(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket
}

/// Ours, following a real primary.
struct Follower {
    node: Node,
    socket: Option<TcpStream>,
    payload: Vec<u8>,
    db: usize,
    is_in_transaction: bool,
    /// Requests that were applied, with their databases.
    applied: Vec<String>,
}

impl Follower {
    fn of(server: &RedisServer) -> Self {
        let mut node = Node::new();
        let address = Address { host: "127.0.0.1".to_owned(), port: server.port() };
        node.core.follow(node.now(), address);
        Self::with(node)
    }

    fn with(node: Node) -> Self {
        Self {
            node,
            socket: None,
            payload: Vec::new(),
            db: 0,
            is_in_transaction: false,
            applied: Vec::new(),
        }
    }

    fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let ends_at = Instant::now() + BOUND;
        while !condition(self) {
            assert!(Instant::now() < ends_at, "{what} did not happen");
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now = self.node.now();
        self.node.core.handle_time(now);
        self.carry_out();
        if let Some(socket) = &mut self.socket {
            match read(socket) {
                Some(bytes) => self.node.core.handle_link_bytes(now, &bytes),
                None => self.cut(),
            }
        }
        self.carry_out();
        self.apply();
    }

    fn cut(&mut self) {
        if let Some(socket) = self.socket.take() {
            _ = socket.shutdown(Shutdown::Both);
            self.is_in_transaction = false;
            self.node.core.handle_link_down(self.node.now());
        }
    }

    fn carry_out(&mut self) {
        loop {
            let now = self.node.now();
            match self.node.core.poll_output() {
                Output::WaitUntil(_) => return,
                Output::Dial(address) => {
                    self.socket =
                        TcpStream::connect((address.host, address.port)).ok().map(patient);
                    match self.socket {
                        Some(_) => self.node.core.handle_link_up(now),
                        None => self.node.core.handle_link_down(now),
                    }
                }
                Output::LinkSend(bytes) => {
                    if let Some(socket) = &mut self.socket {
                        _ = socket.write_all(&bytes);
                    }
                }
                Output::LinkClose => self.socket = None,
                Output::Payload(bytes) => self.payload.extend(bytes),
                Output::Load => self.node.core.handle_loaded(now, Some(0)),
                Output::Linked { db } => self.db = db,
                _ => {}
            }
        }
    }

    fn apply(&mut self) {
        let now = self.node.now();
        while let Some(request) = self.node.core.next_request(now) {
            let words: Vec<_> =
                request.args_from(0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
            let mut asks = false;
            match words[0].to_ascii_uppercase().as_str() {
                "SELECT" => self.db = words[1].parse().unwrap(),
                "MULTI" => self.is_in_transaction = true,
                "EXEC" => self.is_in_transaction = false,
                "REPLCONF" => asks = true,
                "PING" => {}
                _ => self.applied.push(format!("{} {}", self.db, words.join(" "))),
            }
            if asks {
                self.node.core.handle_getack();
            }
            let transaction = match self.is_in_transaction {
                true => Transaction::Open,
                false => Transaction::Closed,
            };
            self.node.core.handle_applied(now, self.db, transaction);
        }
        self.carry_out();
    }
}

fn info(server: &RedisServer, name: &str) -> String {
    let text = server.cli(&["INFO", "everything"]);
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&prefix).map(str::to_owned));
    line.unwrap_or_default()
}

#[test]
fn ours_follows_a_real_primary_and_comes_back_after_a_cut() {
    let server = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
    server.cli(&["SET", "before", "1"]);
    let mut ours = Follower::of(&server);
    ours.run_until("the link", |ours| ours.node.core.is_linked());
    assert!(ours.payload.starts_with(b"REDIS00"), "a payload is an RDB file");
    assert_eq!(ours.node.core.history().id().as_str(), info(&server, "master_replid"));

    server.cli(&["-n", "5", "SET", "a", "1"]);
    server.cli(&["-n", "5", "EVAL", "redis.call('INCR','a') redis.call('INCR','b')", "0"]);
    ours.run_until("the writes", |ours| ours.applied.len() == 3);
    assert_eq!(ours.applied, ["5 SET a 1", "5 INCR a", "5 INCR b"]);

    ours.cut();
    server.cli(&["-n", "5", "SET", "c", "1"]);
    ours.run_until("what was missed", |ours| ours.applied.len() == 4);
    assert_eq!(ours.applied[3], "5 SET c 1", "the database is known without a SELECT");
    assert_eq!(
        (info(&server, "sync_full"), info(&server, "sync_partial_ok")),
        ("1".into(), "1".into())
    );

    // The primary believes our acks, and they name its own offset.
    let ends_at = Instant::now() + BOUND;
    loop {
        ours.turn();
        let state = info(&server, "slave0");
        let offset = ours.node.core.history().offset();
        if state.contains("state=online") && state.contains(&format!("offset={offset},")) {
            break;
        }
        assert!(Instant::now() < ends_at, "the primary says {state}, we are at {offset}");
    }
}

/// Ours, followed by a real replica.
struct Leader {
    node: Node,
    listener: TcpListener,
    socket: Option<TcpStream>,
    session: SessionId,
    unparsed: Vec<u8>,
    out: VecDeque<u8>,
    payload: Vec<u8>,
    snapshots: usize,
}

impl Leader {
    fn new(payload: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self {
            node: Node::new(),
            listener,
            socket: None,
            session: REPLICA,
            unparsed: Vec::new(),
            out: VecDeque::new(),
            payload,
            snapshots: 0,
        }
    }

    fn write(&mut self, line: &str) -> u64 {
        let bytes = encoded(line);
        let command = store_replica::Command { db: 3, bytes: bytes.as_bytes() };
        self.node.core.feed(self.node.now(), [command].into_iter())
    }

    fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let ends_at = Instant::now() + BOUND;
        while !condition(self) {
            assert!(Instant::now() < ends_at, "{what} did not happen");
            self.turn();
        }
    }

    fn turn(&mut self) {
        let now = self.node.now();
        if let Ok((socket, _)) = self.listener.accept() {
            socket.set_nonblocking(false).unwrap();
            self.session = SessionId(self.session.0 + 1);
            self.node.core.set_peer(now, self.session, "127.0.0.1");
            self.socket = Some(patient(socket));
            self.unparsed.clear();
            self.out.clear();
        }
        self.node.core.handle_time(now);
        match self.socket.as_mut().map(read) {
            Some(Some(bytes)) => self.unparsed.extend(bytes),
            Some(None) => self.cut(),
            None => {}
        }
        self.answer();
        self.node.core.handle_turn_end(now);
        self.carry_out();
        self.send();
    }

    fn cut(&mut self) {
        if let Some(socket) = self.socket.take() {
            _ = socket.shutdown(Shutdown::Both);
            self.node.core.handle_session_closed(self.node.now(), self.session);
        }
    }

    fn answer(&mut self) {
        let (now, session) = (self.node.now(), self.session);
        let mut parser = RequestParser::default();
        loop {
            match parser.parse(&self.unparsed, &Limits::default()).unwrap() {
                Parsed::Incomplete => return,
                Parsed::Empty { consumed } => {
                    self.unparsed.drain(..consumed);
                    self.node.core.handle_newline(now, session);
                }
                Parsed::Request { consumed } => {
                    let request = parser.request(&self.unparsed).to_owned();
                    self.unparsed.drain(..consumed);
                    parser.reset();
                    let words = request.as_request();
                    match words.arg(0).to_ascii_uppercase().as_slice() {
                        b"PING" => self.out.extend(b"+PONG\r\n"),
                        b"REPLCONF" => self.node.core.handle_replconf(now, session, words),
                        b"PSYNC" => self.node.core.handle_psync(now, session, words),
                        name => panic!("a replica asked for {}", name.escape_ascii()),
                    }
                }
            }
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        loop {
            let now = self.node.now();
            match self.node.core.poll_output() {
                Output::WaitUntil(_) => return,
                Output::Dial(_) => return self.cut(),
                Output::Reply { bytes, .. } => self.out.extend(bytes),
                Output::StartSnapshot(_) => {
                    self.snapshots += 1;
                    self.node.core.handle_snapshot_started(now);
                    self.carry_out();
                    self.out.extend(&self.payload);
                    self.node.core.handle_snapshot_made(now, self.payload.len() as u64);
                    self.node.core.handle_payload_sent(now, self.session);
                    self.carry_out();
                }
                _ => {}
            }
        }
    }

    fn send(&mut self) {
        let Some(socket) = &mut self.socket else { return };
        let replies: Vec<u8> = self.out.drain(..).collect();
        _ = socket.write_all(&replies);
        let part = self.node.core.stream_for(self.session).to_vec();
        if socket.write_all(&part).is_ok() {
            self.node.core.handle_stream_written(self.session, part.len());
        }
    }

    fn acked(&self) -> u64 {
        let replicas = self.node.core.replicas().iter();
        replicas
            .filter(|replica| replica.is_online())
            .map(|replica| replica.acked())
            .max()
            .unwrap_or(0)
    }
}

/// A real file, made by a real server.
fn real_payload() -> Vec<u8> {
    let server = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
    server.cli(&["SET", "before", "1"]);
    let mut ours = Follower::of(&server);
    ours.run_until("the link", |ours| ours.node.core.is_linked());
    ours.payload
}

#[test]
fn a_real_replica_follows_ours_and_comes_back_after_a_cut() {
    let mut ours = Leader::new(real_payload());
    let server = RedisServer::start();
    let port = ours.listener.local_addr().unwrap().port().to_string();
    server.cli(&["REPLICAOF", "127.0.0.1", &port]);
    ours.run_until("the first ack", |ours| {
        ours.node.core.replicas().iter().any(|replica| replica.is_online())
    });
    let offset = ours.write("SET a 1");
    ours.run_until("the ack of a write", |ours| ours.acked() >= offset);
    assert_eq!(server.cli(&["GET", "before"]), "1", "from the payload");
    assert_eq!(server.cli(&["-n", "3", "GET", "a"]), "1", "from the stream");

    ours.cut();
    let offset = ours.write("INCR a");
    ours.run_until("the ack of what was missed", |ours| ours.acked() >= offset);
    assert_eq!(server.cli(&["-n", "3", "GET", "a"]), "2");
    assert_eq!((ours.snapshots, ours.node.core.sync_counts().partial_done), (1, 1));

    // WAIT asks, and the answer to the question counts.
    let offset = ours.write("INCR a");
    let (now, client) = (ours.node.now(), SessionId(1_000));
    assert_eq!(ours.node.core.wait(now, client, offset, 1, None), None);
    ours.run_until("the ack that WAIT asks for", |ours| ours.acked() >= offset);
    assert_eq!(server.cli(&["-n", "3", "GET", "a"]), "3");
}

#[test]
fn a_real_replica_takes_over_and_ours_follows_it() {
    let mut ours = Leader::new(real_payload());
    let server = RedisServer::start();
    let port = ours.listener.local_addr().unwrap().port().to_string();
    server.cli(&["REPLICAOF", "127.0.0.1", &port]);
    ours.run_until("the first ack", |ours| {
        ours.node.core.replicas().iter().any(|replica| replica.is_online())
    });
    ours.write("SET a 1");
    let now = ours.node.now();
    ours.node.core.start_failover(now, FailoverRequest::default()).unwrap();
    let id = ours.node.core.history().id();
    ours.run_until("the ack of everything", |ours| !ours.node.core.is_primary());

    // The connection that was asked for when it became a replica is opened once more here.
    let mut ours = Follower::with(ours.node);
    ours.node.core.handle_link_down(ours.node.now());
    ours.run_until("the new primary", |ours| ours.node.core.is_linked());
    assert!(server.cli(&["ROLE"]).starts_with("master"), "it took over");
    assert!(ours.payload.is_empty(), "nobody needed a payload");
    assert_eq!(ours.node.core.history().second().map(|second| second.id), Some(id));
    assert_eq!(ours.node.core.history().id().as_str(), info(&server, "master_replid"));
    server.cli(&["-n", "3", "INCR", "a"]);
    ours.run_until("its first write", |ours| !ours.applied.is_empty());
    assert_eq!(ours.applied, ["3 INCR a"]);
}
