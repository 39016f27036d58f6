//! The same words to us and to redis-server, written by hand.

use std::collections::BTreeMap;

use store_resp::Reply;
use store_server::Server;
use testkit::{RedisServer, TempFolder};

use crate::connection::Connection;
use crate::script::{Line, Step, agree};

/// Our server and theirs, with connections by name.
pub(crate) struct Pair {
    ours: Server,
    /// Where ours may write; it outlives it.
    folder: TempFolder,
    theirs: RedisServer,
    connections: BTreeMap<String, (Connection, Connection)>,
    /// What CLIENT ID tells on either side.
    ids: BTreeMap<String, (i64, i64)>,
    protocol: u8,
    /// Commands compared so far.
    pub(crate) compared: usize,
    /// Messages set aside on either side, if they are to be.
    pushes: Option<(Vec<Reply>, Vec<Reply>)>,
}

impl Pair {
    pub(crate) fn start(protocol: u8) -> Self {
        let folder = TempFolder::create();
        Self {
            ours: start_ours(&folder),
            folder,
            theirs: RedisServer::builder().args(["--enable-debug-command", "yes"]).start(),
            connections: BTreeMap::new(),
            ids: BTreeMap::new(),
            protocol,
            compared: 0,
            pushes: None,
        }
    }

    /// From now on, messages that nobody asked for are set aside, so that the next reply is always
    /// that of the request: whether a message comes before or after a reply depends on how
    /// quickly requests follow each other.
    pub(crate) fn set_pushes_aside(&mut self) {
        self.pushes = Some(Default::default());
    }

