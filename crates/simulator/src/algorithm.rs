//! What takes part in a world: our own election, or a control that the world must break.

use std::time::Duration;

use tenure_core::protocol::{Answer, Hint, Request, TickId, Token};
use tenure_core::swap::{Decision, Found};
use tenure_core::{Event, Moment, ServerTime, StoreError};

use crate::runner::WorkEnd;

/// One process's way of electing a leader, driven like the core: inputs with a clock reading, one
/// ordered stream of outputs.
pub(crate) trait Algorithm {
    /// The process has started.
    fn start(&mut self, now: Moment);
    /// A reply or error to an earlier [`Output::Ask`].
    fn reply(&mut self, now: Moment, ask: u64, reply: Result<Reply, StoreError>);
    /// The moment of the last [`Output::WaitUntil`] has come.
    fn wake(&mut self, now: Moment);
    /// A hint from the store, maybe forged.
    fn hint(&mut self, _now: Moment, _hint: Hint) {}
    /// The subscription to hints stands.
    fn listening(&mut self, _now: Moment) {}
    /// The connection broke.
    fn unreachable(&mut self, _now: Moment) {}
    /// Whether work runs under the current term.
    fn work(&mut self, _now: Moment, _running: bool) {}
    /// The work of a job has ended.
    fn worked(&mut self, _now: Moment, _ended: WorkEnd) {}
    /// The application wants something.
    fn want(&mut self, now: Moment, want: Want);
    /// The next output.
    fn poll_output(&mut self) -> Output;
    /// The term believed in, and until when on the local clock.
    fn belief(&self) -> Option<Belief>;
    /// How many hand-overs that were asked of this process have no outcome, or had two.
    fn unsettled_hand_overs(&mut self) -> usize {
        0
    }
    /// Whether the process has nothing left to do.
    fn is_over(&self) -> bool;
}

/// A term as its holder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Belief {
    /// `None` where an algorithm has no tokens.
    pub(crate) token: Option<Token>,
    pub(crate) until: Moment,
}

/// What an application asks of its own process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Resign,
    HandOver,
    Ready(bool),
    Paused(bool),
    Beat,
    RenewNow,
    Stop,
}

/// What a process wants done, in this order.
#[derive(Debug)]
pub(crate) enum Output {
    Ask {
        ask: u64,
        op: Op,
        timeout: Duration,
    },
    Tell(Event),
    /// Begin the work of a job, in the own term; with its tick, where it has one.
    Run {
        tick: Option<TickId>,
        reruns_crashed: bool,
    },
    /// Tell what became of a run.
    Report {
        tick: TickId,
        how: JobReport,
        reruns_crashed: bool,
    },
    WaitUntil(Moment),
}

/// What became of one run of a job with a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobReport {
    /// It ran here, and the store has its outcome.
    Ran,
    /// It ran here, and nobody else knows.
    Unrecorded,
    /// It has run before.
    RefusedAsDone,
    /// Somebody began it, and it must not run twice.
    RefusedAsUnfinished,
}

/// What can be asked of a store.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// In the words of the protocol.
    Call(Request),
    /// Plain commands, as the controls use them.
    Get(String),
    Set {
        key: String,
        value: String,
    },
    SetIfAbsent {
        key: String,
        value: String,
        ttl: Option<Duration>,
    },
    Expire {
        key: String,
        ttl: Duration,
    },
    Delete(String),
    ExpireIfEqual {
        key: String,
        value: String,
        ttl: Duration,
    },
    DeleteIfEqual {
        key: String,
        value: String,
    },
    /// Of a store that can only compare and swap: read all of it.
    Read,
    /// The same: write what was decided, if the versions and the life are still the same.
    Swap(Box<Swap>),
}

/// What was decided from what was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Swap {
    pub(crate) decision: Decision,
    pub(crate) incarnation: String,
    /// The time by which it was decided.
    pub(crate) clock: ServerTime,
    /// Whether the versions are compared: only a flaw leaves that out.
    pub(crate) compares: bool,
}

/// What a store replies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Answer(Answer),
    Value(Option<String>),
    Found(Box<Found>),
    /// What was decided is written.
    Written {
        answer: Answer,
        swap: Box<Swap>,
    },
    Done(bool),
}
