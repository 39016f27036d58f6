//! The store's side of a world: nodes that run, pause, restart, lag behind and are promoted.

use tenure_core::memory_store::MemoryStore;
use tenure_core::protocol::{Call, Hint, Outcome, Request};
use tenure_core::{InstanceId, Resource, ServerTime};

use crate::algorithm::{Op, Reply};
use crate::clock::{Clock, Real};
use crate::flaw::Flaw;

/// What the clock of a store shows when a world begins, in nanoseconds since 1970.
const EPOCH: u64 = 1_700_000_000_000_000_000;

/// One store process and its host's clock.
pub(crate) struct Node {
    pub(crate) store: MemoryStore,
    pub(crate) clock: Clock,
    pub(crate) is_alive: bool,
    /// Stopped until then; requests wait in its sockets.
    pub(crate) paused_until: Real,
    /// One of several nodes that is not as it should be, or was not a short while ago.
    pub(crate) faulty_until: Real,
    /// What it would start again with.
    pub(crate) saved: Option<MemoryStore>,
}

impl Node {
    fn new(store: MemoryStore, clock: Clock) -> Self {
        Node { store, clock, is_alive: true, paused_until: 0, faulty_until: 0, saved: None }
    }

    pub(crate) fn server_time(&self, now: Real) -> ServerTime {
        ServerTime(self.clock.at(now) / 1_000)
    }
}

/// All nodes there ever were; one is the primary.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) primary: usize,
    flaw: Option<Flaw>,
    replicas: Vec<Replica>,
    runs: u64,
    /// Counts what was executed on any node.
    pub(crate) writes: u64,
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
    pub(crate) fn new(off_ppm: i64, up_for: u64, flaw: Option<Flaw>) -> Self {
        let clock = Clock::new(EPOCH, off_ppm);
        let started_at = ServerTime((EPOCH - up_for) / 1_000);
        let store = MemoryStore::redis_like(started_at, 1);
        let node = Node::new(store, clock);
        Cluster { nodes: vec![node], primary: 0, flaw, replicas: Vec::new(), runs: 1, writes: 0 }
    }

    /// Adds a node that decides together with the others.
    pub(crate) fn add_node(&mut self, ahead: i64, off_ppm: i64, up_for: u64) {
        let reading = EPOCH.saturating_add_signed(ahead);
        self.runs += 1;
        let store = MemoryStore::redis_like(ServerTime((reading - up_for) / 1_000), self.runs);
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

    pub(crate) fn primary(&mut self) -> &mut Node {
        &mut self.nodes[self.primary]
    }

    /// Attaches a replica whose clock shows `ahead` nanoseconds more or less than the primary's.
    pub(crate) fn attach_replica(&mut self, now: Real, ahead: i64, off_ppm: i64) {
        let reading = self.primary().clock.at(now).saturating_add_signed(ahead);
        let mut clock = Clock::new(0, 0);
        clock.step_forward(now, reading - clock.at(now));
        clock.set_rate(now, off_ppm);
        let copied = self.primary().store.clone();
        self.replicas.push(Replica { of: self.primary, copied, clock, stream: Vec::new() });
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
            timeout: std::time::Duration::ZERO,
            fleet_max_ttl: std::time::Duration::ZERO,
        };
        let store = &mut self.nodes[at].store;
        let before = store.fingerprint(server_time, from.resource.key());
        if let Some(flaw) = self.flaw {
            flaw.at_store(store, server_time, &mut call);
        }
        let (mut answer, mut hints) = store.execute(server_time, &call);
        if self.flaw.is_some_and(|flaw| flaw.skips_quarantine(&answer.outcome)) {
            store.end_quarantine(server_time, &from.resource);
            (answer, hints) = store.execute(server_time, &call);
        }
        if let Some(flaw) = self.flaw {
            answer = flaw.answer(request, answer);
        }
        let touched_other_term = match request {
            Request::Renew { token, .. }
            | Request::Adopt { token, .. }
            | Request::Release { token, .. }
            | Request::PassOn { token, .. } => {
                let is_other = before.as_ref().is_some_and(|before| {
                    !before.is_vacant() && (before.holder != from.id || before.token != *token)
                });
                is_other && before != store.fingerprint(server_time, from.resource.key())
            }
            _ => false,
        };
        self.writes += 1;
        for (index, replica) in self.replicas.iter_mut().filter(|one| one.of == at).enumerate() {
            let heard_at = replica.hears_at(now, lags.get(index).copied().unwrap_or(0));
            let (number, call) = (self.writes, call.clone());
            replica.stream.push(Heard { at: heard_at, number, executed_at: server_time, call });
        }
        Executed { reply: Reply::Answer(answer), hints, touched_other_term }
    }
}

/// Who asks for what.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) id: InstanceId,
    pub(crate) resource: Resource,
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
        Op::Call(_) => unreachable!("calls of the protocol have their own way in"),
    }
}

/// Whether an answer means that a term was granted.
pub(crate) fn granted(reply: &Reply) -> Option<tenure_core::Token> {
    match reply {
        Reply::Answer(answer) => match answer.outcome {
            Outcome::Granted { token } => Some(token),
            _ => None,
        },
        _ => None,
    }
}
