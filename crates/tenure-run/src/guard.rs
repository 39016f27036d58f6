//! The guard's half: it ends the program when the wrapper cannot.
//!
//! ```text
//! wrapper ── orders: until(kill_at), watch(…), forget ─────► guard ── SIGKILL ──► the program
//!        ◄── replies: took(n), too late(n), killed ──────────   │ at `kill_at`, or when the pipe
//!                                                               │ of orders ends
//! ```
//! The group is killed at once and as a whole. What left the group is known by what the wrapper
//! saw, or found by the mark that the program's environment carries, and looked for until nothing
//! is found.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tenure_core::Moment;

use crate::orders::{NumberedOrder, Order, Reply};
use crate::process::{KillAnswer, Pid, Stray};

/// Between two searches for what left the group.
const SEARCH_PAUSE: Duration = Duration::from_millis(2);
/// How often something may be found again. Programs that fork for ever must not keep a guard for
/// ever; each search kills all that it finds.
const SEARCHES_MAX: u32 = 1_000;

/// How many strays a guard knows. The mark finds most of them anyway.
pub(crate) const STRAYS_MAX: usize = 256;

/// How many searches in a row must find nothing: what forks and ends meanwhile may escape one.
const EMPTY_SEARCHES: u32 = 3;

/// What a guard has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardOutput {
    /// Send SIGKILL to this group; answered by [`Guard::handle_killed`] with what became of those
    /// in it that had not ended.
    KillGroup(Pid),
    /// Send SIGKILL to this process and to what descends from it, if it is still the one that is
    /// meant and has not ended; answered by [`Guard::handle_stray_killed`].
    KillStray(Stray),
    /// Send SIGKILL to every process with the mark; answered by [`Guard::handle_searched`].
    KillMarked,
    /// Tell the wrapper, without ever waiting for it.
    Reply(Reply),
    /// Print this on stderr, without ever waiting.
    Say(GuardMessage),
    /// End.
    Leave,
}

/// What a search for processes with the mark came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkedSearch {
    /// How many were found and killed.
    pub killed: usize,
    /// Of how many it could not be told whether they have the mark.
    pub unclear: usize,
}

/// What a guard says on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardMessage {
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
    /// Of the program, and no longer in its group.
    strays: BTreeSet<Stray>,
    kill_at: Option<Moment>,
    /// The wrapper told it so, because the term is over: it acts itself.
    is_told: bool,
    /// It has sent its signals since the last order to watch.
    has_acted: bool,
    /// Somebody was killed by them, of which the wrapper was told.
    has_killed: bool,
    has_told_refusal: bool,
    /// The wrapper is gone.
    is_leaving: bool,
    search_at: Option<Moment>,
    searches_left: u32,
    empty_searches: u32,
    outputs: VecDeque<GuardOutput>,
}

impl Guard {
    /// A guard that watches no program yet.
    pub fn new() -> Self {
        Guard {
            watched: None,
            strays: BTreeSet::new(),
            kill_at: None,
            is_told: false,
            has_acted: false,
            has_killed: false,
            has_told_refusal: false,
            is_leaving: false,
            search_at: None,
            searches_left: 0,
            empty_searches: 0,
            outputs: VecDeque::from([GuardOutput::Reply(Reply::Ready)]),
        }
    }

    /// The process group that it watches.
    pub fn watched(&self) -> Option<Pid> {
        self.watched
    }

    /// Whether it would kill this stray.
    pub fn knows(&self, stray: Stray) -> bool {
        self.strays.contains(&stray)
    }

