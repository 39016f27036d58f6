//! Peers that lie, never read or never end: memory stays within its limits, the log says what was
//! wrong, and everybody else is served.

use std::io::{Read, Write};
use std::net::TcpStream;

use store_server::Server;
use testkit::{GENEROUS, wait_until};

use super::peers::Peer;
use super::support::{
    EMPTY_SNAPSHOT, LogLines, assert_equal, connect, follow, info, primary, scripted_primary, text,
    wait_for_link,
};

/// What this process, and the server in it, may take beside what it had before.
const GROWTH_MAX: usize = 64 * 1024 * 1024;

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A server that follows whoever does `then` behind PSYNC, and what it logs.
fn led_by(mut then: impl FnMut(&mut TcpStream) + Send + 'static) -> (Server, LogLines) {
    let then = move |stream: &mut TcpStream, _: &str| then(stream);
    let lines = LogLines::default();
    let server = lines.of(primary()).start().unwrap();
    let mut client = connect(&server);
    client.words("SET own 1");
    client.words(&format!("REPLICAOF 127.0.0.1 {}", scripted_primary(then)));
    (server, lines)
}

/// A whole sync of nothing, from which the stream goes on.
fn sync_nothing(stream: &mut TcpStream) {
    let (id, len) = ("c".repeat(40), EMPTY_SNAPSHOT.len());
    let head = format!("+FULLRESYNC {id} 7\r\n${len}\r\n");
    let _ = stream.write_all(&[head.as_bytes(), EMPTY_SNAPSHOT].concat());
}

/// Sends the same bytes until the other end has had enough.
fn send_for_ever(stream: &mut TcpStream, bytes: &[u8]) {
    let many = bytes.repeat(65_536 / bytes.len().max(1) + 1);
    while stream.write_all(&many).is_ok() {}
}

#[track_caller]
fn assert_told_and_alive(server: &Server, lines: &LogLines, words: &str, before: usize) {
    wait_until(words, GENEROUS, || lines.count(words) > 0);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes more: {words}");
    let mut client = connect(server);
    assert_eq!(text(&client.words("REPLICAOF NO ONE")), "OK");
    assert_eq!(text(&client.words("SET more 1")), "OK");
}

#[test]
fn a_primary_that_lies_about_lengths_is_left() {
    let lies: [(&[u8], &str); 6] = [
        (b"*2\r\n$3\r\nDEL\r\n$3000000000\r\nxxxx", "longer than a replica takes"),
        (b"*2\r\n$3\r\nDEL\r\n$-7\r\nxxxx", "is not what a master says"),
        (b"*1\r\n$99999999999999999999\r\n", "is not what a master says"),
        (b"*2000000000\r\n$3\r\nDEL\r\n", "longer than a replica takes"),
        (b"*3000000000\r\n$3\r\nDEL\r\n", "is not what a master says"),
        (b"SET a b\r\n", "is not what a master says"),
    ];
    for (lie, words) in lies {
        let before = resident_bytes();
        let (server, lines) = led_by(move |stream| {
            sync_nothing(stream);
            let _ = stream.write_all(lie);
        });
        assert_told_and_alive(&server, &lines, words, before);
    }
}

#[test]
fn a_payload_that_never_ends_is_refused_where_it_should_end() {
    let id = "c".repeat(40);
    let heads = [format!("$EOF:{id}\r\n"), "$9223372036854775807\r\n".to_owned()];
    for head in heads {
        let (id, before) = (id.clone(), resident_bytes());
        let (server, lines) = led_by(move |stream| {
            let _ = stream.write_all(format!("+FULLRESYNC {id} 7\r\n{head}").as_bytes());
            let _ = stream.write_all(EMPTY_SNAPSHOT);
            send_for_ever(stream, b"and so on");
        });
        assert_told_and_alive(&server, &lines, "it goes on behind its end", before);
        assert_eq!(text(&connect(&server).words("GET own")), "1", "the old data stays");
    }
}

