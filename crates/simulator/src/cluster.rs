//! The store's side of a world: nodes that run, pause, restart, lag behind and are promoted.

use std::time::Duration;

use tenure_core::memory_store::{Fingerprint, MemoryStore};
use tenure_core::protocol::{Call, Hint, Outcome, Request};
use tenure_core::{InstanceId, Resource, ServerTime, StoreError};

use crate::algorithm::{Op, Reply};
use crate::case::History;
use crate::clock::{Clock, Real};
use crate::flaw::Flaw;
use crate::swaps::{read, write};

/// What the clock of a store shows when a world begins, in nanoseconds since 1970.
pub(crate) const EPOCH: u64 = 1_700_000_000_000_000_000;

/// One store process and its host's clock.
pub(crate) struct Node {
    pub(crate) store: MemoryStore,
    pub(crate) clock: Clock,
    pub(crate) is_alive: bool,
    /// Stopped until then; requests wait in its sockets.
    pub(crate) paused_until: Real,
    /// One of several nodes that is not as it should be, or was not a short while ago.
    pub(crate) faulty_until: Real,
    /// Denies everybody everything until then.
    pub(crate) denies_until: Real,
    /// A replica, or a primary of the past: it answers what only reads, and takes no writes.
    pub(crate) read_only_until: Real,
    /// What it would start again with.
    pub(crate) saved: Option<MemoryStore>,
}

impl Node {
    fn new(store: MemoryStore, clock: Clock) -> Self {
        Node {
            store,
            clock,
            is_alive: true,
            paused_until: 0,
            faulty_until: 0,
            denies_until: 0,
            read_only_until: 0,
            saved: None,
        }
    }

    pub(crate) fn server_time(&self, now: Real) -> ServerTime {
        ServerTime(self.clock.at(now) / 1_000)
    }
}

/// All nodes there ever were; one is the primary.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) primary: usize,
    history: History,
    flaw: Option<Flaw>,
    replicas: Vec<Replica>,
    /// The primary's data as its disk will have it, where that is told apart.
    disk: Option<Replica>,
    runs: u64,
    /// Counts what was executed on any node.
    pub(crate) writes: u64,
    /// How far the clock of any server that never jumped has been ahead.
    pub(crate) drawn_ahead_max: i64,
}

/// A copy of a primary that hears of every write a little later.
struct Replica {
    /// The node that it copies.
    of: usize,
    copied: MemoryStore,
    clock: Clock,
    /// What the primary executed since the copy was made, and when this replica heard of it.
    stream: Vec<Heard>,
}

/// One write as a replica hears of it.
struct Heard {
    at: Real,
    /// The write's place among all writes of all nodes.
    number: u64,
    executed_at: ServerTime,
    call: Call,
}

impl Replica {
    /// When it hears of what is executed now: later than of everything before.
    fn hears_at(&self, now: Real, lag: u64) -> Real {
        let last = self.stream.last().map_or(0, |heard| heard.at);
        (now + lag).max(last)
    }
}

/// What came of one request.
pub(crate) struct Executed {
    pub(crate) reply: Reply,
    pub(crate) hints: Vec<Hint>,
    /// A renewal or release changed a term that it did not name.
    pub(crate) touched_other_term: bool,
}

impl Cluster {
    pub(crate) fn new(off_ppm: i64, up_for: u64, (history, flaw): (History, Option<Flaw>)) -> Self {
        let clock = Clock::new(EPOCH, off_ppm);
        let store = new_store(history, ServerTime((EPOCH - up_for) / 1_000), 1);
        Cluster {
            nodes: vec![Node::new(store, clock)],
            primary: 0,
            history,
            flaw,
            replicas: Vec::new(),
            disk: None,
            runs: 1,
            writes: 0,
            drawn_ahead_max: 0,
        }
    }

    /// Adds a node that decides together with the others.
    pub(crate) fn add_node(&mut self, ahead: i64, off_ppm: i64, up_for: u64) {
        let reading = EPOCH.saturating_add_signed(ahead);
        self.runs += 1;
        let started_at = ServerTime((reading - up_for) / 1_000);
        let store = new_store(self.history, started_at, self.runs);
        let clock = Clock::new(reading, off_ppm);
        self.nodes.push(Node::new(store, clock));
    }

