//! Servers that follow each other, and what is the same on both in the end.

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
