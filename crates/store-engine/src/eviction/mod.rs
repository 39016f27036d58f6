//! `maxmemory`: room is made before each request, by giving up keys as the policy says.
//!
//! ```text
//! request ─► check ─► make_room ─► sample ► pool ► evict, until memory is within the limit
//!              │          ├ Enough, or Freeing: the work of one turn is done, `tick` goes on
//!              │          └ Nothing: no key may go
//!              └► refuses what needs memory while there is nothing to give up
//! ```
//! What counts: keys and values, what was there before the first key, what clients hold (as in
//! Redis: `maxmemory-clients` keeps a slow reader from costing others their keys), which keys
//! clients track, scripts and functions, users, and tables that FLUSHALL let go, which are freed
//! before any key goes. Buffers of files do not, nor do values that the driver frees, or more
//! would go than is needed.
//!
//! The engine has no clock that goes on while it works, so the work of one turn is counted
//! instead of timed.

mod policy;
mod pool;

pub(crate) use policy::Policy;

use crate::command::{Command, flag};
use crate::context::Context;
use crate::effects::ServerRequest;
use crate::error::{CommandError, CommandResult};
use crate::gate::RequestFlags;
use crate::keyspace::{Keyspace, Scope};
use crate::state::{ServerState, server_gate};
use crate::tracking;
use policy::Order;
use pool::{Candidate, Pool};

/// What a write is answered when there is no memory for it.
const OUT_OF_MEMORY: CommandError =
    CommandError::text("OOM command not allowed when used memory > 'maxmemory'.");
/// Keys sampled per database and eviction, whatever `maxmemory-samples` says: beyond this the
/// choice hardly gets better, and only work grows.
const SAMPLES_MAX: usize = 256;
/// Clients may come to hold so much more before reads look at memory again.
const CLIENT_GROWTH: usize = 16 * 1024;
/// What giving up one key costs in microseconds, by which work is counted.
const US_PER_KEY: u64 = 4;
/// What freeing a slice of a flushed table costs in microseconds.
const US_PER_SLICE: u64 = 1000;
/// Parts of a value that are freed in a microsecond.
const PARTS_PER_US: u64 = 16;
/// Keys that a turn may give up even at the lowest `maxmemory-eviction-tenacity`.
const KEYS_MIN: u64 = 16;

/// What came of making room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionOutcome {
    /// Memory is within the limit.
    Enough,
    /// It is not yet, but keys are going.
    Freeing,
    /// It is not, and no key may go.
    Nothing,
}

/// Settings of eviction, and how far it is.
#[derive(Debug)]
pub struct Eviction {
    policy: Policy,
    samples: usize,
    work_max: u64,
    pool: Pool,
    /// Where the random policies were last.
    last_db: usize,
    state: EvictionOutcome,
    /// The count of changes when memory was last found to be within the limit: without another
    /// change it still is, so reads need not look again.
    enough_at: Option<u64>,
    /// What clients held then.
    clients_then: usize,
    /// Since when memory has been over the limit, unix microseconds.
    exceeded_since_us: Option<u64>,
    /// How long it was before.
    exceeded_us: u64,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            policy: Policy::Keep,
            samples: 1,
            work_max: 0,
            pool: Pool::default(),
            last_db: 0,
            state: EvictionOutcome::Enough,
            enough_at: None,
            clients_then: 0,
            exceeded_since_us: None,
            exceeded_us: 0,
        }
    }
}

/// Settings as eviction takes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictionSettings {
    pub(crate) policy: Policy,
    pub(crate) samples: usize,
    pub(crate) tenacity: u32,
    /// Whether `maxmemory` is set.
    pub(crate) has_limit: bool,
}

/// The memory gate: makes room, and refuses what needs memory when there is none.
pub(crate) fn check(
    cx: &mut Context<'_>,
    command: &Command,
    demands: RequestFlags,
) -> CommandResult {
    let room = make_room(cx.db, cx.server);
    if !cx.db.changes.notifications.is_empty() {
        tracking::commands::tell_before_reply(cx);
    }
    if room == EvictionOutcome::Nothing && needs_memory(cx, command, demands) {
        return Err(OUT_OF_MEMORY);
    }
    Ok(())
}

/// Why writes of a script will be refused, if they will: no key may go once it runs, so what
/// the gate found before counts.
pub(crate) fn refusal(server: &ServerState) -> Option<CommandError> {
    let has_limit = server.config.settings().memory.max > 0;
    (has_limit && server.eviction.state == EvictionOutcome::Nothing).then_some(OUT_OF_MEMORY)
}

