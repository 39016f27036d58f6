//! The wrapper and its guard: every order is answered, or there is another guard.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::Moment;

use super::starting::SIGKILL;
use super::{Ending, GuardTrouble, Output, Program, Stage, StartError, Wrapper, WrapperMessage};
use crate::guard::STRAYS_MAX;
use crate::orders::{NumberedOrder, Order, Reply};
use crate::process::{ListedStray, Stray};

/// How long a guard may take to start. It does nothing else, so this only ends a hang.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take to answer an order. On a busy machine everybody is late at times; a guard
/// that is replaced needlessly costs a few milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it may take to forget a program. Meanwhile the leader is a zombie, and nothing runs
/// that another guard would have to learn of: it is replaced sooner than one that watches.
const FORGET_TIMEOUT: Duration = Duration::from_millis(300);
/// The pause before another try to start one.
const START_PAUSE: Duration = Duration::from_millis(200);
/// A guard that was ready for so long did start: that it was killed says nothing about the next.
const STEADY_AFTER: Duration = Duration::from_secs(1);
/// How many guards in a row may fail before there cannot be one.
const FAILURES_MAX: u32 = 8;
/// How long a program may run without a guard that knows it: time for a few tries.
const UNGUARDED_MAX: Duration = Duration::from_secs(3);

/// The guard, as far as this process knows.
#[derive(Debug, Default)]
pub(super) struct GuardLink {
    state: State,
    orders_sent: u64,
    orders_taken: u64,
    /// Until when the next answer must have come.
    answer_by: Option<Moment>,
    /// Guards in a row that came to nothing.
    failures: u32,
    ready_since: Option<Moment>,
    /// The order that makes it forget the last program.
    forget_order: Option<u64>,
    /// Until when that must have been answered.
    forget_by: Option<Moment>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// There is none, and the next is tried at this moment.
    #[default]
    Absent,
    Pausing(Moment),
    /// It was started and has to be ready by then.
    Starting(Moment),
    Ready,
    /// There cannot be one.
    Impossible,
}

impl GuardLink {
    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    pub(super) fn wakes_at(&self) -> Option<Moment> {
        match self.state {
            State::Pausing(until) | State::Starting(until) => Some(until),
            State::Ready => self.answer_by.into_iter().chain(self.forget_by).min(),
            State::Absent | State::Impossible => None,
        }
    }
}

impl Wrapper {
    /// Makes sure that there is a guard, even while nothing runs.
    pub fn keep_guard(&mut self, now: Moment) {
        if self.guard.state == State::Absent {
            self.guard.state = State::Starting(now + START_TIMEOUT);
            self.outputs.push_back(Output::StartGuard);
        }
    }

    /// A guard could not be started.
    pub fn handle_guard_failed(&mut self, now: Moment) {
        if matches!(self.guard.state, State::Starting(_)) {
            self.lose_guard(now);
        }
    }

    /// The guard has ended, was stopped, or takes no orders.
    pub fn handle_guard_trouble(&mut self, now: Moment, trouble: GuardTrouble) {
        if matches!(self.guard.state, State::Starting(_) | State::Ready) {
            // Orders for it must not go to its successor.
            self.outputs.retain(|output| !matches!(output, Output::Order(_)));
            self.outputs.push_back(Output::KillGuard);
            self.lose_guard(now);
            self.outputs.push_back(Output::Say(WrapperMessage::GuardReplaced(trouble)));
        }
    }

    /// A reply of the guard.
    pub fn handle_reply(&mut self, now: Moment, reply: Reply) {
        match reply {
            Reply::Ready if matches!(self.guard.state, State::Starting(_)) => {
                self.guard.state = State::Ready;
                self.guard.ready_since = Some(now);
                (self.guard.orders_sent, self.guard.orders_taken) = (0, 0);
                self.guard.answer_by = None;
                self.introduce_program(now);
                self.advance(now);
            }
            Reply::Took(number) => {
                self.note_answer(now, number);
                self.handle_taken(now, number);
            }
            Reply::TooLate(number) => {
                self.note_answer(now, number);
                if self.program.as_ref().is_some_and(|it| it.watch_order == Some(number)) {
                    self.kill(now, None);
                }
            }
            Reply::Killed | Reply::Refused => {
                if let Some(program) = &mut self.program {
                    program.is_cut_short = true;
                }
            }
            Reply::Ready => {}
        }
    }

