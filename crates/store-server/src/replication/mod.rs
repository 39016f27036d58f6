//! Replication around the engine: the machine of `store-replica`, and what it is told and asks for.
//!
//! ```text
//! units, requests, time ─► ReplicationDriver: Replication ─► Output ─► the loop does it
//!                                    └─► facts ─► Engine: INFO, ROLE, the gates
//! ```
//! The machine decides everything. The loop feeds it and does what it asks for, in order
//! (`event_loop/replicate.rs`).

mod aside;
mod facts;
mod incoming;
mod link;
mod link_log;
mod log;
mod parts;
mod payload;
mod settings;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;

use store_engine::{Audience, Engine, SessionId, Unit};
use store_replica::{Command, Moment, Output, Replication, Secrets, SnapshotNeeds};

use store_resp::Request;

use crate::clock::Running;
use crate::sockets::Ports;
pub(crate) use aside::{Begin as BeginAside, IncomingAside, WhileLoading};
pub(crate) use facts::{tell_description, tell_facts};
pub(crate) use incoming::{Incoming, IncomingEvent, IncomingFailure, Written};
use link::Link;
pub(crate) use log::{closing_words, follow_again, words};
pub(crate) use parts::PartsSender;
pub(crate) use payload::{Next, Payload, PayloadJob};
pub(crate) use settings::{loads_aside, settings_of};

/// Memory that is kept for the next unit. What a large one took goes with it.
const ENCODED_KEPT_MAX: usize = 1024 * 1024;

/// An end that waits until replicas have everything.
pub(crate) struct Ending {
    /// What they are to have.
    pub(crate) offset: u64,
    /// How long they may take.
    pub(crate) until: Moment,
    /// Who asked for it by SHUTDOWN.
    pub(crate) sessions: Vec<SessionId>,
}

/// Why clients may not write: the offset of the stream must stand still.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holds {
    /// The server ends, and replicas get what they lack.
    pub(crate) for_end: bool,
    /// A replica is to take over.
    pub(crate) for_failover: bool,
    /// A replica is to take over, in a cluster.
    pub(crate) for_cluster: bool,
}

/// One server's replication, as the loop drives it.
pub(crate) struct ReplicationDriver {
    pub(crate) machine: Replication,
    /// The connection to the primary, on a replica.
    pub(crate) link: Link,
    running: Running,
    /// When the machine wants to hear of time.
    wakes_at: Option<Moment>,
    /// Sessions that the machine knows, by the number that it knows them by.
    sessions: BTreeMap<u64, SessionId>,
    /// The wait that the machine knows of each session in WAIT. Its time may be up, and the session
    /// may be in another one by now.
    waits: BTreeMap<u64, u64>,
    /// Where the stream ended behind what sessions wrote, and the engine has yet to be told.
    wrote: Vec<(SessionId, u64)>,
    /// The snapshot that the machine asked for, until it can begin.
    pub(crate) wanted: Option<SnapshotNeeds>,
    /// The payload that is made for replicas.
    pub(crate) payload: Option<Payload>,
    /// Payloads that are whole, and that replicas have still to read. The machine bounds their
    /// number.
    pub(crate) unread: Vec<Payload>,
    /// The end of the server, while it waits for replicas.
    pub(crate) ending: Option<Ending>,
    /// Whether the server has waited for replicas, and ends for a signal.
    pub(crate) has_waited: bool,
    /// Why clients may not write.
    pub(crate) holds: Holds,
    /// Whether a replica takes more than a turn gives it.
    pub(crate) has_more: bool,
    /// Scratch: who is written to.
    pub(crate) reading: Vec<store_replica::SessionId>,
    /// Scratch: requests of a unit as bytes, and where each of them ends.
    encoded: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl ReplicationDriver {
    /// A primary that nobody follows.
    pub(crate) fn new(engine: &Engine, ports: Ports) -> io::Result<Self> {
        let secrets = secrets()?;
        let (running, settings) = (Running::begin(), settings_of(engine, ports));
        Ok(Self {
            machine: Replication::new(Moment::from_ms(running.millis()), settings, secrets),
            link: Link::default(),
            running,
            wakes_at: None,
            sessions: BTreeMap::new(),
            waits: BTreeMap::new(),
            wrote: Vec::new(),
            wanted: None,
            payload: None,
            unread: Vec::new(),
            ending: None,
            has_waited: false,
            holds: Holds::default(),
            has_more: false,
            reading: Vec::new(),
            encoded: Vec::new(),
            ends: Vec::new(),
        })
    }

    /// A clock that nobody sets.
    pub(crate) fn now(&self) -> Moment {
        Moment::from_ms(self.running.millis())
    }

    /// Whether there is anything to do for it in a turn. Not so on a server that nobody follows and
    /// that follows nobody.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.machine.backlog().is_some() || self.wakes_at.is_some() || self.machine.has_output()
    }

    /// How long nothing is due here, in milliseconds.
    pub(crate) fn wakes_in_ms(&self) -> Option<u64> {
        let ends_at = self.ending.as_ref().map(|ending| ending.until);
        let wakes_at = [self.wakes_at, ends_at].into_iter().flatten().min()?;
        let wait = wakes_at.since(self.now());
        // A millisecond has to be over before it counts.
        Some(wait.as_micros().div_ceil(1000) as u64)
    }

    /// The machine has nothing more to do before this.
    pub(crate) fn sleep_until(&mut self, wakes_at: Option<Moment>) {
        self.wakes_at = wakes_at;
    }

