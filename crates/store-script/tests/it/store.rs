//! Our interpreter behind the commands that a server has, so that tests speak in commands.

use std::collections::BTreeMap;

use store_script::{
    AclAnswer, Digest, Existing, Host, Interpreter, Invocation, Limits, LogLevel, NO_FUNCTION,
    NO_SCRIPT, Origin, Protocol, Replication, ScriptOutcome, Tick,
};

use crate::real::Real;

/// A host with no server: answers PING, GET and SET, and refuses the rest.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) keys: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) calls: Vec<Vec<Vec<u8>>>,
    pub(crate) log: Vec<(LogLevel, Vec<u8>)>,
    pub(crate) replication: Option<Replication>,
    pub(crate) ticks: u32,
    /// The tick at which the running script is killed.
    pub(crate) kill_at: Option<u32>,
    /// Every call and tick panics.
    pub(crate) panics: bool,
    /// Commands that the caller may not run.
    pub(crate) denied: Vec<Vec<u8>>,
}

impl Host for Memory {
    fn call(&mut self, arguments: &[&[u8]], _: Protocol, reply: &mut Vec<u8>) {
        assert!(!self.panics, "the host fell over");
        self.calls.push(arguments.iter().map(|word| word.to_vec()).collect());
        let name = arguments[0].to_ascii_lowercase();
        if self.denied.contains(&name) {
            reply.extend_from_slice(b"-NOPERM this user has no permissions to run it\r\n");
            return;
        }
        match (name.as_slice(), &arguments[1..]) {
            (b"ping", []) => reply.extend_from_slice(b"+PONG\r\n"),
            (b"set", [key, value]) => {
                self.keys.insert(key.to_vec(), value.to_vec());
                reply.extend_from_slice(b"+OK\r\n");
            }
            (b"get", [key]) => match self.keys.get(*key) {
                Some(value) => {
                    reply.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
                    reply.extend_from_slice(value);
                    reply.extend_from_slice(b"\r\n");
                }
                None => reply.extend_from_slice(b"$-1\r\n"),
            },
            _ => reply.extend_from_slice(b"-ERR Unknown Redis command called from script\r\n"),
        }
    }

    fn acl_check(&mut self, arguments: &[&[u8]]) -> AclAnswer {
        match self.denied.contains(&arguments[0].to_ascii_lowercase()) {
            true => AclAnswer::Denied,
            false => AclAnswer::Allowed,
        }
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        self.log.push((level, text.to_vec()));
    }

    fn set_replication(&mut self, replication: Replication) {
        self.replication = Some(replication);
    }

    fn tick(&mut self) -> Tick {
        self.ticks += 1;
        assert!(!self.panics, "the host fell over");
        match self.kill_at {
            Some(at) if self.ticks >= at => Tick::Kill,
            _ => Tick::Continue,
        }
    }
}

/// A host whose commands run on a real server.
pub(crate) struct Relay {
    real: Real,
    protocol: Protocol,
}

impl Relay {
    pub(crate) fn start() -> Self {
        Self { real: Real::start(), protocol: Protocol::Resp2 }
    }
}

/// Commands that scripts may not call.
const NOT_FROM_SCRIPTS: [&[u8]; 7] =
    [b"eval", b"debug", b"subscribe", b"multi", b"script", b"client", b"blpop"];

impl Host for Relay {
    fn call(&mut self, arguments: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>) {
        if NOT_FROM_SCRIPTS.contains(&arguments[0].to_ascii_lowercase().as_slice()) {
            reply.extend_from_slice(b"-ERR This Redis command is not allowed from script\r\n");
            return;
        }
        if protocol != self.protocol {
            let version: &[u8] = if protocol == Protocol::Resp3 { b"3" } else { b"2" };
            self.real.ask(&[b"HELLO", version]);
            self.protocol = protocol;
        }
        let answer = self.real.ask(arguments);
        // Redis has other words for scripts.
        if answer.starts_with(b"-ERR unknown command") {
            reply.extend_from_slice(b"-ERR Unknown Redis command called from script\r\n");
        } else if answer.starts_with(b"-ERR wrong number of arguments") {
            let text = b"-ERR Wrong number of args calling Redis command from script\r\n";
            reply.extend_from_slice(text);
        } else {
            reply.extend_from_slice(&answer);
        }
    }