    /// The guard is told of the new deadline; the answer is waited for elsewhere.
    pub(super) fn tell_deadline(&mut self, now: Moment) {
        let Some(program) = &self.program else { return };
        let deadline = program.deadline;
        self.order(now, Order::Until(deadline));
    }

    /// Tells a guard which program it is to watch.
    pub(super) fn introduce_program(&mut self, now: Moment) {
        let Some(group) = self.program.as_ref().and_then(|program| program.group) else { return };
        self.tell_deadline(now);
        let number = self.order(now, Order::Watch(group));
        if let Some(program) = &mut self.program {
            program.watch_order = number;
        }
        self.list_strays();
    }

    /// Has the processes looked for that the guard would not find by group or mark.
    pub(super) fn list_strays(&mut self) {
        if let Some(Program { stage: Stage::Running, group: Some(group), .. }) = self.program {
            self.outputs.push_back(Output::ListStrays(Some(group)));
        }
    }

    /// What left the group of the program, as far as the system showed; `None` when it could not.
    /// The guard is told what has changed since the last time.
    pub fn handle_strays(&mut self, now: Moment, listed: Option<&[ListedStray]>) {
        let Some(listed) = listed else { return };
        self.note_below_strangers(listed);
        let is_watched = self.program.as_ref().is_some_and(|it| it.watch_order.is_some());
        if !is_watched || !self.guard.is_ready() {
            return;
        }
        let tops = self.stranger_tops(listed);
        let ours = listed.iter().filter(|it| !tops.contains(&it.child));
        let seen: BTreeSet<Stray> = ours.map(|it| it.stray).collect();
        let gone: Vec<Stray> = self.strays_told.difference(&seen).copied().collect();
        let new: Vec<Stray> = seen.difference(&self.strays_told).copied().collect();
        for stray in gone {
            self.strays_told.remove(&stray);
            self.order(now, Order::ForgetStray(stray));
        }
        let room = STRAYS_MAX.saturating_sub(self.strays_told.len());
        for stray in new.into_iter().take(room) {
            self.strays_told.insert(stray);
            self.order(now, Order::WatchStray(stray));
        }
    }

    /// A health check waits at its gate beside the running program: it ends with it. Its guard is
    /// told before the next list, which also shows what the check has started. To be called until
    /// [`knows_check`](Self::knows_check): there may be no guard now.
    pub fn handle_check_waits(&mut self, now: Moment, check: Stray) {
        let is_watched = self.program.as_ref().is_some_and(|it| it.watch_order.is_some());
        if !is_watched || !self.guard.is_ready() {
            return;
        }
        if self.strays_told.len() >= STRAYS_MAX {
            // Makes room where others have ended.
            return self.list_strays();
        }
        if self.strays_told.insert(check) {
            self.order(now, Order::WatchStray(check));
        }
    }

    /// Whether the guard was told of a health check, so that it may begin. Its first step may be to
    /// hide its mark: a guard that was not told would never find it. Where a program has
    /// more strays than a guard watches, checks go on without.
    pub fn knows_check(&self, check: Stray) -> bool {
        let is_full = self.strays_told.len() >= STRAYS_MAX;
        self.guard.is_ready() && (is_full || self.strays_told.contains(&check))
    }

    /// Makes the guard forget the program whose leader is `unforgotten`, or reaps that at once
    /// when there is no guard that could know it.
    pub(super) fn make_forget(&mut self, now: Moment) {
        let Some(leader) = self.unforgotten else { return };
        self.guard.forget_order = self.order(now, Order::Forget);
        self.guard.forget_by = self.guard.forget_order.map(|_| now + FORGET_TIMEOUT);
        if self.guard.forget_order.is_none() {
            self.unforgotten = None;
            self.reap(leader);
        }
    }

    /// Silence counts as being gone.
    pub(super) fn check_guard(&mut self, now: Moment) {
        match self.guard.state {
            State::Pausing(until) if now >= until => {
                self.guard.state = State::Absent;
                self.keep_guard(now);
            }
            State::Starting(by) if now >= by => {
                self.handle_guard_trouble(now, GuardTrouble::Silent);
            }
            State::Ready if self.guard.wakes_at().is_some_and(|by| now >= by) => {
                self.handle_guard_trouble(now, GuardTrouble::Silent);
            }
            _ => {}
        }
    }

