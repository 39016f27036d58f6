//! Servers that follow each other, and what is the same on both in the end.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use store_resp::Reply;
use store_server::{Server, ServerBuilder};
use testkit::{GENEROUS, RedisServer, ServerProgram, wait_until};

use crate::connection::Connection;

/// One of ours that takes replicas at once.
pub(crate) fn primary() -> ServerBuilder {
    Server::builder()
        .any_port()
        .seed(7)
        .setting("enable-debug-command", "yes")
        .setting("repl-diskless-sync-delay", "0")
        .setting("repl-ping-replica-period", "1")
}

pub(crate) fn connect(server: &Server) -> Connection {
    Connection::tcp(server.port().unwrap())
}

/// What a server logs.
#[derive(Clone, Default)]
pub(crate) struct LogLines(Arc<Mutex<Vec<String>>>);

impl LogLines {
    pub(crate) fn of(&self, builder: ServerBuilder) -> ServerBuilder {
        let lines = self.clone();
        builder.log(move |_, line| lines.0.lock().unwrap().push(line.to_owned()))
    }

    pub(crate) fn count(&self, part: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }
}

/// A redis-server that follows a port.
pub(crate) fn follower(port: u16, arguments: &[&str]) -> RedisServer {
    RedisServer::builder()
        .program(ServerProgram::new("redis-server"))
        .args(["--replicaof", "127.0.0.1", &port.to_string(), "--enable-debug-command", "yes"])
        .args(arguments)
        .start()
}

pub(crate) fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Simple(text) => text.clone(),
        Reply::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// A field of INFO; empty when it is not there.
pub(crate) fn info(connection: &mut Connection, section: &str, name: &str) -> String {
    let all = text(&connection.words(&format!("INFO {section}")));
    let found = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_default().to_owned()
}

pub(crate) fn follow(replica: &mut Connection, port: u16) {
    assert_eq!(text(&replica.words(&format!("REPLICAOF 127.0.0.1 {port}"))), "OK");
}

/// So many replicas get the stream, and have confirmed a write.
pub(crate) fn wait_for_online(primary: &mut Connection, count: usize) {
    primary.words("SET online 1");
    let confirmed = text(&primary.words(&format!("WAIT {count} 30000")));
    assert_eq!(confirmed, count.to_string());
}

pub(crate) fn wait_for_link(replica: &mut Connection) {
    wait_until("the replica to follow", GENEROUS, || {
        info(replica, "replication", "master_link_status") == "up"
    });
}

/// The replica has all of it: the same offset, and the same data in every database.
#[track_caller]
pub(crate) fn assert_equal(primary: &mut Connection, replica: &mut Connection) {
    primary.words("CONFIG SET repl-ping-replica-period 1000");
    let mut digests = (String::new(), String::new());
    wait_until("the replica to have everything", GENEROUS, || {
        let offset = info(primary, "replication", "master_repl_offset");
        if offset != info(replica, "replication", "slave_repl_offset") {
            return false;
        }
        digests = (text(&primary.words("DEBUG DIGEST")), text(&replica.words("DEBUG DIGEST")));
        // Keys that end move the stream while one looks.
        offset == info(primary, "replication", "master_repl_offset")
            && info(replica, "replication", "master_link_status") == "up"
    });
    assert_eq!(digests.0, digests.1, "the data differs");
    let id = info(primary, "replication", "master_replid");
    assert_eq!(id, info(replica, "replication", "master_replid"));
}

/// Speaks as a primary up to PSYNC, again and again; `then` says what follows, and is told the
/// offset that was asked for.
pub(crate) fn scripted_primary(mut then: impl FnMut(&mut TcpStream, &str) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut heard, mut answered) = (Vec::new(), 0);
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                heard.extend_from_slice(&buffer[..count]);
                let text = String::from_utf8_lossy(&heard).into_owned();
                let asked = text.matches("PING").count() + text.matches("REPLCONF").count();
                (answered..asked).for_each(|_| _ = stream.write_all(b"+OK\r\n"));
                answered = asked;
                let psync = text.split_once("PSYNC").filter(|(_, rest)| rest.lines().count() > 4);
                if let Some((_, rest)) = psync {
                    then(&mut stream, rest.lines().nth(4).unwrap());
                    // What it confirms is not answered.
                    while matches!(stream.read(&mut buffer), Ok(1..)) {}
                }
            }
        }
    });
    port
}

/// A snapshot without keys.
pub(crate) const EMPTY_SNAPSHOT: &[u8] = b"REDIS0010\xff\0\0\0\0\0\0\0\0";
