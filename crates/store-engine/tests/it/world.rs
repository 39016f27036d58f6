//! An engine, a moment, and sessions by name.

use std::collections::BTreeMap;

use store_engine::{
    Config, Engine, Identity, NextTick, NoPlatform, Origin, SessionId, Unit, parse_arguments,
};
use store_resp::{OwnedRequest, Reply, ReplyParser, Request};
use testkit::Random;

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) now_ms: u64,
    sessions: BTreeMap<String, SessionId>,
}

impl World {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::configured(seed, &[])
    }

    pub(crate) fn configured(seed: u64, settings: &[&str]) -> Self {
        let mut config = Config::default();
        let settings: Vec<String> = settings.iter().map(|word| (*word).to_owned()).collect();
        parse_arguments(&mut config, &settings).unwrap();
        let engine = Engine::new(config, Identity::default(), seed, Box::new(NoPlatform));
        Self { engine, now_ms: 1_000_000, sessions: BTreeMap::new() }
    }

    pub(crate) fn session(&mut self, name: &str) -> SessionId {
        if let Some(id) = self.sessions.get(name) {
            return *id;
        }
        let id = self.engine.open_session(self.now_ms * 1000, Origin::default());
        self.sessions.insert(name.to_owned(), id);
        id
    }

    /// Runs a line of words on the session `main`.
    pub(crate) fn run(&mut self, line: &str) -> Reply {
        self.run_as("main", line)
    }

    pub(crate) fn run_as(&mut self, name: &str, line: &str) -> Reply {
        let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
        self.execute(name, request.as_request());
        self.take_reply(name).expect("every request has a reply")
    }

    /// Runs a line that may leave the session waiting, unless it waits already.
    pub(crate) fn send(&mut self, name: &str, line: &str) {
        let id = self.session(name);
        let waits = |world: &mut Self| {
            world.engine.session_mut(id).is_some_and(|session| session.blocked.is_some())
        };
        if !waits(self) {
            self.engine.session_mut(id).unwrap().output.clear();
            let request = OwnedRequest::from_args(line.split(' ').map(str::as_bytes));
            self.execute(name, request.as_request());
        }
    }

    pub(crate) fn execute(&mut self, name: &str, request: Request<'_>) {
        let id = self.session(name);
        self.engine.execute(self.now_ms * 1000, id, request);
        self.engine.finish(Some((id, request)), 1);
    }

    pub(crate) fn take_reply(&mut self, name: &str) -> Option<Reply> {
        let id = self.session(name);
        let output = &mut self.engine.session_mut(id)?.output;
        let (reply, used) = ReplyParser.parse(&output.to_vec()).unwrap()?;
        output.advance(used);
        Some(reply)
    }

    pub(crate) fn close(&mut self, name: &str) {
        if let Some(id) = self.sessions.remove(name) {
            self.engine.close_session(id);
        }
    }

    /// Lets time pass, with as many ticks as the engine asks for.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        for _ in 0..1000 {
            if self.engine.tick(self.now_ms * 1000) != NextTick::Soon {
                return;
            }
        }
        panic!("the engine always wants another tick");
    }

    pub(crate) fn take_units(&mut self) -> Vec<Unit> {
        std::mem::take(self.engine.units())
    }

    /// All keys of all databases with values and expiries, in order.
    pub(crate) fn contents(&mut self) -> Vec<String> {
        let mut contents = Vec::new();
        for db in 0..16 {
            self.run_as("reader", &format!("SELECT {db}"));
            let Reply::Array(keys) = self.run_as("reader", "KEYS *") else { panic!("no array") };
            for key in keys {
                let Reply::Bulk(key) = key else { panic!("no key") };
                let ask = |world: &mut Self, word: &str, options: &str| {
                    let options = options.split_whitespace().map(str::as_bytes);
                    let words = [word.as_bytes(), key.as_slice()].into_iter().chain(options);
                    let request = OwnedRequest::from_args(words);
                    world.execute("reader", request.as_request());
                    world.take_reply("reader").unwrap()
                };
                let Reply::Simple(kind) = ask(self, "TYPE", "") else { panic!("no kind") };
                let value = match kind.as_str() {
                    "list" => ask(self, "LRANGE", "0 -1"),
                    "hash" => sorted(ask(self, "HGETALL", ""), 2),
                    "set" => sorted(ask(self, "SMEMBERS", ""), 1),
                    "zset" => ask(self, "ZRANGE", "0 -1 WITHSCORES"),
                    "stream" => self.stream(&key),
                    _ => ask(self, "GET", ""),
                };
                let ends = ask(self, "PEXPIRETIME", "");
                contents.push(format!("{db} {} {value:?} {ends:?}", key.escape_ascii()));
            }
        }
        contents.sort();
        contents
    }

    /// All of a stream but how it lies in memory, and when consumers were last seen: the one
    /// thing that is not propagated.
    fn stream(&mut self, key: &[u8]) -> Reply {
        let words = [&b"XINFO"[..], b"STREAM", key, b"FULL", b"COUNT", b"0"];
        let request = OwnedRequest::from_args(words);
        self.execute("reader", request.as_request());
        let reply = self.take_reply("reader").unwrap();
        without(&["seen-time", "radix-tree-keys", "radix-tree-nodes"], reply)
    }
}

/// The reply without the values behind these names, wherever they stand.
fn without(names: &[&str], reply: Reply) -> Reply {
    let Reply::Array(items) = reply else { return reply };
    let mut kept = Vec::new();
    let mut items = items.into_iter();
    while let Some(item) = items.next() {
        if names.iter().any(|name| item == bulk(name)) {
            items.next();
        } else {
            kept.push(without(names, item));
        }
    }
    Reply::Array(kept)
}

/// A line after one of the templates, in which `{k}` stands for a key, `{n}` for a small number and
/// `{a|b}` for a or b.
pub(crate) fn made_up(random: &mut Random, templates: &[&str]) -> String {
    let mut line = (*random.choose(templates)).to_owned();
    while let Some(start) = line.find('{') {
        let end = start + line[start..].find('}').expect("balanced");
        let choice = match &line[start + 1..end] {
            "k" => (*random.choose(&["a", "b", "c"])).to_owned(),
            "n" => random.in_range(1..20).to_string(),
            choices => (*random.choose(&choices.split('|').collect::<Vec<_>>())).to_owned(),
        };
        line.replace_range(start..=end, &choice);
    }
    line
}

/// An array of groups of `size` replies, with the groups in order.
fn sorted(reply: Reply, size: usize) -> Reply {
    let Reply::Array(items) = reply else { panic!("no array") };
    let mut groups: Vec<Vec<Reply>> = items.chunks(size).map(<[Reply]>::to_vec).collect();
    groups.sort_by_key(|group| format!("{group:?}"));
    Reply::Array(groups.concat())
}

pub(crate) fn ok() -> Reply {
    Reply::Simple("OK".into())
}

pub(crate) fn bulk(text: &str) -> Reply {
    Reply::Bulk(text.as_bytes().to_vec())
}
