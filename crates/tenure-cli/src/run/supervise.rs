//! One term: the program runs, is told to stop, and is gone before the lease ends.
//!
//! What is to be done is decided in `tenure-run`; here it is done, and what happens is passed on.

mod closing;
mod old_checks;

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::{
    Signal, WaitId, WaitIdOptions, WaitIdStatus, getpid, kill_process_group, set_child_subreaper,
    waitid,
};
use tenure::{Election, Moment, Tenure, Term, Timing};
use tenure_run::{
    Deadline, Ending, GuardTrouble, Leader, ListedChild, Output, Pid, RunOutcome, SentSignal,
    StartError, Stray, Wrapper, WrapperMessage,
};
use tokio::signal::unix::{self, SignalKind};

use self::old_checks::OldChecks;
use super::fork::{Execution, Forked, fork};
use super::guard_link::GuardLink;
use super::health::{Health, HealthCheck};
use super::mark::{MARK, OUTER_MARKS, outer_ids};
use super::proc::{Child, Processes, kill_child, to_system};
use super::program::Program;
use super::signals::{self, Signals};
use super::terminal::Terminal;
use crate::clock::boot_now;
use crate::exit::{self, Failure};
use crate::local;
use crate::output::{self, warn};

/// With less than this a program was given no time to stop.
const GRACE_MIN: Duration = Duration::from_millis(250);

/// What runs a program under a term, any number of terms one after the other.
#[derive(Debug)]
pub(crate) struct Supervisor {
    tenure: Tenure,
    program: Program,
    timing: Timing,
    stop_signal: Signal,
    machine: Wrapper,
    processes: Processes,
    children: unix::Signal,
    guard: Option<GuardLink>,
    forked: Option<Forked>,
    terminal: Option<Terminal>,
    /// The program was put into the foreground of the terminal, and has not left it since.
    has_terminal: bool,
    environment: Vec<(&'static str, String)>,
    health: Option<Health>,
    /// Checks that were killed and have not been reaped, and what could not be killed of them.
    old_checks: OldChecks,
    /// A health check has succeeded in this term.
    pub(super) was_well: bool,
    /// By which signal this process was asked to end before the last program had.
    left_by: Option<Signal>,
    /// There cannot be a guard, so nothing can be run.
    has_no_guard: bool,
}

/// How a program ended, and whose will that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, or by a signal from outside.
    ByItself(Ending),
    /// Its term is over.
    WithItsTerm,
    /// Its term was over before it ran anything, by this signal if there was one.
    NeverRan(Option<Signal>),
    /// This process was asked to end.
    Leaving(Ending),
    /// Some of its processes cannot be ended, which was said. Nothing else may be started here.
    Stuck,
}

/// What the work tells the election about itself.
pub(crate) struct Work<'a> {
    pub(super) election: &'a Election,
    pub(super) check: Option<&'a HealthCheck>,
}

/// What came out of doing what the machine wants.
enum Done {
    /// All of it was done.
    Waits,
    Over(RunOutcome),
    NoGuard,
}

/// What happened beside the term.
enum Wakeup {
    Reply(Option<tenure_run::Reply>),
    Execution(Execution),
    Child,
    Time,
}

impl Supervisor {
    /// Starts the guard, so that it is there long before any program.
    pub(crate) fn new(
        tenure: Tenure,
        program: Program,
        timing: Timing,
        stop_signal: Signal,
    ) -> Result<Self, Failure> {
        // Orphans of the program become ours, so that they can be killed and reaped, too.
        let _ = set_child_subreaper(Some(getpid()));
        let processes = Processes::open().map_err(|why| Failure::new(exit::CANNOT_EXECUTE, why))?;
        let children = unix::signal(SignalKind::child())
            .map_err(|error| Failure::new(1, format!("cannot listen to signals: {error}")))?;
        let mut supervisor = Supervisor {
            tenure,
            program,
            timing,
            stop_signal,
            machine: Wrapper::new(),
            processes,
            children,
            guard: None,
            forked: None,
            terminal: None,
            has_terminal: false,
            environment: Vec::new(),
            health: None,
            old_checks: OldChecks::default(),
            was_well: false,
            left_by: None,
            has_no_guard: false,
        };
        supervisor.machine.keep_guard(boot_now());
        supervisor.perform();
        Ok(supervisor)
    }