    /// A node starts again with what it had saved at some time before.
    pub(crate) fn restart_with(&mut self, node: usize, now: Real, saved: MemoryStore) {
        self.runs += 1;
        let started_at = self.nodes[node].server_time(now);
        self.nodes[node].store = saved;
        self.nodes[node].store.promote(self.runs, started_at);
    }

    /// Another node owns the slot from now on, with its data or without any. Its clock is `ahead`
    /// of the old one, its rate off by `off_ppm`, and it has been up for long.
    pub(crate) fn move_slot(
        &mut self,
        now: Real,
        (ahead, off_ppm, up_for): (i64, i64, u64),
        with_data: bool,
    ) {
        self.runs += 1;
        let clock = self.clock_beside_primary(now, ahead, off_ppm);
        let started_at = ServerTime((clock.at(now) - up_for) / 1_000);
        let store = match with_data {
            true => {
                let mut store = self.primary().store.clone();
                store.promote(self.runs, started_at);
                store
            }
            false => new_store(self.history, started_at, self.runs),
        };
        self.nodes.push(Node::new(store, clock));
        self.primary = self.nodes.len() - 1;
    }

    /// A server that has what the primary saved some time ago, and takes no writes.
    pub(crate) fn add_stale_node(&mut self) -> usize {
        let primary = self.primary();
        let store = primary.saved.clone().unwrap_or_else(|| primary.store.clone());
        let node = Node { read_only_until: Real::MAX, ..Node::new(store, primary.clock.clone()) };
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// What a server that takes no writes answers: its data, or a refusal before anything else.
    pub(crate) fn read_only_reply(
        &mut self,
        at: usize,
        now: Real,
        op: &Op,
        from: &Caller,
    ) -> Result<Reply, StoreError> {
        let refusal = || StoreError::wrong_node("it takes no writes");
        let server_time = self.nodes[at].server_time(now);
        let Op::Call(request) = op else { return Err(refusal()) };
        let call = Call {
            resource: from.resource.clone(),
            id: from.id.clone(),
            request: request.clone(),
            timeout: Duration::ZERO,
            fleet_max_ttl: from.fleet_max_ttl,
        };
        let reads = matches!(
            request,
            Request::Observe { .. } | Request::History { .. } | Request::TickLook { .. }
        );
        // Nothing of what the call does stays.
        let (answer, _) = self.nodes[at].store.clone().execute(server_time, &call);
        let judges_first = self.flaw.is_some_and(|flaw| flaw.judges_before_refusing(request));
        let says_lost = matches!(answer.outcome, Outcome::Lost(_));
        match reads || judges_first && says_lost {
            true => Ok(Reply::Answer(answer)),
            false => Err(refusal()),
        }
    }

    /// From here on it is known which calls the primary's disk has.
    pub(crate) fn keep_on_disk(&mut self) {
        let (of, clock) = (self.primary, self.primary().clock.clone());
        let copied = self.primary().store.clone();
        self.disk = Some(Replica { of, copied, clock, stream: Vec::new() });
    }

    /// The primary's data as its disk has it without what came in the last `lost` nanoseconds.
    pub(crate) fn on_disk(&self, now: Real, lost: u64) -> Option<MemoryStore> {
        let disk = self.disk.as_ref()?;
        let mut store = disk.copied.clone();
        for heard in disk.stream.iter().filter(|heard| heard.at.saturating_add(lost) <= now) {
            store.execute(heard.executed_at, &heard.call);
        }
        Some(store)
    }

    pub(crate) fn primary(&mut self) -> &mut Node {
        &mut self.nodes[self.primary]
    }

    /// Attaches a replica whose clock shows `ahead` nanoseconds more or less than the primary's.
    pub(crate) fn attach_replica(&mut self, now: Real, ahead: i64, off_ppm: i64) {
        let clock = self.clock_beside_primary(now, ahead, off_ppm);
        let copied = self.primary().store.clone();
        self.replicas.push(Replica { of: self.primary, copied, clock, stream: Vec::new() });
    }

    fn clock_beside_primary(&mut self, now: Real, ahead: i64, off_ppm: i64) -> Clock {
        let reading = self.primary().clock.at(now).saturating_add_signed(ahead);
        // Such differences add up where one replica after the other takes over.
        let drawn_ahead = self.primary().clock.drawn_ahead + ahead;
        self.drawn_ahead_max = self.drawn_ahead_max.max(drawn_ahead);
        let mut clock = Clock::new(0, 0);
        clock.drawn_ahead = drawn_ahead;
        clock.step_forward(now, reading - clock.at(now));
        clock.set_rate(now, off_ppm);
        clock
    }

    /// Lets go of the primary's replicas: they start anew from a copy. Answers how many there were.
    pub(crate) fn detach_replicas(&mut self) -> usize {
        let (primary, before) = (self.primary, self.replicas.len());
        self.replicas.retain(|replica| replica.of != primary);
        before - self.replicas.len()
    }

    /// How many replicas copy a node.
    pub(crate) fn replicas_of(&self, node: usize) -> usize {
        self.replicas.iter().filter(|replica| replica.of == node).count()
    }

    /// A replica of the primary, as far as it has heard by `now` with `lag`, takes its place.
    pub(crate) fn promote_replica(&mut self, now: Real, lag: u64, choice: usize) {
        let primary = self.primary;
        let mut places = (0..self.replicas.len()).filter(|at| self.replicas[*at].of == primary);
        let Some(place) = places.nth(choice) else { return };
        let replica = self.replicas.swap_remove(place);
        let mut store = replica.copied;
        for heard in replica.stream.iter().filter(|heard| heard.at.saturating_add(lag) <= now) {
            store.execute(heard.executed_at, &heard.call);
        }
        self.runs += 1;
        let clock = replica.clock;
        store.promote(self.runs, ServerTime(EPOCH / 1_000));
        self.nodes.push(Node::new(store, clock));
        self.primary = self.nodes.len() - 1;
    }

    /// Carries out a request on one node.
    /// Replicas hear of it with these `lags`; those without one, at once.
    pub(crate) fn execute(
        &mut self,
        at: usize,
        now: Real,
        op: &Op,
        from: &Caller,
        lags: &[u64],
    ) -> Executed {
        let server_time = self.nodes[at].server_time(now);
        match op {
            Op::Call(request) => self.call((at, now, server_time), request, from, lags),
            Op::Read => Executed {
                reply: Reply::Found(Box::new(read(&self.nodes[at].store, server_time))),
                hints: Vec::new(),
                touched_other_term: false,
            },
            Op::Swap(swap) => {
                let is_done = write(&mut self.nodes[at].store, server_time, swap);
                let (reply, hints) = match is_done {
                    true => {
                        let decision = swap.decision.clone();
                        let (answer, swap) = (decision.answer, swap.clone());
                        (Reply::Written { answer, swap }, decision.hints)
                    }
                    false => (Reply::Done(false), Vec::new()),
                };
                Executed { reply, hints, touched_other_term: false }
            }
            plain => Executed {
                reply: execute_plain(&mut self.nodes[at].store, server_time, plain),
                hints: Vec::new(),
                touched_other_term: false,
            },
        }
    }

    /// When so many replicas of a node will have heard of a write; `None` when it has fewer.
    pub(crate) fn confirmed_at(&self, node: usize, write: u64, count: usize) -> Option<Real> {
        let copies = self.replicas.iter().filter(|replica| replica.of == node);
        let heard_at = |replica: &Replica| {
            let heard = replica.stream.iter().rev().find(|heard| heard.number == write);
            heard.map(|heard| heard.at)
        };
        let mut heard: Vec<Real> = copies.filter_map(heard_at).collect();
        heard.sort_unstable();
        heard.get(count.checked_sub(1)?).copied()
    }

    fn call(
        &mut self,
        (at, now, server_time): (usize, Real, ServerTime),
        request: &Request,
        from: &Caller,
        lags: &[u64],
    ) -> Executed {
        let mut call = Call {
            resource: from.resource.clone(),
            id: from.id.clone(),
            request: request.clone(),
            timeout: Duration::ZERO,
            fleet_max_ttl: from.fleet_max_ttl,
        };
        let store = &mut self.nodes[at].store;
        let before = store.fingerprint(server_time, from.resource.key());
        let (answer, hints) = match self.flaw {
            Some(flaw) => flaw.execute(store, server_time, &mut call),
            None => store.execute(server_time, &call),
        };
        let is_other = before.as_ref().is_some_and(|before| is_other_term(before, request, from));
        let touched_other_term =
            is_other && before != store.fingerprint(server_time, from.resource.key());
        self.writes += 1;
        if let Some(disk) = self.disk.as_mut().filter(|disk| disk.of == at) {
            let (number, call) = (self.writes, call.clone());
            disk.stream.push(Heard { at: now, number, executed_at: server_time, call });
        }
        for (index, replica) in self.replicas.iter_mut().filter(|one| one.of == at).enumerate() {
            let heard_at = replica.hears_at(now, lags.get(index).copied().unwrap_or(0));
            let (number, call) = (self.writes, call.clone());
            replica.stream.push(Heard { at: heard_at, number, executed_at: server_time, call });
        }
        Executed { reply: Reply::Answer(answer), hints, touched_other_term }
    }
}

/// Who asks for what.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) id: InstanceId,
    pub(crate) resource: Resource,
    /// The longest lease that it knows of: every request carries it.
    pub(crate) fleet_max_ttl: Duration,
}

