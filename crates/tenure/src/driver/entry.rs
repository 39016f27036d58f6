//! One election as the driver keeps it: the machine, and what is under way for it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tenure_core::protocol::Request;
use tenure_core::{
    AskId, Election as Machine, Event, EventKind, HandOver, HandOverOutcome, Moment, Output,
    Reason, Resource, Role, StoreErrorKind,
};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::OnLoss;
use crate::backend::{Backend, Listening, Signal, SignalSink};
use crate::clock::Clock;
use crate::state::{ElectionState, Successor, TermCell, Wishes};
use crate::status::Status;
use crate::term::TermState;
use crate::trace::{self, LogContext, Trouble};

use super::inbox::{ElectionKey, Inbox, Reply};

/// What the process does by itself when things go wrong, by the application's choice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Policy {
    /// End the process with this code when a term is lost.
    pub(crate) exit_on_loss: Option<i32>,
    /// Abort the process when work is still there at the end of its grace.
    pub(crate) abort_on_overrun: bool,
}

impl Policy {
    pub(crate) fn new(on_loss: OnLoss, abort_on_overrun: bool) -> Self {
        let exit_on_loss = match on_loss {
            OnLoss::Recontend => None,
            OnLoss::Exit(code) => Some(code),
        };
        Policy { exit_on_loss, abort_on_overrun }
    }
}

pub(super) struct Entry {
    machine: Machine,
    pub(super) state: Arc<ElectionState>,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) shares_connection: bool,
    policy: Policy,
    /// The process ends because a term was lost.
    exits: bool,
    /// Held while the log is told why.
    last_words: Option<mpsc::Sender<()>>,
    log_context: LogContext,
    pub(super) asks: Vec<PendingAsk>,
    /// The moment under which this election is in the driver's timers.
    pub(super) timer: Moment,
    cuts_off_at: Moment,
    /// What the machine was last told about work, and about holding back.
    work_told: bool,
    told_to_stand_back: bool,
    /// Who waits for the hand-overs under way.
    hand_overs: BTreeMap<HandOver, oneshot::Sender<HandOverOutcome>>,
    hand_overs_begun: u64,
    /// Why attempts fail, as last logged.
    wait_told: Option<&'static str>,
    /// The term that events are about.
    term: Option<Arc<TermState>>,
    /// Kept alive for as long as signals are wanted.
    receiver: Option<Arc<dyn Fn(Signal) + Send + Sync>>,
    listening: Option<Listening>,
}

/// A request of the machine that has no reply yet.
pub(super) struct PendingAsk {
    ask: AskId,
    deadline: Moment,
    timeout: Duration,
    purpose: Purpose,
    pub(super) task: Option<AbortHandle>,
}

/// What a request is for, as far as waiting handles care.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Renewal,
    Farewell,
    Other,
}

impl Purpose {
    fn of(request: &Request) -> Self {
        match request {
            Request::Renew { .. } => Purpose::Renewal,
            Request::Release { .. } | Request::Transfer { .. } | Request::Abandon { .. } => {
                Purpose::Farewell
            }
            _ => Purpose::Other,
        }
    }
}

impl PendingAsk {
    pub(super) fn new(ask: AskId, request: &Request, deadline: Moment, timeout: Duration) -> Self {
        PendingAsk { ask, deadline, timeout, purpose: Purpose::of(request), task: None }
    }
}

impl Entry {
    pub(super) fn new(
        machine: Machine,
        state: Arc<ElectionState>,
        backend: Arc<dyn Backend>,
        shares_connection: bool,
        policy: Policy,
        is_single: bool,
    ) -> Self {
        Entry {
            machine,
            state,
            backend,
            shares_connection,
            policy,
            exits: false,
            last_words: None,
            log_context: LogContext { is_single, trouble: None },
            asks: Vec::new(),
            timer: Moment::NEVER,
            cuts_off_at: Moment::NEVER,
            work_told: false,
            told_to_stand_back: false,
            hand_overs: BTreeMap::new(),
            hand_overs_begun: 0,
            wait_told: None,
            term: None,
            receiver: None,
            listening: None,
        }
    }

    /// The longest lease that anybody may believe in: every call carries it.
    pub(super) fn fleet_max_ttl(&self) -> Duration {
        self.machine.fleet_max_ttl()
    }

    pub(super) fn listen(&mut self, resource: &Resource, key: ElectionKey, inbox: &Arc<Inbox>) {
        let inbox = Arc::clone(inbox);
        let receiver: Arc<dyn Fn(Signal) + Send + Sync> =
            Arc::new(move |signal| inbox.signal(key, signal));
        self.listening = Some(self.backend.listen(resource, SignalSink::new(&receiver)));
        self.receiver = Some(receiver);
    }

