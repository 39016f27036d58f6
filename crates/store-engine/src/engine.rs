//! The store behind one door.

use std::collections::BTreeSet;

use store_resp::{ReplyWriter, Request};
use store_types::{Limits, Rng};

use crate::acl::{self, Acl};
use crate::busy::{BusyHandler, NoBusyHandler};
use crate::command::flag;
use crate::commands;
use crate::config::{self, Config};
use crate::context::{Caller, Context};
use crate::effects::{Effects, Unblock};
use crate::error::CommandError;
use crate::eviction::{self, Eviction};
use crate::gate;
use crate::keyspace::changes::Unit;
use crate::keyspace::{ExpiryTurn, Garbage, Keyspace, PrefetchHandle};
use crate::latency::LatencyMonitor;
use crate::measure::{TickWork, Unmeasured};
use crate::migration::{self, Migrations};
use crate::notifications;
use crate::persistence::PersistenceStatus;
use crate::persistence::snapshot::Saving;
use crate::platform::Platform;
use crate::pubsub::PubSub;
use crate::rates::RateMeter;
use crate::registry::Registry;
use crate::replication::{self, ReplicationFacts};
use crate::scripting::Scripting;
use crate::sentinel::SentinelFacts;
use crate::session::{Blocked, Origin, Session, SessionId, Sessions, TimeoutReply, session_flag};
use crate::slow_log::SlowLog;
use crate::state::{DebugSwitches, Identity, Measured, ServerState, Stats, server_gate};
use crate::tracking::{self, TrackingTable};

