//! The guard's half: it ends the program when the wrapper cannot.
//!
//! ```text
//! wrapper ── orders: until(kill_at), watch(group), forget ──► guard ── SIGKILL ──► the program
//!        ◄── replies: took(n), too late(n), killed ──────────   │ at `kill_at`, or when the pipe
//!                                                               │ of orders ends
//! ```
//! The group is killed at once and as a whole. What left the group is found by the mark that the
//! program's environment carries, and looked for until nothing is found.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::Moment;

use crate::orders::{NumberedOrder, Order, Reply};
use crate::process::{KillAnswer, Pid};

/// Between two searches for what left the group.
const SEARCH_PAUSE: Duration = Duration::from_millis(10);
/// How often something may be found again. Programs that fork for ever must not keep a guard for
/// ever; each search kills all that it finds.
const SEARCHES_MAX: u32 = 500;

/// What a guard does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardOutput {
    /// Send SIGKILL to this group; answered by [`Guard::handle_killed`].
    KillGroup(Pid),
    /// Send SIGKILL to every process with the mark; answered by [`Guard::handle_searched`].
    KillMarked,
    /// Tell the wrapper, without ever waiting for it.
    Reply(Reply),
    /// Tell people, without ever waiting for them.
    Say(GuardWord),
    /// End.
    Leave,
}

/// What a guard says to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardWord {
    /// The wrapper has ended, so the program of this group was killed.
    KilledWithWrapper(Pid),
    /// The lease ends and the wrapper did not act, so the program of this group was killed.
    KilledAtDeadline(Pid),
    /// This process belongs to another user and could not be killed.
    Refused(Pid),
}

/// The guard's machine.
#[derive(Debug)]
pub struct Guard {
    watched: Option<Pid>,
    kill_at: Option<Moment>,
    /// The program was killed since the last order to watch.
    has_killed: bool,
    has_told_refusal: bool,
    /// The wrapper is gone.
    is_leaving: bool,
    search_at: Option<Moment>,
    searches_left: u32,
    outputs: VecDeque<GuardOutput>,
}

impl Guard {
    /// A guard that watches nobody yet.
    pub fn new() -> Self {
        Guard {
            watched: None,
            kill_at: None,
            has_killed: false,
            has_told_refusal: false,
            is_leaving: false,
            search_at: None,
            searches_left: 0,
            outputs: VecDeque::from([GuardOutput::Reply(Reply::Ready)]),
        }
    }

    /// The group that it watches.
    pub fn watched(&self) -> Option<Pid> {
        self.watched
    }

    /// Takes an order. Once no other waits, [`handle_time`](Self::handle_time) follows: a deadline
    /// that is about to be moved must not count.
    pub fn handle_order(&mut self, now: Moment, order: NumberedOrder) {
        let number = order.number;
        let reply = match order.order {
            // The wrapper may have been stopped between its last look at the clock and the fork.
            // Without a deadline nothing is watched: it could live for ever.
            Order::Watch(_) if self.kill_at.is_none_or(|kill_at| now >= kill_at) => {
                Reply::TooLate(number)
            }
            Order::Watch(group) => {
                self.watched = Some(group);
                (self.has_killed, self.has_told_refusal) = (false, false);
                Reply::Took(number)
            }
            Order::Until(moment) => {
                self.kill_at = Some(moment);
                Reply::Took(number)
            }
            Order::Forget => {
                (self.watched, self.kill_at, self.search_at) = (None, None, None);
                Reply::Took(number)
            }
        };
        self.outputs.push_back(GuardOutput::Reply(reply));
    }

    /// The pipe of orders has ended, or made no sense: there is no wrapper any more.
    pub fn handle_wrapper_gone(&mut self, now: Moment) {
        self.is_leaving = true;
        match self.watched {
            Some(group) => self.kill(now, group),
            None => self.outputs.push_back(GuardOutput::Leave),
        }
    }

    /// Time has passed.
    pub fn handle_time(&mut self, now: Moment) {
        let is_due = self.kill_at.is_some_and(|kill_at| now >= kill_at);
        match self.watched {
            Some(group) if is_due && !self.has_killed => self.kill(now, group),
            _ if self.search_at.is_some_and(|search_at| now >= search_at) => self.search(),
            _ => {}
        }
    }

    /// What the system answered to the signal for the group.
    pub fn handle_killed(&mut self, _now: Moment, group: Pid, answer: KillAnswer) {
        match answer {
            KillAnswer::Refused => self.handle_refused(group),
            // Nobody was there to be killed, so there is nothing to tell.
            KillAnswer::Gone => {}
            KillAnswer::Sent => {
                let word = match self.is_leaving {
                    true => GuardWord::KilledWithWrapper(group),
                    false => GuardWord::KilledAtDeadline(group),
                };
                self.outputs.push_back(GuardOutput::Say(word));
            }
        }
    }