    /// Compares the messages that were set aside, once those on their way have arrived.
    pub(crate) fn compare_pushes(&mut self) -> Result<(), String> {
        for _ in 0..2 {
            self.run(&Line::parse("PING"))?;
        }
        match &self.pushes {
            Some((ours, theirs)) if ours != theirs => {
                let at =
                    ours.iter().zip(theirs).take_while(|(ours, theirs)| ours == theirs).count();
                let (ours, theirs) = (ours.get(at), theirs.get(at));
                Err(format!("message {at}\n    ours   {ours:?}\n    theirs {theirs:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Empty databases on both sides, and no connections.
    pub(crate) fn start_over(&mut self) {
        self.connections.clear();
        self.ours = start_ours(&self.folder);
        let mut theirs = Connection::tcp(self.theirs.port());
        theirs.words("FLUSHALL");
        theirs.words("CONFIG RESETSTAT");
    }

    /// Runs one line and says what differs.
    pub(crate) fn run(&mut self, line: &Line) -> Result<(), String> {
        for index in 0..line.times {
            let words = line.words(index);
            let (our_words, their_words) = self.with_ids(&words);
            let mut pushes = self.pushes.take();
            let (ours, theirs) = self.connection(&line.connection);
            match line.step {
                Step::Blocked(count) => {
                    wait_for_blocked(ours, count, "ours");
                    wait_for_blocked(theirs, count, "theirs");
                }
                Step::OnlyOurs => drop(ours.ask(&our_words)),
                Step::OnlyTheirs => drop(theirs.ask(&their_words)),
                Step::Send => {
                    ours.send(&our_words);
                    theirs.send(&their_words);
                }
                Step::Ask | Step::Receive => {
                    if line.step == Step::Ask {
                        ours.send(&our_words);
                        theirs.send(&their_words);
                    }
                    let (ours, theirs) = match &mut pushes {
                        None => (ours.receive(), theirs.receive()),
                        Some(aside) => {
                            (ours.receive_reply(&mut aside.0), theirs.receive_reply(&mut aside.1))
                        }
                    };
                    self.pushes = pushes.take();
                    self.compared += 1;
                    if !agree(line.comparison, &ours, &theirs) {
                        let text = &line.text;
                        return Err(format!("{text}\n    ours   {ours:?}\n    theirs {theirs:?}"));
                    }
                }
            }
            self.pushes = self.pushes.take().or(pushes);
        }
        Ok(())
    }

    /// Words with `{id:name}` replaced by what CLIENT ID told that connection on either side.
    fn with_ids(&mut self, words: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let mut both = (Vec::new(), Vec::new());
        for word in words {
            let name = std::str::from_utf8(word).ok();
            let name = name.and_then(|text| text.strip_prefix("{id:")?.strip_suffix('}'));
            let ids = name.map(|name| {
                self.connection(name);
                self.ids[name]
            });
            both.0.push(ids.map_or_else(|| word.clone(), |ids| ids.0.to_string().into_bytes()));
            both.1.push(ids.map_or_else(|| word.clone(), |ids| ids.1.to_string().into_bytes()));
        }
        both
    }

    pub(crate) fn connection(&mut self, name: &str) -> &mut (Connection, Connection) {
        if !self.connections.contains_key(name) {
            let port = self.ours.port().expect("our server listens");
            let (mut ours, mut theirs) =
                (Connection::tcp(port), Connection::tcp(self.theirs.port()));
            if self.protocol == 3 {
                ours.words("HELLO 3");
                theirs.words("HELLO 3");
            }
            let ids = (id_of(&mut ours), id_of(&mut theirs));
            self.ids.insert(name.to_owned(), ids);
            self.connections.insert(name.to_owned(), (ours, theirs));
        }
        self.connections.get_mut(name).expect("just inserted")
    }
}

/// A connection that must log in first has no number to tell.
fn id_of(connection: &mut Connection) -> i64 {
    match connection.words("CLIENT ID") {
        Reply::Integer(id) => id,
        _ => -1,
    }
}

/// Waits until the server says that so many clients wait, so that what comes next comes later.
fn wait_for_blocked(connection: &mut Connection, count: usize, side: &str) {
    let wanted = format!("blocked_clients:{count}\r\n");
    testkit::wait_until(&format!("{side}: {wanted}"), testkit::GENEROUS, || {
        match connection.words("INFO clients") {
            Reply::Bulk(text) | Reply::Verbatim(_, text) => {
                String::from_utf8_lossy(&text).contains(&wanted)
            }
            _ => false,
        }
    });
}

fn start_ours(folder: &TempFolder) -> Server {
    let folder = folder.path().to_str().expect("a path of ours is text");
    let builder = Server::builder().any_port().seed(7).setting("dir", folder);
    builder.setting("enable-debug-command", "yes").start().expect("our server starts")
}

/// Runs a case file in both protocols; all differences are shown at once.
fn compare(file: &str, text: &str) {
    let mut differences = Vec::new();
    for protocol in [2, 3] {
        let mut pair = Pair::start(protocol);
        let mut section = String::new();
        for (number, text) in text.lines().enumerate() {
            // The last line is where a test hangs that gets no reply.
            eprintln!("{file}:{} RESP{protocol} {text}", number + 1);
            if let Some(claim) = text.strip_prefix("==") {
                section = claim.trim().to_owned();
                pair.start_over();
            } else if !text.trim().is_empty()
                && !text.starts_with('#')
                && let Err(difference) = pair.run(&Line::parse(text))
            {
                let place = format!("{file}:{} RESP{protocol} ({section})", number + 1);
                differences.push(format!("{place}: {difference}"));
            }
        }
    }
    let count = differences.len();
    assert!(differences.is_empty(), "{count} differences\n{}", differences.join("\n"));
}

macro_rules! cases {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let file = concat!("cases/", stringify!($name), ".txt");
            compare(file, include_str!(concat!("cases/", stringify!($name), ".txt")));
        }
    )*};
}

// One file per family: add yours here.
cases! {
    acl
    admin
    bits
    clients
    config
    connection
    dump
    events
    expire
    geo
    hashes
    hostile
    hyperloglog
    keys
    lists
    memory
    pubsub
    scripting
    sets
    sort
    sorted_sets
    streams
    strings
    tracking
    transactions
}