/// Rounds of waking blocked sessions after one request: each may feed the next.
const WAKE_ROUNDS_MAX: usize = 1000;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecuteOutcome {
    /// Answered or queued: the next request of the session may run.
    Ready,
    /// The session waits: keep its further requests until it is listed in
    /// [`Effects::resumed_sessions`].
    Blocked,
    /// CLIENT PAUSE holds the request back: it did not run. Keep it, and run it again when the
    /// session is listed in [`Effects::resumed_sessions`].
    Postponed,
    /// The whole server is to pause for the time in [`Effects::rest_us`].
    Rest,
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
/// call, and what must happen outside goes out as [`Effects`], units and garbage.
pub struct Engine {
    pub(crate) keyspace: Keyspace,
    pub(crate) state: ServerState,
    /// Blocked sessions by the moment their time is up.
    deadlines: BTreeSet<(u64, SessionId)>,
    /// Requests executed and not yet measured.
    pub(crate) unmeasured: Unmeasured,
    /// When to look for ended keys next.
    expiry_at_ms: u64,
}

impl Engine {
    /// An empty store. The same seed, moments and requests give the same replies.
    pub fn new(
        config: Config,
        mut identity: Identity,
        seed: u64,
        platform: Box<dyn Platform>,
    ) -> Self {
        let mut random = Rng::seeded(seed);
        if identity.run_id.is_empty() {
            identity.run_id = hex_id(&mut random);
        }
        if identity.incarnation.is_empty() {
            identity.incarnation = hex_id(&mut random);
        }
        let databases = config.settings().keys.databases;
        let mut engine = Self {
            keyspace: Keyspace::new(databases, random.next_u64()),
            state: ServerState {
                registry: registry_of(&config, identity.is_sentinel),
                config,
                sessions: Sessions::default(),
                stats: Stats::default(),
                identity,
                measured: Measured::default(),
                persistence: PersistenceStatus::default(),
                replication: ReplicationFacts::default(),
                sentinel: SentinelFacts::default(),
                cluster: None,
                platform,
                base_memory: 0,
                clients_memory: 0,
                limits: Limits { hash_seed: random.next_u64(), ..Limits::default() },
                eviction: Eviction::default(),
                gates: 0,
                acl: Acl::default(),
                scripting: Scripting::default(),
                pubsub: PubSub::default(),
                tracking: TrackingTable::default(),
                monitors: BTreeSet::new(),
                pause: None,
                holds_writes: false,
                postponed: Vec::new(),
                migrations: Migrations::default(),
                saving: Saving::default(),
                rate_meter: RateMeter::default(),
                slow_log: SlowLog::default(),
                latency: LatencyMonitor::default(),
                slow_from_us: u64::MAX,
                tracks_latency: true,
                debug: DebugSwitches::default(),
                effects: Effects::default(),
            },
            deadlines: BTreeSet::new(),
            unmeasured: Unmeasured::default(),
            expiry_at_ms: 0,
        };
        if engine.state.config.settings().cluster.is_enabled {
            engine.lay_out_by_slot();
        }
        engine.state.saving.saved_at_ms = engine.state.identity.started_at_ms;
        engine.state.base_memory = size_of::<Self>() + size_of_val(engine.state.registry.rows());
        config::commands::apply_settings(&mut engine.keyspace, &mut engine.state);
        // A line about the default user wins over `requirepass`.
        acl::commands::load_configured_users(&mut engine.state);
        engine
    }

    /// The settings in effect.
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

    pub(crate) fn state_mut(&mut self) -> &mut ServerState {
        &mut self.state
    }

    pub(crate) fn keyspace_mut(&mut self) -> &mut Keyspace {
        &mut self.keyspace
    }

    /// What only the driver can measure, to be set by it.
    pub fn measured_mut(&mut self) -> &mut Measured {
        &mut self.state.measured
    }

    /// Call this when the requests at hand are done, before output is written: sends what is sent
    /// once for all of them.
    #[inline]
    pub fn end_turn(&mut self) {
        if self.state.tracking.has_changed() {
            let limit = self.state.config.settings().clients.output_limits.pubsub;
            let (sessions, effects) = (&mut self.state.sessions, &mut self.state.effects);
            self.state.tracking.broadcast(sessions, effects, limit);
        }
    }

    /// Call this often, with a moment in unix microseconds: from time to time it takes a sample for
    /// the rates in INFO.
    #[inline]
    pub fn sample_rates(&mut self, now_us: u64) {
        let now_ms = now_us / 1000;
        if self.state.rate_meter.is_due(now_ms) {
            self.state.rate_meter.add(now_ms, self.state.amounts());
        }
    }

    /// The identity of the server; the driver learns its port late.
    pub fn identity_mut(&mut self) -> &mut Identity {
        &mut self.state.identity
    }

    /// Whether units are recorded for the append-only file.
    pub fn set_feeding_file(&mut self, is_feeding: bool) {
        self.keyspace.changes.feeds_file = is_feeding;
        self.keyspace.changes.follow_feeds();
    }

    /// Whether units are recorded for the stream of replication.
    pub fn set_feeding_stream(&mut self, is_feeding: bool) {
        self.keyspace.changes.feeds_stream = is_feeding;
        self.keyspace.changes.follow_feeds();
    }

    /// From now on, runs only scripts with these digests (forty hexadecimal digits each) and no
    /// functions: for a store with one purpose.
    pub fn allow_only_scripts<'d>(&mut self, digests: impl IntoIterator<Item = &'d str>) {
        self.state.scripting.allow_only(digests);
    }

    /// Whether units are recorded for the append-only file, so that replies wait for it.
    #[inline]
    pub fn is_feeding_file(&self) -> bool {
        self.keyspace.changes.feeds_file
    }

    /// Whether there is nothing to fetch: no effects, units or garbage.
    #[inline]
    pub fn is_fetched(&self) -> bool {
        self.state.effects.is_fetched() && self.keyspace.changes.is_fetched()
    }

    /// To be fetched: sessions with output, sessions to resume, requests to the server.
    #[inline]
    pub fn effects(&mut self) -> &mut Effects {
        &mut self.state.effects
    }

    /// To be fetched: writes for replicas and files, in order.
    #[inline]
    pub fn units(&mut self) -> &mut Vec<Unit> {
        &mut self.keyspace.changes.units
    }

    /// Whether there are any.
    #[inline]
    pub fn has_units(&self) -> bool {
        !self.keyspace.changes.units.is_empty()
    }

    /// Units that were fetched are done with: their memory serves the next ones.
    pub fn recycle_units(&mut self, mut units: Vec<Unit>) {
        self.keyspace.changes.recycle(&mut units);
        if self.keyspace.changes.units.is_empty() {
            self.keyspace.changes.units = units;
        }
    }

    /// To be fetched: values to be freed where that delays nobody.
    #[inline]
    pub fn take_garbage(&mut self) -> Vec<Garbage> {
        std::mem::take(&mut self.keyspace.changes.garbage)
    }

    /// Whether nothing is to be delivered after a request.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.keyspace.changes.is_quiet() && self.state.effects.is_quiet()
    }

    /// A client has connected.
    pub fn open_session(&mut self, now_us: u64, origin: Origin) -> SessionId {
        self.state.stats.connections += 1;
        open_session(&mut self.state, now_us, origin)
    }

    /// Whether clients have to log in.
    pub fn needs_login(&self) -> bool {
        self.state.needs_login()
    }

    /// Reads the file of the setting `aclfile`, if there is one. Fails with the reason.
    pub fn load_acl_file(&mut self) -> Result<(), String> {
        acl::commands::load_acl_file(&mut self.state)
    }

    /// A client has disconnected, whatever it was doing.
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

    /// Runs one request of a session at a moment in unix microseconds. The reply is appended to the
    /// session's output. A script may run without limit.
    #[inline]
    pub fn execute(&mut self, now_us: u64, id: SessionId, request: Request<'_>) -> ExecuteOutcome {
        self.execute_with(now_us, id, request, &mut NoBusyHandler)
    }

    /// Runs one request like [`execute`](Self::execute); if it is a script that runs for too long,
    /// `busy_handler` is called from time to time to serve other clients.
    #[inline]
    pub fn execute_with(
        &mut self,
        now_us: u64,
        id: SessionId,
        request: Request<'_>,
        busy_handler: &mut dyn BusyHandler,
    ) -> ExecuteOutcome {
        let Some(mut session) = self.state.sessions.take(id) else {
            return ExecuteOutcome::Closing;
        };
        self.keyspace.begin(now_us, session.db);
        session.asked_at_ms = self.keyspace.now_ms();
        let reply_start = session.output.position();
        let (db, server) = (&mut self.keyspace, &mut self.state);
        let mut cx = Context::new(db, server, &mut session, busy_handler);
        gate::handle(&mut cx, request);
        const UNUSUAL_REPLY: u32 =
            session_flag::REPLY_OFF | session_flag::REPLY_SKIP | session_flag::REPLICA;
        if cx.session.has(UNUSUAL_REPLY | session_flag::ASKING) {
            cx.session.end_asking();
            if cx.session.has(UNUSUAL_REPLY) {
                drop_reply(&mut cx, request, reply_start);
            }
        }
        let blocked = cx.blocked.take();
        self.unmeasured.add((cx.ran && blocked.is_none()).then_some(cx.row));
        session.output = cx.reply.into_output();
        if let Some(mut blocked) = blocked {
            let is_same = blocked.request.as_request().args_from(0).eq(request.args_from(0));
            blocked.asked = (!is_same).then(|| request.to_owned());
            self.block(&mut session, blocked);
        }
        const ENDINGS: u32 = session_flag::BLOCKED
            | session_flag::CLOSING
            | session_flag::POSTPONED
            | session_flag::RESTS;
        let outcome = match session.flags & ENDINGS {
            0 => ExecuteOutcome::Ready,
            endings => self.unusual_outcome(&mut session, endings),
        };
        if self.state.gates & server_gate::TORN != 0 {
            return self.drop_torn(session, reply_start);
        }
        self.state.sessions.put_back(session);
        if !self.is_quiet() {
            self.deliver(Some(id));
        }
        outcome
    }

    /// Whether a request may run a script or end the server, so that
    /// [`execute_with`](Self::execute_with) is needed. All others can use `execute`.
    #[inline]
    pub fn needs_busy_handler(&self, request: Request<'_>) -> bool {
        self.state.registry.needs_busy_handler(request.arg(0))
    }

    /// Whether a request is answered with the offset of the stream: what was written before it must
    /// be in the stream by then. See [`units`](Self::units).
    #[inline]
    pub fn tells_offset(&self, request: Request<'_>) -> bool {
        self.state.registry.tells_offset(request.arg(0))
    }

    /// Nobody is told of what a script did that was ended in the middle of its writes, or of what
    /// came after it: neither files nor clients nor those who wait for keys.
    #[cold]
    fn drop_torn(&mut self, mut session: Box<Session>, reply_start: usize) -> ExecuteOutcome {
        session.output.truncate(reply_start);
        session.aside.clear();
        session.flags |= session_flag::CLOSING;
        self.state.sessions.put_back(session);
        self.keyspace.changes.forget_undelivered();
        self.state.effects.has_untold = false;
        self.state.tracking.forget_untold();
        ExecuteOutcome::Closing
    }

    #[cold]
    fn unusual_outcome(&mut self, session: &mut Session, endings: u32) -> ExecuteOutcome {
        session.flags &= !session_flag::RESTS;
        if session.has(session_flag::OVERRUN) {
            // A part of what it was to read would mislead it.
            session.output.clear();
        }
        if endings & session_flag::CLOSING != 0 {
            return ExecuteOutcome::Closing;
        }
        if endings & session_flag::POSTPONED != 0 {
            return ExecuteOutcome::Postponed;
        }
        if endings & session_flag::BLOCKED != 0 {
            ExecuteOutcome::Blocked
        } else {
            ExecuteOutcome::Rest
        }
    }

    /// Begins to fetch the memory that these requests of a session will need. Assumes that their
    /// first argument is a key; if it is not, nothing is lost.
    #[inline]
    pub fn prefetch<'r>(&self, id: SessionId, requests: impl Iterator<Item = Request<'r>>) {
        if let Some(session) = self.state.sessions.get(id) {
            let keys = requests.map(|request| request.get(1).unwrap_or_default());
            self.keyspace.prefetch(session.db, keys);
        }
    }

    /// The first of three steps that fetch the memory for a request while other work is done in
    /// between. Call it as soon as `key` is known.
    #[inline]
    pub fn foresee(&self, id: SessionId, key: &[u8]) -> Option<PrefetchHandle> {
        let session = self.state.sessions.get(id)?;
        Some(self.keyspace.foresee(session.db, key))
    }

    /// The second step.
    #[inline]
    pub fn prefetch_entry(&self, foreseen: PrefetchHandle) {
        self.keyspace.prefetch_entry(foreseen);
    }

    /// The third step, shortly before the request runs.
    #[inline]
    pub fn prefetch_value(&self, foreseen: PrefetchHandle) {
        self.keyspace.prefetch_value(foreseen);
    }

    /// Does what time alone causes: ends keys and waits, frees memory.
    pub fn tick(&mut self, now_us: u64) -> NextTick {
        self.keyspace.begin(now_us, 0);
        let now_ms = self.keyspace.now_ms();
        let mut soon = self.keyspace.drop_some();
        if !self.state.is_paused() {
            soon |= self.keyspace.empty_some();
        }
        let mut work = TickWork::default();
        if self.state.eviction.is_under_way() {
            work.evicted = true;
            eviction::make_room(&mut self.keyspace, &mut self.state);
        }
        if self.state.pause.is_some_and(|pause| pause.until_ms <= now_ms) {
            commands::end_pause(&mut self.keyspace, &mut self.state);
        }
        if self.has_held_work() {
            self.finish_held(now_us);
            self.keyspace.begin(now_us, 0);
        }
        let may_expire = !self.state.is_paused() && !self.state.debug.pauses_cron;
        if may_expire && now_ms >= self.expiry_at_ms && self.keyspace.has_volatile() {
            work.expired = true;
            match self.keyspace.expire_turn() {
                ExpiryTurn::More => soon = true,
                ExpiryTurn::Done => {
                    let period_ms = self.state.config.settings().keys.expiry_period_ms();
                    self.expiry_at_ms = now_ms + period_ms;
                }
            }
        }
        if self.keyspace.is_settling() {
            self.keyspace.snapshot_turn(0);
            soon |= self.keyspace.is_settling();
        }
        if !self.state.debug.pauses_cron {
            self.save_if_due();
        }
        while let Some((deadline, id)) = self.deadlines.first().copied()
            && deadline <= now_ms
        {
            self.give_up_waiting(id);
        }
        self.unmeasured.set_tick(work);
        self.state.stats.memory_peak = self.state.stats.memory_peak.max(self.memory());
        if !self.is_quiet() {
            self.deliver(None);
        }
        if soon { NextTick::Soon } else { self.next_tick() }
    }

    /// The wall clock was set by this much between two calls. Keys end by that clock, but waits,
    /// idle times and pauses last for as long as was said.
    pub fn clock_stepped(&mut self, step_us: i64) {
        let step_ms = step_us / 1000;
        let shift = |at: &mut u64| *at = at.saturating_add_signed(step_ms);
        self.deadlines.clear();
        for session in self.state.sessions.iter_mut() {
            shift(&mut session.opened_at_ms);
            shift(&mut session.asked_at_ms);
            if let Some(at) = session.blocked.as_mut().and_then(|it| it.deadline_ms.as_mut()) {
                shift(at);
                self.deadlines.insert((*at, session.id));
            }
        }
        self.state.pause.iter_mut().for_each(|pause| shift(&mut pause.until_ms));
        shift(&mut self.state.identity.started_at_ms);
        shift(&mut self.state.identity.incarnation_since_ms);
        shift(&mut self.state.persistence.aof.rewrite_started_at_ms);
        self.state.saving.clock_stepped(step_ms);
        self.state.rate_meter = RateMeter::default();
        // Keys may have ended by this.
        self.expiry_at_ms = 0;
    }

    /// When [`tick`](Self::tick) is wanted next.
    pub fn next_tick(&self) -> NextTick {
        let empties = !self.state.is_paused() && self.keyspace.has_emptied_slots();
        let frees = self.keyspace.has_dropped() || empties;
        if self.keyspace.is_settling() || frees || self.has_held_work() {
            return NextTick::Soon;
        }
        if self.state.eviction.is_under_way() {
            return NextTick::Soon;
        }
        let deadline = self.deadlines.first().map(|(at, _)| *at);
        let pause = self.state.pause.map(|pause| pause.until_ms);
        let has_cron = !self.state.debug.pauses_cron;
        let expires = has_cron && !self.state.is_paused() && self.keyspace.has_volatile();
        let expiry = expires.then_some(self.expiry_at_ms);
        let save = has_cron.then(|| self.save_due_at_ms()).flatten();
        match [deadline, expiry, pause, save].into_iter().flatten().min() {
            Some(at) => NextTick::At(at),
            None => NextTick::Never,
        }
    }

    /// Bytes in use, as `maxmemory` counts them.
    pub fn memory(&self) -> usize {
        self.state.base_memory + self.state.acl.users_memory() + self.keyspace.memory()
    }

    /// Bytes in use with all that clients hold and track, scripts, what is kept for replicas and
    /// other nodes, and all that waits to be freed.
    pub fn memory_in_use(&self) -> usize {
        let waiting = self.keyspace.freeing_stats().pending_bytes;
        let kept = self.state.tracking.memory()
            + self.state.scripting.kept_bytes()
            + self.state.cluster_memory();
        let stream = self.state.replication.stream_bytes() as usize;
        self.memory() + self.state.clients_memory + kept + stream + waiting
    }

    /// Sets how many bytes clients hold, as the driver counted them. They count for `maxmemory`.
    #[inline]
    pub fn set_clients_memory(&mut self, bytes: usize) {
        if bytes != self.state.clients_memory {
            self.state.clients_memory = bytes;
            self.state.eviction.clients_hold(bytes);
        }
    }

    /// Counts the values that only clients still hold, divided evenly among their readers. Returns
    /// whether there is any.
    pub fn count_orphans(&mut self) -> bool {
        self.state.sessions.count_orphans()
    }

    /// Sessions that got output from others since the last call.
    pub fn take_written(&mut self) -> Vec<SessionId> {
        let written = std::mem::take(&mut self.state.effects.written_sessions);
        for id in &written {
            if let Some(session) = self.state.sessions.get_mut(*id) {
                session.flags &= !session_flag::TOLD;
            }
        }
        written
    }

    /// Bytes of whole databases that were freed since the last call.
    pub fn take_flushed_bytes(&mut self) -> usize {
        self.keyspace.take_flushed_bytes()
    }

    /// The driver has freed this many values that it [took](Self::take_garbage), with this many
    /// bytes.
    pub fn note_freed(&mut self, objects: usize, bytes: usize) {
        self.keyspace.note_freed(objects, bytes);
    }

    /// The driver has no room for this part of the garbage: it is freed here, a single value at
    /// once, a whole database in slices, unless too much waits for that.
    pub fn take_back(&mut self, garbage: Garbage) {
        self.keyspace.take_back(garbage);
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
    pub(crate) fn forget_wait(&mut self, session: &mut Session) -> Option<Box<Blocked>> {
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

    /// The time of a session is up. Answers what it waited for.
    fn give_up_waiting(&mut self, id: SessionId) -> Option<Box<Blocked>> {
        let Some(mut session) = self.state.sessions.take(id) else {
            self.deadlines.retain(|(_, waiting)| *waiting != id);
            return None;
        };
        let blocked = self.forget_wait(&mut session);
        if let Some(blocked) = &blocked {
            let reply_start = session.output.position();
            match blocked.on_timeout {
                TimeoutReply::Replicas(_) => self.write_acks(&mut session),
                reply => write_timeout(&mut session, reply),
            }
            drop_late_reply(&mut session, reply_start);
            self.resumed(&session);
        }
        self.state.sessions.put_back(session);
        blocked
    }

    /// The driver has done what a session asked for and has written the reply: its next request may
    /// run.
    pub fn resume_session(&mut self, id: SessionId) {
        let Some(mut session) = self.state.sessions.take(id) else { return };
        if self.forget_wait(&mut session).is_some() {
            self.resumed(&session);
        }
        self.state.sessions.put_back(session);
    }

    /// Runs the request of a waiting session again. The session keeps waiting if it blocks again.
    pub fn ask_again(&mut self, now_us: u64, id: SessionId) {
        let blocked = self.state.sessions.get(id).and_then(|session| session.blocked.as_ref());
        let Some(db) = blocked.map(|blocked| blocked.db) else { return };
        self.keyspace.begin(now_us, db);
        self.wake(id, db, b"");
        if !self.is_quiet() {
            self.deliver(Some(id));
        }
    }

    /// Ends the wait of a session with an error, whose text begins with a code.
    pub fn refuse_waiting(&mut self, id: SessionId, error: &CommandError) {
        if self.state.sessions.get(id).is_some_and(|session| session.blocked.is_some()) {
            self.state.stats.count_error(error.code());
        }
        self.answer_waiting(id, &[b"-", error.as_bytes(), b"\r\n"].concat());
    }

    /// Ends the wait of a session with a reply.
    pub fn answer_waiting(&mut self, id: SessionId, reply: &[u8]) {
        let Some(mut session) = self.state.sessions.take(id) else { return };
        if let Some(blocked) = self.forget_wait(&mut session) {
            self.unmeasured.add_unblocked(&blocked);
            let reply_start = session.output.position();
            session.output.extend_from_slice(reply);
            drop_late_reply(&mut session, reply_start);
            self.resumed(&session);
        }
        self.state.sessions.put_back(session);
    }

    /// Holds all writes back, or lets them run again. CLIENT PAUSE is not affected.
    pub fn hold_writes(&mut self, is_held: bool) {
        self.state.holds_writes = is_held;
        match is_held {
            true => commands::begin_pause(&mut self.keyspace, &mut self.state),
            false if self.state.pause.is_none() => {
                commands::end_pause(&mut self.keyspace, &mut self.state);
            }
            false => {}
        }
    }

    /// The wait of this number is over for a session: this many replicas have what it wrote. Does
    /// nothing if the session has begun another wait.
    pub fn finish_wait(&mut self, id: SessionId, wait: u64, count: usize) {
        let Some(mut session) = self.state.sessions.take(id) else { return };
        let waits = session
            .blocked
            .as_ref()
            .is_some_and(|it| it.on_timeout == TimeoutReply::Replicas(wait));
        if waits && let Some(blocked) = self.forget_wait(&mut session) {
            self.unmeasured.add_unblocked(&blocked);
            let reply_start = session.output.position();
            session.output.extend_from_slice(format!(":{count}\r\n").as_bytes());
            drop_late_reply(&mut session, reply_start);
            self.resumed(&session);
        }
        self.state.sessions.put_back(session);
    }

    /// How many replicas have what the session wrote.
    fn write_acks(&self, session: &mut Session) {
        let count = self.state.replication.count_acks(session.wrote_at);
        session.output.extend_from_slice(format!(":{count}\r\n").as_bytes());
    }

    fn resumed(&mut self, session: &Session) {
        self.state.effects.written_sessions.push(session.id);
        self.state.effects.resumed_sessions.push(session.id);
    }

    /// Delivers what requests caused for other sessions. `origin` is the session that asked.
    #[cold]
    pub(crate) fn deliver(&mut self, origin: Option<SessionId>) {
        for _ in 0..WAKE_ROUNDS_MAX {
            self.deliver_signals(origin);
            let ready = self.keyspace.changes.ready_keys.take();
            if ready.is_empty() {
                break;
            }
            for (db, key) in ready {
                self.wake_waiters(db, &key);
            }
        }
        if self.keyspace.changes.is_unit_open() {
            let mut unit = self.keyspace.changes.take_unit();
            unit.origin = origin;
            if self.keyspace.changes.feeds_stream {
                self.note_writers(&unit);
            }
            self.keyspace.changes.units.push(unit);
        }
    }

    /// Delivers what was caused, if there is anything.
    pub(crate) fn deliver_if_any(&mut self, origin: Option<SessionId>) {
        if !self.is_quiet() {
            self.deliver(origin);
        }
    }

    /// Until the stream is fed, nobody has what these sessions wrote.
    fn note_writers(&mut self, unit: &Unit) {
        for id in unit.origin.iter().chain(&unit.woken) {
            if let Some(session) = self.state.sessions.get_mut(*id) {
                session.wrote_at = Session::UNFED;
            }
        }
    }

    /// CLIENT UNBLOCK.
    fn unblock(&mut self, id: SessionId, unblock: Unblock) {
        if unblock == Unblock::Timeout {
            if let Some(blocked) = self.give_up_waiting(id) {
                self.unmeasured.add_unblocked(&blocked);
            }
            return;
        }
        let Some(mut session) = self.state.sessions.take(id) else { return };
        if let Some(blocked) = self.forget_wait(&mut session) {
            self.unmeasured.add_unblocked(&blocked);
            let error = b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n";
            let reply_start = session.output.position();
            session.output.extend_from_slice(error);
            drop_late_reply(&mut session, reply_start);
            self.state.stats.count_error(b"UNBLOCKED");
            self.resumed(&session);
        }
        self.state.sessions.put_back(session);
    }

    fn deliver_signals(&mut self, origin: Option<SessionId>) {
        for (id, unblock) in std::mem::take(&mut self.state.effects.unblocks) {
            self.unblock(id, unblock);
        }
        for id in std::mem::take(&mut self.keyspace.changes.touched_watchers) {
            if let Some(session) = self.state.sessions.get_mut(id) {
                session.flags |= session_flag::WATCH_BROKEN;
            }
        }
        for lost in std::mem::take(&mut self.keyspace.changes.lost_watches) {
            if let Some(session) = self.state.sessions.get_mut(lost.watcher) {
                session.lose_watched(&lost);
            }
        }
        if !self.keyspace.changes.notifications.is_empty() {
            // Whoever it is about is in the table.
            notifications::tell_notifications(&mut self.keyspace, &mut self.state, origin, None);
        }
        if self.state.effects.has_untold {
            notifications::tell_untold(&mut self.state);
        }
        if std::mem::take(&mut self.state.effects.tracking_is_full) {
            tracking::commands::shrink_tracking(&mut self.state);
        }
    }

    /// Serves those who wait for `key`, first come first, until it is gone; then only those who
    /// cannot wait without it.
    fn wake_waiters(&mut self, db: usize, key: &[u8]) {
        for id in self.keyspace.waiting.of(db, key) {
            self.keyspace.begin(self.keyspace.now_us(), db);
            if self.keyspace.contains(key) || self.needs_key(id) {
                self.wake(id, db, key);
                // What it caused is its own doing, not that of the session that fed it.
                self.deliver_signals(Some(id));
            }
        }
    }

    /// Whether what a session waits to do would change a key that is on its way elsewhere.
    pub(crate) fn must_stay_blocked(&self, waiting: &Blocked) -> bool {
        if self.state.gates & server_gate::LEAVING == 0 {
            return false;
        }
        let command = self.state.registry.row(waiting.row).command;
        migration::changes_leaving(&self.state, waiting.db, command, waiting.request.as_request())
    }

    fn needs_key(&self, id: SessionId) -> bool {
        let session = self.state.sessions.get(id);
        session.and_then(|session| session.blocked.as_ref()).is_some_and(|wait| wait.needs_key)
    }

    /// Runs the request of a blocked session once more; it stays blocked when it blocks again.
    fn wake(&mut self, id: SessionId, db: usize, ready_key: &[u8]) {
        let Some(mut session) = self.state.sessions.take(id) else { return };
        if session.has(session_flag::CLOSING) {
            // Killed, and not closed yet: nothing may be taken on its behalf.
            return self.state.sessions.put_back(session);
        }
        let Some(waiting) = session.blocked.take() else {
            return self.state.sessions.put_back(session);
        };
        if self.must_stay_blocked(&waiting) {
            // It is looked at again when those keys are gone, or stay.
            self.state.migrations.hold_waiting();
            session.blocked = Some(waiting);
            return self.state.sessions.put_back(session);
        }
        let command = self.state.registry.row(waiting.row).command;
        if self.state.is_paused() && command.has(flag::WRITE) {
            // It is looked at again when writes may run.
            self.state.migrations.was_woken_in_pause = true;
            session.blocked = Some(waiting);
            return self.state.sessions.put_back(session);
        }
        let now_us = self.keyspace.now_us();
        self.keyspace.begin(now_us, db);
        let reply_start = session.output.position();
        let written_before = self.keyspace.changes.unit.requests.len();
        let (db, server) = (&mut self.keyspace, &mut self.state);
        let mut nobody = NoBusyHandler;
        let mut cx = Context {
            row: waiting.row,
            caller: Caller::Resumed,
            ready_key: Some(ready_key),
            ..Context::new(db, server, &mut session, &mut nobody)
        };
        gate::call(&mut cx, waiting.request.as_request());
        let still_blocked = cx.blocked.take().is_some();
        if still_blocked {
            cx.reply.truncate(reply_start);
        }
        session.output = cx.reply.into_output();
        session.blocked = Some(waiting);
        let changes = &mut self.keyspace.changes;
        if changes.feeds_stream && changes.unit.requests.len() > written_before {
            changes.unit.woken.push(id);
        }
        if !still_blocked {
            drop_late_reply(&mut session, reply_start);
            if let Some(served) = self.forget_wait(&mut session) {
                self.unmeasured.add_served(id, *served);
            }
            self.resumed(&session);
        }
        self.state.sessions.put_back(session);
    }
}

/// A client has connected: what it may do follows from the default user.
pub(crate) fn open_session(state: &mut ServerState, now_us: u64, origin: Origin) -> SessionId {
    let id = state.sessions.open(now_us / 1000, origin);
    let user = state.acl.default_user();
    if let Some(session) = state.sessions.get_mut(id) {
        session.set_flag(session_flag::NEEDS_AUTH, !user.is_open());
        session.set_flag(session_flag::RESTRICTED, !user.may_do_everything());
    }
    id
}

/// The command table under the names that clients use.
fn registry_of(config: &Config, is_sentinel: bool) -> Registry {
    let mut registry = if is_sentinel { Registry::of_sentinel() } else { Registry::new() };
    for (name, new_name) in config.renamed() {
        let renamed = registry.rename(name, new_name);
        // A sentinel has few of the commands.
        assert!(renamed.is_ok() || is_sentinel, "names were checked when they were set");
    }
    registry
}

/// Forty hexadecimal digits, the form of run ids.
pub(crate) fn hex_id(random: &mut Rng) -> String {
    let mut id: String = (0..3).map(|_| format!("{:016x}", random.next_u64())).collect();
    id.truncate(40);
    id
}

/// CLIENT REPLY OFF and SKIP: the reply was written for nothing. One to a replica would stand in
/// the middle of the stream.
#[cold]
pub(crate) fn drop_reply(cx: &mut Context<'_>, request: Request<'_>, reply_start: usize) {
    if cx.session.has(session_flag::REPLICA) && cx.reply.len() > reply_start {
        replication::close_answered_replica(cx, request);
    }
    if cx.blocked.is_some() || cx.session.has(session_flag::POSTPONED) {
        // It is still to come.
        return;
    }
    cx.reply.truncate(reply_start);
    // Messages are no replies.
    cx.reply.raw(&std::mem::take(&mut cx.session.aside));
    cx.session.end_skip();
}

/// The same for a session whose wait is over: what it was told stands from `reply_start` on.
fn drop_late_reply(session: &mut Session, reply_start: usize) {
    if session.has(session_flag::REPLY_OFF | session_flag::REPLY_SKIP) {
        session.output.truncate(reply_start);
        session.output.extend_from_slice(&std::mem::take(&mut session.aside));
        session.end_skip();
    }
}

fn write_timeout(session: &mut Session, reply: TimeoutReply) {
    let output = std::mem::take(&mut session.output);
    let mut writer = ReplyWriter::onto_output(output, session.protocol);
    reply.write(&mut writer);
    session.output = writer.into_output();
}
