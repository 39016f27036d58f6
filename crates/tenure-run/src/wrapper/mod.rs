//! The wrapper's half: it starts a program under a term, and makes sure that nothing of it is left
//! afterwards.
//!
//! ```text
//!          guard ready        forked            guard watches        executed
//!  Waiting ───────────► Forked ────► AtGate ──────────────► Opening ────────► Running
//!     │                                │                       │                │ ended, told
//!     │ the term is over               └───────────┬───────────┴────────────────┘ to, cut off
//!     ▼                                            ▼
//!   over ◄──────────── nothing is left ──────── Ending ── what cannot be ended ──► Stuck
//!     ▲                                                                              │
//!     └──────────────── for good, at the end of the lease ───────────────────────────┘
//! ```
//! The rules:
//! - The program runs only after its guard has said that it knows group and deadline. Each order
//!   to the guard is answered by its number; a guard that ends, stops or is silent is replaced.
//! - Nothing is left once the leader was *seen* to have ended and two lists of children, taken
//!   after that, show nobody. What the program orphans becomes our child before its parent counts
//!   as ended, so a list from before proves nothing; and neither does one that shows a child which
//!   has ended since the list before: it may have forked while the list was made.
//! - What cannot be ended is never called gone: the term is held to its end, nothing else starts.
//! - The leader is reaped only after the guard has forgotten its group: until then the number is
//!   nobody else's.
//! - Before a program is told to stop, or killed, its leader is looked at: one that has ended by
//!   itself, however late this process notices, has its own end and not that of its term.
//! - Doing comes before saying.

mod ending;
mod guarding;
mod starting;
mod strangers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tenure_core::Moment;

use self::guarding::GuardLink;
use crate::orders::NumberedOrder;
use crate::process::{Deadline, Ending, Leader, ListedChild, Pid, Stray};

/// Between the news that some child has ended and the list of who it was: many come at a time.
const LOOK_PAUSE: Duration = Duration::from_millis(100);
/// A child that has ended is reaped after this long: whoever started it may wait for it as well.
const REAP_AFTER: Duration = Duration::from_millis(150);

/// What the wrapper has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Start a guard; answered by [`Wrapper::handle_guard_failed`] or by its first reply.
    StartGuard,
    /// Kill the guard, so that the end of its pipe means nothing to it, then close the pipe.
    KillGuard,
    /// Check whether the guard has ended or was stopped.
    LookAtGuard,
    /// Send an order to the guard; if it takes none, [`Wrapper::handle_guard_trouble`].
    Order(NumberedOrder),
    /// Fork the program's process, which waits at a gate before it executes anything; answered by
    /// [`Wrapper::handle_forked`] or [`Wrapper::handle_not_forked`].
    Fork,
    /// Let it execute the program; answered by [`Wrapper::handle_executed`] or
    /// [`Wrapper::handle_not_executed`].
    OpenGate,
    /// Let it execute nothing.
    CloseGate,
    /// Send a signal to the program's group.
    Signal {
        /// The process group.
        group: Pid,
        /// The signal.
        signal: SentSignal,
    },
    /// Send SIGKILL to the group.
    KillGroup(Pid),
    /// Send SIGKILL to this child; answered by [`Wrapper::handle_kill_answer`].
    Kill(Pid),
    /// Send SIGKILL to the descendants of this child, which a signal did not end.
    KillBelow(Pid),
    /// Check the state of the leader; answered by [`Wrapper::handle_leader`].
    LookAtLeader(Pid),
    /// List the children of this process; answered by [`Wrapper::handle_children`].
    ListChildren,
    /// Reap this child, which has ended.
    Reap(Pid),
    /// List all descendants of this process that are not in this group (or all of them, without a
    /// group); answered by [`Wrapper::handle_strays`].
    ListStrays(Option<Pid>),
    /// Stop renewing the lease, and release nothing before it ends.
    HoldTerm,
    /// Print this on stderr, without ever waiting.
    Say(WrapperMessage),
    /// Nothing runs any more: the run that [`Wrapper::begin`] started is over.
    Over(RunOutcome),
    /// No guard can be started, so nothing can run here.
    NoGuard,
}

/// A signal for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentSignal {
    /// The signal that asks it to stop.
    Stop,
    /// SIGCONT: a stopped process could not even die.
    Continue,
    /// A signal with this number, which came from outside.
    Passed(i32),
}

/// What a wrapper says on stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrapperMessage {
    /// The guard is being replaced.
    GuardReplaced(GuardTrouble),
    /// No guard could be started for the running program, so it was killed.
    Unguarded,
    /// The term is over, so the program was killed: this long after it was asked to stop.
    CutOff(Duration),
    /// The term was over before this process noticed, and the guard had killed the program.
    KilledByGuard,
    /// These processes cannot be ended. The term is held to its end.
    NotEnded {
        /// Processes that belong to another user.
        refused: Vec<Pid>,
        /// Processes that hang inside the kernel.
        stuck: Vec<Pid>,
        /// Whether the last list of children could be made. If so and nobody is named, they come
        /// back faster than they can be killed.
        is_listed: bool,
    },
}