    /// Whether the machine is to hold back from now on, when that has changed.
    pub(super) fn standing_back_changed(&mut self, wishes: &Wishes) -> Option<bool> {
        let stands_back = wishes.stands_back || wishes.backs_off;
        let changed = std::mem::replace(&mut self.told_to_stand_back, stands_back) != stands_back;
        changed.then_some(stands_back)
    }

    /// Numbers the hand-overs that are wished for; whoever waits for them is kept.
    pub(super) fn take_hand_overs(&mut self, wishes: &mut Wishes) -> Vec<(HandOver, Successor)> {
        let wished = std::mem::take(&mut wishes.hand_overs);
        let numbered = wished.into_iter().map(|wish| {
            self.hand_overs_begun += 1;
            let request = HandOver(self.hand_overs_begun);
            self.hand_overs.insert(request, wish.reply);
            (request, wish.successor)
        });
        numbered.collect()
    }

    fn settle_hand_overs(&mut self) {
        while let Some((request, outcome)) = self.machine.poll_hand_over() {
            if let Some(reply) = self.hand_overs.remove(&request) {
                // Whoever asked may be gone.
                let _ = reply.send(outcome);
            }
        }
    }

    /// Passes one input to the machine. Before anything it wants done is done, checks and guards
    /// know about it: all of that happens under the lock of the term cell.
    pub(super) fn advance(
        &mut self,
        clock: &Clock,
        input: impl FnOnce(&mut Machine, Moment),
    ) -> (Vec<Output>, Moment) {
        let state = Arc::clone(&self.state);
        let mut cell = state.lock_cell();
        // Read here and nowhere earlier: a request counts its lease from this moment.
        let now = clock.now();
        let mut outputs = Vec::new();
        self.tell_work(&cell, now);
        input(&mut self.machine, now);
        let mut wakes_at = self.collect(&mut cell, &mut outputs);
        if self.tell_work(&cell, now) {
            wakes_at = self.collect(&mut cell, &mut outputs);
        }
        self.term = cell.term().cloned();
        drop(cell);
        self.update_status(&outputs);
        self.settle_hand_overs();
        (outputs, wakes_at)
    }

    /// Tells the machine whether work runs, when that has changed.
    fn tell_work(&mut self, cell: &TermCell, now: Moment) -> bool {
        let changed = self.work_told != cell.work_runs();
        if changed {
            if self.state.is_stopping() && self.machine.token().is_none() {
                // First: once the work of a lost term is gone, it would contend again, for nobody.
                self.machine.stop(now);
            }
            self.work_told = cell.work_runs();
            self.machine.handle_work(now, self.work_told);
        }
        changed
    }

    fn collect(&mut self, cell: &mut TermCell, outputs: &mut Vec<Output>) -> Moment {
        loop {
            match self.machine.poll_output() {
                Output::WaitUntil(moment) => return moment,
                Output::Tell(mut event) => {
                    self.own_up(&mut event);
                    self.state.apply(cell, &event);
                    // A new term begins with nobody at work, whatever was told before.
                    self.work_told &= !matches!(event.kind, EventKind::Acquired { .. });
                    outputs.push(Output::Tell(event));
                }
                ask => outputs.push(ask),
            }
        }
    }

    /// No store has granted what an instance does alone.
    fn own_up(&self, event: &mut Event) {
        if let EventKind::StateChanged { reason, .. } = &mut event.kind
            && *reason == Reason::Granted
            && !self.state.status.read().enabled
        {
            *reason = Reason::SwitchedOff;
        }
    }

    fn update_status(&self, outputs: &[Output]) {
        let parting = self.asks.iter().any(|ask| ask.purpose == Purpose::Farewell)
            || outputs.iter().any(is_farewell);
        let (role, reason) = (self.machine.role(), self.machine.role_reason());
        self.state.status.update(|status| {
            let mut changed = status.parting != parting || status.role != role;
            status.parting = parting;
            status.role = role;
            let reason = match reason {
                Reason::Granted if !status.enabled => &Reason::SwitchedOff,
                other => other,
            };
            if status.reason != *reason {
                status.reason = reason.clone();
                changed = true;
            }
            for output in outputs {
                if let Output::Tell(event) = output {
                    changed |= note(status, event);
                }
            }
            if status.warning.as_deref() != self.machine.warning() {
                status.warning = self.machine.warning().map(Arc::from);
                changed = true;
            }
            changed
        });
    }