/// Says so in the log when a new limit is below what is in use.
pub(crate) fn log_if_over(db: &Keyspace, server: &mut ServerState) {
    let used = beside_keys(server) + db.memory();
    let memory_max = server.config.settings().memory.max;
    if memory_max > 0 && used > memory_max {
        let what = match server.eviction.policy {
            Policy::Keep => "writes are refused until keys are removed or the limit is raised",
            Policy::Evict(..) => "keys will be evicted",
        };
        let line = format!("maxmemory {memory_max} is below the {used} bytes in use: {what}");
        server.effects.requests.push(ServerRequest::Log(line));
    }
}

/// Bytes that count for the limit and are no keys.
fn beside_keys(server: &ServerState) -> usize {
    let backlog = server.replication.backlog_bytes(&server.config);
    let kept = server.tracking.memory() + server.scripting.kept_bytes() + backlog;
    let others = server.clients_memory + server.cluster_memory();
    server.base_memory + others + server.acl.users_memory() + kept
}

fn needs_memory(cx: &Context<'_>, command: &Command, demands: RequestFlags) -> bool {
    // Whatever is queued takes memory.
    let is_kept = cx.in_multi() && !command.has(flag::RUNS_QUEUED | flag::DROPS_QUEUED);
    demands.grows() || is_kept
}

/// Gives up keys until memory is within the limit, or the work of a turn is done.
#[inline]
pub(crate) fn make_room(db: &mut Keyspace, server: &mut ServerState) -> EvictionOutcome {
    match server.eviction.enough_at == Some(db.dirty) {
        true => EvictionOutcome::Enough,
        false => look_and_make_room(db, server),
    }
}

fn look_and_make_room(db: &mut Keyspace, server: &mut ServerState) -> EvictionOutcome {
    let memory_max = server.config.settings().memory.max;
    // While clients are paused the data stays as it is: someone may be copying it. While it is
    // loaded, what comes next in the file counts on what came before.
    // On a replica the primary says what goes.
    let is_held = server.is_paused()
        || server.gates & server_gate::LOADING != 0
        || db.is_replica() && server.config.settings().memory.replica_ignores_max;
    if memory_max == 0 || is_held {
        server.eviction.state = EvictionOutcome::Enough;
        server.eviction.enough_at = None;
        return EvictionOutcome::Enough;
    }
    let base = beside_keys(server);
    let is_over = |db: &Keyspace| base + db.memory() + db.dropped_bytes() > memory_max;
    let room = server.eviction.evict_while(db, is_over);
    server.eviction.enter(room, db.now_us());
    server.eviction.enough_at = (room == EvictionOutcome::Enough).then_some(db.dirty);
    server.eviction.clients_then = server.clients_memory;
    room
}

impl Eviction {
    pub(crate) fn apply(&mut self, settings: EvictionSettings) {
        if self.policy != settings.policy {
            // Scores of different policies cannot be compared.
            self.pool.clear();
        }
        self.policy = settings.policy;
        self.samples = settings.samples.clamp(1, SAMPLES_MAX);
        self.work_max = work_max(settings.tenacity);
        // Whether the limit is kept is seen in the next turn.
        self.state =
            if settings.has_limit { EvictionOutcome::Freeing } else { EvictionOutcome::Enough };
        self.enough_at = None;
    }

    /// Memory grew though no change was counted: data was loaded. The next turn looks at it.
    pub(crate) fn look_again(&mut self) {
        self.enough_at = None;
        self.state = EvictionOutcome::Freeing;
    }

    /// Whether keys go by when or how often they were accessed.
    pub(crate) fn orders_by_access(&self) -> bool {
        self.policy.orders_by_access()
    }

    /// Clients hold so much now: if that is much more than before, the next request looks.
    #[inline]
    pub(crate) fn clients_hold(&mut self, bytes: usize) {
        if bytes > self.clients_then + CLIENT_GROWTH {
            self.enough_at = None;
        }
    }

    /// Whether keys are to go even if no request comes.
    pub(crate) fn is_under_way(&self) -> bool {
        self.state == EvictionOutcome::Freeing
    }

