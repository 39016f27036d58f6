//! A sentinel around the engine: the machine of `store-sentinel`, its connections, its file and
//! its scripts.
//!
//! ```text
//! time, replies, hellos, commands ─► SentinelDriver: Sentinel ─► Output, done in order
//!            written, or failed ◄─ a thread ◄─ Persist ◄─┘
//! ```
//! The machine decides everything, also what must wait for its file. The loop feeds it and does
//! what it asks for (`event_loop/sentinel.rs`), and never waits for the disk.

mod file;
mod scripts;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use store_engine::{LogLevel, SessionId};
use store_replica::Moment;
use store_resp::{Reply, ReplyParser, ReplyScanner};
use store_sentinel::{
    AdminRequest, Configuration, Draw, FileOutcome, Level, LinkId, Output, RunId, Sentinel,
    Surroundings, Timing,
};
use store_types::glob;

use crate::clock::Running;
use crate::peers::PeerId;
use crate::persistence::Mailbox;
use file::ConfigFile;
pub(crate) use file::Written;
use scripts::RunningScripts;

/// What a sentinel begins with.
#[derive(Debug)]
pub(crate) struct SentinelStart {
    pub(crate) path: PathBuf,
    pub(crate) configuration: Configuration,
}

/// A connection that the machine asked for.
pub(crate) struct Link {
    pub(crate) peer: PeerId,
    /// Where to, as it was given: a name or a number.
    pub(crate) host: String,
    /// Bytes that are no whole reply yet.
    unparsed: Vec<u8>,
    /// How far the next reply was looked at.
    scanner: ReplyScanner,
}

/// One sentinel, as the loop drives it.
pub(crate) struct SentinelDriver {
    pub(crate) machine: Sentinel,
    pub(crate) file: ConfigFile,
    pub(crate) scripts: RunningScripts,
    pub(crate) links: BTreeMap<LinkId, Link>,
    pub(crate) of_peers: BTreeMap<PeerId, LinkId>,
    /// Bytes of all connections that are no whole replies yet.
    unparsed_bytes: usize,
    /// Sessions that wait for an answer, by the number that the machine knows them by.
    sessions: BTreeMap<u64, SessionId>,
    /// Whether the log has said that others cannot reach it.
    is_told_of_bind: bool,
    /// Scratch for reads.
    pub(crate) buffer: Vec<u8>,
    running: Running,
    wakes_at: Moment,
}

/// Longer replies are no server's: INFO of one with a thousand replicas is much shorter.
const UNPARSED_MAX: usize = 4 * 1024 * 1024;
/// Those of all connections together: a primary may list a thousand replicas that never end one.
const UNPARSED_TOTAL_MAX: usize = 64 * 1024 * 1024;
/// Nothing that a sentinel asks has more elements in its answer than a few.
const ELEMENTS_MAX: u64 = 4_096;

impl SentinelDriver {
    /// `port` is where others reach it.
    pub(crate) fn new(start: SentinelStart, port: u16, mailbox: Mailbox) -> io::Result<Self> {
        let running = Running::begin();
        let now = Moment::from_ms(running.millis());
        let mut urandom = File::open("/dev/urandom")?;
        let id = random_id(&mut urandom)?;
        let mut bytes = [0; 8];
        urandom.read_exact(&mut bytes)?;
        let draw = draw_from(u64::from_ne_bytes(bytes));
        let (file, text) = ConfigFile::open(start.path, mailbox)?;
        // One that was ending may have written it since it was read.
        let read = Configuration::parse(&text).unwrap_or(start.configuration);
        let configuration = Configuration { port, ..read };
        let machine = Sentinel::new(now, configuration, id, Timing::default(), draw);
        Ok(Self {
            machine,
            file,
            scripts: RunningScripts::default(),
            links: BTreeMap::new(),
            of_peers: BTreeMap::new(),
            unparsed_bytes: 0,
            sessions: BTreeMap::new(),
            is_told_of_bind: false,
            buffer: Vec::new(),
            running,
            wakes_at: now,
        })
    }