    /// Takes an order. When no other order waits, call [`handle_time`](Self::handle_time): a
    /// deadline that is about to be moved must not take effect.
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
                (self.has_acted, self.has_killed, self.has_told_refusal) = (false, false, false);
                Reply::Took(number)
            }
            Order::Until(moment) => {
                self.kill_at = Some(moment);
                self.is_told = now >= moment;
                Reply::Took(number)
            }
            Order::Forget => {
                (self.watched, self.kill_at, self.search_at) = (None, None, None);
                self.strays.clear();
                Reply::Took(number)
            }
            Order::WatchStray(stray) => {
                self.watch_stray(stray);
                Reply::Took(number)
            }
            Order::ForgetStray(stray) => {
                self.strays.remove(&stray);
                Reply::Took(number)
            }
        };
        self.outputs.push_back(GuardOutput::Reply(reply));
    }

    /// The pipe of orders has ended, or carried something invalid: the wrapper is gone.
    pub fn handle_wrapper_gone(&mut self, now: Moment) {
        self.is_leaving = true;
        match self.watched {
            Some(group) => self.kill(now, group),
            None => self.outputs.push_back(GuardOutput::Leave),
        }
    }

    /// Time has passed: does what is due.
    pub fn handle_time(&mut self, now: Moment) {
        let is_due = self.kill_at.is_some_and(|kill_at| now >= kill_at);
        match self.watched {
            Some(group) if is_due && !self.has_acted => self.kill(now, group),
            _ if self.search_at.is_some_and(|search_at| now >= search_at) => self.search(),
            _ => {}
        }
    }

    /// The system's answer to the signal for the group.
    pub fn handle_killed(&mut self, _now: Moment, group: Pid, answer: KillAnswer) {
        match answer {
            KillAnswer::Refused => self.handle_refused(group),
            // Nobody was there to be killed, so there is nothing to tell.
            KillAnswer::Gone => {}
            KillAnswer::Sent if self.is_told && !self.is_leaving => self.note_killed(),
            KillAnswer::Sent => {
                self.note_killed();
                let word = match self.is_leaving {
                    true => GuardMessage::KilledWithWrapper(group),
                    false => GuardMessage::KilledAtDeadline(group),
                };
                self.outputs.push_back(GuardOutput::Say(word));
            }
        }
    }

    /// The system's answer to the signal for a stray; `Gone` if it was somebody else by then.
    pub fn handle_stray_killed(&mut self, pid: Pid, answer: KillAnswer) {
        match answer {
            KillAnswer::Refused => self.handle_refused(pid),
            KillAnswer::Sent => self.note_killed(),
            KillAnswer::Gone => {}
        }
    }

    /// A process of the program belongs to another user.
    pub fn handle_refused(&mut self, pid: Pid) {
        if !std::mem::replace(&mut self.has_told_refusal, true) {
            self.outputs.push_back(GuardOutput::Reply(Reply::Refused));
            self.outputs.push_back(GuardOutput::Say(GuardMessage::Refused(pid)));
        }
    }

    /// What a search for marked processes came to.
    pub fn handle_searched(&mut self, now: Moment, found: MarkedSearch) {
        if found.killed > 0 {
            self.note_killed();
        }
        let is_empty = found == MarkedSearch::default();
        self.empty_searches = if is_empty { self.empty_searches + 1 } else { 0 };
        match self.empty_searches < EMPTY_SEARCHES && self.searches_left > 0 {
            true => self.search_at = Some(now + SEARCH_PAUSE),
            false if self.is_leaving => self.outputs.push_back(GuardOutput::Leave),
            false => {}
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<GuardOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`handle_time`](Self::handle_time), if nothing happens before.
    pub fn wakes_at(&self) -> Option<Moment> {
        let kill_at = self.kill_at.filter(|_| self.watched.is_some() && !self.has_acted);
        kill_at.into_iter().chain(self.search_at).min()
    }

    fn kill(&mut self, _now: Moment, group: Pid) {
        (self.searches_left, self.empty_searches) = (SEARCHES_MAX, 0);
        self.outputs.push_back(GuardOutput::KillGroup(group));
        self.outputs.extend(self.strays.iter().map(|stray| GuardOutput::KillStray(*stray)));
        self.search();
        self.has_acted = true;
    }

    /// The program did not end by itself, which the wrapper has to know. One that had ended before
    /// its deadline did: nobody was there to be killed.
    fn note_killed(&mut self) {
        if !std::mem::replace(&mut self.has_killed, true) {
            self.outputs.push_back(GuardOutput::Reply(Reply::Killed));
        }
    }

    /// One that comes to be known after the program was killed is killed as well.
    fn watch_stray(&mut self, stray: Stray) {
        if self.watched.is_some() && self.strays.len() < STRAYS_MAX && self.strays.insert(stray) {
            let is_late = self.has_acted.then_some(GuardOutput::KillStray(stray));
            self.outputs.extend(is_late);
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
    fn strays_are_killed_with_the_group_unless_they_are_forgotten() {
        let stray = |pid, started| Stray { pid: Pid::new(pid).unwrap(), started };
        let mut guard = Script::new();
        guard.order(NOW, Order::Until(LATER));
        guard.order(NOW, Order::Watch(group()));
        guard.order(NOW, Order::WatchStray(stray(50, 7)));
        guard.order(NOW, Order::WatchStray(stray(51, 8)));
        guard.order(NOW, Order::ForgetStray(stray(50, 7)));
        guard.0.handle_wrapper_gone(NOW);
        let killed = guard.outputs();
        assert_eq!(killed[0], GuardOutput::KillGroup(group()));
        assert_eq!(killed[1], GuardOutput::KillStray(stray(51, 8)));
        assert!(!killed.contains(&GuardOutput::KillStray(stray(50, 7))));

        let mut next = Script::new();
        next.order(NOW, Order::Until(LATER));
        next.order(NOW, Order::Watch(group()));
        next.order(NOW, Order::WatchStray(stray(51, 8)));
        next.order(NOW, Order::Forget);
        next.order(NOW, Order::Until(LATER));
        next.order(NOW, Order::Watch(group()));
        next.0.handle_time(LATER);
        assert!(!next.outputs().contains(&GuardOutput::KillStray(stray(51, 8))));
    }

    #[test]
    fn only_a_deadline_of_which_the_wrapper_said_nothing_is_told() {
        let mut guard = Script::new();
        guard.order(NOW, Order::Until(LATER));
        guard.order(NOW, Order::Watch(group()));
        // The term is over before its time, and the wrapper kills as well.
        guard.order(NOW, Order::Until(LONG_AGO));
        guard.0.handle_time(NOW);
        assert_eq!(guard.outputs()[0], GuardOutput::KillGroup(group()));
        guard.0.handle_killed(NOW, group(), KillAnswer::Sent);
        assert_eq!(guard.outputs(), [GuardOutput::Reply(Reply::Killed)]);
    }

    #[test]
    fn killing_comes_before_talking_and_goes_on_until_nothing_is_found() {
        let mut guard = Script::new();
        guard.order(NOW, Order::Until(LATER));
        guard.order(NOW, Order::Watch(group()));
        guard.0.handle_time(LATER);
        let killed = [GuardOutput::KillGroup(group()), GuardOutput::KillMarked];
        assert_eq!(guard.outputs(), killed);
        guard.0.handle_killed(LATER, group(), KillAnswer::Sent);
        let told = GuardOutput::Say(GuardMessage::KilledAtDeadline(group()));
        assert_eq!(guard.outputs(), [GuardOutput::Reply(Reply::Killed), told]);
        for killed in [0, 0, 1, 0, 0] {
            guard.0.handle_searched(LATER, MarkedSearch { killed, unclear: 0 });
            guard.0.handle_time(guard.0.wakes_at().unwrap());
            assert_eq!(guard.outputs(), [GuardOutput::KillMarked]);
        }
        guard.0.handle_searched(LATER, MarkedSearch::default());
        assert_eq!((guard.outputs(), guard.0.wakes_at()), (vec![], None));
    }

    #[test]
    fn nobody_is_said_to_be_killed_who_had_ended() {
        let mut guard = Script::new();
        guard.order(NOW, Order::Until(LATER));
        guard.order(NOW, Order::Watch(group()));
        guard.0.handle_time(LATER);
        guard.outputs();
        guard.0.handle_killed(LATER, group(), KillAnswer::Gone);
        guard.0.handle_searched(LATER, MarkedSearch { killed: 0, unclear: 1 });
        assert_eq!(guard.outputs(), []);
        guard.0.handle_stray_killed(group(), KillAnswer::Sent);
        assert_eq!(guard.outputs(), [GuardOutput::Reply(Reply::Killed)], "it left something");
    }
}