    /// Whether this must not be asked: a process that ends would be granted a term for nobody.
    pub(super) fn keeps_back(&self, request: &Request) -> bool {
        self.exits && matches!(request, Request::Acquire(_))
    }

    /// Stops work. Done for all outputs of a turn before any of them is carried out or logged: a
    /// log may block.
    pub(super) fn act_on(&mut self, outputs: &[Output]) {
        for output in outputs {
            if let Output::Tell(event) = output {
                self.act_on_event(event);
            }
        }
    }

    /// Tells whoever listens; `true` when the election has stopped for good.
    pub(super) fn tell(&mut self, event: Event) -> bool {
        let stopped = matches!(event.kind, EventKind::StateChanged { to: Role::Stopped, .. });
        // The log is the application's. One that panics, as where stdout and stderr are on a disk
        // that is full, must not take all elections of this process with it.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            trace::log(&self.state, &event, self.log_context);
            self.log_wait_once(&event.kind);
        }));
        self.note_trouble(&event.kind);
        // The process may end now, if it is to.
        self.last_words = None;
        self.state.publish(event);
        stopped
    }

    fn act_on_event(&mut self, event: &Event) {
        match &event.kind {
            EventKind::StopWork { by, reason, .. } => {
                if let Some(term) = &self.term {
                    term.cut_off_at(event.at, *by);
                    self.cuts_off_at = term.cuts_off_at();
                    term.stop(reason.clone());
                    self.state.watch(&mut self.state.lock_cell());
                }
            }
            EventKind::Overrun { .. } if self.policy.abort_on_overrun => {
                // The one thing that certainly ends work which nothing else can end.
                std::process::abort();
            }
            EventKind::Lost { reason, .. } => {
                self.cuts_off_at = Moment::NEVER;
                self.with_term(|term| term.end(reason.clone()));
                if let Some(code) = self.policy.exit_on_loss.filter(|_| reason.is_involuntary()) {
                    self.exits = true;
                    self.last_words = Some(exit(code));
                }
            }
            _ => {}
        }
    }

    /// Attempts fail again and again for the same reason; the log has it once.
    fn log_wait_once(&mut self, kind: &EventKind) {
        match kind {
            EventKind::ElectionFailed { reason: reason @ Reason::Store(_) } => {
                trace::log_wait(&self.state, reason, self.log_context);
            }
            EventKind::ElectionFailed { reason } if self.wait_told != Some(reason.code()) => {
                self.wait_told = Some(reason.code());
                trace::log_wait(&self.state, reason, self.log_context);
            }
            EventKind::Acquired { .. } => self.wait_told = None,
            _ => {}
        }
    }

    /// Trouble lasts until the store does what it is asked.
    fn note_trouble(&mut self, kind: &EventKind) {
        let known = &mut self.log_context.trouble;
        match kind {
            EventKind::StateChanged { to: Role::Unknown | Role::Suspect, reason, .. }
            | EventKind::ElectionFailed { reason: reason @ Reason::Store(_) } => {
                if known.is_none() {
                    // What is waited for afterwards is news again.
                    self.wait_told = None;
                }
                *known = Trouble::of(reason).max(*known);
            }
            // A definite no is an answer.
            EventKind::StateChanged { from: Role::Unknown, to: Role::Standby, .. }
            | EventKind::ElectionFailed { .. }
            | EventKind::Acquired { .. }
            | EventKind::Renewed { .. } => *known = None,
            _ => {}
        }
    }

    fn with_term(&self, act: impl FnOnce(&TermState)) {
        if let Some(term) = &self.term {
            act(term);
        }
    }

    /// Takes the reply to a request that still waits for one, and says what that was for.
    pub(super) fn settle(&mut self, ask: AskId, reply: &Reply) -> Option<Purpose> {
        let index = self.asks.iter().position(|pending| pending.ask == ask)?;
        let pending = self.asks.swap_remove(index);
        if self.asks.is_empty() {
            // Most elections have nothing under way most of the time.
            self.asks = Vec::new();
        }
        if let Some(task) = pending.task {
            task.abort();
        }
        let is_renewal = pending.purpose == Purpose::Renewal;
        let unanswered = reply.as_ref().is_err_and(|error| {
            matches!(error.kind(), StoreErrorKind::TimedOut | StoreErrorKind::Unreachable)
        });
        self.state.status.update(|status| {
            status.counts.renewals_failed += u64::from(is_renewal && reply.is_err());
            status.counts.unanswered += u64::from(unanswered);
            status.unanswered = unanswered;
            false
        });
        Some(pending.purpose)
    }

    /// Wakes whoever waits for a renewal. The new deadline must be in place by then.
    pub(super) fn announce_renewal(&self) {
        self.with_term(TermState::settle_renewal);
    }

    pub(super) fn cut_off_when_due(&mut self, now: Moment) {
        if self.cuts_off_at <= now {
            self.cuts_off_at = Moment::NEVER;
            self.with_term(TermState::cut_off);
        }
    }

    /// Requests whose time is up although the backend has not said so.
    pub(super) fn overdue_asks(&self, now: Moment) -> Vec<(AskId, Duration)> {
        let overdue = self.asks.iter().filter(|pending| pending.deadline <= now);
        overdue.map(|pending| (pending.ask, pending.timeout)).collect()
    }

    /// The next moment at which this election has to be looked at.
    pub(super) fn wakes_at(&self, machine_wakes_at: Moment) -> Moment {
        let deadlines = self.asks.iter().map(|pending| pending.deadline);
        let earliest = machine_wakes_at.min(self.cuts_off_at);
        deadlines.fold(earliest, Moment::min)
    }

    pub(super) fn finish(&mut self) {
        for pending in self.asks.drain(..) {
            if let Some(task) = pending.task {
                task.abort();
            }
        }
        self.listening = None;
        // Whoever waits is told by the drop.
        self.hand_overs.clear();
        self.state.finish();
    }
}

