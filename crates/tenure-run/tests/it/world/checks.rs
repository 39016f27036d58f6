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
    /// The guard that watched the program when the check was started: it has to know it.
    guard: Option<i32>,
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
        let is_due = |check: &Check| check.stray == stray && check.guard == Some(guard.pid);
        let is_told = |order: &Order| *order == Order::WatchStray(stray);
        let is_on_its_way = guard.orders.iter().any(|(_, order)| is_told(&order.order));
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
        let (kind, leader) = (Kind::Check(term.number), term.leader);
        let number = self.kernel.fork(WRAPPER, kind, true);
        let process = self.kernel.processes.get_mut(&number).unwrap();
        process.is_unmarked = self.random.chance(500);
        let stray = Stray { pid: pid(number), started: process.started };
        let watches = |guard: &&GuardParty| {
            guard.state != State::Dead && guard.machine.watched().map(Pid::get) == leader
        };
        let guard = self.guards.last().filter(watches).map(|guard| guard.pid);
        self.say(|| format!("check {number} is started, guard {guard:?}"));
        self.checks.running = Some(Check { stray, guard });
        if self.flaw != Some(Flaw::ChecksAreNotTold) {
            self.wrapper.handle_check_started(moment(self.now), stray);
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
