//! What the engine knows of one client, and the table of all of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use store_resp::{Output, OwnedRequest, Protocol, Request};

use crate::keyspace::changes::{LostWatch, WatchedNow};
use crate::pubsub::Subscriptions;
use crate::registry::RowId;
use crate::tracking::Tracking;

/// Names a session. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    /// The number that CLIENT ID tells, from 1 on.
    pub number: u64,
    slot: u32,
}

impl SessionId {
    /// Where a driver may keep its own things of the session: small, reused after closing.
    #[inline]
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// States of a session that the gates ask for, one bit each.
pub mod session_flag {
    /// A password is wanted and not given yet.
    pub const NEEDS_AUTH: u32 = 1 << 0;
    /// The user may not do everything: ask the ACL.
    pub const RESTRICTED: u32 = 1 << 1;
    /// Between MULTI and EXEC.
    pub const IN_MULTI: u32 = 1 << 2;
    /// Subscribed to something.
    pub const SUBSCRIBED: u32 = 1 << 3;
    /// CLIENT REPLY OFF.
    pub const REPLY_OFF: u32 = 1 << 4;
    /// CLIENT REPLY SKIP: the reply of this request is dropped.
    pub const REPLY_SKIP: u32 = 1 << 5;
    /// CLIENT REPLY SKIP was just asked for: the next reply will be dropped.
    pub const REPLY_SKIP_NEXT: u32 = 1 << 6;
    /// A watched key changed: EXEC will do nothing.
    pub const WATCH_BROKEN: u32 = 1 << 7;
    /// A queued command was refused: EXEC will fail.
    pub const MULTI_BROKEN: u32 = 1 << 8;
    /// Waits for a key: no request runs until then.
    pub const BLOCKED: u32 = 1 << 9;
    /// Will be closed; no further request runs.
    pub const CLOSING: u32 = 1 << 10;
    /// MONITOR.
    pub const MONITOR: u32 = 1 << 11;
    /// CLIENT TRACKING is on.
    pub const TRACKING: u32 = 1 << 12;
    /// CLIENT NO-EVICT.
    pub const NO_EVICT: u32 = 1 << 13;
    /// CLIENT NO-TOUCH.
    pub const NO_TOUCH: u32 = 1 << 14;
    /// Waits for the end of CLIENT PAUSE; goes with BLOCKED.
    pub const POSTPONED: u32 = 1 << 15;
    /// DEBUG SLEEP: the whole server is to rest before it goes on.
    pub const RESTS: u32 = 1 << 16;
    /// Brings back what a file has: no gate applies but the queue of MULTI.
    pub const LOADER: u32 = 1 << 17;

    /// Got output from others, and the driver has yet to be told.
    pub const TOLD: u32 = 1 << 18;

    /// Others redirect to it what they have to hear of keys.
    pub const HEARS_FOR_OTHERS: u32 = 1 << 19;

    /// Caused more messages to itself than its output may hold; goes with CLOSING.
    pub const OVERRUN: u32 = 1 << 20;

    /// The stream of the primary that this server follows: no gate applies but the queue of MULTI,
    /// and nobody reads its replies.
    pub const PRIMARY_LINK: u32 = 1 << 22;

    /// A replica: PSYNC or SYNC was accepted. It gets the stream, and no replies.
    pub const REPLICA: u32 = 1 << 21;

    /// ASKING: the next request may use a slot that is being imported.
    pub const ASKING: u32 = 1 << 23;
    /// ASKING was just said; goes with it.
    pub const ASKED_NOW: u32 = 1 << 24;
    /// READONLY: reads from a replica are fine.
    pub const READS_REPLICA: u32 = 1 << 25;
    /// The other end sends nothing more: it may not be there for an answer.
    pub const HUNG_UP: u32 = 1 << 26;

    /// Any of these sends a request through all gates; without them it takes the short way.
    pub const GATED: u32 = NEEDS_AUTH
        | RESTRICTED
        | IN_MULTI
        | SUBSCRIBED
        | REPLY_OFF
        | REPLY_SKIP
        | REPLY_SKIP_NEXT
        | BLOCKED
        | CLOSING
        | MONITOR
        | HEARS_FOR_OTHERS
        | REPLICA
        | TRACKING
        | NO_TOUCH
        | ASKING
        | PRIMARY_LINK;
}

/// Commands queued since MULTI.
#[derive(Debug, Default)]
pub struct Transaction {
    /// In order, with the row each was found to be.
    pub queued: Vec<(RowId, OwnedRequest)>,
    /// Bytes of all of them, for the query buffer limit.
    pub memory: usize,
    /// Bytes of the arguments and of a pointer to each, as CLIENT LIST counts.
    pub argument_bytes: usize,
    /// Flags that any of them has, as they were when it was queued.
    pub flags: u32,
    /// Flags that any of them lacks.
    pub missing_flags: u32,
}

/// A key that EXEC depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched<'a> {
    /// Its database.
    pub db: usize,
    /// Its name.
    pub key: &'a [u8],
    /// It had ended before, and was not removed yet: that it is removed is told to nobody.
    pub had_ended: bool,
}