/// Why a guard is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardTrouble {
    /// It has ended.
    Ended,
    /// It was stopped by a signal.
    Stopped,
    /// It does not answer.
    Silent,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// The program ended by itself, or by a signal from outside.
    ByItself(Ending),
    /// Its term ended; with how the leader ended, if it had started.
    WithItsTerm(Option<Ending>),
    /// Its term ended before anything ran.
    NeverRan,
    /// It could not be started.
    NotStarted(StartError),
    /// These of its processes could not be ended. Nothing else may be started here.
    NotEnded(Vec<Pid>),
}

/// Why a program never ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The system refused another process, with this error number.
    Fork(i32),
    /// The program could not be executed, with this error number.
    Execute(i32),
    /// Its process was ended from outside before it executed anything.
    Died(Ending),
    /// No guard can be started.
    NoGuard,
}

/// The wrapper's machine.
#[derive(Debug, Default)]
pub struct Wrapper {
    guard: GuardLink,
    program: Option<Program>,
    /// The leader of a program that is gone, until the guard has forgotten it.
    unforgotten: Option<Pid>,
    /// Children that are not the program's: they were there before it.
    strangers: BTreeSet<Pid>,
    /// What descends from them, and becomes a child of this process when its parent ends.
    below_strangers: strangers::Descendants,
    /// What the guard knows of the program beside its group.
    strays_told: BTreeSet<Stray>,
    /// Children that have ended, and since when that is known.
    ended_children: BTreeMap<Pid, Moment>,
    look_at: Option<Moment>,
    /// The lists that were asked for, and what for.
    looks: VecDeque<Look>,
    /// Something of a program could not be ended: nothing else is started.
    is_closed: bool,
    outputs: VecDeque<Output>,
}

/// What a list of children is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Who has to be reaped; and before the program is forked, who was there before it.
    Reap,
    /// Whether anything is left of the program.
    Ending { leader_had_ended: bool },
}

/// A program under its term.
#[derive(Debug)]
struct Program {
    deadline: Deadline,
    stage: Stage,
    /// Its group, which is the number of its leader.
    group: Option<Pid>,
    /// The order by which its guard was told of it.
    watch_order: Option<u64>,
    /// The order whose answer comes behind the guard's word that it killed the program.
    last_word: Option<u64>,
    /// Since when it runs without a guard that knows it.
    unguarded_since: Option<Moment>,
    leader: Option<Ending>,
    /// What is to be done once it is known that the leader has not ended by itself.
    demand: Option<Demand>,
    /// It was told to stop, or killed: how it ends is not its own will.
    is_cut_short: bool,
    /// When it was asked to stop.
    asked_at: Option<Moment>,
    has_executed: bool,
    /// Children were listed before it was forked.
    knows_strangers: bool,
    /// And before them what descends from them.
    knows_below_strangers: bool,
    not_started: Option<StartError>,
    refused: BTreeSet<Pid>,
}

/// What is to be done with a program that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Demand {
    /// Ask it to stop.
    Stop,
    /// Kill it, and say this.
    Kill(Option<WrapperMessage>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// For a guard, or for it to forget the program before.
    Waiting,
    Forked,
    AtGate,
    Opening,
    Running,
    Ending(ending::Progress),
    Stuck {
        pids: Vec<Pid>,
        look_at: Moment,
    },
}

impl Wrapper {
    /// A wrapper that runs nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs the program under a term that lasts until `deadline` unless it is renewed. Ends with
    /// [`Output::Over`].
    ///
    /// # Panics
    /// While something runs, or after something could not be ended.
    pub fn begin(&mut self, now: Moment, deadline: Deadline) {
        assert!(self.program.is_none() && !self.is_closed, "one program at a time");
        self.program = Some(Program {
            deadline,
            stage: Stage::Waiting,
            group: None,
            watch_order: None,
            last_word: None,
            unguarded_since: None,
            leader: None,
            demand: None,
            is_cut_short: false,
            asked_at: None,
            has_executed: false,
            knows_strangers: false,
            knows_below_strangers: false,
            not_started: None,
            refused: BTreeSet::new(),
        });
        self.look_at_children();
        self.advance(now);
    }

