//! A real server that plays a story.

use std::collections::{BTreeMap, HashMap};

use redis::{Arg, Connection, Value};
use tenure_core::ServerTime;
use tenure_core::memory_store::{ForeignCommand, Life, Shown};
use tenure_core::protocol::{Answer, Call};

use super::{Event, Seen};
use crate::scripts::Script;
use crate::{hint, reply, request};

/// How far expiries lie ahead of the story's clock on a real server, in milliseconds.
const AHEAD: i64 = 1_000_000_000_000;
const STAGE: &str = include_str!("stage.lua");

/// Every key with its type, expiry and content, in one look.
const SHOW: &str = r"
local shown = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind, content = redis.call('TYPE', key)['ok'], {}
  if kind == 'string' then content = { redis.call('GET', key), '' }
  elseif kind == 'hash' then content = redis.call('HGETALL', key)
  elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'stream' then content = redis.call('XRANGE', key, '-', '+') end
  shown[#shown + 1] = { key, kind, redis.call('PEXPIRETIME', key), content }
end
return shown";

/// Everything that a server kept at one moment.
pub(super) type Saved = Vec<(Vec<u8>, Vec<u8>, i64)>;

pub(super) struct Real {
    name: &'static str,
    connection: Connection,
    is_own: bool,
    changes: &'static [(&'static str, &'static str)],
    digests: HashMap<Script, String>,
}

impl Real {
    pub(super) fn new(
        name: &'static str,
        address: &str,
        is_own: bool,
        changes: &'static [(&'static str, &'static str)],
    ) -> Self {
        let client = redis::Client::open(address).expect("a sound address");
        let connection = client.get_connection().expect("the server answers");
        Real { name, connection, is_own, changes, digests: HashMap::new() }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn is_own(&self) -> bool {
        self.is_own
    }

    pub(super) fn begin(&mut self) {
        self.ask::<()>(redis::cmd("FLUSHALL"));
    }

    fn ask<T: redis::FromRedisValue>(&mut self, command: redis::Cmd) -> T {
        command.query(&mut self.connection).expect("a plain command succeeds")
    }

    /// The digest of a script behind its stage.
    fn digest(&mut self, script: Script) -> String {
        if let Some(digest) = self.digests.get(&script) {
            return digest.clone();
        }
        let mut source = script.source().to_owned();
        for (from, to) in self.changes {
            source = source.replace(from, to);
        }
        let text = format!("{STAGE}{source}\nend\nreturn {{ script(), heard }}");
        let digest: String = self.ask(redis::cmd("SCRIPT").arg("LOAD").arg(text).clone());
        self.digests.insert(script, digest.clone());
        digest
    }

    pub(super) fn play(&mut self, event: &Event, now: ServerTime, life: &Life) -> Seen {
        let (mut answer, mut hints) = (None, Vec::new());
        match event {
            Event::Foreign(word) => self.give(word, now),
            Event::Call { call, read_only } => {
                let mut heard = Vec::new();
                answer = Some(self.call(call, now, life, *read_only, &mut heard));
                hints = heard.iter().filter_map(|message| hint::parse(message)).collect();
                assert_eq!(hints.len(), heard.len(), "a hint that nobody understands");
            }
            Event::Save | Event::PutBack(_) | Event::Live(_) => {}
        }
        Seen { answer, hints, keys: self.show() }
    }

    fn call(
        &mut self,
        call: &Call,
        now: ServerTime,
        life: &Life,
        read_only: bool,
        heard: &mut Vec<Vec<u8>>,
    ) -> Result<Answer, &'static str> {
        let steps = request::steps(call, || 7).expect("the store can do that");
        let stage = stage(now, life, read_only);
        let mut first: Option<Answer> = None;
        for step in steps {
            let mut command = redis::cmd("EVALSHA");
            command.arg(self.digest(step.script));
            for word in step.command(false, "").args_iter().skip(2) {
                if let Arg::Simple(word) = word {
                    command.arg(word);
                }
            }
            command.arg(&stage);
            let value: Value = match command.query(&mut self.connection) {
                Ok(value) => value,
                Err(error) if says_read_only(&error) => return Err("READONLY"),
                Err(error) => panic!("{:?} failed: {error}\n{call:?}", step.script),
            };
            let Value::Array(parts) = value else { panic!("{value:?} is no staged reply") };
            let [told, published] = &parts[..] else { panic!("{parts:?} is no staged reply") };
            if let Value::ServerError(error) = told {
                assert!(says_read_only(error), "{error:?}\n{call:?}");
                return Err("READONLY");
            }
            heard.extend(texts(published));
            let answer = reply::parse(&call.request, told)
                .unwrap_or_else(|fault| panic!("{fault}: {told:?}\n{call:?}"));
            match &mut first {
                None => first = Some(answer),
                Some(first) => first.warnings.extend(answer.warnings),
            }
        }
        let mut answer = first.expect("every call has a step");
        answer.warnings.iter_mut().for_each(cut_server_words);
        Ok(answer)
    }

    fn give(&mut self, word: &ForeignCommand, now: ServerTime) {
        let ends = |ttl: &i64| AHEAD + millis(now) + ttl;
        let mut command = redis::Cmd::new();
        match word {
            ForeignCommand::Set(key, value, ttl) => {
                command.arg("SET").arg(key).arg(value);
                if let Some(ttl) = ttl {
                    command.arg("PXAT").arg(ends(ttl));
                }
            }
            ForeignCommand::Del(key) => drop(command.arg("DEL").arg(key)),
            ForeignCommand::Expire(key, ttl) => {
                command.arg("PEXPIREAT").arg(key).arg(ends(ttl));
            }
            ForeignCommand::SetField(key, field, value) => {
                command.arg("HSET").arg(key).arg(field).arg(value);
            }
            ForeignCommand::DelField(key, field) => drop(command.arg("HDEL").arg(key).arg(field)),
            ForeignCommand::AddScore(key, score, member) => {
                command.arg("ZADD").arg(key).arg(score).arg(member);
            }
            ForeignCommand::AddEntry(key, field, value) => {
                command.arg("XADD").arg(key).arg("*").arg(field).arg(value);
            }
        }
        // What does not fit the type of the key changes nothing, here as there.
        let _: Result<Value, _> = command.query(&mut self.connection);
    }

    pub(super) fn remove_expired(&mut self, now: ServerTime) {
        for (key, shown) in self.show() {
            if shown.expires_at.is_some_and(|ends| millis(now) > ends) {
                self.ask::<()>(redis::cmd("DEL").arg(key).clone());
            }
        }
    }

    fn show(&mut self) -> BTreeMap<String, Shown> {
        let shown: Value = self.ask(redis::cmd("EVAL").arg(SHOW).arg(0).clone());
        let Value::Array(keys) = shown else { panic!("{shown:?} is no list of keys") };
        keys.iter().map(parse_shown).collect()
    }

    pub(super) fn save(&mut self) -> Saved {
        let keys: Vec<Vec<u8>> = self.ask(redis::cmd("KEYS").arg("*").clone());
        let with_content = |key: Vec<u8>| {
            let dump: Vec<u8> = self.ask(redis::cmd("DUMP").arg(&key).clone());
            let ends: i64 = self.ask(redis::cmd("PEXPIRETIME").arg(&key).clone());
            (key, dump, ends)
        };
        keys.into_iter().map(with_content).collect()
    }

    pub(super) fn put_back(&mut self, saved: &Saved) {
        self.begin();
        for (key, dump, ends) in saved {
            let mut command = redis::cmd("RESTORE");
            command.arg(key).arg((*ends).max(0)).arg(dump).arg("ABSTTL");
            self.ask::<()>(command);
        }
    }
}

/// What `stage.lua` is told of the moment.
fn stage(now: ServerTime, life: &Life, read_only: bool) -> String {
    let (run, uptime) = (&life.run, life.uptime_seconds(now));
    let history = if life.history_is_complete { "complete" } else { "unknown" };
    let server = match life.replication.is_empty() {
        true => format!(
            "# Server\r\nuptime_in_seconds:{uptime}\r\ntenure_incarnation:{run}\r\n\
             tenure_history:{history}\r\n"
        ),
        false => format!("# Server\r\nrun_id:{run}\r\nuptime_in_seconds:{uptime}\r\n"),
    };
    let role = if read_only { "slave" } else { "master" };
    let before = if life.failed_over { "abc" } else { "000" };
    let replication = format!(
        "# Replication\r\nrole:{role}\r\nmaster_replid:{}\r\nmaster_replid2:{before}\r\n",
        life.replication
    );
    serde_json::json!({
        "now": now.0, "ahead": AHEAD, "read_only": read_only, "server": server,
        "replication": replication,
    })
    .to_string()
}

fn millis(now: ServerTime) -> i64 {
    i64::try_from(now.as_millis()).expect("years to come")
}

fn says_read_only(error: &impl std::fmt::Debug) -> bool {
    format!("{error:?}").to_uppercase().contains("READONLY")
}

/// Servers say more behind the code of an error, each in its own way.
fn cut_server_words(warning: &mut String) {
    for tail in [" script:", ", on @"] {
        if let Some(at) = warning.find(tail) {
            warning.truncate(at);
        }
    }
}

fn texts(value: &Value) -> Vec<Vec<u8>> {
    match value {
        Value::Array(parts) => parts.iter().flat_map(texts).collect(),
        Value::BulkString(bytes) => vec![bytes.clone()],
        other => panic!("{other:?} is no text"),
    }
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(&texts(value).concat()).into_owned()
}

fn parse_shown(value: &Value) -> (String, Shown) {
    let Value::Array(parts) = value else { panic!("{value:?} is no key") };
    let [key, kind, Value::Int(ends), content] = &parts[..] else { panic!("{parts:?} is no key") };
    let kind = text(kind);
    let mut elements: Vec<(String, String)> = match (&*kind, content) {
        ("stream", Value::Array(entries)) => entries.iter().map(parse_entry).collect(),
        _ => pairs(content),
    };
    if kind == "hash" || kind == "zset" {
        elements.sort();
    }
    let expires_at = (*ends >= 0).then(|| ends - AHEAD);
    (text(key), Shown { kind, elements, expires_at })
}

fn parse_entry(entry: &Value) -> (String, String) {
    let Value::Array(parts) = entry else { panic!("{entry:?} is no entry") };
    (format!("{:?}", pairs(&parts[1])), String::new())
}

fn pairs(value: &Value) -> Vec<(String, String)> {
    let texts: Vec<String> =
        texts(value).iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
}
