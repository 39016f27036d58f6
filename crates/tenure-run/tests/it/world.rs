//! One world: a wrapper, its guards, programs and faults, from a seed.
//!
//! Time goes on in steps of a millisecond. In each step faults strike, programs act and multiply,
//! and both machines are driven as the command drives them. After each act the promise is checked.

mod checks;

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::Moment;
use tenure_run::{
    Deadline, Ending, Guard, GuardMessage, GuardOutput, GuardTrouble, KillAnswer, Leader,
    ListedChild, NumberedOrder, Output, Pid, Reply, RunOutcome, SentSignal, StartError, Stray,
    Wrapper,
};

use self::checks::Checks;
use crate::kernel::{Kernel, Kind, WRAPPER};
use crate::random::Random;

/// Milliseconds, as everything here.
const TTL: u64 = 1_200;
const GRACE: u64 = 300;
const MARGIN: u64 = 100;
const RENEW_EVERY: u64 = 350;
/// How long a party that runs may take to end a program: less than the margin before the lease.
const REACTION: u64 = 95;
/// How long a program may run without a guard that knows it, while the wrapper runs.
const UNGUARDED_MAX: u64 = 4_500;
/// How old a zombie may become while the wrapper runs: well below the second that is promised.
const ZOMBIE_AGE_MAX: u64 = 600;
/// How long anything may take once its term is over and the wrapper runs.
const OVERDUE_AFTER: u64 = 6_000;
const LENGTH: u64 = 9_000;
/// A guard that acts so long after its deadline was run after the lease.
const LATEST: Duration = Duration::from_millis(MARGIN + 1);
const PROCESSES_MAX: usize = 8;

/// A rule of the command that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// E2: what cannot be killed counts as gone.
    RefusedIsGone,
    /// E7: an order that was written counts as answered, and nobody looks at the guard.
    GuardIsTrusted,
    /// E15: a process that dies before it executes anything counts as the program's end.
    DeathAtTheGateIsAnEnd,
    /// E27: children are listed before the leader is looked at.
    ListedTooEarly,
    /// E28: it is said first, and whoever says it waits for the reader.
    TalksFirst,
    /// A list of children in which somebody has just ended proves that nobody is left.
    EndedSinceIsNoChange,
    /// After a term nobody drives the wrapper for a while.
    RestsAfterATerm,
    /// E30: a guard that does not answer in time counts as a program that cannot be executed.
    SilenceIsNoProgram,
    /// F4: what descends from a stranger counts as the program's.
    OnlyChildrenAreStrangers,
    /// The guard hears nothing of health checks and of what they start.
    ChecksAreNotTold,
    /// A health check begins also while there is no guard to be told.
    ChecksDoNotWait,
    /// A program whose term is over is killed without a look at whether it had ended by itself.
    KillsBeforeLooking,
    /// A guard that is run after the lease does not say so.
    LatenessIsNotSaid,
}

/// A process of ours that may be stopped or killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Runs { since: u64 },
    Stopped { until: u64 },
    Dead,
}

struct GuardParty {
    pid: i32,
    machine: Guard,
    state: State,
    /// With the moment from which on they can be read.
    orders: VecDeque<(u64, NumberedOrder)>,
    replies: VecDeque<(u64, Reply)>,
    wrapper_gone: bool,
    /// The leader that it killed.
    killed: Option<i32>,
    /// It has had no processor since it last ran, and nobody has stopped it.
    is_starved: bool,
    /// It killed a program only after its lease, for want of a processor, and has not said so.
    owes_lateness: bool,
}

struct Term {
    number: u64,
    ends_at: u64,
    renews: bool,
    stops_at: u64,
    was_stopped: bool,
    was_cut_off: bool,
    leader: Option<i32>,
    gate_open_at: Option<u64>,
    has_executed: bool,
    execution_fails: bool,
    unguarded_since: u64,
    /// The program was asked to stop, or a guard has told that it killed or could not: how it
    /// ended is not its own will.
    was_disturbed: bool,
}

pub(crate) struct World {
    now: u64,
    random: Random,
    /// Whether guards get no processor at times: not in every world, since few flaws show with it.
    starvation: Option<Random>,
    flaw: Option<Flaw>,
    kernel: Kernel,
    wrapper: Wrapper,
    wrapper_state: State,
    pending: VecDeque<Output>,
    /// The wrapper waits for whoever reads its log.
    blocked_until: u64,
    log_stalls_until: u64,
    /// Nobody drives the wrapper, which is no excuse.
    rests_until: u64,
    guards: Vec<GuardParty>,
    checks: Checks,
    term: Option<Term>,
    next_term_at: Option<u64>,
    /// Terms that were given back, with what could not be ended.
    closed: Vec<(u64, bool)>,
    snapshot: Option<Vec<ListedChild>>,
    /// The last two lists of children that failed.
    lists_failed_at: [Option<u64>; 2],
    /// The last leader, and since when its term is over.
    last_leader: Option<(i32, u64)>,
    trace: bool,
    is_over: bool,
    pub(crate) terms: u64,
    pub(crate) violation: Option<String>,
}

