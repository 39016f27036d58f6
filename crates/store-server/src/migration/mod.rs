//! Keys that move to other servers: the machines of `store-cluster`, a connection for each, and a
//! thread for large values.
//!
//! ```text
//! MIGRATE ─► Job: Migration ─► Connect ─► a kept connection, or a new one
//!                           ─► a key at a time ─► Engine::leaving_value ─► small: encoded here
//!                                                 └► large: ValueThread ─► sent in pieces
//!            replies ─► Moved, Stays, Finish ─► Engine
//! ```
//! The machine decides. The loop feeds it and does what it asks for (`event_loop/migrate.rs`).

mod outbox;
mod thread;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use store_cluster::{Credentials, Migration};
use store_engine::{DecodeRequest, DecodedValue, MigrateRequest, SessionId};
use store_resp::{Reply, ReplyParser};

use crate::allocator::Allocator;
use crate::peers::PeerId;
use crate::persistence::Mailbox;
pub(crate) use outbox::Outbox;
pub(crate) use thread::{ValueDone, ValueThread};

/// Migrations at once. Each has a connection and at most one value in memory; more wait.
const JOBS_MAX: usize = 64;
/// Connections that are kept, and for how long nobody may use them.
const KEPT_MAX: usize = 64;
const KEPT_MS: u64 = 10_000;
/// Answers to RESTORE are short lines.
const UNPARSED_MAX: usize = 1024 * 1024;

/// Where a connection leads, and as whom: one that is logged in is not lent to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) credentials: Option<Credentials>,
}

/// A connection that the next migration to the same endpoint may use.
struct Kept {
    endpoint: Endpoint,
    peer: PeerId,
    /// The database that it has selected.
    db: i64,
    until_ms: u64,
}

/// One MIGRATE under way.
pub(crate) struct Job {
    pub(crate) session: SessionId,
    pub(crate) machine: Migration,
    pub(crate) endpoint: Endpoint,
    /// The database that the keys come from.
    pub(crate) db: usize,
    pub(crate) replaces: bool,
    pub(crate) peer: Option<PeerId>,
    /// Whether the connection was ever open.
    pub(crate) is_open: bool,
    /// Bytes that are no whole reply yet.
    unparsed: Vec<u8>,
    pub(crate) outbox: Outbox,
    /// The key whose value the thread encodes.
    pub(crate) encoding: Option<Encoding>,
}

/// A key whose value is being encoded.
pub(crate) struct Encoding {
    /// What the thread was asked for: answers to earlier questions are of no use.
    pub(crate) number: u64,
    pub(crate) restore: Restore,
}

/// What RESTORE says besides the value.
pub(crate) struct Restore {
    pub(crate) command: &'static [u8],
    pub(crate) key: Vec<u8>,
    pub(crate) ttl_ms: u64,
    pub(crate) replaces: bool,
}

impl Job {
    fn new(now_ms: u64, session: SessionId, request: MigrateRequest) -> Self {
        let MigrateRequest { host, port, db, order, replaces, .. } = request;
        let endpoint = Endpoint { host, port, credentials: order.credentials.clone() };
        Self {
            session,
            machine: Migration::new(now_ms, order),
            endpoint,
            db,
            replaces,
            peer: None,
            is_open: false,
            unparsed: Vec::new(),
            outbox: Outbox::default(),
            encoding: None,
        }
    }

    /// Bytes that came: the replies that are whole, an error by its text. Fails when they cannot
    /// become replies.
    pub(crate) fn take_bytes(&mut self, bytes: &[u8]) -> Result<Vec<Option<String>>, ()> {
        self.unparsed.extend_from_slice(bytes);
        let (mut replies, mut at) = (Vec::new(), 0);
        while let Some((reply, len)) = ReplyParser.parse(&self.unparsed[at..]).map_err(|_| ())? {
            replies.push(match reply {
                Reply::Error(text) => Some(text),
                _ => None,
            });
            at += len;
        }
        self.unparsed.drain(..at);
        if self.unparsed.len() > UNPARSED_MAX { Err(()) } else { Ok(replies) }
    }

    /// Forgets the connection, with all that was on its way.
    pub(crate) fn forget_connection(&mut self) -> Option<PeerId> {
        self.unparsed.clear();
        self.outbox = Outbox::default();
        (self.encoding, self.is_open) = (None, false);
        self.peer.take()
    }
}

/// All migrations of this server.
pub(crate) struct MigrationDriver {
    pub(crate) jobs: BTreeMap<u64, Job>,
    waiting: VecDeque<(SessionId, MigrateRequest)>,
    kept: Vec<Kept>,
    pub(crate) thread: ValueThread,
    encodings: u64,
    /// Whether a job could go on at once.
    pub(crate) has_more: bool,
    /// What the thread has done.
    pub(crate) done: Vec<ValueDone>,
    /// Payloads of values that were restored, until nobody else holds them.
    spent: Vec<DecodeRequest>,
    /// Whether one of them may be free by the next turn.
    has_new_spent: bool,
    /// Scratch for reads.
    pub(crate) buffer: Vec<u8>,
}