    /// Looks after the guard and after orphans while nothing runs. Returns only when nothing can
    /// be run here any more. May be dropped and called again.
    pub(crate) async fn stand_by(&mut self) -> Failure {
        loop {
            if let Done::NoGuard = self.perform() {
                return no_guard();
            }
            let news = self.next().await;
            self.handle(news);
        }
    }

    /// Runs the program under `term` and returns when nothing of it is left. Fails when the
    /// program never ran.
    ///
    /// A signal that comes with the end may still be unread in `signals`: it is the caller's.
    pub(crate) async fn run(
        &mut self,
        term: &Term,
        work: Option<Work<'_>>,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        self.environment = self.environment(term);
        (self.was_well, self.left_by) = (false, None);
        self.machine.begin(boot_now(), self.deadline(term));
        let (mut leaving, mut is_stopping, mut is_cut_off) = (None, false, false);
        loop {
            // Asked for before the deadline is read: a renewal in between is not missed.
            let renewal = term.wait_for_renewal();
            self.machine.handle_deadline(boot_now(), self.deadline(term));
            self.tell_of_waiting_check();
            match self.perform() {
                Done::Over(outcome) => {
                    self.left_by = leaving;
                    return self.ended(outcome, leaving);
                }
                Done::NoGuard if !self.machine.is_busy() => return Err(no_guard()),
                Done::NoGuard | Done::Waits => {}
            }
            self.let_check_begin();
            let mut health = self.health.take();
            let mut is_time_to_check = false;
            tokio::select! {
                biased;
                () = term.wait_until_cut_off(), if !is_cut_off => {
                    is_cut_off = true;
                    self.machine.handle_cut_off(boot_now());
                }
                () = term.wait_until_stopping(), if !is_stopping => {
                    is_stopping = true;
                    self.machine.handle_stop(boot_now());
                }
                news = self.next() => self.handle(news),
                signal = signals.next() => self.pass_on(signal, &mut leaving),
                () = tick(&mut health) => is_time_to_check = true,
                () = renewal => {}
            }
            self.health = health;
            self.look_after_work(work.as_ref(), is_time_to_check);
        }
    }

    /// By which signal this process was asked to end before the last program had.
    pub(crate) fn left_by(&self) -> Option<Signal> {
        self.left_by
    }

    /// What the program is told about the term.
    fn environment(&self, term: &Term) -> Vec<(&'static str, String)> {
        let told = [
            ("TENURE_NAME", term.resource().name().to_owned()),
            (MARK, self.tenure.id().to_string()),
            ("TENURE_TOKEN", term.token().to_string()),
            ("TENURE_TTL_MS", self.timing.ttl().as_millis().to_string()),
        ];
        told.into_iter().chain(outer_ids().map(|ids| (OUTER_MARKS, ids))).collect()
    }

    fn deadline(&self, term: &Term) -> Deadline {
        let ends_at = term.ends_at();
        Deadline { kill_at: self.timing.kill_at(ends_at), ends_at }
    }