    /// The lease was renewed, or is over: then the deadline is in the past.
    pub fn handle_deadline(&mut self, now: Moment, deadline: Deadline) {
        let Some(program) = &mut self.program else { return };
        if program.deadline == deadline {
            return;
        }
        program.deadline = deadline;
        if now >= deadline.kill_at {
            // Before the guard is told, which then kills as well: who was first would be unknown.
            self.handle_cut_off(now);
        }
        let Some(program) = &self.program else { return };
        let runs = program.stage == Stage::Running;
        if program.group.is_some() && !matches!(program.stage, Stage::Stuck { .. }) {
            self.tell_deadline(now);
        }
        if runs {
            self.list_strays();
        }
        self.handle_time(now);
    }

    /// The term ends soon: the program is asked to stop.
    pub fn handle_stop(&mut self, now: Moment) {
        let Some(program) = &self.program else { return };
        match program.stage {
            Stage::Opening | Stage::Running if !program.is_cut_short => {
                self.look_before(Demand::Stop);
            }
            Stage::Opening | Stage::Running | Stage::Ending(_) | Stage::Stuck { .. } => {}
            // It has not begun, so it need not end in order.
            _ => self.cut_short(now),
        }
    }

    fn stop(&mut self, now: Moment) {
        let Some(program) = &mut self.program else { return };
        program.is_cut_short = true;
        if let (Stage::Running, Some(group)) = (&program.stage, program.group) {
            program.asked_at = Some(now);
            self.ask_to_stop(group);
        }
        // Otherwise it may have begun: it is told once that is known.
    }

    pub(super) fn ask_to_stop(&mut self, group: Pid) {
        for signal in [SentSignal::Stop, SentSignal::Continue] {
            self.outputs.push_back(Output::Signal { group, signal });
        }
    }

    /// The grace is over: everything that is left is killed.
    pub fn handle_cut_off(&mut self, now: Moment) {
        let Some(program) = &self.program else { return };
        let had = program.asked_at.map_or(Duration::ZERO, |asked_at| now.since(asked_at));
        let is_running = program.stage == Stage::Running;
        self.kill(now, is_running.then_some(WrapperMessage::CutOff(had)));
    }

    /// Has the leader looked at, and then does what is demanded: if it has ended by itself
    /// meanwhile, that is how the program ended.
    fn look_before(&mut self, demand: Demand) {
        let Some(program) = &mut self.program else { return };
        let Some(group) = program.group else { return };
        // A stop that is not carried out yet is nothing beside the end.
        if matches!(program.demand, None | Some(Demand::Stop)) {
            program.demand = Some(demand);
            self.outputs.push_back(Output::LookAtLeader(group));
        }
    }

    /// The leader runs, so that what is demanded can be done.
    fn carry_out(&mut self, now: Moment) {
        match self.program.as_mut().and_then(|program| program.demand.take()) {
            Some(Demand::Stop) => self.stop(now),
            Some(Demand::Kill(message)) => {
                self.cut_short(now);
                self.outputs.extend(message.map(Output::Say));
            }
            None => {}
        }
    }

    /// A signal arrived that is for the program.
    pub fn handle_signal(&mut self, _now: Moment, number: i32) {
        if let Some(Program { stage: Stage::Running, group: Some(group), .. }) = self.program {
            let signal = SentSignal::Passed(number);
            self.outputs.push_back(Output::Signal { group, signal });
        }
    }

    /// Whether signals from outside go to the program: it runs, and was not told to stop.
    pub fn takes_signals(&self) -> bool {
        let program = self.program.as_ref();
        program.is_some_and(|program| program.stage == Stage::Running && !program.is_cut_short)
    }

    /// Whether the program was executed and nobody is about to kill it.
    pub fn is_running(&self) -> bool {
        self.program.as_ref().is_some_and(|program| program.stage == Stage::Running)
    }

    /// A second request to stop: the running program is sent the stop signal.
    pub fn handle_repeated_stop(&mut self, _now: Moment) {
        if let Some(Program { stage: Stage::Running, group: Some(group), .. }) = self.program {
            self.outputs.push_back(Output::Signal { group, signal: SentSignal::Stop });
        }
    }

    /// A child has ended or was stopped.
    pub fn handle_child_news(&mut self, now: Moment) {
        self.outputs.push_back(Output::LookAtGuard);
        match &self.program {
            // With many, the look that is due comes soon enough: each takes long, and those who are
            // dying need the processor as well.
            Some(Program { stage: Stage::Ending(progress), .. }) if progress.is_short() => {
                self.look_for_end(now);
            }
            Some(Program { stage: Stage::Ending(_), .. }) => {}
            Some(Program { group: Some(group), leader: None, .. }) => {
                self.outputs.push_back(Output::LookAtLeader(*group));
            }
            _ => {}
        }
        self.look_at = Some(self.look_at.unwrap_or(now + LOOK_PAUSE));
    }