impl Watched<'_> {
    /// Bytes of the name, here and in the table of all watched keys.
    fn memory(&self) -> usize {
        /// A place in a map, here and there, and a list of sessions.
        const PER_KEY: usize = size_of::<Box<[u8]>>() + 80;
        2 * self.key.len() + PER_KEY
    }
}

/// Keys that EXEC depends on, with the memory that they take: it is asked for on every turn.
#[derive(Debug, Default)]
pub struct WatchedKeys {
    /// Whether each had ended, by database and name: any number of them may end at once.
    keys: BTreeMap<usize, BTreeMap<Box<[u8]>, bool>>,
    bytes: usize,
}

impl WatchedKeys {
    /// Takes a key that is not among them.
    pub(crate) fn push(&mut self, watched: Watched<'_>) {
        self.bytes += watched.memory();
        self.keys.entry(watched.db).or_default().insert(watched.key.into(), watched.had_ended);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Watched<'_>> {
        self.keys.iter().flat_map(|(db, keys)| {
            keys.iter().map(|(key, had_ended)| Watched { db: *db, key, had_ended: *had_ended })
        })
    }

    /// Whether the key had ended, if it is watched.
    fn had_ended_mut(&mut self, db: usize, key: &[u8]) -> Option<&mut bool> {
        self.keys.get_mut(&db)?.get_mut(key)
    }

    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// What a blocked session gets when its time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutReply {
    /// Null, where a string would have come.
    Null,
    /// Null, where an array would have come.
    NullArray,
    /// How many replicas have confirmed what the session wrote. The number of the wait tells an
    /// answer to this one from a late answer to an earlier one.
    Replicas(u64),
    /// Null. The driver does something for the session; the number tells an answer to this wait
    /// from a late answer to an earlier one.
    Driver(u64),
}

/// Why and until when a session waits.
#[derive(Debug)]
pub struct Blocked {
    /// Run again each time one of the keys may have what it wants.
    pub request: OwnedRequest,
    /// What the client asked for, where that is not the request that is run again.
    pub asked: Option<OwnedRequest>,
    /// The row of the request.
    pub row: RowId,
    /// Keys of the session's database.
    pub keys: Vec<Box<[u8]>>,
    /// Bytes of the keys, here and in the table of all that are waited for.
    pub(crate) key_bytes: usize,
    /// The database when it was blocked.
    pub db: usize,
    /// Unix milliseconds; `None` waits for ever.
    pub deadline_ms: Option<u64>,
    /// What to say then.
    pub on_timeout: TimeoutReply,
    /// Whether it is also woken when a key is gone: who waits in a group of a stream is told.
    pub needs_key: bool,
}

impl Blocked {
    /// What [`key_bytes`](Self::key_bytes) is to be.
    pub(crate) fn key_bytes(keys: &[Box<[u8]>]) -> usize {
        /// A pointer to the name, and a place in a map with a list of sessions.
        const PER_KEY: usize = 80;
        keys.iter().map(|key| 2 * key.len() + PER_KEY).sum()
    }

    /// Whether it waits for the driver to answer, and not for keys or replicas.
    pub(crate) fn waits_for_driver(&self) -> bool {
        self.keys.is_empty() && !matches!(self.on_timeout, TimeoutReply::Replicas(_))
    }

    /// Bytes of its requests and keys.
    fn memory(&self) -> usize {
        let asked = self.asked.as_ref().map_or(0, OwnedRequest::memory);
        self.request.memory() + asked + self.key_bytes
    }
}

/// Where a client comes from, as CLIENT LIST and the ACL log tell.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The client's address, such as `127.0.0.1:50000` or `/path:0`.
    pub address: String,
    /// Our end of the connection.
    pub local_address: String,
    /// The descriptor, for CLIENT LIST only.
    pub descriptor: i64,
    /// Whether it came from this machine.
    pub is_local: bool,
    /// Whether it came over a unix socket or inside the process.
    pub is_unix: bool,
    /// Whether it speaks TLS.
    pub is_encrypted: bool,
}