    /// A program that nobody would end if this process were killed is ended now.
    pub(super) fn check_guarded(&mut self, now: Moment) {
        let Some(program) = &self.program else { return };
        if now >= program.must_be_guarded_by() {
            self.kill(now, Some(WrapperMessage::Unguarded));
        }
    }

    /// Sends an order; its number, if there is a guard to take it.
    fn order(&mut self, now: Moment, order: Order) -> Option<u64> {
        if !self.guard.is_ready() {
            return None;
        }
        self.guard.orders_sent += 1;
        let number = self.guard.orders_sent;
        self.guard.answer_by = self.guard.answer_by.or(Some(now + ANSWER_TIMEOUT));
        self.outputs.push_back(Output::Order(NumberedOrder { number, order }));
        Some(number)
    }

    /// Whether the guard may have killed the program, and has not been heard out: its word may
    /// still be on the way when the program is seen to have ended. Answers come in order.
    pub(super) fn awaits_last_word(&mut self, now: Moment) -> bool {
        let Some(program) = &self.program else { return false };
        let was_killed = program.leader == Some(Ending::Signalled(SIGKILL));
        let is_open = was_killed && !program.is_cut_short && program.not_started.is_none();
        if !is_open || program.watch_order.is_none() || !self.guard.is_ready() {
            return false;
        }
        let number = match program.last_word {
            Some(number) => number,
            None => {
                let deadline = program.deadline;
                let Some(number) = self.order(now, Order::Until(deadline)) else { return false };
                if let Some(program) = &mut self.program {
                    program.last_word = Some(number);
                }
                number
            }
        };
        self.guard.orders_taken < number
    }

    fn note_answer(&mut self, now: Moment, number: u64) {
        self.guard.failures = 0;
        self.guard.orders_taken = self.guard.orders_taken.max(number);
        let is_behind = self.guard.orders_taken < self.guard.orders_sent;
        self.guard.answer_by = is_behind.then(|| now + ANSWER_TIMEOUT);
    }

    fn handle_taken(&mut self, now: Moment, number: u64) {
        if self.guard.forget_order == Some(number) {
            (self.guard.forget_order, self.guard.forget_by) = (None, None);
            if let Some(leader) = self.unforgotten.take() {
                self.reap(leader);
            }
            self.advance(now);
        }
        let Some(program) = &mut self.program else { return };
        if program.watch_order == Some(number) {
            program.unguarded_since = None;
            self.open_gate(now);
        }
    }

    fn lose_guard(&mut self, now: Moment) {
        if self.guard.ready_since.take().is_some_and(|since| now >= since + STEADY_AFTER) {
            self.guard.failures = 0;
        }
        self.guard.failures += 1;
        (self.guard.answer_by, self.guard.forget_order, self.guard.forget_by) = (None, None, None);
        self.strays_told.clear();
        // A guard that is killed acts no more, so the number may be anybody's again.
        if let Some(leader) = self.unforgotten.take() {
            self.reap(leader);
        }
        if let Some(program) = &mut self.program {
            (program.watch_order, program.last_word) = (None, None);
            if matches!(program.stage, Stage::Opening | Stage::Running) {
                program.unguarded_since = program.unguarded_since.or(Some(now));
            }
        }
        self.guard.state = match self.guard.failures {
            // The first is replaced at once: meanwhile nobody watches.
            1 => State::Absent,
            failures if failures <= FAILURES_MAX => State::Pausing(now + START_PAUSE),
            _ => State::Impossible,
        };
        if self.guard.state == State::Impossible {
            return self.do_without_guard(now);
        }
        self.keep_guard(now);
    }

    fn do_without_guard(&mut self, now: Moment) {
        match &mut self.program {
            Some(program) if program.stage == Stage::Running => self.kill(now, None),
            Some(program) => {
                program.not_started = program.not_started.or(Some(StartError::NoGuard));
                self.cut_short(now);
            }
            None => {}
        }
        self.outputs.push_back(Output::NoGuard);
    }
}

impl Program {
    pub(super) fn must_be_guarded_by(&self) -> Moment {
        self.unguarded_since.map_or(Moment::NEVER, |since| since + UNGUARDED_MAX)
    }
}
