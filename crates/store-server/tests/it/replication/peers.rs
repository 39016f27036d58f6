//! Replicas by hand: what goes over the wire, and peers that do not keep to it.

use std::io::{Read, Write};
use std::net::TcpStream;

use store_server::Server;
use testkit::{GENEROUS, wait_until};

use super::support::{LogLines, connect, info, primary, text};

/// A peer that speaks bytes.
pub(super) struct Peer(pub(super) TcpStream);

impl Peer {
    pub(super) fn of(server: &Server) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port().unwrap())).unwrap();
        stream.set_read_timeout(Some(GENEROUS)).unwrap();
        Self(stream)
    }

    pub(super) fn send(&mut self, line: &str) {
        self.0.write_all(line.as_bytes()).unwrap();
    }

    /// Reads until the bytes end so. Fails when the connection ends first.
    fn read_to(&mut self, end: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end) {
            let mut byte = [0];
            assert_eq!(self.0.read(&mut byte).unwrap(), 1, "it was closed: {bytes:?}");
            bytes.push(byte[0]);
        }
        bytes
    }

    pub(super) fn line(&mut self) -> String {
        let line = self.read_to(b"\r\n");
        String::from_utf8(line).unwrap().trim_start_matches('\n').trim_end().to_owned()
    }

    fn is_closed(&mut self) -> bool {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).is_ok() && bytes.is_empty()
    }
}

/// The mark behind the payload, and the payload.
fn take_marked(peer: &mut Peer) -> Vec<u8> {
    let head = peer.line();
    let mark = head.strip_prefix("$EOF:").unwrap_or_else(|| panic!("{head}"));
    assert_eq!(mark.len(), 40);
    peer.read_to(mark.as_bytes())
}

#[test]
fn nothing_of_the_stream_leaves_before_the_first_ack() {
    let server = primary().setting("repl-ping-replica-period", "1000").start().unwrap();
    let mut ours = connect(&server);
    ours.words("SET before 1");
    let mut peer = Peer::of(&server);
    peer.send("REPLCONF listening-port 1 capa eof capa psync2\r\nPING\r\n");
    assert_eq!((peer.line(), peer.line()), ("+OK".to_owned(), "+PONG".to_owned()));
    peer.send("PSYNC ? -1\r\n");
    let answer = peer.line();
    let id = info(&mut ours, "replication", "master_replid");
    assert_eq!(answer, format!("+FULLRESYNC {id} 0"));
    let payload = take_marked(&mut peer);
    assert!(payload.starts_with(b"REDIS0010"));
    ours.words("SET key value");
    assert!(info(&mut ours, "replication", "slave0").contains("state=online"));
    peer.0.set_nonblocking(true).unwrap();
    assert!(peer.0.read(&mut [0; 10]).is_err(), "something came before the ack");
    peer.0.set_nonblocking(false).unwrap();
    peer.send("*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$1\r\n0\r\n");
    let select = "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
    let set = "*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n";
    assert_eq!(peer.read_to(b"value\r\n"), format!("{select}{set}").into_bytes());
    let end = select.len() + set.len();
    assert_eq!(info(&mut ours, "replication", "master_repl_offset"), end.to_string());

    // It comes back and has all but the last request.
    drop(peer);
    wait_until("it to be gone", GENEROUS, || {
        info(&mut ours, "replication", "connected_slaves") == "0"
    });
    let mut peer = Peer::of(&server);
    peer.send("REPLCONF capa psync2\r\n");
    assert_eq!(peer.line(), "+OK");
    peer.send(&format!("PSYNC {id} {}\r\n", select.len() + 1));
    assert_eq!(peer.line(), format!("+CONTINUE {id}"));
    assert_eq!(peer.read_to(b"value\r\n"), set.as_bytes());
}

