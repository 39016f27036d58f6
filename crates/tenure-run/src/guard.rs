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
use crate::process::{Deadline, KillAnswer, Pid, Stray};

/// Between two searches for what left the group.
const SEARCH_PAUSE_MIN: Duration = Duration::from_millis(2);
/// The same after searches that killed nobody and left something unclear: on a machine with much to
/// do something always is, and who is dying needs the processor, too.
const SEARCH_PAUSE_MAX: Duration = Duration::from_millis(50);
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
    /// The program of this group was killed after its lease, because the guard itself was kept
    /// from running for longer than the time that is kept back for killing.
    RunTooLate(Lateness),
    /// This process belongs to another user and could not be killed.
    Refused(Pid),
}

/// How long a guard did not run when it had to, by its own measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lateness {
    /// The group that it had to kill.
    pub group: Pid,
    /// From the deadline to the moment at which it ran.
    pub late: Duration,
    /// And how long it has waited for a processor since then.
    pub waited: Duration,
    /// The time between the deadline and the end of the lease, which is kept back for killing.
    pub kept_back: Duration,
}

/// The killing at a deadline.
#[derive(Clone, Copy, Debug)]
struct Killing {
    group: Pid,
    deadline: Deadline,
    /// From the deadline to its beginning.
    late: Duration,
    /// What `waited` was at its beginning.
    waited_before: Duration,
}

/// The guard's machine.
#[derive(Debug)]
pub struct Guard {
    watched: Option<Pid>,
    /// Of the program, and no longer in its group.
    strays: BTreeSet<Stray>,
    deadline: Option<Deadline>,
    /// A deadline that had passed when the next one was told, before the guard was run.
    missed: Option<Deadline>,
    /// How long this process has ever waited for a processor, by the last reading.
    waited: Duration,
    /// When it began to kill, and by which deadline.
    killing: Option<Killing>,
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
    search_pause: Duration,
    outputs: VecDeque<GuardOutput>,
}