    /// A process of the program belongs to another user.
    pub fn handle_refused(&mut self, pid: Pid) {
        if !std::mem::replace(&mut self.has_told_refusal, true) {
            self.outputs.push_back(GuardOutput::Reply(Reply::Refused));
            self.outputs.push_back(GuardOutput::Say(GuardWord::Refused(pid)));
        }
    }

    /// How many marked processes a search found and killed.
    pub fn handle_searched(&mut self, now: Moment, found: usize) {
        match found > 0 && self.searches_left > 0 {
            true => self.search_at = Some(now + SEARCH_PAUSE),
            false if self.is_leaving => self.outputs.push_back(GuardOutput::Leave),
            false => {}
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<GuardOutput> {
        self.outputs.pop_front()
    }

    /// When to come back, if nothing happens before.
    pub fn wakes_at(&self) -> Option<Moment> {
        let kill_at = self.kill_at.filter(|_| self.watched.is_some() && !self.has_killed);
        kill_at.into_iter().chain(self.search_at).min()
    }

    fn kill(&mut self, _now: Moment, group: Pid) {
        self.searches_left = SEARCHES_MAX;
        self.outputs.push_back(GuardOutput::KillGroup(group));
        self.search();
        if !std::mem::replace(&mut self.has_killed, true) {
            self.outputs.push_back(GuardOutput::Reply(Reply::Killed));
        }
    }

    fn search(&mut self) {
        self.search_at = None;
        self.searches_left = self.searches_left.saturating_sub(1);
        self.outputs.push_back(GuardOutput::KillMarked);
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_AGO: Moment = Moment::from_nanos(1);
    const NOW: Moment = Moment::from_nanos(1_000_000_000);
    const LATER: Moment = Moment::from_nanos(2_000_000_000);

    struct Script(Guard, u64);

    impl Script {
        fn new() -> Self {
            let mut script = Script(Guard::new(), 0);
            assert_eq!(script.outputs(), [GuardOutput::Reply(Reply::Ready)]);
            script
        }

        fn order(&mut self, now: Moment, order: Order) -> Vec<GuardOutput> {
            self.1 += 1;
            self.0.handle_order(now, NumberedOrder { number: self.1, order });
            self.outputs()
        }

        fn outputs(&mut self) -> Vec<GuardOutput> {
            std::iter::from_fn(|| self.0.poll_output()).collect()
        }
    }

    fn group() -> Pid {
        Pid::new(40).unwrap()
    }

    #[test]
    fn every_order_is_answered_by_its_number() {
        let mut guard = Script::new();
        let took = |number| [GuardOutput::Reply(Reply::Took(number))];
        assert_eq!(guard.order(NOW, Order::Until(LATER)), took(1));
        assert_eq!(guard.order(NOW, Order::Watch(group())), took(2));
        assert_eq!(guard.0.wakes_at(), Some(LATER));
        assert_eq!(guard.order(NOW, Order::Forget), took(3));
        assert_eq!(guard.0.wakes_at(), None);
    }

    #[test]
    fn nothing_is_watched_without_a_deadline_or_after_it() {
        let mut guard = Script::new();
        let too_late = |number| [GuardOutput::Reply(Reply::TooLate(number))];
        assert_eq!(guard.order(NOW, Order::Watch(group())), too_late(1));
        guard.order(NOW, Order::Until(LONG_AGO));
        assert_eq!(guard.order(NOW, Order::Watch(group())), too_late(3));
        guard.0.handle_wrapper_gone(NOW);
        assert_eq!(guard.outputs(), [GuardOutput::Leave], "nobody to kill");
    }

    #[test]
    fn killing_comes_before_talking_and_goes_on_until_nothing_is_found() {
        let mut guard = Script::new();
        guard.order(NOW, Order::Until(LATER));
        guard.order(NOW, Order::Watch(group()));
        guard.0.handle_time(LATER);
        let killed = [
            GuardOutput::KillGroup(group()),
            GuardOutput::KillMarked,
            GuardOutput::Reply(Reply::Killed),
        ];
        assert_eq!(guard.outputs(), killed);
        guard.0.handle_searched(LATER, 1);
        guard.0.handle_time(guard.0.wakes_at().unwrap());
        assert_eq!(guard.outputs(), [GuardOutput::KillMarked]);
        guard.0.handle_searched(LATER, 0);
        assert_eq!((guard.outputs(), guard.0.wakes_at()), (vec![], None));
    }
}