#[test]
fn units_are_wrapped_where_they_have_more_than_one_request() {
    let server = primary().setting("repl-ping-replica-period", "1000").start().unwrap();
    let mut ours = connect(&server);
    let mut peer = Peer::of(&server);
    peer.send("SYNC\r\n");
    let head = peer.line();
    let len: usize = head.strip_prefix('$').unwrap().parse().unwrap();
    peer.0.read_exact(&mut vec![0; len]).unwrap();
    ours.words("SELECT 9");
    ours.words("MSET a 1 b 2");
    ours.words("MULTI");
    ours.words("SET c 3 EX 100");
    ours.words("SADD d 4");
    ours.words("EXEC");
    ours.words("EVAL \"redis.call('SET','e','5')\" 0");
    ours.words("SET last 1");
    let stream = String::from_utf8(peer.read_to(b"$4\r\nlast\r\n$1\r\n1\r\n")).unwrap();
    let words: Vec<&str> = stream.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    let at: Vec<usize> = ["SELECT", "MSET", "MULTI", "SET", "SADD", "EXEC", "last"]
        .iter()
        .map(|word| words.iter().position(|it| it == word).unwrap_or_else(|| panic!("{words:?}")))
        .collect();
    assert!(at.is_sorted(), "{words:?}");
    assert!(words.contains(&"PXAT"), "{words:?}");
    assert_eq!(words.iter().filter(|word| **word == "SELECT").count(), 1);
}

#[test]
fn a_replica_that_asks_like_a_client_is_closed() {
    let log = LogLines::default();
    let server = log.of(primary()).start().unwrap();
    for asked in ["GET key\r\n", "SET key value\r\n", "PING\r\n", "NOSUCH\r\n", "INFO\r\n"] {
        let mut peer = Peer::of(&server);
        peer.send("REPLCONF capa eof\r\n");
        assert_eq!(peer.line(), "+OK");
        peer.send("PSYNC ? -1\r\n");
        assert!(peer.line().starts_with("+FULLRESYNC "));
        take_marked(&mut peer);
        peer.send(asked);
        assert!(peer.is_closed(), "{asked}");
    }
    assert_eq!(log.count("Replica generated a reply to command"), 5);
    assert_eq!(text(&connect(&server).words("GET key")), "null");
}

#[test]
fn peers_that_break_off_anywhere_leave_nothing_behind() {
    let folder = testkit::TempFolder::create();
    let server = primary()
        .setting("dir", folder.path().to_str().unwrap())
        .setting("rdb-key-save-delay", "50")
        .start()
        .unwrap();
    let mut ours = connect(&server);
    ours.words("DEBUG POPULATE 3000 key 1000");
    for bytes in [0, 1, 20, 1_000, 20_000] {
        for words in ["REPLCONF capa eof\r\nPSYNC ? -1\r\n", "SYNC\r\n", "PSYNC x 5\r\n"] {
            let mut peer = Peer::of(&server);
            for line in words.split_inclusive('\n') {
                peer.send(line);
                if line.starts_with("REPLCONF") {
                    assert_eq!(peer.line(), "+OK");
                }
            }
            let mut taken = Vec::new();
            let _ = (&mut peer.0).take(bytes).read_to_end(&mut taken);
        }
    }
    wait_until("all to be forgotten", GENEROUS, || {
        info(&mut ours, "replication", "connected_slaves") == "0"
            && info(&mut ours, "persistence", "rdb_bgsave_in_progress") == "0"
    });
    assert_eq!(text(&ours.words("BGSAVE")), "Background saving started");
}

#[test]
fn a_bad_question_is_answered_with_an_error_and_not_with_everything() {
    let server = primary().start().unwrap();
    let mut peer = Peer::of(&server);
    peer.send("PSYNC ? x\r\n");
    assert_eq!(peer.line(), "-ERR value is not an integer or out of range");
    peer.send("PSYNC ? -1 FAILOVER\r\n");
    assert_eq!(peer.line(), "-ERR PSYNC FAILOVER can't be sent to a master.");
    assert_eq!(info(&mut connect(&server), "stats", "sync_full"), "0");
}