fn moment(milliseconds: u64) -> Moment {
    Moment::from_nanos(milliseconds * 1_000_000)
}

fn pid(number: i32) -> Pid {
    Pid::new(number.into()).unwrap()
}

impl World {
    pub(crate) fn new(seed: u64, flaw: Option<Flaw>, trace: bool) -> Self {
        let mut world = World {
            now: 1,
            random: Random::seeded(seed),
            starvation: (seed % 4 == 3).then(|| Random::seeded(!seed)),
            flaw,
            kernel: Kernel::new(),
            wrapper: Wrapper::new(),
            wrapper_state: State::Runs { since: 0 },
            pending: VecDeque::new(),
            blocked_until: 0,
            log_stalls_until: 0,
            rests_until: 0,
            guards: Vec::new(),
            checks: Checks::of_world(seed),
            term: None,
            next_term_at: Some(50),
            closed: Vec::new(),
            snapshot: None,
            lists_failed_at: [None; 2],
            last_leader: None,
            trace,
            is_over: false,
            terms: 0,
            violation: None,
        };
        for _ in 0..world.random.between(0, 2) {
            let stranger = world.kernel.fork(WRAPPER, Kind::Stranger, false);
            for _ in 0..world.random.between(0, 2) {
                world.kernel.fork(stranger, Kind::Stranger, true);
            }
        }
        world.wrapper.keep_guard(moment(1));
        world
    }