/// A store that knows of its past what its kind knows.
fn new_store(history: History, started_at: ServerTime, run: u64) -> MemoryStore {
    match history {
        History::Unknown => MemoryStore::redis_like(started_at, run),
        History::Vouched => MemoryStore::vouching(started_at, run),
    }
}

/// Whether a request that may only concern its own term meets another one.
fn is_other_term(before: &Fingerprint, request: &Request, from: &Caller) -> bool {
    let is_own = match request {
        Request::Renew { token, .. }
        | Request::Adopt { token, .. }
        | Request::Release { token, .. }
        | Request::Transfer { token, .. }
        | Request::PassOn { token, .. } => before.token == Some(*token),
        Request::Abandon { attempt } => before.attempt == *attempt,
        _ => return false,
    };
    !(before.is_vacant() || before.holder == from.id && is_own)
}

fn execute_plain(store: &mut MemoryStore, now: ServerTime, op: &Op) -> Reply {
    match op {
        Op::Get(key) => Reply::Value(store.get(now, key).map(str::to_owned)),
        Op::Set { key, value } => {
            store.delete(now, key);
            Reply::Done(store.set_if_absent(now, key, value, None))
        }
        Op::SetIfAbsent { key, value, ttl } => {
            Reply::Done(store.set_if_absent(now, key, value, *ttl))
        }
        Op::Expire { key, ttl } => Reply::Done(store.expire(now, key, *ttl)),
        Op::Delete(key) => Reply::Done(store.delete(now, key)),
        Op::ExpireIfEqual { key, value, ttl } => {
            let is_equal = store.get(now, key) == Some(value);
            Reply::Done(is_equal && store.expire(now, key, *ttl))
        }
        Op::DeleteIfEqual { key, value } => {
            let is_equal = store.get(now, key) == Some(value);
            Reply::Done(is_equal && store.delete(now, key))
        }
        Op::Call(_) | Op::Read | Op::Swap(_) => {
            unreachable!("calls of the protocol have their own way in")
        }
    }
}

/// Whether an answer means that a term was granted.
pub(crate) fn granted(reply: &Reply) -> Option<tenure_core::Token> {
    match reply {
        Reply::Answer(answer) | Reply::Written { answer, .. } => match answer.outcome {
            Outcome::Granted { token } => Some(token),
            _ => None,
        },
        _ => None,
    }
}