/// Passes what the application wants on to the machine.
pub(super) fn grant(
    machine: &mut Machine,
    now: Moment,
    wishes: Wishes,
    hand_overs: Vec<(HandOver, Successor)>,
) {
    if let Some(ready) = wishes.ready {
        machine.set_ready(now, ready);
    }
    if wishes.beats {
        machine.beat(now);
    }
    if wishes.renews {
        machine.renew_now(now);
    }
    for (request, successor) in hand_overs {
        let to = match &successor {
            Successor::Named(name) => Some(name.as_str()),
            Successor::Best => None,
        };
        machine.hand_over_as(now, request, to);
    }
    if let Some(why) = wishes.work_failed {
        machine.work_failed(now, &why);
    }
    if let Some(token) = wishes.ran_out {
        machine.lease_ran_out(now, token);
    }
    if wishes.resigns {
        machine.resign(now);
    }
    if wishes.stops {
        machine.stop(now);
    }
}

fn is_farewell(output: &Output) -> bool {
    matches!(output, Output::Ask { request, .. } if Purpose::of(request) == Purpose::Farewell)
}

/// Takes an event into the status; `false` for what nobody needs to be woken for.
fn note(status: &mut Status, event: &Event) -> bool {
    status.counts.events = event.number;
    match &event.kind {
        EventKind::Renewed { ends_at, .. } => {
            status.counts.renewals += 1;
            (status.ends_at, status.renewed_at) = (Some(*ends_at), Some(event.at));
            return false;
        }
        EventKind::Acquired { token, ends_at } => {
            status.counts.terms += 1;
            (status.token, status.ends_at) = (Some(*token), Some(*ends_at));
            status.renewed_at = Some(event.at);
        }
        EventKind::Lost { reason, .. } => {
            status.counts.ends += 1;
            status.counts.losses += u64::from(reason.is_involuntary());
            (status.token, status.ends_at) = (None, None);
        }
        EventKind::ElectionFailed { .. } => {
            status.counts.attempts_failed += 1;
            return false;
        }
        EventKind::LeaderSeen(leader) => status.seen_leader.clone_from(leader),
        EventKind::MembersSeen(members) => status.seen_members = Arc::clone(members),
        // The role, the reason and the warning are compared as they are.
        _ => return false,
    }
    true
}

/// How long a process that ends waits for the log to have the reason: a log may block.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);

/// Ends the process once what is returned is dropped, or a moment later. From a thread of its own:
/// what runs at exit may take its time, renewals of other elections must not wait for it. Where no
/// thread can be started, the process ends at once, and the log does not say why.
fn exit(code: i32) -> mpsc::Sender<()> {
    let (logging, logged) = mpsc::channel();
    let ending = std::thread::Builder::new().name("tenure-exit".into()).spawn(move || {
        let _ = logged.recv_timeout(LAST_WORDS_MAX);
        std::process::exit(code)
    });
    if ending.is_err() {
        std::process::exit(code);
    }
    logging
}
