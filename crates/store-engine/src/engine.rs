//! The store behind one door.

use std::collections::BTreeSet;

use store_resp::{ReplyWriter, Request};
use store_types::{Limits, Rng};

use crate::command::flag;
use crate::commands;
use crate::config::Config;
use crate::context::{Caller, Context, Propagate};
use crate::effects::Effects;
use crate::gate;
use crate::host::Host;
use crate::keyspace::{ExpiryTurn, Keyspace};
use crate::registry::{Registry, RowId};
use crate::session::{Blocked, Origin, Session, SessionId, Sessions, TimeoutReply, session_flag};
use crate::state::{Identity, Measured, ServerState, Stats};

/// Between looks for keys that ended, when none is overdue: Redis's `hz` of 10.
const EXPIRY_PERIOD_MS: u64 = 100;
/// Rounds of waking blocked sessions after one request: each may feed the next.
const WAKE_ROUNDS_MAX: usize = 1000;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered, or queued: the next request of the session may run.
    Ready,
    /// The session waits: keep its further requests until it is named in
    /// [`Effects::resumed_sessions`].
    Blocked,
    /// The session is to be closed: drop its further requests.
    Closing,
}

/// When the engine wants [`Engine::tick`] to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTick {
    /// As soon as waiting requests are done.
    Soon,
    /// At this unix millisecond.
    At(u64),
    /// Not before the next request.
    Never,
}

/// Keyspace, commands and sessions. Owns no clock, socket or file: moments come in with each
/// call, and what must happen outside goes out as [`Effects`].
pub struct Engine {
    keyspace: Keyspace,
    state: ServerState,
    /// Blocked sessions by the moment their time is up.
    deadlines: BTreeSet<(u64, SessionId)>,
    /// Rows of requests executed and not yet measured.
    unmeasured: Vec<RowId>,
    /// When to look for ended keys next.
    expiry_at_ms: u64,
}

impl Engine {
    /// An empty store. The same seed, moments and requests give the same replies.
    pub fn new(config: Config, mut identity: Identity, seed: u64, host: Box<dyn Host>) -> Self {
        let mut random = Rng::seeded(seed);
        if identity.run_id.is_empty() {
            identity.run_id = hex_id(&mut random);
        }
        if identity.incarnation.is_empty() {
            identity.incarnation = hex_id(&mut random);
        }
        let databases = config.number("databases") as usize;
        let mut engine = Self {
            keyspace: Keyspace::new(databases, random.next_u64()),
            state: ServerState {
                config,
                registry: Registry::new(),
                sessions: Sessions::default(),
                stats: Stats::default(),
                identity,
                measured: Measured::default(),
                host,
                base_memory: 0,
                limits: Limits { hash_seed: random.next_u64(), ..Limits::default() },
                gates: 0,
            },
            deadlines: BTreeSet::new(),
            unmeasured: Vec::new(),
            expiry_at_ms: 0,
        };
        engine.state.base_memory = size_of::<Self>() + size_of_val(engine.state.registry.rows());
        commands::apply_settings(&mut engine.keyspace, &mut engine.state);
        engine
    }

    /// Settings in force.
    pub fn config(&self) -> &Config {
        &self.state.config
    }

    /// Everything but the keys.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// The keys.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Tells what only the driver can measure.
    pub fn measured_mut(&mut self) -> &mut Measured {
        &mut self.state.measured
    }

    /// Who the server is; the driver learns its port late.
    pub fn identity_mut(&mut self) -> &mut Identity {
        &mut self.state.identity
    }

    /// Whether units are recorded for replicas and files.
    pub fn set_propagating(&mut self, propagating: bool) {
        self.keyspace.effects.propagating = propagating;
    }

    /// What is to be fetched: sessions with output, sessions to resume, units, requests.
    #[inline]
    pub fn effects(&mut self) -> &mut Effects {
        &mut self.keyspace.effects
    }

    /// A client came.
    pub fn open_session(&mut self, now_us: u64, origin: Origin) -> SessionId {
        let id = self.state.sessions.open(now_us / 1000, origin);
        let needs_password = self.state.config.tuned().needs_password;
        if needs_password && let Some(session) = self.state.sessions.get_mut(id) {
            session.flags |= session_flag::NEEDS_AUTH;
        }
        id
    }

    /// A client went, whatever it was doing.
    pub fn close_session(&mut self, id: SessionId) {
        let Some(mut session) = self.state.sessions.close(id) else { return };
        self.forget_wait(&mut session);
        commands::forget_session(&mut self.keyspace, &mut self.state, &mut session);
    }