    /// Whether the machine wants to hear of time now.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.wakes_at.is_some_and(|at| at <= now)
    }

    /// The next thing to do, until the machine only waits.
    pub(crate) fn next_output(&mut self) -> Option<Output> {
        match self.machine.poll_output() {
            Output::WaitUntil(at) => {
                self.sleep_until(at);
                None
            }
            output => Some(output),
        }
    }

    /// The machine is going to know this session.
    pub(crate) fn know(&mut self, id: SessionId) -> store_replica::SessionId {
        self.sessions.insert(id.number, id);
        store_replica::SessionId(id.number)
    }

    /// The session behind the machine's name for it, unless it is gone.
    pub(crate) fn session(&self, session: store_replica::SessionId) -> Option<SessionId> {
        self.sessions.get(&session.0).copied()
    }

    /// A session is in this wait from now on.
    pub(crate) fn begin_wait(&mut self, id: SessionId, wait: u64) -> store_replica::SessionId {
        self.waits.insert(id.number, wait);
        self.know(id)
    }

    /// What a session waited for, as far as the machine knows, is there.
    pub(crate) fn end_wait(
        &mut self,
        session: store_replica::SessionId,
    ) -> Option<(SessionId, u64)> {
        Some((self.session(session)?, self.waits.remove(&session.0)?))
    }

    /// A client is gone. Whether the machine knew it.
    pub(crate) fn forget(&mut self, id: SessionId) -> bool {
        self.waits.remove(&id.number);
        let is_known = self.sessions.remove(&id.number).is_some();
        if is_known {
            let now = self.now();
            self.machine.handle_session_closed(now, store_replica::SessionId(id.number));
        }
        is_known
    }

    /// The payload that a replica gets, if it gets one.
    pub(crate) fn payload_of(&mut self, session: store_replica::SessionId) -> Option<&mut Payload> {
        self.payload.iter_mut().chain(&mut self.unread).find(|payload| payload.has_reader(session))
    }

    /// Whether a replica gets a file.
    fn reads_file(&self, session: store_replica::SessionId) -> bool {
        self.unread.iter().any(|payload| payload.is_file() && payload.has_reader(session))
    }

    /// A replica reads no payload any more.
    pub(crate) fn forget_reader(&mut self, session: store_replica::SessionId) {
        if let Some(payload) = self.payload_of(session) {
            payload.forget_reader(session);
        }
    }

    /// A replica sent something, be it an empty line.
    pub(crate) fn hear(&mut self, id: SessionId) {
        let now = self.now();
        self.machine.handle_newline(now, store_replica::SessionId(id.number));
    }

    /// Whether a turn is wanted at once.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_more || self.link.is_busy() || self.payload.as_ref().is_some_and(Payload::is_busy)
    }

    /// Feeds the stream with what was written. Does nothing while nobody could ask for it; on a
    /// replica the stream is the primary's.
    pub(crate) fn take_units(&mut self, units: &[Unit]) {
        if self.machine.backlog().is_none() || !self.machine.is_primary() {
            return;
        }
        let now = self.now();
        for unit in units {
            let offset = self.feed(now, unit);
            for id in unit.origin.iter().chain(&unit.woken) {
                match self.wrote.last_mut() {
                    // Requests that came together.
                    Some((last, wrote_at)) if last == id => *wrote_at = offset,
                    _ => self.wrote.push((*id, offset)),
                }
            }
        }
    }

    fn feed(&mut self, now: Moment, unit: &Unit) -> u64 {
        self.encoded.clear();
        self.ends.clear();
        let mut encode = |db: usize, request: Request<'_>| {
            store_resp::write_request(&mut self.encoded, request.args_from(0));
            self.ends.push((db, self.encoded.len()));
        };
        match unit.is_for_all() {
            true => unit.requests.iter().for_each(|(db, it)| encode(*db, it.as_request())),
            false => {
                let requests = unit.requests_for(Audience::Stream);
                requests.into_iter().for_each(|(db, request)| encode(db, request));
            }
        }
        let offset = self.feed_encoded(now, unit.origin.is_some());
        self.encoded.clear();
        self.encoded.shrink_to(ENCODED_KEPT_MAX);
        self.ends.shrink_to(ENCODED_KEPT_MAX / size_of::<(usize, usize)>());
        offset
    }

    fn feed_encoded(&mut self, now: Moment, is_transaction: bool) -> u64 {
        if self.ends.is_empty() {
            return self.machine.history().offset();
        }
        let mut start = 0;
        let encoded = &self.encoded;
        let commands = self.ends.iter().map(|(db, end)| {
            let bytes = &encoded[start..*end];
            start = *end;
            Command { db: *db, bytes }
        });
        match is_transaction {
            true => self.machine.feed(now, commands),
            // What time did is no transaction: keys that ended go one by one.
            false => commands.fold(0, |_, command| self.machine.feed(now, [command].into_iter())),
        }
    }

    /// Tells the engine what sessions have written, for WAIT.
    pub(crate) fn tell_writers(&mut self, engine: &mut Engine) {
        for (id, offset) in self.wrote.drain(..) {
            if let Some(session) = engine.session_mut(id) {
                session.wrote_at = offset;
            }
        }
    }
}

/// Where ids of histories and marks behind payloads come from. The source is opened once, so that
/// a lack of descriptors cannot stop it later.
fn secrets() -> io::Result<Secrets> {
    let mut source = File::open("/dev/urandom")?;
    Ok(Secrets::new(move |bytes| {
        io::Read::read_exact(&mut source, bytes).expect("the system's source does not end");
    }))
}