    pub(crate) fn run(mut self) -> Self {
        while self.now < LENGTH && self.violation.is_none() && !self.is_over {
            self.now += 1;
            self.strike();
            self.live();
            self.kernel.deliver(self.now, &mut self.random, 600);
            self.drive_wrapper();
            self.drive_guards();
            self.kernel.deliver(self.now, &mut self.random, 300);
            self.check();
        }
        self
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:6} {}", self.now, what());
        }
    }

    fn violate(&mut self, what: String) {
        self.say(|| format!("VIOLATION {what}"));
        self.violation.get_or_insert(format!("at {} ms: {what}", self.now));
    }

    fn wrapper_runs(&self) -> bool {
        matches!(self.wrapper_state, State::Runs { .. })
    }

    // What goes wrong.

    fn strike(&mut self) {
        let now = self.now;
        for state in self.guards.iter_mut().map(|it| &mut it.state).chain([&mut self.wrapper_state])
        {
            if matches!(*state, State::Stopped { until } if now >= until) {
                *state = State::Runs { since: now };
            }
        }
        self.starve_guard();
        if self.random.chance(1) && self.random.chance(300) {
            self.strike_wrapper();
        }
        if self.random.chance(2) {
            self.strike_guard();
        }
        if self.random.chance(2) {
            self.log_stalls_until = now + self.random.between(100, 3_000);
        }
        if self.random.chance(30) {
            self.kernel.fork(1, Kind::Innocent, true);
        }
        let leaving = self.kernel.processes.iter();
        let leaving = leaving.filter(|(_, it)| matches!(it.kind, Kind::Innocent | Kind::Stranger));
        for number in leaving.map(|(number, _)| *number).collect::<Vec<_>>() {
            let per_mille = match self.kernel.processes.get(&number).map(|it| it.kind) {
                Some(Kind::Stranger) => 2,
                _ => 15,
            };
            if self.random.chance(per_mille) {
                self.kernel.exit(now, number, Ending::Exited(0));
            }
        }
    }

    fn strike_wrapper(&mut self) {
        if !self.wrapper_runs() {
            return;
        }
        if self.random.chance(700) {
            let until = self.now + self.random.between(5, 3_000);
            self.say(|| format!("wrapper stopped until {until}"));
            self.wrapper_state = State::Stopped { until };
            return;
        }
        self.say(|| "wrapper killed".into());
        self.wrapper_state = State::Dead;
        self.kernel.exit(self.now, WRAPPER, Ending::Signalled(9));
        for guard in &mut self.guards {
            guard.wrapper_gone = true;
        }
    }

    /// The guard gets no processor for a while: nobody can see that but itself.
    fn starve_guard(&mut self) {
        let Some(random) = &mut self.starvation else { return };
        if !random.chance(1) || !random.chance(500) {
            return;
        }
        let until = self.now + random.between(5, 1_500);
        let Some(guard) = self.guards.last_mut() else { return };
        if matches!(guard.state, State::Runs { .. }) {
            (guard.state, guard.is_starved) = (State::Stopped { until }, true);
            let number = guard.pid;
            self.say(|| format!("guard {number} gets no processor until {until}"));
        }
    }

    fn strike_guard(&mut self) {
        let Some(index) = self.guards.len().checked_sub(1) else { return };
        if self.guards[index].state == State::Dead {
            return;
        }
        let (number, now) = (self.guards[index].pid, self.now);
        self.guards[index].is_starved = false;
        if self.random.chance(600) {
            let long = if self.random.chance(300) { LENGTH } else { 2_000 };
            let until = now + self.random.between(5, long);
            self.say(|| format!("guard {number} stopped until {until}"));
            self.guards[index].state = State::Stopped { until };
        } else {
            self.say(|| format!("guard {number} killed"));
            self.guards[index].state = State::Dead;
            self.kernel.exit(now, number, Ending::Signalled(9));
        }
        self.kernel.child_signal = true;
    }

    // What programs do.

    fn live(&mut self) {
        self.step_leader();
        let living: Vec<(i32, u64, Kind)> = self
            .kernel
            .processes
            .iter()
            .filter(|(_, it)| it.zombie.is_none() && !it.is_dying && !it.hangs)
            .filter_map(|(number, it)| match it.kind {
                Kind::Program(term) | Kind::Check(term) => Some((*number, term, it.kind)),
                _ => None,
            })
            .collect();
        let count = living.len();
        for (number, term, kind) in living {
            let is_at_gate = self.term.as_ref().is_some_and(|it| {
                it.number == term && it.leader == Some(number) && !it.has_executed
            });
            if !is_at_gate {
                self.act(number, term);
                if self.random.chance(50) && count < PROCESSES_MAX {
                    self.multiply(number, kind);
                }
                match kind {
                    Kind::Check(_) => self.change_check(number),
                    _ => self.change(number),
                }
            }
        }
    }

    /// The leader comes through the gate, or ends at it.
    fn step_leader(&mut self) {
        let wrapper_lives = self.wrapper_state != State::Dead;
        let Some(term) = &mut self.term else { return };
        let (Some(leader), false) = (term.leader, term.has_executed) else { return };
        if !wrapper_lives {
            return self.kernel.exit(self.now, leader, Ending::Exited(127));
        }
        if !self.kernel.runs(leader) || term.gate_open_at.is_none_or(|at| self.now < at) {
            return;
        }
        term.gate_open_at = None;
        if term.execution_fails {
            self.kernel.exit(self.now, leader, Ending::Exited(127));
            if self.wrapper_runs() {
                self.wrapper.handle_not_executed(moment(self.now), 2);
            }
            return;
        }
        if self.kernel.processes[&leader].is_dying {
            return;
        }
        term.has_executed = true;
        term.unguarded_since = self.now;
        self.wrapper.handle_executed(moment(self.now));
    }

    /// A process of a program does something: is it its turn?
    fn act(&mut self, number: i32, term: u64) {
        let process = &self.kernel.processes[&number];
        let cannot_be_ended = process.is_foreign;
        if let Some((_, with_rest)) = self.closed.iter().find(|(closed, _)| *closed == term) {
            if !(cannot_be_ended && *with_rest) {
                self.violate(format!("{number} acts after term {term} was given back"));
            }
            return;
        }
        let Some(current) = self.term.as_ref().filter(|current| current.number == term) else {
            return self.violate(format!("{number} acts under term {term}, which is long over"));
        };
        if self.now < current.ends_at || cannot_be_ended {
            return;
        }
        let ends_at = current.ends_at;
        let is_late = |state: State| match state {
            State::Runs { since } => self.now >= (since + REACTION).max(ends_at),
            _ => false,
        };
        let leader = current.leader;
        let guard_is_late = self.guards.iter().any(|guard| {
            let watches = guard.machine.watched().map(Pid::get) == leader;
            let stray = Stray { pid: pid(number), started: process.started };
            let finds = process.group == leader.unwrap_or(0)
                || !process.is_unmarked
                || guard.machine.knows(stray)
                || self.checks.must_be_known(stray, guard);
            watches && finds && is_late(guard.state)
        });
        if is_late(self.wrapper_state) || guard_is_late {
            self.violate(format!(
                "{number} acts after the lease of term {term}, over at {ends_at}"
            ));
        }
    }

    fn multiply(&mut self, number: i32, kind: Kind) {
        match self.random.between(0, 3) {
            0 => drop(self.kernel.fork(number, kind, false)),
            1 => drop(self.kernel.fork(number, kind, true)),
            2 => {
                // A daemon: whoever forked it is gone at once.
                let between = self.kernel.fork(number, kind, true);
                self.kernel.fork(between, kind, true);
                self.kernel.exit(self.now, between, Ending::Exited(0));
            }
            _ => {
                let child = self.kernel.fork(number, kind, true);
                self.kernel.processes.get_mut(&child).unwrap().is_unmarked = true;
            }
        }
    }

    fn change(&mut self, number: i32) {
        let is_leader = self.term.as_ref().is_some_and(|term| term.leader == Some(number));
        let (ends, changes) = (self.random.chance(1), self.random.chance(1));
        let Some(process) = self.kernel.processes.get_mut(&number) else { return };
        if ends && (!is_leader || self.now.is_multiple_of(4)) {
            return self.kernel.exit(self.now, number, Ending::Exited(3));
        }
        if changes {
            match self.now % 40 {
                0..3 => process.is_foreign = true,
                3 => process.hangs = true,
                _ => process.ignores_stop = true,
            }
        }
    }

    // The wrapper, as the command drives it.

    fn drive_wrapper(&mut self) {
        if !self.wrapper_runs() || self.now < self.blocked_until.max(self.rests_until) {
            return;
        }
        let now = moment(self.now);
        self.drive_term();
        self.hear_guard();
        if std::mem::take(&mut self.kernel.child_signal) || self.random.chance(2) {
            self.wrapper.handle_child_news(now);
        }
        self.wrapper.handle_time(now);
        self.drive_checks();
        self.tell_of_waiting_check();
        while let Some(output) = self.next_output() {
            self.say(|| format!("wrapper: {output:?}"));
            self.perform(output);
            if self.now < self.blocked_until.max(self.rests_until) {
                return;
            }
        }
        self.let_check_begin();
    }

    /// One at a time, as the command takes them; what is said comes first if that is the flaw.
    fn next_output(&mut self) -> Option<Output> {
        if self.flaw != Some(Flaw::TalksFirst) {
            return self.wrapper.poll_output();
        }
        self.pending.extend(std::iter::from_fn(|| self.wrapper.poll_output()));
        let word = self.pending.iter().position(|output| matches!(output, Output::Say(_)));
        self.pending.remove(word.unwrap_or(0))
    }

    fn drive_term(&mut self) {
        if self.next_term_at.is_some_and(|at| self.now >= at) && !self.wrapper.is_busy() {
            self.next_term_at = None;
            self.begin_term();
        }
        let (now, random) = (self.now, &mut self.random);
        let Some(term) = &mut self.term else { return };
        if now < term.ends_at && term.renews {
            let since = (now + TTL).saturating_sub(term.ends_at);
            if since >= RENEW_EVERY && now + GRACE < term.ends_at {
                term.renews = !random.chance(60);
                term.ends_at = if term.renews { now + TTL } else { term.ends_at };
            }
            if random.chance(1) && random.chance(500) {
                (term.renews, term.stops_at) = (false, now);
            }
        }
        let ends_at = term.ends_at;
        let kill_at = ends_at - MARGIN;
        let stops_at = term.stops_at.min(kill_at.saturating_sub(GRACE));
        let cut_off_at = kill_at.min(term.stops_at.saturating_add(GRACE));
        let deadline = Deadline { kill_at: moment(kill_at), ends_at: moment(ends_at) };
        let stops = now >= stops_at && !std::mem::replace(&mut term.was_stopped, now >= stops_at);
        let cuts =
            now >= cut_off_at && !std::mem::replace(&mut term.was_cut_off, now >= cut_off_at);
        self.wrapper.handle_deadline(moment(now), deadline);
        if stops {
            self.wrapper.handle_stop(moment(now));
        }
        if cuts {
            self.wrapper.handle_cut_off(moment(now));
        }
    }

    fn begin_term(&mut self) {
        self.terms += 1;
        self.snapshot = None;
        let ends_at = self.now + TTL;
        self.say(|| format!("term {} begins", self.terms));
        self.term = Some(Term {
            number: self.terms,
            ends_at,
            renews: true,
            stops_at: u64::MAX,
            was_stopped: false,
            was_cut_off: false,
            leader: None,
            gate_open_at: None,
            has_executed: false,
            execution_fails: self.random.chance(20),
            unguarded_since: self.now,
            was_disturbed: false,
        });
        let deadline = Deadline { kill_at: moment(ends_at - MARGIN), ends_at: moment(ends_at) };
        self.wrapper.begin(moment(self.now), deadline);
    }

    fn hear_guard(&mut self) {
        let trusts = self.flaw == Some(Flaw::GuardIsTrusted);
        let now = self.now;
        let Some(guard) = self.guards.last_mut() else { return };
        let mut heard = Vec::new();
        while guard.replies.front().is_some_and(|(at, _)| now >= *at) {
            heard.extend(guard.replies.pop_front());
        }
        for (_, reply) in heard {
            if !trusts || matches!(reply, Reply::Ready | Reply::Killed) {
                self.say(|| format!("guard says {reply:?}"));
                if matches!(reply, Reply::Killed | Reply::Refused) {
                    self.note_disturbed();
                }
                self.wrapper.handle_reply(moment(now), reply);
            }
        }
    }

    fn perform(&mut self, output: Output) {
        let now = moment(self.now);
        match output {
            Output::StartGuard => self.start_guard(),
            Output::KillGuard => {
                if let Some(guard) = self.guards.last_mut().filter(|it| it.state != State::Dead) {
                    guard.state = State::Dead;
                    let number = guard.pid;
                    self.kernel.exit(self.now, number, Ending::Signalled(9));
                }
            }
            Output::LookAtGuard => self.look_at_guard(),
            Output::Order(order) => self.send_order(order),
            Output::Fork => self.fork(),
            Output::OpenGate => {
                let at = self.now + self.random.between(0, 5);
                self.term.as_mut().unwrap().gate_open_at = Some(at);
            }
            Output::CloseGate => {
                if let Some(leader) = self.term.as_ref().and_then(|term| term.leader) {
                    self.kernel.exit(self.now, leader, Ending::Exited(127));
                }
            }
            Output::Signal { group, signal } => self.signal(group, signal),
            Output::KillGroup(group) => {
                if self.flaw == Some(Flaw::ListedTooEarly) && self.snapshot.is_none() {
                    self.snapshot = Some(self.list(Some(group.get())));
                }
                if self.kernel.runs(group.get()) {
                    self.note_disturbed();
                }
                self.kernel.kill_group(group.get());
                self.end_check();
                self.kernel.deliver(self.now, &mut self.random, 500);
            }
            Output::Kill(pid) => {
                let answer = self.kernel.kill(pid.get());
                self.wrapper.handle_kill_answer(now, pid, answer);
            }
            Output::KillBelow(pid) => self.kernel.kill_below(pid.get()),
            Output::LookAtLeader(pid) => {
                let leader = self.look_at_leader(pid);
                self.wrapper.handle_leader(now, leader);
            }
            Output::ListChildren => self.list_children(),
            Output::ListStrays(group) => self.list_strays(group),
            Output::Reap(pid) => self.reap(pid),
            Output::HoldTerm => {
                if let Some(term) = &mut self.term {
                    term.renews = false;
                }
            }
            Output::Say(_) if self.flaw == Some(Flaw::TalksFirst) => {
                self.blocked_until = self.log_stalls_until;
            }
            Output::Say(_) => {}
            Output::Over(outcome) => self.end_term(outcome),
            Output::NoGuard => {}
        }
    }

    fn look_at_leader(&self, pid: Pid) -> Leader {
        let is_over = self.term.as_ref().is_some_and(|it| self.now >= it.ends_at - MARGIN);
        if self.flaw == Some(Flaw::KillsBeforeLooking) && is_over && self.wrapper.is_running() {
            return Leader::Runs;
        }
        match self.kernel.processes.get(&pid.get()).map(|it| it.zombie) {
            Some(None) => Leader::Runs,
            Some(Some((_, ending))) => Leader::Ended(ending),
            None => Leader::Ended(Ending::Signalled(9)),
        }
    }

    fn note_disturbed(&mut self) {
        if let Some(term) = &mut self.term {
            term.was_disturbed = true;
        }
    }

    /// From here on the number may be anybody's, so nobody who could kill by it may know it.
    fn reap(&mut self, pid: Pid) {
        let knows = |guard: &GuardParty| guard.machine.watched() == Some(pid);
        if self.guards.iter().any(|guard| guard.state != State::Dead && knows(guard)) {
            self.violate(format!("{pid} was reaped while a guard watches its group"));
        }
        self.kernel.reap(pid.get());
    }

    fn start_guard(&mut self) {
        if self.random.chance(30) {
            return self.wrapper.handle_guard_failed(moment(self.now));
        }
        let number = self.kernel.fork(WRAPPER, Kind::Guard, true);
        self.guards.push(GuardParty {
            pid: number,
            machine: Guard::new(),
            state: State::Stopped { until: self.now + self.random.between(1, 30) },
            orders: VecDeque::new(),
            replies: VecDeque::new(),
            wrapper_gone: false,
            killed: None,
            is_starved: false,
            owes_lateness: false,
        });
    }

    fn look_at_guard(&mut self) {
        if self.flaw == Some(Flaw::GuardIsTrusted) {
            return;
        }
        let Some(guard) = self.guards.last() else { return };
        let trouble = match guard.state {
            State::Dead => GuardTrouble::Ended,
            // One that has just been started is slow, not stopped.
            State::Stopped { until } if until > self.now + 30 && !guard.is_starved => {
                GuardTrouble::Stopped
            }
            _ => return,
        };
        self.trouble(trouble);
    }

    fn trouble(&mut self, trouble: GuardTrouble) {
        let now = moment(self.now);
        self.wrapper.handle_guard_trouble(now, trouble);
        let is_at_gate =
            self.term.as_ref().is_some_and(|term| term.leader.is_some() && !term.has_executed);
        if self.flaw == Some(Flaw::SilenceIsNoProgram) && is_at_gate {
            self.wrapper.handle_not_executed(now, 22);
        }
        if self.flaw == Some(Flaw::DeathAtTheGateIsAnEnd) && is_at_gate {
            let leader = self.term.as_ref().and_then(|term| term.leader).unwrap();
            self.kernel.exit(self.now, leader, Ending::Signalled(13));
            self.wrapper.handle_executed(now);
        }
    }

    fn send_order(&mut self, order: NumberedOrder) {
        let late = if self.random.chance(5) { 1_500 } else { 3 };
        let at = self.now + self.random.between(0, late);
        let Some(guard) = self.guards.last_mut() else { return };
        if guard.state == State::Dead {
            return self.trouble(GuardTrouble::Ended);
        }
        let at = guard.orders.back().map_or(at, |(before, _)| at.max(*before));
        guard.orders.push_back((at, order));
        if self.flaw == Some(Flaw::GuardIsTrusted) {
            self.wrapper.handle_reply(moment(self.now), Reply::Took(order.number));
        }
    }

    fn fork(&mut self) {
        if self.random.chance(10) {
            return self.wrapper.handle_not_forked(moment(self.now), 11);
        }
        let term = self.term.as_mut().unwrap();
        let leader = self.kernel.fork(WRAPPER, Kind::Program(term.number), true);
        let process = self.kernel.processes.get_mut(&leader).unwrap();
        (process.dies_with_parent, process.ignores_stop) = (true, self.random.chance(300));
        term.leader = Some(leader);
        self.wrapper.handle_forked(moment(self.now), pid(leader));
    }

    fn signal(&mut self, group: Pid, signal: SentSignal) {
        if signal != SentSignal::Stop {
            return;
        }
        self.note_disturbed();
        let hearers = self.kernel.processes.iter().filter(|(_, process)| {
            process.group == group.get() && !process.ignores_stop && !process.is_foreign
        });
        for number in hearers.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.kernel.exit(self.now, number, Ending::Signalled(15));
        }
    }

    fn list(&self, without: Option<i32>) -> Vec<ListedChild> {
        let guard = self.guards.last().filter(|it| it.state != State::Dead).map(|it| it.pid);
        let children = self
            .kernel
            .processes
            .iter()
            .filter(|(number, it)| it.parent == WRAPPER && Some(**number) != without);
        children
            .map(|(number, it)| ListedChild {
                pid: pid(*number),
                started: Some(it.started),
                has_ended: it.zombie.is_some(),
                is_helper: Some(*number) == guard || self.checks.are(*number),
            })
            .collect()
    }

    /// Two lists may fail while a zombie grows old; after a third nobody could reap it in time.
    fn list_may_fail(&mut self) -> bool {
        let [earlier, later] = self.lists_failed_at;
        // With a broken rule it may be only a list that fails that lets time go on.
        let may_fail =
            self.flaw.is_some() || earlier.is_none_or(|at| self.now > at + ZOMBIE_AGE_MAX);
        if may_fail {
            self.lists_failed_at = [later, Some(self.now)];
        }
        may_fail
    }

    fn list_children(&mut self) {
        let now = moment(self.now);
        if self.random.chance(5) && self.list_may_fail() {
            return self.wrapper.handle_children(now, None);
        }
        let mut listed = self.list_slowly();
        // As the driver does: most are killed while the list is made.
        for child in listed.iter().filter(|_| self.flaw.is_none()) {
            if self.wrapper.is_to_be_killed(child) {
                self.kernel.kill(child.pid.get());
            }
        }
        if self.flaw == Some(Flaw::EndedSinceIsNoChange) {
            listed.retain(|child| !child.has_ended);
        }
        if self.flaw == Some(Flaw::RefusedIsGone) {
            listed.retain(|child| {
                let process = &self.kernel.processes[&child.pid.get()];
                !process.is_foreign && !process.hangs
            });
            if let Some(leader) = self.term.as_ref().and_then(|term| term.leader)
                && self.kernel.processes.get(&leader).is_some_and(|it| it.is_foreign || it.hangs)
            {
                self.wrapper.handle_leader(now, Leader::Ended(Ending::Signalled(9)));
            }
        }
        if let Some(snapshot) = &self.snapshot {
            // Whoever was orphaned later is never looked for.
            let is_in_it = |child: &ListedChild| snapshot.iter().any(|it| it.pid == child.pid);
            listed.retain(is_in_it);
        }
        self.wrapper.handle_children(now, Some(&listed));
    }

    /// A list takes time: whoever is in it may fork and end before it is looked at.
    fn list_slowly(&mut self) -> Vec<ListedChild> {
        let mut listed = self.list(None);
        if self.random.chance(800) {
            return listed;
        }
        for child in &mut listed {
            let number = child.pid.get();
            let process = &self.kernel.processes[&number];
            let (Kind::Program(term), Some(current)) = (process.kind, &self.term) else { continue };
            let is_free = !process.is_dying && !process.hangs && process.zombie.is_none();
            if is_free && current.leader != Some(number) {
                self.kernel.fork(number, Kind::Program(term), true);
                self.kernel.exit(self.now, number, Ending::Exited(0));
                child.has_ended = true;
            }
        }
        listed
    }

    fn list_strays(&mut self, group: Option<Pid>) {
        let now = moment(self.now);
        if self.random.chance(5) {
            return self.wrapper.handle_strays(now, None);
        }
        let mut passed_over = self.checks.passed_over(self.flaw, group);
        passed_over.extend(self.guards.last().map(|guard| guard.pid));
        let mut listed = self.kernel.strays(group.map(Pid::get), &passed_over);
        if self.flaw == Some(Flaw::OnlyChildrenAreStrangers) {
            listed.retain(|it| group.is_some() && it.stray.pid == it.child);
        }
        self.wrapper.handle_strays(now, Some(&listed));
    }

    fn end_term(&mut self, outcome: RunOutcome) {
        self.end_check();
        let Some(term) = self.term.take() else { return };
        let with_rest = matches!(outcome, RunOutcome::NotEnded(_));
        match &outcome {
            RunOutcome::NotEnded(_) if self.now < term.ends_at && self.is_left(term.number) => {
                self.violate(format!("term {} was not held to its end", term.number));
            }
            RunOutcome::NeverRan if term.has_executed => {
                self.violate("a program that ran is said never to have run".into());
            }
            RunOutcome::ByItself(_) if !term.has_executed => {
                self.violate("a program that never ran ended by itself".into());
            }
            RunOutcome::ByItself(Ending::Signalled(_)) if self.was_killed_by_guard(&term) => {
                self.violate("a program that the guard killed ended by itself".into());
            }
            RunOutcome::WithItsTerm(Some(Ending::Exited(_))) if !term.was_disturbed => {
                self.violate("a program that ended by itself ended with its term".into());
            }
            RunOutcome::NotStarted(StartError::Execute(_)) if !term.execution_fails => {
                self.violate("a program that can be executed could not be".into());
            }
            _ => {}
        }
        if self.flaw == Some(Flaw::RestsAfterATerm) {
            self.rests_until = self.now + ZOMBIE_AGE_MAX + 100;
        }
        self.last_leader = term.leader.map(|leader| (leader, self.now));
        self.closed.push((term.number, with_rest));
        if with_rest {
            // The wrapper exits.
            self.is_over = true;
        } else {
            self.next_term_at = Some(self.now + self.random.between(0, 300));
        }
    }

    /// By one that is there to say so.
    fn was_killed_by_guard(&self, term: &Term) -> bool {
        let guard = self.guards.last().filter(|guard| guard.state != State::Dead);
        guard.is_some_and(|guard| guard.killed.is_some() && guard.killed == term.leader)
    }

    fn is_left(&self, term: u64) -> bool {
        let of_term = |kind: Kind| kind == Kind::Program(term);
        self.kernel.processes.values().any(|it| of_term(it.kind) && it.zombie.is_none())
    }

    // The guards, as the command drives them.

    fn drive_guards(&mut self) {
        let (now, random, kernel) = (self.now, &mut self.random, &mut self.kernel);
        let over = self.term.as_ref().filter(|term| now >= term.ends_at);
        let over = over.and_then(|term| term.leader);
        let says_lateness = self.flaw != Some(Flaw::LatenessIsNotSaid);
        for guard in &mut self.guards {
            if !matches!(guard.state, State::Runs { .. }) {
                continue;
            }
            let was_watching =
                guard.machine.wakes_at().is_some_and(|at| at + LATEST <= moment(now));
            let watched = guard.machine.watched().map(Pid::get);
            let was_starved = std::mem::take(&mut guard.is_starved) && was_watching;
            while guard.orders.front().is_some_and(|(at, _)| now >= *at || guard.wrapper_gone) {
                let (_, order) = guard.orders.pop_front().unwrap();
                guard.machine.handle_order(moment(now), order);
            }
            if std::mem::take(&mut guard.wrapper_gone) {
                guard.machine.handle_wrapper_gone(moment(now));
            }
            guard.machine.handle_time(moment(now));
            while let Some(output) = guard.machine.poll_output() {
                if self.trace {
                    println!("{now:6} guard {}: {output:?}", guard.pid);
                }
                match output {
                    GuardOutput::KillGroup(group) => {
                        let lives = kernel.is_alive(group.get());
                        guard.killed = lives.then_some(group.get()).or(guard.killed);
                        let answer = kernel.kill_group(group.get());
                        let is_killed = lives && answer == KillAnswer::Sent;
                        guard.owes_lateness =
                            is_killed && was_starved && over.is_some() && watched == over;
                        guard.machine.handle_killed(moment(now), group, answer);
                    }
                    GuardOutput::KillStray(stray) => {
                        let answer = kernel.kill_stray(stray);
                        guard.machine.handle_stray_killed(moment(now), stray.pid, answer);
                    }
                    GuardOutput::KillMarked => {
                        let (found, refused) = kernel.kill_marked();
                        refused.into_iter().for_each(|pid| guard.machine.handle_refused(pid));
                        guard.machine.handle_searched(moment(now), found);
                    }
                    GuardOutput::Reply(reply) => {
                        let late = if random.chance(5) { 1_500 } else { 3 };
                        let at = now + random.between(0, late);
                        let at = guard.replies.back().map_or(at, |(before, _)| at.max(*before));
                        guard.replies.push_back((at, reply));
                    }
                    GuardOutput::Say(GuardMessage::RunTooLate(_)) => {
                        guard.owes_lateness &= !says_lateness;
                    }
                    GuardOutput::Say(_) => {}
                    GuardOutput::Leave => {
                        guard.state = State::Dead;
                        kernel.exit(now, guard.pid, Ending::Exited(0));
                    }
                }
            }
        }
    }

    // What must be true, always.

    fn check(&mut self) {
        if self.is_over {
            return;
        }
        if self.guards.iter().any(|guard| guard.owes_lateness) {
            self.violate("a guard killed a program after its lease and did not say why".into());
        }
        if let Some((number, kind)) = self.kernel.wrongly_killed.take() {
            self.violate(format!("{number}, which is {kind:?}, was killed"));
        }
        let State::Runs { since } = self.wrapper_state else {
            return self.note_guarded();
        };
        let leader = self.term.as_ref().and_then(|term| term.leader);
        let last = self.last_leader;
        let old = self.kernel.processes.iter().find(|(number, process)| {
            // The number of a leader is its own for as long as anything of its program may be left.
            let released_at = last.filter(|(last, _)| last == *number).map_or(0, |(_, at)| at);
            let seen_at = process.zombie.map_or(self.now, |(at, _)| at.max(since).max(released_at));
            let is_kept = Some(**number) == leader;
            process.parent == WRAPPER && !is_kept && self.now - seen_at > ZOMBIE_AGE_MAX
        });
        if let (Some((number, _)), true) = (old, self.blocked_until < self.now) {
            let number = *number;
            self.violate(format!("{number} has been a zombie for too long"));
        }
        self.note_guarded();
        let Some(term) = &self.term else { return };
        let (number, unguarded, over) = (term.number, term.unguarded_since, term.ends_at);
        if term.has_executed && self.now - unguarded.max(since) > UNGUARDED_MAX {
            self.violate(format!("nobody has guarded term {number} since {unguarded}"));
        } else if self.now > over.max(since) + OVERDUE_AFTER {
            self.violate(format!("term {number} is over and the wrapper goes on"));
        }
    }

    /// A program is guarded while a guard runs that knows it.
    fn note_guarded(&mut self) {
        let now = self.now;
        let Some(term) = &mut self.term else { return };
        let is_guarded = self.guards.iter().any(|guard| {
            guard.machine.watched().map(Pid::get) == term.leader
                && matches!(guard.state, State::Runs { .. })
        });
        let runs = term.leader.is_some_and(|leader| self.kernel.runs(leader));
        // Past its lease there is nothing left to guard: it is being killed, or cannot be.
        if is_guarded || !runs || now >= term.ends_at - MARGIN {
            term.unguarded_since = now;
        }
    }
}