    /// A session, for its output and flags.
    #[inline]
    pub fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.state.sessions.get_mut(id)
    }

    /// Runs one request of a session at a moment in unix microseconds. The reply is appended to
    /// the session's output.
    #[inline]
    pub fn execute(&mut self, now_us: u64, id: SessionId, request: Request<'_>) -> Outcome {
        let Some(mut session) = self.state.sessions.take(id) else { return Outcome::Closing };
        self.keyspace.begin(now_us, session.db);
        session.asked_at_ms = self.keyspace.now_ms();
        let output = std::mem::take(&mut session.output);
        let reply_start = output.len();
        let mut cx = Context {
            reply: ReplyWriter::onto(output, session.protocol),
            db: &mut self.keyspace,
            server: &mut self.state,
            session: &mut session,
            row: RowId::FIRST,
            caller: Caller::Client,
            ready_key: None,
            propagate: Propagate::Verbatim,
            blocked: None,
        };
        gate::handle(&mut cx, request);
        if cx.session.has(session_flag::REPLY_OFF | session_flag::REPLY_SKIP) {
            drop_reply(&mut cx, reply_start);
        }
        let blocked = cx.blocked.take();
        self.unmeasured.push(cx.row);
        session.output = cx.reply.into_bytes();
        if let Some(blocked) = blocked {
            self.block(&mut session, blocked);
        }
        let outcome = match session.flags & (session_flag::BLOCKED | session_flag::CLOSING) {
            0 => Outcome::Ready,
            session_flag::BLOCKED => Outcome::Blocked,
            _ => Outcome::Closing,
        };
        self.state.sessions.put_back(session);
        if !self.keyspace.effects.is_quiet() {
            self.deliver(Some((id, reply_start)));
        }
        outcome
    }

    /// Begins to fetch the memory that these requests of a session will need. Their first
    /// argument is taken for a key; where it is none, nothing is lost.
    #[inline]
    pub fn prefetch<'r>(&self, id: SessionId, requests: impl Iterator<Item = Request<'r>>) {
        if let Some(session) = self.state.sessions.get(id) {
            let keys = requests.map(|request| request.get(1).unwrap_or_default());
            self.keyspace.prefetch(session.db, keys);
        }
    }

    /// Whether the request just executed can only have taken so little time that it need not
    /// be measured alone.
    #[inline]
    pub fn was_quick(&self, request: Request<'_>) -> bool {
        const QUICK_ARGS_MAX: usize = 8;
        let row = self.unmeasured.last().map(|row| self.state.registry.row(*row).command);
        request.len() <= QUICK_ARGS_MAX && row.is_some_and(|command| command.has(flag::FAST))
    }

    /// Tells how long the requests executed since the last call took together, for statistics
    /// and the slow log. `last` is the one that ran last, unless all were quick.
    pub fn finish(&mut self, _last: Option<(SessionId, Request<'_>)>, micros: u64) {
        let count = self.unmeasured.len() as u64;
        let each = micros.checked_div(count).unwrap_or(0);
        let mut left = micros;
        while let Some(row) = self.unmeasured.pop() {
            // What does not divide goes to the one charged last.
            let share = if self.unmeasured.is_empty() { left } else { each };
            self.state.registry.stats_mut(row).micros += share;
            left -= share;
        }
    }

    /// How many requests were executed since the last [`finish`](Self::finish).
    #[inline]
    pub fn unmeasured(&self) -> usize {
        self.unmeasured.len()
    }

    /// What time alone causes: keys that end, sessions whose wait is over, memory given back.
    pub fn tick(&mut self, now_us: u64) -> NextTick {
        self.keyspace.begin(now_us, 0);
        let now_ms = self.keyspace.now_ms();
        let mut soon = self.keyspace.drop_some();
        if now_ms >= self.expiry_at_ms && self.keyspace.has_volatile() {
            match self.keyspace.expire_turn() {
                ExpiryTurn::More => soon = true,
                ExpiryTurn::Done => self.expiry_at_ms = now_ms + EXPIRY_PERIOD_MS,
            }
        }
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && deadline <= now_ms
        {
            self.give_up_waiting(id);
        }
        self.state.stats.memory_peak = self.state.stats.memory_peak.max(self.memory());
        if !self.keyspace.effects.is_quiet() {
            self.deliver(None);
        }
        if soon { NextTick::Soon } else { self.next_tick() }
    }

    /// When [`tick`](Self::tick) is wanted next.
    pub fn next_tick(&self) -> NextTick {
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let expiry = self.keyspace.has_volatile().then_some(self.expiry_at_ms);
        match [deadline, expiry].into_iter().flatten().min() {
            Some(at) => NextTick::At(at),
            None => NextTick::Never,
        }
    }

    /// Bytes in use, as INFO's used_memory tells.
    pub fn memory(&self) -> usize {
        self.state.base_memory + self.keyspace.memory()
    }

    fn block(&mut self, session: &mut Session, blocked: Box<Blocked>) {
        for key in &blocked.keys {
            self.keyspace.waiting.add(blocked.db, key, session.id);
        }
        if let Some(at) = blocked.deadline_ms {
            self.deadlines.insert((at, session.id));
        }
        session.blocked = Some(blocked);
        session.flags |= session_flag::BLOCKED;
    }

    /// Takes the session out of every queue it waits in.
    fn forget_wait(&mut self, session: &mut Session) -> Option<Box<Blocked>> {
        let blocked = session.blocked.take()?;
        session.flags &= !session_flag::BLOCKED;
        for key in &blocked.keys {
            self.keyspace.waiting.remove(blocked.db, key, session.id);
        }
        if let Some(at) = blocked.deadline_ms {
            self.deadlines.remove(&(at, session.id));
        }
        Some(blocked)
    }

    fn give_up_waiting(&mut self, id: SessionId) {
        let Some(mut session) = self.state.sessions.take(id) else {
            self.deadlines.retain(|(_, waiting)| *waiting != id);
            return;
        };
        if let Some(blocked) = self.forget_wait(&mut session) {
            write_timeout(&mut session, blocked.on_timeout);
            self.resumed(&session);
        }
        self.state.sessions.put_back(session);
    }

    fn resumed(&mut self, session: &Session) {
        self.keyspace.effects.written_sessions.push(session.id);
        self.keyspace.effects.resumed_sessions.push(session.id);
    }

    /// Delivers what requests caused for other sessions. `origin` is the session that asked,
    /// and where its reply begins: messages to itself go before the reply.
    #[cold]
    fn deliver(&mut self, origin: Option<(SessionId, usize)>) {
        for _ in 0..WAKE_ROUNDS_MAX {
            self.deliver_signals(origin);
            let ready = std::mem::take(&mut self.keyspace.effects.ready_keys);
            if ready.is_empty() {
                break;
            }
            for (db, key) in ready {
                self.wake_waiters(db, &key);
            }
        }
        let unit = std::mem::take(&mut self.keyspace.effects.unit);
        if !unit.requests.is_empty() {
            self.keyspace.effects.units.push(unit);
        }
    }

    fn deliver_signals(&mut self, origin: Option<(SessionId, usize)>) {
        for id in std::mem::take(&mut self.keyspace.effects.touched_watchers) {
            if let Some(session) = self.state.sessions.get_mut(id) {
                session.flags |= session_flag::WATCH_BROKEN;
            }
        }
        let events = std::mem::take(&mut self.keyspace.effects.events);
        if !events.is_empty() {
            commands::publish_events(&mut self.keyspace, &mut self.state, events, origin);
        }
        let keys = std::mem::take(&mut self.keyspace.effects.changed_keys);
        if !keys.is_empty() {
            commands::invalidate_tracked(&mut self.keyspace, &mut self.state, keys, origin);
        }
    }

    /// Serves those who wait for `key`, first come first, until it is gone; then only those who
    /// cannot wait without it.
    fn wake_waiters(&mut self, db: usize, key: &[u8]) {
        for id in self.keyspace.waiting.of(db, key) {
            self.keyspace.begin(self.keyspace.now_us(), db);
            if self.keyspace.contains(key) || self.needs_key(id) {
                self.wake(id, db, key);
            }
        }
    }

    fn needs_key(&self, id: SessionId) -> bool {
        let session = self.state.sessions.get(id);
        session.and_then(|session| session.blocked.as_ref()).is_some_and(|wait| wait.needs_key)
    }

    /// Runs the request of a blocked session once more; it stays blocked when it blocks again.
    fn wake(&mut self, id: SessionId, db: usize, ready_key: &[u8]) {
        let Some(mut session) = self.state.sessions.take(id) else { return };
        let Some(waiting) = session.blocked.take() else {
            return self.state.sessions.put_back(session);
        };
        let now_us = self.keyspace.now_us();
        self.keyspace.begin(now_us, db);
        let output = std::mem::take(&mut session.output);
        let reply_start = output.len();
        let mut cx = Context {
            reply: ReplyWriter::onto(output, session.protocol),
            db: &mut self.keyspace,
            server: &mut self.state,
            session: &mut session,
            row: waiting.row,
            caller: Caller::Resumed,
            ready_key: Some(ready_key),
            propagate: Propagate::Verbatim,
            blocked: None,
        };
        gate::call(&mut cx, waiting.request.as_request());
        let still_blocked = cx.blocked.take().is_some();
        if still_blocked {
            cx.reply.truncate(reply_start);
        }
        session.output = cx.reply.into_bytes();
        session.blocked = Some(waiting);
        if !still_blocked {
            self.forget_wait(&mut session);
            self.resumed(&session);
        }
        self.state.sessions.put_back(session);
    }
}

/// Forty hexadecimal digits, the form of run ids.
fn hex_id(random: &mut Rng) -> String {
    let mut id: String = (0..3).map(|_| format!("{:016x}", random.next_u64())).collect();
    id.truncate(40);
    id
}

/// CLIENT REPLY OFF and SKIP: the reply was written for nothing.
#[cold]
fn drop_reply(cx: &mut Context<'_>, reply_start: usize) {
    cx.reply.truncate(reply_start);
    let skip_next = cx.session.has(session_flag::REPLY_SKIP_NEXT);
    cx.session.set_flag(session_flag::REPLY_SKIP, skip_next);
    cx.session.flags &= !session_flag::REPLY_SKIP_NEXT;
}

fn write_timeout(session: &mut Session, reply: TimeoutReply) {
    let output = std::mem::take(&mut session.output);
    let mut writer = ReplyWriter::onto(output, session.protocol);
    reply.write(&mut writer);
    session.output = writer.into_bytes();
}