/// Bytes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// Of its arguments alone.
    pub arguments: usize,
    /// As it came, unless it came as a line.
    pub wire: usize,
}

impl RequestSize {
    pub(crate) fn of(request: Request<'_>) -> Self {
        let frame = |number: usize| number.to_string().len() + 3;
        let lengths = || request.args_from(0).map(<[u8]>::len);
        let wire: usize = lengths().map(|len| frame(len) + len + 2).sum();
        Self { arguments: lengths().sum(), wire: frame(request.len()) + wire }
    }
}

/// One client.
#[derive(Debug)]
pub struct Session {
    /// Its name in the table.
    pub id: SessionId,
    /// Bits of [`session_flag`].
    pub flags: u32,
    /// Selected database.
    pub db: usize,
    /// RESP2 or RESP3.
    pub protocol: Protocol,
    /// Replies not yet written. The driver takes them from here.
    pub output: Output,
    /// Messages to itself, while they cannot be written: a script of its own runs, or its reply
    /// is going to be dropped.
    pub(crate) aside: Vec<u8>,
    /// Its share of values that it has yet to read and that nobody else keeps any more.
    pub orphaned_bytes: usize,
    /// Bytes of requests that are not whole yet, and what is set aside for them. The driver
    /// tells both.
    pub query_bytes: usize,
    /// See above.
    pub query_capacity: usize,
    /// The request that a pause holds back; the driver keeps it.
    pub postponed: Option<RequestSize>,
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// The name of the ACL user.
    pub user: Vec<u8>,
    /// Where it comes from.
    pub origin: Origin,
    /// When it came, unix milliseconds.
    pub opened_at_ms: u64,
    /// When it last asked for something, unix milliseconds.
    pub asked_at_ms: u64,
    /// The last command, for CLIENT LIST.
    pub last_command: Option<RowId>,
    /// The offset of the stream behind its last write, for WAIT; 0 before the first. Nobody has
    /// what the stream has yet to be fed: [`UNFED`](Self::UNFED).
    pub wrote_at: u64,
    /// Between MULTI and EXEC.
    pub transaction: Option<Box<Transaction>>,
    /// Watched keys with their databases, and whether each had ended already.
    pub watched: WatchedKeys,
    /// Why it waits.
    pub blocked: Option<Box<Blocked>>,
    /// What it listens to.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// How it tracks keys.
    pub tracking: Option<Box<Tracking>>,
}

impl Session {
    /// An offset that no replica has.
    pub const UNFED: u64 = u64::MAX;

    /// Whether any of the flags is set.
    #[inline]
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Bytes that it holds: what `maxmemory-clients` counts.
    #[inline]
    pub fn memory(&self) -> usize {
        let queued = self.transaction.as_ref().map_or(0, |queued| queued.memory);
        let waiting = self.blocked.as_ref().map_or(0, |blocked| blocked.memory());
        let listened = self.subscriptions.as_ref().map_or(0, |listened| listened.memory());
        let names = self.name.capacity() + self.user.capacity() + self.aside.capacity();
        let tracked = self.tracking.as_ref().map_or(0, |tracking| tracking.memory());
        let buffers = self.output.memory() + self.orphaned_bytes + self.query_capacity;
        let held = queued + waiting + listened + tracked + self.watched.bytes;
        size_of::<Self>() + buffers + names + held
    }

    /// Memory behind what waits for EXEC; `None` outside of a transaction.
    pub fn queued_memory(&self) -> Option<usize> {
        let memory = self.transaction.as_ref().map_or(0, |queued| queued.memory);
        self.has(session_flag::IN_MULTI).then_some(memory)
    }

    /// ASKING holds for the request behind it, or until the end of the transaction that begins with
    /// that.
    pub(crate) fn end_asking(&mut self) {
        if self.has(session_flag::ASKED_NOW) {
            self.flags &= !session_flag::ASKED_NOW;
        } else if !self.has(session_flag::IN_MULTI | session_flag::POSTPONED) {
            self.flags &= !session_flag::ASKING;
        }
    }