    async fn next(&mut self) -> Wakeup {
        let wakes_at = self.machine.wakes_at();
        let reply = async {
            match &mut self.guard {
                Some(guard) => guard.reply().await,
                None => std::future::pending().await,
            }
        };
        let executed = async {
            match &mut self.forked {
                Some(forked) => forked.executed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            // Before the end of a child is looked at: it may be the end of an execution.
            execution = executed => Wakeup::Execution(execution),
            // Before children: thousands that end must not make a guard look silent.
            reply = reply => Wakeup::Reply(reply),
            _ = self.children.recv() => Wakeup::Child,
            () = until(wakes_at) => Wakeup::Time,
        }
    }

    fn handle(&mut self, news: Wakeup) {
        let now = boot_now();
        match news {
            Wakeup::Reply(Some(reply)) => self.machine.handle_reply(now, reply),
            Wakeup::Reply(None) => self.machine.handle_guard_trouble(now, GuardTrouble::Ended),
            Wakeup::Execution(Execution::Succeeded) => self.machine.handle_executed(now),
            Wakeup::Execution(Execution::Failed(error)) => {
                self.machine.handle_not_executed(now, error);
            }
            // Its end, which follows, says the rest.
            Wakeup::Execution(Execution::Never) => {}
            Wakeup::Child => self.machine.handle_child_news(now),
            Wakeup::Time => {}
        }
        self.machine.handle_time(boot_now());
    }

    /// Does whatever the machine wants, until it has to wait.
    fn perform(&mut self) -> Done {
        let mut done = Done::Waits;
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Over(outcome) => {
                    self.clean_up();
                    done = Done::Over(outcome);
                }
                Output::NoGuard => self.has_no_guard = true,
                output => self.perform_one(output),
            }
        }
        match done {
            Done::Waits if self.has_no_guard => Done::NoGuard,
            done => done,
        }
    }

    fn perform_one(&mut self, output: Output) {
        match output {
            Output::StartGuard | Output::KillGuard | Output::LookAtGuard | Output::Order(_) => {
                self.perform_on_guard(output);
            }
            Output::Fork => self.fork(),
            Output::OpenGate => self.forked.iter_mut().for_each(Forked::open_gate),
            Output::CloseGate => self.forked.iter_mut().for_each(Forked::close_gate),
            Output::Signal { group, signal } => self.signal(group, signal),
            Output::KillGroup(group) => {
                self.signal_group(group, Signal::KILL);
                // Before it is asked what is left: a check may start things as the program does.
                self.end_check();
            }
            Output::Kill(pid) => {
                let answer = kill_child(pid);
                self.machine.handle_kill_answer(boot_now(), pid, answer);
            }
            Output::KillBelow(pid) => self.processes.kill_below(pid),
            Output::LookAtLeader(pid) => self.look_at_leader(pid),
            Output::ListChildren => self.list_children(),
            Output::ListStrays(group) => self.list_strays(group),
            Output::Reap(pid) => {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
                let _ = waitid(WaitId::Pid(to_system(pid)), options);
            }
            Output::HoldTerm => {
                // No renewal from now on; the guard of the term is held until its lease is over.
                let tenure = self.tenure.clone();
                tokio::spawn(async move { tenure.shutdown().await });
            }
            Output::Say(word) => warn(&text_of(&word)),
            Output::Over(_) | Output::NoGuard => {}
        }
    }

    fn perform_on_guard(&mut self, output: Output) {
        let now = boot_now();
        match (output, &mut self.guard) {
            (Output::StartGuard, guard) => match GuardLink::start(self.tenure.id().as_str()) {
                Ok(started) => *guard = Some(started),
                Err(error) => {
                    warn(&format!("the guard process does not start: {error}"));
                    self.machine.handle_guard_failed(now);
                }
            },
            (Output::KillGuard, guard) => guard.take().into_iter().for_each(GuardLink::kill),
            (Output::LookAtGuard, Some(guard)) => {
                if let Some(trouble) = guard.trouble() {
                    self.machine.handle_guard_trouble(now, trouble);
                }
            }
            (Output::Order(order), Some(guard)) if !guard.order(order) => {
                self.machine.handle_guard_trouble(now, GuardTrouble::Silent);
            }
            _ => {}
        }
    }

    fn fork(&mut self) {
        self.terminal = Terminal::of_stdin();
        let handed = self.terminal.clone().filter(Terminal::is_ours);
        let has_terminal = handed.is_some();
        match fork(&self.program, &self.environment, handed) {
            Ok(forked) => {
                let leader = forked.leader;
                self.has_terminal = has_terminal;
                self.forked = Some(forked);
                self.machine.handle_forked(boot_now(), leader);
            }
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(0);
                self.machine.handle_not_forked(boot_now(), number);
            }
        }
    }

    fn signal(&self, group: Pid, signal: SentSignal) {
        let signal = match signal {
            SentSignal::Stop => Some(self.stop_signal),
            SentSignal::Continue => Some(Signal::CONT),
            SentSignal::Passed(number) => Signal::from_named_raw(number),
        };
        if let Some(signal) = signal {
            self.signal_group(group, signal);
        }
    }

    fn signal_group(&self, group: Pid, signal: Signal) {
        // A group that is gone has nobody to signal; its leader is still ours, so the number is.
        let _ = kill_process_group(to_system(group), signal);
    }

    /// The state of the leader. It is not reaped here: until it is, its number is nobody else's.
    fn look_at_leader(&mut self, leader: Pid) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
        let options = options | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let state = match waitid(WaitId::Pid(to_system(leader)), options) {
            Ok(None) => Leader::Runs,
            Ok(Some(status)) if status.stopped() => {
                self.follow_stop(leader, status.stopping_signal());
                Leader::Runs
            }
            Ok(Some(status)) => {
                // It may have been the end of an execution, of which nobody has heard yet.
                if let Some(execution) = self.forked.as_mut().and_then(Forked::settle) {
                    self.handle(Wakeup::Execution(execution));
                }
                // And the guard's doing, of which it may have told.
                while let Some(reply) = self.guard.as_mut().and_then(GuardLink::said) {
                    self.machine.handle_reply(boot_now(), reply);
                }
                Leader::Ended(ending(&status))
            }
            // Nobody but us reaps it; and if somebody does, it has ended.
            Err(_) => Leader::Ended(Ending::Signalled(Signal::KILL.as_raw() as u8)),
        };
        self.machine.handle_leader(boot_now(), state);
    }

    /// Gives the leadership up: nothing more is run here.
    pub(crate) fn resign(&self) {
        let tenure = self.tenure.clone();
        tokio::spawn(async move { tenure.shutdown().await });
    }

    fn list_children(&mut self) {
        self.old_checks.forget_ended(self.processes);
        let starts = self.machine.needs_starts() || self.old_checks.have_left_any();
        let mut answers = Vec::new();
        let listed = self.processes.children(starts).map(|children| {
            let describe = |Child { pid, has_ended, started, folder }: Child| {
                // The local store serves others, too. If it crashed, it was started from here.
                let is_helper = self.is_helper(pid)
                    || self.old_checks.left(pid, started)
                    || !has_ended && local::is_store(&folder);
                let child = ListedChild { pid, started, has_ended, is_helper };
                if self.machine.is_to_be_killed(&child) {
                    answers.push((pid, kill_child(pid)));
                }
                child
            };
            children.into_iter().map(describe).collect::<Vec<_>>()
        });
        for (pid, answer) in answers {
            self.machine.handle_kill_answer(boot_now(), pid, answer);
        }
        self.machine.handle_children(boot_now(), listed.as_deref());
    }

    fn list_strays(&mut self, group: Option<Pid>) {
        let is_passed_over = |stray: Stray, folder: &Path| match group {
            // A check and what it started end with the program, so the guard has to know them.
            Some(_) => self.is_guard(stray.pid) || local::is_store(folder),
            // Before there is a program, all that is listed is left alone from then on. What is
            // left of old checks is not to be: it is killed, or cannot be.
            None => {
                self.is_helper(stray.pid)
                    || self.old_checks.left(stray.pid, Some(stray.started))
                    || local::is_store(folder)
            }
        };
        let listed = self.processes.strays(group, is_passed_over);
        self.machine.handle_strays(boot_now(), listed.as_deref());
    }

    fn is_guard(&self, pid: Pid) -> bool {
        self.guard.as_ref().map(GuardLink::pid) == Some(to_system(pid))
    }

    /// Whether this child is not the program's.
    fn is_helper(&self, pid: Pid) -> bool {
        let check = self.health.as_ref().and_then(Health::pid);
        let is_check = check == Some(to_system(pid)) || self.old_checks.are(to_system(pid));
        self.is_guard(pid) || is_check
    }

    /// A signal came to this process while the program runs, begins or ends.
    fn pass_on(&mut self, signal: Signal, leaving: &mut Option<Signal>) {
        // No program would act on it, or not beyond its own end: then it is for this process.
        let is_ours = signals::is_farewell(signal) && !self.machine.takes_signals();
        if signal == Signal::CONT
            && let Some(leader) = self.forked.as_ref().map(|forked| forked.leader)
        {
            self.hand_over_terminal(leader);
        }
        if signal != Signal::TERM {
            self.machine.handle_signal(boot_now(), signal.as_raw());
        }
        if signal != Signal::TERM && !is_ours {
            return;
        }
        if leaving.replace(leaving.unwrap_or(signal)).is_some() {
            if signal == Signal::TERM {
                self.machine.handle_repeated_stop(boot_now());
            }
            return;
        }
        // Work is told to stop by the library, within its grace; then the term is given back.
        self.resign();
    }

    /// Starts checks once the program runs, and hears how they went.
    fn look_after_work(&mut self, work: Option<&Work<'_>>, is_time_to_check: bool) {
        let Some(Work { election, check: Some(check) }) = work else { return };
        if self.health.is_none() && self.machine.is_busy() && self.forked.is_some() {
            self.health = Some(Health::start((*check).clone(), self.environment.clone()));
        }
        self.old_checks.forget_ended(self.processes);
        let Some(health) = &mut self.health else { return };
        if health.has_succeeded() {
            self.was_well = true;
            election.beat();
        }
        if !is_time_to_check || !self.machine.is_running() {
            return;
        }
        if let Some(pid) = self.old_checks.first() {
            // It counts as a failure: nobody is told that work goes on.
            return warn(&format!("health check {pid} does not end, so no other is started"));
        }
        if let Some(slow) = health.take_slow() {
            self.old_checks.end(slow, self.processes);
        }
        health.begin();
    }

    /// A check that waits at its gate, as the guard knows it; `None` if none waits, or the system
    /// does not show it. Fails if that cannot be read just now.
    fn waiting_check(&self) -> io::Result<Option<Stray>> {
        match self.health.as_ref().and_then(Health::waiting) {
            Some(waiting) => self.processes.stray(waiting),
            None => Ok(None),
        }
    }

    fn tell_of_waiting_check(&mut self) {
        if let Ok(Some(check)) = self.waiting_check() {
            self.machine.handle_check_waits(boot_now(), check);
        }
    }

    /// A check that the guard was told of may begin; where the system does not show processes, the
    /// guard cannot be told. One that cannot be looked at just now waits.
    fn let_check_begin(&mut self) {
        let Ok(waiting) = self.waiting_check() else { return };
        if waiting.is_none_or(|check| self.machine.knows_check(check)) {
            self.health.iter_mut().for_each(Health::open_gate);
        }
    }

    /// Ends a check under way, with what it started.
    fn end_check(&mut self) {
        if let Some(check) = self.health.as_mut().and_then(Health::take) {
            self.old_checks.end(check, self.processes);
        }
    }

    /// Ctrl-Z: the shell waits for this process, so it stops as well. The lease is not renewed
    /// meanwhile; the guard ends the program when it runs out.
    ///
    /// A program in the background that wants the terminal is stopped, too. It is given it where
    /// this process is in the foreground by now; otherwise both are stopped until the shell puts
    /// them there.
    fn follow_stop(&mut self, leader: Pid, signal: Option<i32>) {
        let Some(terminal) = self.terminal.clone() else { return };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).map(Some);
        let wants_terminal = wants_terminal.contains(&signal);
        if !self.has_terminal && !wants_terminal {
            return;
        }
        // Takes note of the stop, so that it is not reported again.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::Pid(to_system(leader)), options);
        let had_terminal = std::mem::take(&mut self.has_terminal);
        if had_terminal {
            terminal.take_back();
        }
        if had_terminal || !terminal.is_ours() {
            terminal.stop_job();
        }
        self.hand_over_terminal(leader);
        // One that goes on in the background would be stopped again; SIGCONT, if it comes, is
        // passed on. One whose lease has run out meanwhile was killed by the guard.
        if self.has_terminal || !wants_terminal {
            self.signal_group(leader, Signal::CONT);
        }
    }

    /// Puts the program into the foreground if this process is there.
    fn hand_over_terminal(&mut self, leader: Pid) {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| terminal.is_ours()) {
            terminal.hand_to(to_system(leader));
            self.has_terminal = true;
        }
    }

    fn clean_up(&mut self) {
        self.forked = None;
        self.end_check();
        self.health = None;
        // Not from a shell that has it, since the program went on in the background.
        if let Some(terminal) = self.terminal.take()
            && std::mem::take(&mut self.has_terminal)
        {
            terminal.take_back();
        }
    }

    fn ended(&self, outcome: RunOutcome, leaving: Option<Signal>) -> Result<Ended, Failure> {
        match (outcome, leaving) {
            (RunOutcome::ByItself(ending), _) => Ok(Ended::ByItself(ending)),
            (RunOutcome::NeverRan, leaving) => Ok(Ended::NeverRan(leaving)),
            (RunOutcome::WithItsTerm(ending), Some(signal)) => {
                let signalled = Ending::Signalled(signal.as_raw() as u8);
                Ok(Ended::Leaving(ending.unwrap_or(signalled)))
            }
            (RunOutcome::WithItsTerm(_), None) => Ok(Ended::WithItsTerm),
            (RunOutcome::NotEnded(_), _) => Ok(Ended::Stuck),
            (RunOutcome::NotStarted(error), _) => Err(self.not_started(error)),
        }
    }

    fn not_started(&self, error: StartError) -> Failure {
        match error {
            StartError::Execute(number) => {
                self.program.failure(&std::io::Error::from_raw_os_error(number))
            }
            StartError::Fork(number) => {
                let error = std::io::Error::from_raw_os_error(number);
                let why = format!("no process for the program: {error}: check the limits here");
                Failure::new(exit::CANNOT_EXECUTE, why)
            }
            StartError::Died(ending) => {
                let why = "the program's process was killed before it ran anything: see who did";
                Failure::new(code_of(ending), why)
            }
            StartError::NoGuard => no_guard(),
        }
    }
}