    fn acl_check(&mut self, arguments: &[&[u8]]) -> AclAnswer {
        let answer = self.real.ask(&[b"COMMAND", b"INFO", arguments[0]]);
        match [&b"*1\r\n*-1\r\n"[..], b"*1\r\n_\r\n", b"*1\r\n$-1\r\n"].contains(&answer.as_slice())
        {
            true => AclAnswer::UnknownCommand,
            false => AclAnswer::Allowed,
        }
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_replication(&mut self, _: Replication) {}

    fn tick(&mut self) -> Tick {
        Tick::Continue
    }
}

/// A server made of the interpreter and a host.
pub(crate) struct Store<H> {
    pub(crate) interpreter: Interpreter,
    pub(crate) host: H,
    pub(crate) protocol: Protocol,
    pub(crate) outcome: Option<ScriptOutcome>,
}

impl<H: Host> Store<H> {
    pub(crate) fn new(host: H) -> Self {
        Self::with_limits(host, Limits::default())
    }

    pub(crate) fn with_limits(host: H, limits: Limits) -> Self {
        let interpreter = Interpreter::new(limits);
        Self { interpreter, host, protocol: Protocol::Resp2, outcome: None }
    }

    /// EVAL without keys.
    pub(crate) fn eval(&mut self, code: impl AsRef<[u8]>) -> String {
        show(&self.ask(&[b"EVAL", code.as_ref(), b"0"]))
    }

    /// The reply to one of the commands that end in the interpreter.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        match (words[0], words[1]) {
            (b"EVAL", code) => match self.interpreter.load_script(code, Origin::Evaluated) {
                Ok(digest) => self.run(&digest, &words[2..]),
                Err(error) => line(error),
            },
            (b"EVALSHA", digest) => match Digest::parse(digest) {
                Some(digest) => self.run(&digest, &words[2..]),
                None => line(NO_SCRIPT),
            },
            (b"SCRIPT", b"LOAD") => match self.interpreter.load_script(words[2], Origin::Loaded) {
                Ok(digest) => bulk(&digest.to_string()),
                Err(error) => line(error),
            },
            (b"FUNCTION", b"LOAD") => {
                let (existing, code) = match words[2] {
                    b"REPLACE" => (Existing::Replace, words[3]),
                    code => (Existing::Refuse, code),
                };
                match self.interpreter.load_library(code, existing, &mut self.host) {
                    Ok(name) => bulk(&name),
                    Err(error) => line(error),
                }
            }
            (b"FCALL", name) => {
                let name = String::from_utf8_lossy(name).into_owned();
                self.call(&name, &words[2..])
            }
            _ => panic!("no such command here: {:?}", show(words[0])),
        }
    }

    fn run(&mut self, digest: &Digest, words: &[&[u8]]) -> Vec<u8> {
        let mut reply = Vec::new();
        let invocation = invocation(words, self.protocol);
        let host = &mut self.host;
        self.outcome = self.interpreter.run_script(digest, invocation, host, &mut reply);
        if self.outcome.is_none() { line(NO_SCRIPT) } else { reply }
    }

    fn call(&mut self, name: &str, words: &[&[u8]]) -> Vec<u8> {
        let mut reply = Vec::new();
        let invocation = invocation(words, self.protocol);
        let host = &mut self.host;
        self.outcome = self.interpreter.call_function(name, invocation, host, &mut reply);
        if self.outcome.is_none() { line(NO_FUNCTION) } else { reply }
    }
}

fn invocation<'a>(words: &'a [&'a [u8]], protocol: Protocol) -> Invocation<'a> {
    let count: usize = std::str::from_utf8(words[0]).unwrap().parse().unwrap();
    let (keys, arguments) = words[1..].split_at(count);
    Invocation { keys, arguments, protocol }
}

fn line(error: impl std::fmt::Display) -> Vec<u8> {
    format!("-{error}\r\n").into_bytes()
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

/// Bytes for people.
pub(crate) fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// The usual limits, changed.
pub(crate) fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

/// Limits that are reached soon.
pub(crate) fn small_limits() -> Limits {
    limits(|limits| {
        limits.memory_max = 16 << 20;
        limits.reply_max = 16 << 20;
        limits.library_ticks_max = 20;
    })
}
