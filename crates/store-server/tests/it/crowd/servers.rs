//! Our server and theirs, each with its files and its connections by name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use store_resp::Reply;
use store_server::{Config, Server};
use testkit::{RedisServer, TempFolder};

use crate::connection::{Arrived, Connection};

/// What keeps the data through a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    Snapshot,
    AppendOnly,
}

/// Enough to see why a server ended.
const LOG_LINES_SHOWN: usize = 30;

/// The connection that asks about the server and takes no part in the crowd.
pub(super) const MAIN: &str = "main";

enum Running {
    Ours { server: Option<Server>, folder: TempFolder },
    Theirs(RedisServer),
}

/// One of the two servers.
pub(super) struct Side {
    pub(super) name: &'static str,
    running: Running,
    files: Files,
    connections: BTreeMap<&'static str, Connection>,
    /// Whose port it is, or was.
    ports: BTreeMap<u16, &'static str>,
    /// What arrived and was not compared yet.
    pub(super) news: BTreeMap<&'static str, Arrived>,
}

impl Side {
    pub(super) fn ours(files: Files) -> Self {
        let folder = TempFolder::create();
        let server = Some(start_ours(folder.path(), files));
        Self::new("ours", Running::Ours { server, folder }, files)
    }

    pub(super) fn theirs(files: Files) -> Self {
        let append_only = if files == Files::AppendOnly { "yes" } else { "no" };
        let server = RedisServer::builder()
            .args(["--enable-debug-command", "yes", "--appendonly", append_only])
            .start();
        Self::new("theirs", Running::Theirs(server), files)
    }

    fn new(name: &'static str, running: Running, files: Files) -> Self {
        let (connections, ports, news) = Default::default();
        Self { name, running, files, connections, ports, news }
    }

    fn port(&self) -> u16 {
        match &self.running {
            Running::Ours { server, .. } => {
                server.as_ref().and_then(Server::port).expect("our server listens")
            }
            Running::Theirs(server) => server.port(),
        }
    }

    fn folder(&self) -> &Path {
        match &self.running {
            Running::Ours { folder, .. } => folder.path(),
            Running::Theirs(server) => server.folder(),
        }
    }

    /// The last lines of its log, where it keeps one.
    pub(super) fn log(&self) -> String {
        match &self.running {
            Running::Ours { .. } => String::new(),
            Running::Theirs(server) => {
                let lines = server.log();
                lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
            }
        }
    }

    /// Where the data lies while the server is down.
    fn data(&self) -> PathBuf {
        self.folder().join(match self.files {
            Files::Snapshot => "dump.rdb",
            Files::AppendOnly => "appendonlydir",
        })
    }

    /// Ends the server by SHUTDOWN; its data is in its files then.
    pub(super) fn shut_down(&mut self) {
        let how = match self.files {
            Files::Snapshot => "SAVE",
            Files::AppendOnly => "NOSAVE",
        };
        let main = self.connection(MAIN);
        main.send(&["SHUTDOWN", how]);
        assert_eq!(main.receive(), None, "a server that shuts down says nothing");
        self.connections.clear();
        self.news.clear();
        self.ports.clear();
        match &mut self.running {
            Running::Ours { server, .. } => {
                server.take().expect("it runs").wait().expect("its loop ends well");
            }
            Running::Theirs(server) => server.kill(),
        }
    }

    /// Takes the data away, as a disk might. The server is down.
    pub(super) fn lose_files(&self) {
        let data = self.data();
        match self.files {
            Files::Snapshot => std::fs::remove_file(data),
            Files::AppendOnly => std::fs::remove_dir_all(data),
        }
        .expect("the data was there");
    }

    pub(super) fn start_again(&mut self) {
        match &mut self.running {
            Running::Ours { server, folder } => {
                *server = Some(start_ours(folder.path(), self.files));
            }
            Running::Theirs(server) => server.restart(),
        }
    }

    pub(super) fn is_open(&self, name: &str) -> bool {
        self.connections.contains_key(name)
    }

    /// The connection of this name; it is opened when it is not.
    pub(super) fn connection(&mut self, name: &'static str) -> &mut Connection {
        let port = self.port();
        self.connections.entry(name).or_insert_with(|| {
            let connection = Connection::tcp(port);
            self.ports.insert(connection.local_port(), name);
            connection
        })
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.connections.remove(name);
        self.news.remove(name);
    }

    /// Asks on the main connection.
    pub(super) fn ask(&mut self, words: &[impl AsRef<[u8]>]) -> Reply {
        let name = self.name;
        let reply = self.connection(MAIN).ask(words);
        reply.unwrap_or_else(|| panic!("{name}: the main connection was closed"))
    }

    pub(super) fn ask_line(&mut self, line: &str) -> Reply {
        self.ask(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// The number that the server gave to a connection.
    pub(super) fn id(&mut self, name: &'static str) -> i64 {
        match self.connection(name).words("CLIENT ID") {
            Reply::Integer(id) => id,
            other => panic!("{}: {name} has no number but {other:?}", self.name),
        }
    }

    /// Adds what has arrived for a connection to its news.
    pub(super) fn listen(&mut self, name: &'static str) {
        let Some(connection) = self.connections.get_mut(name) else { return };
        let arrived = connection.arrived();
        let replies: Vec<Reply> =
            arrived.replies.iter().filter_map(|reply| self.told_by_monitor(reply)).collect();
        let news = self.news.entry(name).or_default();
        news.is_closed |= arrived.is_closed;
        news.replies.extend(replies);
    }

    /// A line of MONITOR without moments and ports, and none at all about the main connection,
    /// which asks between any two requests. Everything else stays as it is.
    fn told_by_monitor(&self, reply: &Reply) -> Option<Reply> {
        let Reply::Simple(line) = reply else { return Some(reply.clone()) };
        let Some((moment, rest)) = line.split_once(" [") else { return Some(reply.clone()) };
        if moment.parse::<f64>().is_err() {
            return Some(reply.clone());
        }
        let line = self.with_names(&format!("[{rest}"));
        (!line.contains("@main]")).then_some(Reply::Simple(line))
    }

    /// A text with the names of connections in place of their addresses.
    pub(super) fn with_names(&self, text: &str) -> String {
        const HOST: &str = "127.0.0.1:";
        let mut named = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(HOST) {
            named.push_str(&rest[..at]);
            rest = &rest[at + HOST.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let port: u16 = rest[..end].parse().unwrap_or(0);
            match self.ports.get(&port) {
                Some(name) => named.push_str(&format!("@{name}")),
                None if port == self.port() => named.push_str("@server"),
                None => named.push_str("@somebody"),
            }
            rest = &rest[end..];
        }
        named + rest
    }
}

/// Each server gets the other's files. Both are down.
pub(super) fn swap_files(ours: &Side, theirs: &Side) {
    let (ours, theirs) = (ours.data(), theirs.data());
    let aside = ours.with_extension("aside");
    for (from, to) in [(&ours, &aside), (&theirs, &ours), (&aside, &theirs)] {
        std::fs::rename(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
}

fn start_ours(folder: &Path, files: Files) -> Server {
    let dir = folder.to_str().expect("a path of ours is text");
    let append_only = if files == Files::AppendOnly { "yes" } else { "no" };
    Server::builder()
        .config(Config::default())
        .any_port()
        .seed(7)
        .setting("save", "")
        .setting("dir", dir)
        .setting("appendonly", append_only)
        .setting("enable-debug-command", "yes")
        .start()
        .expect("our server starts")
}
