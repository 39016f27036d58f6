//! Health checks: what the wrapper starts beside the program, and ends with it.

use tenure_run::{Ending, Order, Pid, Stray};

use super::{Flaw, GuardParty, State, World, moment, pid};
use crate::kernel::{Kind, WRAPPER};

/// The checks of a world, as the command keeps them.
pub(super) struct Checks {
    /// Whether there are any: not in every world, since a guard is heard of more often with them.
    are_made: bool,
    /// The one under way.
    running: Option<Check>,
    /// Killed and not reaped.
    old: Vec<i32>,
}

struct Check {
    stray: Stray,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It does nothing yet, and carries its mark.
    AtGate { will_hide: bool },
    /// The guard that watched the program then has to know it.
    Runs { guard: Option<i32> },
}

impl Checks {
    pub(super) fn of_world(seed: u64) -> Self {
        Checks { are_made: !seed.is_multiple_of(2), running: None, old: Vec::new() }
    }

    /// Whether a child of the wrapper is one of them.
    pub(super) fn are(&self, number: i32) -> bool {
        self.running.as_ref().is_some_and(|check| check.stray.pid.get() == number)
            || self.old.contains(&number)
    }

    /// Those whose families a list of strays passes over.
    pub(super) fn passed_over(&self, flaw: Option<Flaw>, group: Option<Pid>) -> Vec<i32> {
        let is_everybody = group.is_none() || flaw == Some(Flaw::ChecksAreNotTold);
        let running = self.running.iter().map(|check| check.stray.pid.get());
        running.chain(self.old.iter().copied()).filter(|_| is_everybody).collect()
    }

    /// Whether this guard has to know this process as a check, and nothing is on its way to it.
    pub(super) fn must_be_known(&self, stray: Stray, guard: &GuardParty) -> bool {
        let is_due = |check: &Check| {
            check.stray == stray && check.stage == Stage::Runs { guard: Some(guard.pid) }
        };
        let is_on_its_way = has_heard(guard, stray) && !guard.machine.knows(stray);
        self.running.as_ref().is_some_and(is_due) && !is_on_its_way
    }
}

impl World {
    /// Starts checks while the program runs, and reaps those that have ended.
    pub(super) fn drive_checks(&mut self) {
        let has_ended = |number: i32| !self.kernel.runs(number);
        let ended: Vec<i32> = self.checks.old.iter().copied().filter(|it| has_ended(*it)).collect();
        self.checks.old.retain(|number| !ended.contains(number));
        ended.into_iter().for_each(|number| self.kernel.reap(number));
        match &self.checks.running {
            Some(check) => {
                let number = check.stray.pid.get();
                if !self.kernel.runs(number) {
                    self.checks.running = None;
                    self.kernel.reap(number);
                } else if self.random.chance(2) {
                    self.end_check();
                }
            }
            None if self.checks.are_made
                && self.checks.old.is_empty()
                && self.wrapper.is_running()
                && self.random.chance(10) =>
            {
                self.start_check();
            }
            None => {}
        }
    }

    fn start_check(&mut self) {
        let Some(term) = &self.term else { return };
        let number = self.kernel.fork(WRAPPER, Kind::Check(term.number), true);
        let started = self.kernel.processes[&number].started;
        let stray = Stray { pid: pid(number), started };
        let stage = Stage::AtGate { will_hide: self.random.chance(500) };
        self.say(|| format!("check {number} waits at its gate"));
        self.checks.running = Some(Check { stray, stage });
    }

    fn check_at_gate(&self) -> Option<(Stray, bool)> {
        match self.checks.running.as_ref()? {
            Check { stray, stage: Stage::AtGate { will_hide } } => Some((*stray, *will_hide)),
            Check { stage: Stage::Runs { .. }, .. } => None,
        }
    }

    pub(super) fn tell_of_waiting_check(&mut self) {
        if let Some((stray, _)) = self.check_at_gate()
            && self.flaw != Some(Flaw::ChecksAreNotTold)
        {
            self.wrapper.handle_check_waits(moment(self.now), stray);
        }
    }

    /// Opens the gate to a check that the guard was told of.
    pub(super) fn let_check_begin(&mut self) {
        let Some((stray, will_hide)) = self.check_at_gate() else { return };
        let does_not_wait =
            matches!(self.flaw, Some(Flaw::ChecksAreNotTold | Flaw::ChecksDoNotWait));
        if !self.wrapper.knows_check(stray) && !does_not_wait {
            return;
        }
        let number = stray.pid.get();
        if let Some(process) = self.kernel.processes.get_mut(&number) {
            process.is_unmarked = will_hide;
        }
        let leader = self.term.as_ref().and_then(|term| term.leader);
        let watches = |guard: &&GuardParty| {
            guard.state != State::Dead && guard.machine.watched().map(Pid::get) == leader
        };
        let guard = self.guards.last().filter(watches).map(|guard| guard.pid);
        self.say(|| format!("check {number} begins, guard {guard:?}"));
        self.checks.running = Some(Check { stray, stage: Stage::Runs { guard } });
        let newest = self.guards.last().filter(|guard| guard.state != State::Dead);
        if newest.is_some_and(|guard| !has_heard(guard, stray)) {
            self.violate(format!("check {number} begins, and its guard has not heard of it"));
        }
    }

    /// Ends a check with what it started.
    pub(super) fn end_check(&mut self) {
        let Some(check) = self.checks.running.take() else { return };
        let number = check.stray.pid.get();
        self.checks.old.push(number);
        self.kernel.kill_below(number);
        self.kernel.kill_group(number);
    }

    /// A check, or what it started, comes to its end.
    pub(super) fn change_check(&mut self, number: i32) {
        if self.random.chance(4) {
            self.kernel.exit(self.now, number, Ending::Exited(0));
        }
    }
}

/// Whether a guard knows of a process, or will once it reads what was sent to it.
fn has_heard(guard: &GuardParty, stray: Stray) -> bool {
    let is_told = |order: &Order| *order == Order::WatchStray(stray);
    guard.machine.knows(stray) || guard.orders.iter().any(|(_, order)| is_told(&order.order))
}