    /// A watched key is gone or another one, though no command changed it. That counts unless it
    /// was none before, having ended, and is none now.
    pub(crate) fn lose_watched(&mut self, lost: &LostWatch) {
        if self.has(session_flag::WATCH_BROKEN) {
            return;
        }
        let Some(had_ended) = self.watched.had_ended_mut(lost.db, &lost.key) else { return };
        match (lost.now, *had_ended) {
            (WatchedNow::Gone, true) => *had_ended = false,
            (WatchedNow::Ended { .. }, true) => {}
            (WatchedNow::Ended { was_there: false }, false) => *had_ended = true,
            _ => self.flags |= session_flag::WATCH_BROKEN,
        }
    }

    /// The request whose reply CLIENT REPLY SKIP silences is over.
    pub(crate) fn end_skip(&mut self) {
        let skip_next = self.has(session_flag::REPLY_SKIP_NEXT);
        self.set_flag(session_flag::REPLY_SKIP, skip_next);
        self.flags &= !session_flag::REPLY_SKIP_NEXT;
    }

    /// Sets or clears a flag.
    pub fn set_flag(&mut self, flag: u32, on: bool) {
        if on { self.flags |= flag } else { self.flags &= !flag }
    }
}

/// All sessions. One that runs a request is taken out meanwhile.
#[derive(Debug, Default)]
pub struct Sessions {
    slots: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    opened: u64,
    count: usize,
}

impl Sessions {
    pub(crate) fn open(&mut self, now_ms: u64, origin: Origin) -> SessionId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.opened += 1;
        self.count += 1;
        let id = SessionId { number: self.opened, slot };
        self.slots[slot as usize] = Some(Box::new(Session {
            id,
            flags: 0,
            db: 0,
            protocol: Protocol::Resp2,
            output: Output::default(),
            aside: Vec::new(),
            orphaned_bytes: 0,
            query_bytes: 0,
            query_capacity: 0,
            postponed: None,
            name: Vec::new(),
            user: crate::acl::DEFAULT.to_vec(),
            origin,
            opened_at_ms: now_ms,
            asked_at_ms: now_ms,
            last_command: None,
            wrote_at: 0,
            transaction: None,
            watched: WatchedKeys::default(),
            blocked: None,
            subscriptions: None,
            tracking: None,
        }));
        id
    }

    pub(crate) fn close(&mut self, id: SessionId) -> Option<Box<Session>> {
        let session = self.take(id)?;
        self.free.push(id.slot);
        self.count -= 1;
        Some(session)
    }

    #[inline]
    pub(crate) fn take(&mut self, id: SessionId) -> Option<Box<Session>> {
        let slot = self.slots.get_mut(id.slot())?;
        if slot.as_ref()?.id.number != id.number {
            return None;
        }
        slot.take()
    }

    #[inline]
    pub(crate) fn put_back(&mut self, session: Box<Session>) {
        let slot = session.id.slot();
        self.slots[slot] = Some(session);
    }

    /// A session, unless it is closed or the one that runs.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        let session = self.slots.get(id.slot())?.as_deref()?;
        (session.id.number == id.number).then_some(session)
    }

    /// A session for changes, unless it is closed or the one that runs.
    #[inline]
    pub fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        let session = self.slots.get_mut(id.slot())?.as_deref_mut()?;
        (session.id.number == id.number).then_some(session)
    }

    /// All sessions but the one that runs.
    pub fn iter(&self) -> impl Iterator<Item = &Session> {
        self.slots.iter().flatten().map(|session| &**session)
    }

    /// All sessions but the one that runs, for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slots.iter_mut().flatten().map(|session| &mut **session)
    }

    /// See [`Engine::count_orphans`](crate::Engine::count_orphans).
    pub(crate) fn count_orphans(&mut self) -> bool {
        let mut readers: BTreeMap<*const Vec<u8>, usize> = BTreeMap::new();
        for text in self.iter().flat_map(|session| session.output.shared()) {
            *readers.entry(Arc::as_ptr(text)).or_default() += 1;
        }
        let mut has_any = !readers.is_empty();
        for session in self.iter_mut() {
            has_any |= session.orphaned_bytes > 0;
            let share = |text: &Arc<Vec<u8>>| {
                let readers = readers[&Arc::as_ptr(text)];
                if Arc::strong_count(text) > readers { 0 } else { text.capacity() / readers }
            };
            session.orphaned_bytes = session.output.shared().map(share).sum();
        }
        has_any
    }

    /// Finds a session by the number that CLIENT ID tells, unless it is the one that runs.
    pub fn find(&self, number: u64) -> Option<&Session> {
        self.iter().find(|session| session.id.number == number)
    }

    /// How many are open, the one that runs included.
    pub fn count(&self) -> usize {
        self.count
    }
}
