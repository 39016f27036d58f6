//! Our server as the replica of a real redis-server.

mod bad;
mod bytes;
mod chain;
mod cuts;
mod diskless;
mod follow;
mod history;
mod odd_values;
mod refused;
mod rules;

use std::sync::{Arc, Mutex};

use store_resp::Reply;
use store_server::{Server, ServerBuilder};
use testkit::RedisServer;
use testkit::TempFolder;

use crate::connection::Connection;

/// A real primary that does not wait for more replicas.
fn primary() -> RedisServer {
    RedisServer::builder()
        .args(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "yes"])
        .start()
}

/// Ours, with what it logged.
struct Ours {
    server: Server,
    connection: Connection,
    lines: Arc<Mutex<Vec<String>>>,
    _folder: TempFolder,
}

impl Ours {
    fn start() -> Self {
        Self::start_with(|builder| builder)
    }

    fn start_with(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let folder = TempFolder::create();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&lines);
        let builder = Server::builder()
            .any_port()
            .setting("dir", folder.path().to_str().unwrap())
            .setting("enable-debug-command", "yes")
            .log(move |_, line| log.lock().unwrap().push(line.to_owned()));
        let server = change(builder).start().unwrap();
        let connection = Connection::unix(server.connect().unwrap());
        Self { server, connection, lines, _folder: folder }
    }

    /// Ours, in step with a primary at `port`.
    fn following(port: u16) -> Self {
        let mut ours = Self::start();
        ours.follow(port);
        ours.wait_for("master_link_status", "up");
        ours
    }

    fn follow(&mut self, port: u16) {
        assert_eq!(self.words(&format!("REPLICAOF 127.0.0.1 {port}")), ok());
    }

    fn words(&mut self, line: &str) -> Reply {
        self.connection.words(line)
    }

    fn ask(&mut self, words: &[&str]) -> Reply {
        self.connection.ask(words).expect("the connection stays open")
    }

    fn another_connection(&self) -> Connection {
        Connection::unix(self.server.connect().unwrap())
    }

    fn fact(&mut self, name: &str) -> String {
        fact(&mut self.connection, name).unwrap_or_else(|| panic!("INFO has no {name}"))
    }

    fn wait_for(&mut self, name: &str, wanted: &str) {
        testkit::wait_until(&format!("{name}:{wanted}"), testkit::GENEROUS, || {
            fact(&mut self.connection, name).as_deref() == Some(wanted)
        });
    }

    fn has_logged(&self, text: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// Waits until it has all that the primary has, and holds the same.
    fn wait_until_equal(&mut self, theirs: &RedisServer) {
        testkit::wait_until("the offset of the primary", testkit::GENEROUS, || {
            let offset = their_fact(theirs, "master_repl_offset");
            fact(&mut self.connection, "slave_repl_offset").as_deref() == Some(&offset)
                && fact(&mut self.connection, "master_link_status").as_deref() == Some("up")
        });
        testkit::wait_until("the same data", testkit::GENEROUS, || {
            let digest = Reply::Simple(theirs.cli(&["DEBUG", "DIGEST"]));
            self.connection.words("DEBUG DIGEST") == digest
        });
    }
}

/// One fact of INFO; none while data is loaded and INFO says so.
fn fact(connection: &mut Connection, name: &str) -> Option<String> {
    let (Reply::Bulk(text) | Reply::Verbatim(_, text)) = connection.words("INFO everything") else {
        return None;
    };
    let text = String::from_utf8(text).unwrap();
    let prefix = format!("{name}:");
    text.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
}

fn their_fact(server: &RedisServer, name: &str) -> String {
    let text = server.cli(&["INFO", "everything"]);
    let prefix = format!("{name}:");
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&prefix).map(str::to_owned));
    line.unwrap_or_default()
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn error(text: &str) -> Reply {
    Reply::Error(text.into())
}