#[test]
fn a_primary_that_asks_for_ever_and_never_listens_is_left() {
    let before = resident_bytes();
    let (server, lines) = led_by(|stream| {
        sync_nothing(stream);
        send_for_ever(stream, b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n");
    });
    let mut client = connect(&server);
    wait_until("the link to be given up", GENEROUS, || {
        lines.count("Connection with master lost.") > 0
    });
    assert_eq!(text(&client.words("PING")), "PONG");
    assert_told_and_alive(&server, &lines, "Connection with master lost.", before);
}

#[test]
fn a_primary_that_says_anything_in_the_handshake_is_left() {
    let before = resident_bytes();
    let (server, lines) = led_by(|stream| send_for_ever(stream, b"x"));
    assert_told_and_alive(&server, &lines, "is not what a master says", before);
}

fn ask_for_everything(peer: &mut Peer) {
    peer.send("REPLCONF listening-port 7 capa eof capa psync2\r\n");
    assert_eq!(peer.line(), "+OK");
    peer.send("PSYNC ? -1\r\n");
}

#[test]
fn a_replica_that_floods_and_never_reads_is_closed_by_its_limit() {
    let lines = LogLines::default();
    let builder = primary().setting("client-output-buffer-limit", "replica 64kb 0 0");
    let server = lines.of(builder).setting("repl-backlog-size", "16384").start().unwrap();
    let mut ours = connect(&server);
    let before = resident_bytes();
    let mut peer = Peer::of(&server);
    ask_for_everything(&mut peer);
    let mut flood = peer.0.try_clone().unwrap();
    let flooding = std::thread::spawn(move || {
        // The kernel takes megabytes of replies before the server's limit counts, so each is to be
        // longer than what asks for it.
        let line = "REPLCONF a\r\n".repeat(100) + "PSYNC ? -1\r\n";
        send_for_ever(&mut flood, line.as_bytes());
    });
    wait_until("it to be closed", GENEROUS, || {
        info(&mut ours, "replication", "connected_slaves") == "0"
    });
    flooding.join().unwrap();
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
    assert!(lines.count("Closing client that") > 0);
}

#[test]
fn a_replica_that_confirms_what_there_is_not_is_told_once() {
    let lines = LogLines::default();
    let server = lines.of(primary()).start().unwrap();
    let mut ours = connect(&server);
    let mut peer = Peer::of(&server);
    ask_for_everything(&mut peer);
    for _ in 0..1000 {
        peer.send("REPLCONF ACK 9223372036854775807\r\nREPLCONF ACK -5\r\nREPLCONF ACK x\r\n");
    }
    wait_until("a line", GENEROUS, || lines.count("confirms more than there is") > 0);
    ours.words("SET a 1");
    assert_eq!(text(&ours.words("WAIT 1 100")), "0", "nobody has it");
    assert_eq!(lines.count("confirms more than there is"), 1);
    drop(peer);
    wait_until("it to be gone", GENEROUS, || {
        info(&mut ours, "replication", "connected_slaves") == "0"
    });
}

/// Many who ask for everything and leave at once.
#[test]
fn replicas_that_come_and_go_leave_nothing_behind() {
    let server = primary().start().unwrap();
    let mut ours = connect(&server);
    ours.words("DEBUG POPULATE 2000 key 1000");
    let before = resident_bytes();
    for round in 0..150 {
        let mut peer = Peer::of(&server);
        ask_for_everything(&mut peer);
        if round % 3 == 0 {
            let _ = peer.0.read(&mut [0; 100]);
        }
    }
    wait_until("all to be gone", GENEROUS, || {
        info(&mut ours, "replication", "connected_slaves") == "0"
            && info(&mut ours, "persistence", "rdb_bgsave_in_progress") == "0"
    });
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < GROWTH_MAX, "{grown} bytes more");
}

/// One that waits for a payload which waits for another snapshot, when all data goes for that of
/// the primary.
#[test]
fn a_replica_of_a_replica_may_wait_for_data_that_goes() {
    let top = primary().start().unwrap();
    let folder = testkit::TempFolder::create();
    let middle = primary()
        .setting("dir", folder.path().to_str().unwrap())
        .setting("rdb-key-save-delay", "2000")
        .start()
        .unwrap();
    let (mut above, mut ours) = (connect(&top), connect(&middle));
    above.words("DEBUG POPULATE 20000 key 1000");
    follow(&mut ours, top.port().unwrap());
    wait_for_link(&mut ours);
    ours.words("BGSAVE");
    let mut peer = Peer::of(&middle);
    ask_for_everything(&mut peer);
    wait_until("it to wait", GENEROUS, || {
        info(&mut ours, "replication", "slave0").contains("state=wait_bgsave")
    });
    above.words("DEBUG CHANGE-REPL-ID");
    above.words("CLIENT KILL TYPE replica");
    wait_until("another full sync", GENEROUS, || info(&mut above, "stats", "sync_full") == "2");
    wait_for_link(&mut ours);
    assert_equal(&mut above, &mut ours);
    assert_eq!(info(&mut ours, "replication", "connected_slaves"), "0");
}