impl MigrationDriver {
    pub(crate) fn new(mailbox: Mailbox, allocator: Arc<dyn Allocator>) -> Self {
        Self {
            jobs: BTreeMap::new(),
            waiting: VecDeque::new(),
            kept: Vec::new(),
            thread: ValueThread::new(mailbox, allocator),
            encodings: 0,
            has_more: false,
            done: Vec::new(),
            spent: Vec::new(),
            has_new_spent: false,
            buffer: Vec::new(),
        }
    }

    /// Whether there is nothing to do for it in a turn.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        let has_work = !self.jobs.is_empty() || !self.waiting.is_empty();
        let is_working = has_work || !self.spent.is_empty();
        !is_working && self.kept.is_empty() && self.done.is_empty()
    }

    /// MIGRATE of a session. As many as are let run at once.
    pub(crate) fn begin(&mut self, now_ms: u64, session: SessionId, request: MigrateRequest) {
        self.waiting.push_back((session, request));
        self.begin_waiting(now_ms);
    }

    /// Begins what waits, as far as there is room.
    pub(crate) fn begin_waiting(&mut self, now_ms: u64) {
        while self.jobs.len() < JOBS_MAX
            && let Some((session, request)) = self.waiting.pop_front()
        {
            self.jobs.insert(request.number, Job::new(now_ms, session, request));
        }
    }

    /// All that wait for their turn, which does not come.
    pub(crate) fn take_waiting(&mut self) -> VecDeque<(SessionId, MigrateRequest)> {
        std::mem::take(&mut self.waiting)
    }

    /// A value was restored, or is not wanted. Others hold its payload until the end of the turn,
    /// or until a file and replicas have it.
    pub(crate) fn spend(&mut self, request: DecodeRequest, unwanted: Option<DecodedValue>) {
        if let Some(value) = unwanted {
            self.thread.free(value);
        }
        self.spent.push(request);
        self.has_new_spent = true;
    }

    /// Has the thread free what nobody else holds.
    pub(crate) fn free_spent(&mut self) {
        self.has_new_spent = false;
        for request in self.spent.extract_if(.., |request| !request.is_shared()) {
            self.thread.free_payload(request);
        }
    }

    pub(crate) fn next_encoding(&mut self) -> u64 {
        self.encodings += 1;
        self.encodings
    }

    /// The job whose connection this is.
    pub(crate) fn job_of(&self, peer: PeerId) -> Option<u64> {
        let mut jobs = self.jobs.iter();
        jobs.find(|(_, job)| job.peer == Some(peer)).map(|(number, _)| *number)
    }

    /// A connection that was kept for this endpoint, with the database that it has selected.
    pub(crate) fn take_kept(&mut self, endpoint: &Endpoint) -> Option<(PeerId, i64)> {
        let at = self.kept.iter().position(|kept| kept.endpoint == *endpoint)?;
        let kept = self.kept.swap_remove(at);
        Some((kept.peer, kept.db))
    }

    /// Keeps a connection. Returns one that is to be closed for it, if there are too many.
    pub(crate) fn keep(
        &mut self,
        now_ms: u64,
        endpoint: Endpoint,
        peer: PeerId,
        db: i64,
    ) -> Option<PeerId> {
        let oldest = (self.kept.len() >= KEPT_MAX).then(|| self.kept.remove(0).peer);
        self.kept.push(Kept { endpoint, peer, db, until_ms: now_ms + KEPT_MS });
        oldest
    }

    /// A kept connection is gone.
    pub(crate) fn forget_kept(&mut self, peer: PeerId) {
        self.kept.retain(|kept| kept.peer != peer);
    }

    /// Kept connections that nobody used for long.
    pub(crate) fn take_unused(&mut self, now_ms: u64) -> Vec<PeerId> {
        let unused = self.kept.extract_if(.., |kept| kept.until_ms <= now_ms);
        unused.map(|kept| kept.peer).collect()
    }

    pub(crate) fn kept(&self) -> impl Iterator<Item = PeerId> {
        self.kept.iter().map(|kept| kept.peer)
    }

    /// When something is due.
    pub(crate) fn wakes_at_ms(&self) -> Option<u64> {
        if self.has_more || self.has_new_spent || !self.done.is_empty() {
            return Some(0);
        }
        let jobs = self.jobs.values().filter_map(|job| job.machine.wakes_at_ms());
        jobs.chain(self.kept.iter().map(|kept| kept.until_ms)).min()
    }
}