    /// A clock that nobody sets.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_ms(self.running.millis())
    }

    /// What to do where others are told an address at which this sentinel does not listen. `own` is
    /// its end of a connection, and `listens` the words of `bind`.
    pub(crate) fn advise_on_bind(&mut self, own: &str, listens: &[String]) -> Option<String> {
        if self.is_told_of_bind || is_reachable(own, listens) {
            return None;
        }
        self.is_told_of_bind = true;
        let announced = self.machine.configuration().globals.announce_ip;
        announced.is_none().then(|| format!(
            "WARNING: other sentinels and clients elsewhere do not reach this sentinel: it tells \
             them that it is at {own}, and listens on {} alone. Add the line `bind {own} 127.0.0.1`",
            listens.join(" ")
        ))
    }

    /// How long nothing is due here, in milliseconds.
    pub(crate) fn wakes_in_ms(&self) -> u64 {
        self.wakes_at.since(self.now()).as_micros().div_ceil(1000) as u64
    }

    /// Tells the machine that time has passed, when it wants to hear of it. Returns what the log is
    /// to say.
    pub(crate) fn pass_time(&mut self) -> Option<(LogLevel, String)> {
        let now = self.now();
        if now < self.wakes_at {
            return None;
        }
        for (id, end) in self.scripts.take_ended() {
            self.machine.handle_script_end(now, id, end);
        }
        self.file.try_again(now);
        self.machine.handle_time(now);
        self.file.complain_if_slow(now)
    }

    /// The next thing to do, if there is one beside waiting.
    pub(crate) fn next_output(&mut self) -> Option<Output> {
        match self.machine.poll_output() {
            Output::WaitUntil(at) => {
                self.wakes_at = at;
                None
            }
            output => Some(output),
        }
    }

    /// The file was written, or cannot be. Returns what the log is to say.
    pub(crate) fn file_written(&mut self, written: Written) -> Option<(LogLevel, String)> {
        let now = self.now();
        let line = self.file.finish(now, written);
        match self.file.has_failed() {
            true => self.machine.handle_file(now, FileOutcome::Failed),
            false => self.machine.handle_file(now, FileOutcome::Written),
        }
        line
    }

    /// SENTINEL of a session, which waits for the answer.
    pub(crate) fn ask(&mut self, id: SessionId, request: AdminRequest<'_>) {
        self.sessions.insert(id.number, id);
        let now = self.now();
        self.machine.handle_command(now, request, &Machine);
    }

    /// Whose answer it is.
    pub(crate) fn take_session(&mut self, session: store_replica::SessionId) -> Option<SessionId> {
        self.sessions.remove(&session.0)
    }

    /// Bytes that came over a connection: the replies that are whole. Fails when they cannot
    /// become replies.
    pub(crate) fn take_bytes(&mut self, id: LinkId, bytes: &[u8]) -> Result<Vec<Reply>, ()> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(Vec::new()) };
        // Most replies come whole: a connection that waits for none keeps no memory for them.
        let mut earlier = std::mem::take(&mut link.unparsed);
        self.unparsed_bytes -= earlier.len();
        let input = if earlier.is_empty() {
            bytes
        } else {
            earlier.extend_from_slice(bytes);
            &earlier
        };
        let (mut replies, mut at) = (Vec::new(), 0);
        while let Some(len) = link.scanner.find_end(&input[at..]).map_err(|_| ())? {
            let reply = ReplyParser.parse(&input[at..at + len]).map_err(|_| ())?;
            replies.extend(reply.map(|(reply, _)| reply));
            at += len;
        }
        if earlier.is_empty() {
            link.unparsed = bytes[at..].to_vec();
        } else if at < earlier.len() {
            earlier.drain(..at);
            link.unparsed = earlier;
        }
        self.unparsed_bytes += link.unparsed.len();
        let is_too_much =
            link.unparsed.len() > UNPARSED_MAX || self.unparsed_bytes > UNPARSED_TOTAL_MAX;
        if is_too_much { Err(()) } else { Ok(replies) }
    }

    pub(crate) fn open(&mut self, id: LinkId, peer: PeerId, host: String) {
        let scanner = ReplyScanner::new(ELEMENTS_MAX);
        self.links.insert(id, Link { peer, host, unparsed: Vec::new(), scanner });
        self.of_peers.insert(peer, id);
    }

    /// The connection is gone. Which it was.
    pub(crate) fn forget(&mut self, id: LinkId) -> Option<PeerId> {
        let link = self.links.remove(&id)?;
        self.unparsed_bytes -= link.unparsed.len();
        self.of_peers.remove(&link.peer);
        Some(link.peer)
    }
}

pub(crate) fn log_level(level: Level) -> LogLevel {
    match level {
        Level::Debug => LogLevel::Debug,
        Level::Notice => LogLevel::Notice,
        Level::Warning => LogLevel::Warning,
    }
}

/// What the machine cannot see.
struct Machine;

impl Surroundings for Machine {
    fn is_executable(&self, path: &str) -> bool {
        rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
    }

    fn matches(&self, pattern: &[u8], name: &str) -> bool {
        glob::matches(pattern, name.as_bytes(), glob::Case::Sensitive)
    }
}

/// Whether who listens there may be reached at its end of a connection.
fn is_reachable(own: &str, listens: &[String]) -> bool {
    let is_loopback = |word: &str| {
        let ip = word.trim_start_matches('-').parse();
        ip.is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    };
    is_loopback(own) || !listens.iter().all(|word| is_loopback(word))
}

fn random_id(urandom: &mut File) -> io::Result<RunId> {
    let mut bytes = [0; 20];
    urandom.read_exact(&mut bytes)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(RunId::parse(digits.as_bytes()).expect("hexadecimal digits are an id"))
}

/// Numbers that only have to differ between sentinels: splitmix64.
fn draw_from(mut state: u64) -> Draw {
    Draw::new(move |limit| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit.max(1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_on_loopback_alone_is_reached_there_alone() {
        let reachable = |own, bind: &str| {
            is_reachable(own, &bind.split(' ').map(str::to_owned).collect::<Vec<_>>())
        };
        assert!(reachable("127.0.0.1", "127.0.0.1 -::1"));
        assert!(!reachable("10.0.0.1", "127.0.0.1 -::1"));
        for bind in ["10.0.0.1 127.0.0.1", "*", "* -::*", "0.0.0.0"] {
            assert!(reachable("10.0.0.1", bind), "{bind}");
        }
    }
}