    /// How long memory has been over the limit, in all and this time, in microseconds.
    pub(crate) fn exceeded_us(&self, now_us: u64) -> (u64, u64) {
        let since = self.exceeded_since_us;
        let current = since.map_or(0, |since| now_us.saturating_sub(since));
        (self.exceeded_us + current, current)
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset_stats(&mut self) {
        (self.exceeded_us, self.exceeded_since_us) = (0, None);
    }

    fn enter(&mut self, room: EvictionOutcome, now_us: u64) {
        self.state = room;
        if room != EvictionOutcome::Enough {
            self.exceeded_since_us.get_or_insert(now_us);
        } else if self.exceeded_since_us.is_some() {
            (self.exceeded_us, _) = self.exceeded_us(now_us);
            self.exceeded_since_us = None;
        }
    }

    fn evict_while(
        &mut self,
        db: &mut Keyspace,
        is_over: impl Fn(&Keyspace) -> bool,
    ) -> EvictionOutcome {
        let mut work_left = self.work_max;
        while is_over(db) {
            if work_left == 0 {
                return EvictionOutcome::Freeing;
            }
            if db.has_dropped() {
                db.drop_some();
                work_left = work_left.saturating_sub(US_PER_SLICE);
                continue;
            }
            let Some(chosen) = self.choose(db) else { return EvictionOutcome::Nothing };
            let effort = db.evict(chosen.db, &chosen.key).unwrap_or(0) as u64;
            work_left = work_left.saturating_sub(US_PER_KEY + effort / PARTS_PER_US);
        }
        EvictionOutcome::Enough
    }

    /// The key to go next, `None` when none may.
    fn choose(&mut self, db: &mut Keyspace) -> Option<Candidate> {
        match self.policy {
            Policy::Keep => None,
            Policy::Evict(scope, Order::Random) => self.choose_any(db, scope),
            Policy::Evict(scope, order) => loop {
                if !self.fill_pool(db, scope, order) {
                    return None;
                }
                if let Some(candidate) = self.take_candidate(db, scope, order) {
                    return Some(candidate);
                }
            },
        }
    }

    /// A key of the next database that has one.
    fn choose_any(&mut self, db: &mut Keyspace, scope: Scope) -> Option<Candidate> {
        for _ in 0..db.database_count() {
            self.last_db = (self.last_db + 1) % db.database_count();
            let mut chosen = None;
            db.sample(self.last_db, scope, 1, &mut |entry| chosen = Some(entry.key().into()));
            if let Some(key) = chosen {
                return Some(Candidate { score: 0, db: self.last_db, key });
            }
        }
        None
    }

    /// Samples every database. False when no key may go.
    fn fill_pool(&mut self, db: &mut Keyspace, scope: Scope, order: Order) -> bool {
        let (access, now_ms, pool) = (db.access_policy(), db.now_ms(), &mut self.pool);
        let mut has_any = false;
        for number in 0..db.database_count() {
            if db.count(number, scope) > 0 {
                has_any = true;
                db.sample(number, scope, self.samples, &mut |entry| {
                    pool.offer(order.score(entry, access, now_ms), number, entry.key());
                });
            }
        }
        has_any
    }

    /// The best candidate that is still what it was when it was sampled: one that was used
    /// since takes its place among the others anew.
    fn take_candidate(&mut self, db: &Keyspace, scope: Scope, order: Order) -> Option<Candidate> {
        let (access, now_ms) = (db.access_policy(), db.now_ms());
        while let Some(mut candidate) = self.pool.take_best() {
            let Some(entry) = db.entry_in(candidate.db, &candidate.key) else { continue };
            if !scope.includes(entry) {
                continue;
            }
            let score = order.score(entry, access, now_ms);
            let is_best = self.pool.best_score().is_none_or(|other| score >= other);
            if is_best || score == candidate.score {
                return Some(candidate);
            }
            candidate.score = score;
            self.pool.insert(candidate);
        }
        None
    }
}

/// How much work a turn may do, in microseconds: 0.5 ms by default, and 15 % more per step.
fn work_max(tenacity: u32) -> u64 {
    let micros = match tenacity {
        0..=10 => 50.0 * f64::from(tenacity),
        11..=99 => 500.0 * 1.15f64.powi(tenacity as i32 - 10),
        _ => return u64::MAX,
    };
    (micros as u64).max(KEYS_MIN * US_PER_KEY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_tenacity_is_more_work() {
        assert_eq!(work_max(0), KEYS_MIN * US_PER_KEY);
        assert_eq!(work_max(10), 500);
        assert!((0..100).all(|tenacity| work_max(tenacity) <= work_max(tenacity + 1)));
        assert_eq!(work_max(100), u64::MAX);
    }
}