/// The exit code that passes an ending on, as shells do.
pub(crate) fn code_of(ending: Ending) -> u8 {
    match ending {
        Ending::Exited(code) => code,
        Ending::Signalled(signal) => exit::of_signal(signal),
    }
}

pub(super) fn ending(status: &WaitIdStatus) -> Ending {
    match status.terminating_signal() {
        Some(signal) => Ending::Signalled(signal as u8),
        None => Ending::Exited(status.exit_status().unwrap_or(1) as u8),
    }
}

fn no_guard() -> Failure {
    let why = "no guard process stays alive beside this one, so nothing is run: is /proc mounted, \
               and does something kill it?";
    Failure::new(exit::CANNOT_EXECUTE, why)
}

fn text_of(word: &WrapperMessage) -> String {
    let list = |pids: &[Pid]| pids.iter().map(Pid::to_string).collect::<Vec<_>>().join(", ");
    match word {
        WrapperMessage::GuardReplaced(trouble) => {
            let why = match trouble {
                GuardTrouble::Ended => "has ended",
                GuardTrouble::Stopped => "was stopped",
                GuardTrouble::Silent => "does not answer",
            };
            format!("the guard process {why}: starting another")
        }
        WrapperMessage::Unguarded => "no guard could be started: killed the program".to_owned(),
        WrapperMessage::CutOff(had) if *had < GRACE_MIN => {
            "the leadership is over, without time to stop: killed the program at once".to_owned()
        }
        WrapperMessage::CutOff(had) => {
            format!("the program did not stop within {}: killed it", output::duration(*had))
        }
        WrapperMessage::KilledByGuard => {
            "the leadership ended while this process did not run: the \
                                          guard has killed the program"
                .to_owned()
        }
        WrapperMessage::NotEnded { refused, stuck, is_listed } => {
            let mut whose = Vec::new();
            if !refused.is_empty() {
                whose.push(format!("{} (EPERM: belongs to another user)", list(refused)));
            }
            if !stuck.is_empty() {
                whose.push(format!("{} (SIGKILL has no effect)", list(stuck)));
            }
            if whose.is_empty() {
                let why = match is_listed {
                    true => "they start others faster than they can be killed",
                    false => "/proc does not list them (are too many files open? see ulimit -n)",
                };
                whose.push(why.to_owned());
            }
            format!(
                "processes of the program cannot be ended: {}: end them by hand. The leadership is \
                 held until the lease ends, and nothing else is started here",
                whose.join("; ")
            )
        }
    }
}

async fn until(wakes_at: Option<Moment>) {
    match wakes_at {
        Some(wakes_at) => tokio::time::sleep(boot_now().until(wakes_at)).await,
        None => std::future::pending().await,
    }
}

async fn tick(health: &mut Option<Health>) {
    match health {
        Some(health) => health.tick().await,
        None => std::future::pending().await,
    }
}