impl Guard {
    /// A guard that watches no program yet.
    pub fn new() -> Self {
        Guard {
            watched: None,
            strays: BTreeSet::new(),
            deadline: None,
            missed: None,
            waited: Duration::ZERO,
            killing: None,
            is_told: false,
            has_acted: false,
            has_killed: false,
            has_told_refusal: false,
            is_leaving: false,
            search_at: None,
            searches_left: 0,
            empty_searches: 0,
            search_pause: SEARCH_PAUSE_MIN,
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
            Order::Watch(_) if self.deadline.is_none_or(|deadline| now >= deadline.kill_at) => {
                Reply::TooLate(number)
            }
            Order::Watch(group) => {
                self.watched = Some(group);
                (self.has_acted, self.has_killed, self.has_told_refusal) = (false, false, false);
                Reply::Took(number)
            }
            Order::Until(deadline) => {
                self.take_deadline(now, deadline);
                Reply::Took(number)
            }
            Order::Forget => {
                (self.watched, self.deadline, self.search_at) = (None, None, None);
                (self.missed, self.killing) = (None, None);
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
        let is_due = self.deadline.is_some_and(|deadline| now >= deadline.kill_at);
        match self.watched {
            Some(group) if is_due && !self.has_acted => self.kill(now, group),
            _ if self.search_at.is_some_and(|search_at| now >= search_at) => self.search(),
            _ => {}
        }
    }

    /// How long this process has ever waited for a processor, as the system counts. To be called
    /// before [`handle_time`](Self::handle_time), and before the answers to what it does.
    pub fn note_waited(&mut self, waited: Duration) {
        self.waited = waited;
    }

    /// The system's answer to the signal for the group.
    pub fn handle_killed(&mut self, now: Moment, group: Pid, answer: KillAnswer) {
        if answer == KillAnswer::Sent {
            self.judge_lateness(now);
        }
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
    pub fn handle_stray_killed(&mut self, now: Moment, pid: Pid, answer: KillAnswer) {
        match answer {
            KillAnswer::Refused => self.handle_refused(pid),
            KillAnswer::Sent => {
                self.note_killed();
                self.judge_lateness(now);
            }
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
            self.judge_lateness(now);
        }
        let is_empty = found == MarkedSearch::default();
        self.empty_searches = if is_empty { self.empty_searches + 1 } else { 0 };
        let pause = match is_empty || found.killed > 0 {
            true => SEARCH_PAUSE_MIN,
            false => self.search_pause,
        };
        self.search_pause = (pause * 2).min(SEARCH_PAUSE_MAX);
        match self.empty_searches < EMPTY_SEARCHES && self.searches_left > 0 {
            true => self.search_at = Some(now + pause),
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
        let is_due = self.watched.is_some() && !self.has_acted;
        let kill_at = self.deadline.filter(|_| is_due).map(|deadline| deadline.kill_at);
        kill_at.into_iter().chain(self.search_at).min()
    }

    fn take_deadline(&mut self, now: Moment, deadline: Deadline) {
        let is_waited_for = self.watched.is_some() && !self.has_acted;
        let passed = self.deadline.filter(|last| is_waited_for && now >= last.kill_at);
        self.missed = self.missed.or(passed);
        if now < deadline.kill_at {
            self.missed = None;
        }
        (self.deadline, self.is_told) = (Some(deadline), now >= deadline.kill_at);
    }

    fn kill(&mut self, now: Moment, group: Pid) {
        // Who is told only when the term is over already cannot have been late.
        let told = self.deadline.filter(|_| !self.is_told);
        self.killing = self.missed.take().or(told).map(|deadline| Killing {
            group,
            deadline,
            late: now.since(deadline.kill_at),
            waited_before: self.waited,
        });
        (self.searches_left, self.empty_searches) = (SEARCHES_MAX, 0);
        self.search_pause = SEARCH_PAUSE_MIN;
        self.outputs.push_back(GuardOutput::KillGroup(group));
        self.outputs.extend(self.strays.iter().map(|stray| GuardOutput::KillStray(*stray)));
        self.search();
        self.has_acted = true;
    }

    /// Somebody was killed just now. If that was after the lease, and because this process was kept
    /// from running, it is said, once: nobody else can know.
    fn judge_lateness(&mut self, now: Moment) {
        let Some(killing) = self.killing else { return };
        let Killing { group, deadline, late, waited_before } = killing;
        let waited = self.waited.saturating_sub(waited_before);
        let kept_back = deadline.ends_at.since(deadline.kill_at);
        if now >= deadline.ends_at && late + waited > kept_back {
            self.killing = None;
            let lateness = Lateness { group, late, waited, kept_back };
            self.outputs.push_back(GuardOutput::Say(GuardMessage::RunTooLate(lateness)));
        }
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

    const MARGIN: Duration = Duration::from_millis(100);

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

    /// A lease that ends a little after its deadline.
    fn until(kill_at: Moment) -> Deadline {
        Deadline { kill_at, ends_at: kill_at + MARGIN }
    }

    fn group() -> Pid {
        Pid::new(40).unwrap()
    }

    #[test]
    fn every_order_is_answered_by_its_number() {
        let mut guard = Script::new();
        let took = |number| [GuardOutput::Reply(Reply::Took(number))];
        assert_eq!(guard.order(NOW, Order::Until(until(LATER))), took(1));
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
        guard.order(NOW, Order::Until(until(LONG_AGO)));
        assert_eq!(guard.order(NOW, Order::Watch(group())), too_late(3));
        guard.0.handle_wrapper_gone(NOW);
        assert_eq!(guard.outputs(), [GuardOutput::Leave], "nobody to kill");
    }

    #[test]
    fn strays_are_killed_with_the_group_unless_they_are_forgotten() {
        let stray = |pid, started| Stray { pid: Pid::new(pid).unwrap(), started };
        let mut guard = Script::new();
        guard.order(NOW, Order::Until(until(LATER)));
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
        next.order(NOW, Order::Until(until(LATER)));
        next.order(NOW, Order::Watch(group()));
        next.order(NOW, Order::WatchStray(stray(51, 8)));
        next.order(NOW, Order::Forget);
        next.order(NOW, Order::Until(until(LATER)));
        next.order(NOW, Order::Watch(group()));
        next.0.handle_time(LATER);
        assert!(!next.outputs().contains(&GuardOutput::KillStray(stray(51, 8))));
    }

    #[test]
    fn only_a_deadline_of_which_the_wrapper_said_nothing_is_told() {
        let mut guard = Script::new();
        guard.order(NOW, Order::Until(until(LATER)));
        guard.order(NOW, Order::Watch(group()));
        // The term is over before its time, and the wrapper kills as well.
        guard.order(NOW, Order::Until(until(LONG_AGO)));
        guard.0.handle_time(NOW);
        assert_eq!(guard.outputs()[0], GuardOutput::KillGroup(group()));
        guard.0.handle_killed(NOW, group(), KillAnswer::Sent);
        assert_eq!(guard.outputs(), [GuardOutput::Reply(Reply::Killed)]);
    }

    #[test]
    fn killing_comes_before_talking_and_goes_on_until_nothing_is_found() {
        let mut guard = Script::new();
        guard.order(NOW, Order::Until(until(LATER)));
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
        guard.order(NOW, Order::Until(until(LATER)));
        guard.order(NOW, Order::Watch(group()));
        guard.0.handle_time(LATER);
        guard.outputs();
        guard.0.handle_killed(LATER, group(), KillAnswer::Gone);
        guard.0.handle_searched(LATER, MarkedSearch { killed: 0, unclear: 1 });
        assert_eq!(guard.outputs(), []);
        guard.0.handle_stray_killed(LATER, group(), KillAnswer::Sent);
        assert_eq!(guard.outputs(), [GuardOutput::Reply(Reply::Killed)], "it left something");
    }

    /// A guard that has to kill at `LATER`, is run so long after it, and has waited so long before.
    fn run_late(late: Duration) -> Script {
        let mut guard = Script::new();
        guard.0.note_waited(Duration::from_secs(7));
        guard.order(NOW, Order::Until(until(LATER)));
        guard.order(NOW, Order::Watch(group()));
        guard.0.handle_time(LATER + late);
        guard.outputs();
        guard
    }

    fn too_late(late: Duration, waited: Duration) -> GuardOutput {
        let lateness = Lateness { group: group(), late, waited, kept_back: MARGIN };
        GuardOutput::Say(GuardMessage::RunTooLate(lateness))
    }

    #[test]
    fn a_guard_that_is_run_after_the_lease_says_how_late() {
        let late = MARGIN * 2;
        let mut guard = run_late(late);
        guard.0.handle_killed(LATER + late, group(), KillAnswer::Sent);
        assert!(guard.outputs().contains(&too_late(late, Duration::ZERO)));
        guard.0.handle_searched(LATER + late, MarkedSearch { killed: 1, unclear: 0 });
        assert_eq!(guard.outputs(), [], "once");
    }

    #[test]
    fn a_guard_that_waits_for_a_processor_while_it_searches_says_so() {
        let (late, waited) = (MARGIN / 2, MARGIN);
        let mut guard = run_late(late);
        guard.0.handle_killed(LATER + late, group(), KillAnswer::Sent);
        guard.outputs();
        guard.0.note_waited(Duration::from_secs(7) + waited);
        guard.0.handle_searched(LATER + MARGIN * 2, MarkedSearch { killed: 1, unclear: 0 });
        assert_eq!(guard.outputs(), [too_late(late, waited)]);
    }

    /// That would be its own fault, and no excuse.
    #[test]
    fn a_guard_that_is_run_in_time_and_kills_late_says_nothing() {
        let mut guard = run_late(MARGIN / 2);
        guard.0.note_waited(Duration::from_secs(7) + MARGIN / 4);
        guard.0.handle_searched(LATER + MARGIN * 9, MarkedSearch { killed: 1, unclear: 0 });
        assert_eq!(guard.outputs(), [GuardOutput::Reply(Reply::Killed)]);
    }

    #[test]
    fn a_guard_that_is_told_only_afterwards_was_late_where_it_missed_a_deadline() {
        let over = until(LONG_AGO);
        let mut told = Script::new();
        told.order(NOW, Order::Until(until(LATER)));
        told.order(NOW, Order::Watch(group()));
        told.order(NOW, Order::Until(over));
        told.0.handle_time(NOW);
        told.0.handle_killed(NOW, group(), KillAnswer::Sent);
        let said = |output: &GuardOutput| matches!(output, GuardOutput::Say(_));
        assert!(!told.outputs().iter().any(said), "it was in time");

        let late = MARGIN * 3;
        let mut missed = Script::new();
        missed.order(NOW, Order::Until(until(LATER)));
        missed.order(NOW, Order::Watch(group()));
        missed.order(LATER + late, Order::Until(over));
        missed.0.handle_time(LATER + late);
        missed.0.handle_killed(LATER + late, group(), KillAnswer::Sent);
        assert!(missed.outputs().contains(&too_late(late, Duration::ZERO)));
    }

    #[test]
    fn searches_that_only_leave_things_unclear_become_rare_until_somebody_is_found() {
        let mut guard = run_late(Duration::ZERO);
        let mut pause_after = |killed, unclear| {
            guard.0.handle_searched(LATER, MarkedSearch { killed, unclear });
            guard.0.wakes_at().unwrap().since(LATER)
        };
        let pauses: Vec<Duration> = (0..9).map(|_| pause_after(0, 1)).collect();
        assert!(pauses.is_sorted() && pauses[8] == SEARCH_PAUSE_MAX, "{pauses:?}");
        assert_eq!(pause_after(1, 1), SEARCH_PAUSE_MIN);
    }
}