    /// The state of the leader.
    pub fn handle_leader(&mut self, now: Moment, leader: Leader) {
        let Some(program) = &mut self.program else { return };
        if let (Leader::Ended(ending), None) = (leader, program.leader) {
            program.leader = Some(ending);
        }
        match (&program.stage, program.leader) {
            (Stage::Ending(_) | Stage::Stuck { .. }, ending) => {
                self.looks.push_back(Look::Ending { leader_had_ended: ending.is_some() });
                self.outputs.push_back(Output::ListChildren);
            }
            (_, Some(ending)) => self.leader_ended(now, ending),
            (_, None) => self.carry_out(now),
        }
    }

    /// The children of this process, as the system listed them; `None` if it could not.
    pub fn handle_children(&mut self, now: Moment, children: Option<&[ListedChild]>) {
        let look = self.looks.pop_front().unwrap_or(Look::Reap);
        let listed = children.unwrap_or_default();
        let has_changed = self.has_newly_ended(listed);
        match children {
            Some(_) => {
                self.reap_old(now, listed);
                self.adopt_strangers(listed);
            }
            None => self.look_again(now + REAP_AFTER),
        }
        match look {
            Look::Reap => self.note_strangers(now, children),
            Look::Ending { leader_had_ended } => {
                let left = children.map(|_| self.left_of_program(listed));
                self.judge_end(now, left, ending::ListAge { leader_had_ended, has_changed });
            }
        }
    }

    /// Time has passed: does what is due.
    pub fn handle_time(&mut self, now: Moment) {
        if self.look_at.is_some_and(|look_at| now >= look_at) {
            self.look_at = None;
            self.look_at_children();
        }
        self.check_guard(now);
        let Some(program) = &self.program else { return };
        match &program.stage {
            Stage::Ending(progress) if now >= progress.look_at => self.look_for_end(now),
            Stage::Ending(_) => {}
            Stage::Stuck { .. } => self.hold(now),
            _ if now >= program.deadline.kill_at => self.handle_cut_off(now),
            _ => self.check_guarded(now),
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_time`](Self::handle_time), if nothing happens before.
    pub fn wakes_at(&self) -> Option<Moment> {
        let of_program = self.program.as_ref().map(|program| match &program.stage {
            Stage::Ending(progress) => progress.look_at,
            Stage::Stuck { look_at, .. } => program.deadline.ends_at.min(*look_at),
            _ => program.deadline.kill_at.min(program.must_be_guarded_by()),
        });
        [of_program, self.look_at, self.guard.wakes_at()].into_iter().flatten().min()
    }

    /// Whether a program is under way, from [`begin`](Self::begin) to [`Output::Over`].
    pub fn is_busy(&self) -> bool {
        self.program.is_some()
    }

    /// Whether nothing runs, and everything that ever ran has ended.
    pub fn is_idle(&self) -> bool {
        self.program.is_none() && !self.is_closed
    }

    /// Whether the guard has yet to forget the last program's group.
    pub fn is_forgetting(&self) -> bool {
        self.unforgotten.is_some()
    }

    /// From here on the number may be anybody's, one of the program's included.
    fn reap(&mut self, pid: Pid) {
        self.strangers.remove(&pid);
        self.outputs.push_back(Output::Reap(pid));
    }

    /// Children that have ended are nobody's but ours to reap, once whoever started them had time.
    fn reap_old(&mut self, now: Moment, listed: &[ListedChild]) {
        // Sets: a program may have thousands of processes, and all of them end at once.
        let there: BTreeSet<Pid> = listed.iter().map(|child| child.pid).collect();
        // Whoever is not there any more was reaped by somebody else.
        self.strangers.retain(|pid| there.contains(pid));
        let leader = self.program.as_ref().and_then(|program| program.group);
        let kept = [leader, self.unforgotten];
        let ended = listed.iter().filter(|child| child.has_ended && !child.is_helper);
        let ended: BTreeSet<Pid> =
            ended.map(|child| child.pid).filter(|pid| !kept.contains(&Some(*pid))).collect();
        self.ended_children.retain(|pid, _| ended.contains(pid));
        for pid in ended {
            let seen_at = *self.ended_children.entry(pid).or_insert(now);
            if now >= seen_at + REAP_AFTER {
                self.ended_children.remove(&pid);
                self.reap(pid);
            }
        }
        if !self.ended_children.is_empty() {
            self.look_again(now + REAP_AFTER);
        }
    }

    /// Whether a child has ended that had not when children were listed before.
    fn has_newly_ended(&self, listed: &[ListedChild]) -> bool {
        let leader = self.program.as_ref().and_then(|program| program.group);
        let kept = [leader, self.unforgotten];
        let mut ended = listed.iter().filter(|child| child.has_ended && !child.is_helper);
        ended.any(|child| {
            !kept.contains(&Some(child.pid)) && !self.ended_children.contains_key(&child.pid)
        })
    }

    fn look_again(&mut self, again_at: Moment) {
        self.look_at = Some(self.look_at.map_or(again_at, |look_at| look_at.min(again_at)));
    }
}
