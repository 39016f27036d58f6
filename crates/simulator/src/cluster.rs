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
}

impl Node {
    pub(crate) fn server_time(&self, now: Real) -> ServerTime {
        ServerTime(self.clock.at(now) / 1_000)
    }
}

/// All nodes there ever were; one is the primary.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) primary: usize,
    flaw: Option<Flaw>,
    replica: Option<Replica>,
    runs: u64,
}

/// A copy of the primary that hears of every write a little later.
struct Replica {
    copied: MemoryStore,
    clock: Clock,
    /// What the primary executed since the copy was made, and when.
    stream: Vec<(Real, ServerTime, Call)>,
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
        let node = Node { store, clock, is_alive: true, paused_until: 0 };
        Cluster { nodes: vec![node], primary: 0, flaw, replica: None, runs: 1 }
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
        self.replica = Some(Replica { copied, clock, stream: Vec::new() });
    }

    pub(crate) fn has_replica(&self) -> bool {
        self.replica.is_some()
    }

    /// The replica, as far as it has heard by `now` with `lag`, becomes the primary.
    pub(crate) fn promote_replica(&mut self, now: Real, lag: u64) {
        let Some(replica) = self.replica.take() else { return };
        let mut store = replica.copied;
        for (executed_at, server_time, call) in &replica.stream {
            if executed_at.saturating_add(lag) <= now {
                store.execute(*server_time, call);
            }
        }
        self.runs += 1;
        let clock = replica.clock;
        store.promote(self.runs, ServerTime(EPOCH / 1_000));
        self.nodes.push(Node { store, clock, is_alive: true, paused_until: 0 });
        self.primary = self.nodes.len() - 1;
    }

    /// Carries out a request on one node.
    pub(crate) fn execute(&mut self, at: usize, now: Real, op: &Op, from: &Caller) -> Executed {
        let server_time = self.nodes[at].server_time(now);
        match op {
            Op::Call(request) => self.call(at, now, server_time, request, from),
            plain => Executed {
                reply: execute_plain(&mut self.nodes[at].store, server_time, plain),
                hints: Vec::new(),
                touched_other_term: false,
            },
        }
    }

    fn call(
        &mut self,
        at: usize,
        now: Real,
        server_time: ServerTime,
        request: &Request,
        from: &Caller,
    ) -> Executed {
        let mut call = Call {
            resource: from.resource.clone(),
            id: from.id.clone(),
            request: request.clone(),
            timeout: std::time::Duration::ZERO,
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
        let touched_other_term = match request {
            Request::Renew { token, .. } | Request::Release { token, .. } => {
                let is_other = before.as_ref().is_some_and(|before| {
                    !before.is_vacant() && (before.holder != from.id || before.token != *token)
                });
                is_other && before != store.fingerprint(server_time, from.resource.key())
            }
            _ => false,
        };
        if at == self.primary
            && let Some(replica) = &mut self.replica
        {
            replica.stream.push((now, server_time, call));
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
