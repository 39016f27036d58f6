//! One term: the child runs, is told to stop, and is gone before the lease ends.

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use tenure::core::Timing;
use tenure::{Election, Tenure, Term};
use tokio::signal::unix::{self, SignalKind};

use super::group::{Ending, Group, Leader};
use super::guard_link::GuardLink;
use super::health::{Health, HealthCheck};
use super::program::Program;
use super::signals::Signals;
use crate::exit::Failure;
use crate::output::talk;

/// What runs a program under a term, any number of terms one after the other.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(super) tenure: Tenure,
    pub(super) program: Program,
    pub(super) timing: Timing,
    pub(super) stop_signal: Signal,
    guard: GuardLink,
}

/// How a child ended, and whose will that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, or by a signal from outside.
    ByItself(Ending),
    /// Its term is over.
    WithItsTerm,
    /// This process was asked to end.
    Leaving(Ending),
}

/// What the work tells the election about itself.
pub(crate) struct Work<'a> {
    pub(super) election: &'a Election,
    pub(super) check: Option<&'a HealthCheck>,
}

impl Supervisor {
    /// Starts the guard, so that it is there long before any child.
    pub(crate) fn new(
        tenure: Tenure,
        program: Program,
        timing: Timing,
        stop_signal: Signal,
    ) -> Result<Self, Failure> {
        // Orphans of the child become ours, so that they can be killed and reaped, too.
        let _ = set_child_subreaper(Some(getpid()));
        let guard = GuardLink::start()?;
        Ok(Supervisor { tenure, program, timing, stop_signal, guard })
    }

    /// A guard that was killed while nothing ran is replaced.
    fn renew_guard(&mut self) -> Result<(), Failure> {
        if !self.guard.is_alive() {
            talk("the guard process has ended: starting another");
            self.guard = GuardLink::start()?;
        }
        Ok(())
    }

    /// Replaces a guard that ends while nothing runs, so that the next child need not wait for one.
    /// Returns only when there cannot be another.
    pub(super) async fn keep_guard(&mut self) -> Failure {
        let mut children = match child_signals() {
            Ok(children) => children,
            Err(failure) => return failure,
        };
        loop {
            if let Err(failure) = self.renew_guard() {
                return failure;
            }
            let _ = children.recv().await;
        }
    }

    /// Runs the program under `term` and returns when nothing of it is left.
    pub(crate) async fn run(
        &mut self,
        term: &Term,
        work: Option<Work<'_>>,
    ) -> Result<Ended, Failure> {
        self.renew_guard()?;
        // Listening before the child is there: its end must not be missed.
        let mut signals = Signals::listen()?;
        let mut children = child_signals()?;
        let environment = self.environment(term);
        let group = match self.spawn(term, &environment) {
            Ok(group) => group,
            // Too late to begin: the guard lets nothing run that it would have to kill.
            Err(_) if term.remaining() < self.timing.stop_grace() => return Ok(Ended::WithItsTerm),
            Err(failure) => return Err(failure),
        };
        let health = work
            .as_ref()
            .and_then(|work| work.check)
            .map(|check| Health::start(check.clone(), environment));
        let mut watch = Watch {
            supervisor: self,
            term,
            work,
            group,
            health,
            stopping: false,
            leaving: false,
            guarded: true,
        };
        let ended = watch.until_over(&mut signals, &mut children).await;
        watch.end();
        Ok(ended)
    }

    fn spawn(
        &mut self,
        term: &Term,
        environment: &[(&'static str, String)],
    ) -> Result<Group, Failure> {
        self.extend(term);
        let spawned = Group::spawn(&self.program, environment, &self.guard);
        if spawned.is_ok() || self.guard.is_alive() {
            return spawned;
        }
        // The guard was killed just now, so nobody answered the child.
        self.renew_guard()?;
        self.extend(term);
        Group::spawn(&self.program, environment, &self.guard)
    }

    /// What the program is told about the term.
    fn environment(&self, term: &Term) -> Vec<(&'static str, String)> {
        vec![
            ("TENURE_NAME", term.resource().name().to_owned()),
            ("TENURE_ID", self.tenure.id().to_string()),
            ("TENURE_TOKEN", term.token().to_string()),
            ("TENURE_TTL_MS", self.timing.ttl().as_millis().to_string()),
        ]
    }

    /// Tells the guard until when the group may live.
    fn extend(&mut self, term: &Term) -> bool {
        self.guard.until(self.timing.kill_at(term.ends_at()).as_nanos())
    }
}

/// A child under its term.
struct Watch<'a> {
    supervisor: &'a mut Supervisor,
    term: &'a Term,
    work: Option<Work<'a>>,
    group: Group,
    health: Option<Health>,
    /// The child was told to stop because its term ends.
    stopping: bool,
    /// This process was asked to end.
    leaving: bool,
    /// The guard takes orders.
    guarded: bool,
}

impl Watch<'_> {
    async fn until_over(&mut self, signals: &mut Signals, children: &mut unix::Signal) -> Ended {
        loop {
            // Asked for before the deadline is read: a renewal in between is not missed.
            let renewal = self.term.renewal();
            if !self.supervisor.extend(self.term) {
                self.unguarded();
            }
            tokio::select! {
                biased;
                () = self.term.cut_off() => return self.cut_off(),
                () = self.term.stopping(), if !self.stopping => self.stop(),
                _ = children.recv() => {
                    if let Some(ended) = self.look_at_children() {
                        return ended;
                    }
                }
                signal = signals.next() => self.handle(signal),
                () = tick(&mut self.health) => self.check_health(),
                () = renewal => {}
            }
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        self.group.signal(self.supervisor.stop_signal);
        // A stopped process could not even die of it.
        self.group.signal(Signal::CONT);
    }

    /// The grace is over: everything is killed before the lease ends.
    fn cut_off(&mut self) -> Ended {
        if let Leader::Ended(ending) = self.group.leader() {
            return self.of(ending);
        }
        talk("the program did not stop in time: killing it");
        self.of(Ending::Signalled(Signal::KILL.as_raw() as u8))
    }

    fn look_at_children(&mut self) -> Option<Ended> {
        if self.health.as_mut().is_some_and(Health::has_succeeded)
            && let Some(work) = &self.work
        {
            work.election.beat();
        }
        if !self.supervisor.guard.is_alive() {
            self.unguarded();
        }
        match self.group.leader() {
            Leader::Runs => None,
            Leader::Stopped => {
                self.follow_stop();
                None
            }
            Leader::Ended(ending) => Some(self.of(ending)),
        }
    }

    /// Whose will an end was.
    fn of(&mut self, ending: Ending) -> Ended {
        // The guard acts when this process could not; nobody has told it about the loss yet.
        let cut_short =
            self.stopping || !self.term.is_valid() || self.supervisor.guard.has_killed();
        match (self.leaving, cut_short) {
            (true, _) => Ended::Leaving(ending),
            (false, true) => Ended::WithItsTerm,
            (false, false) => Ended::ByItself(ending),
        }
    }

    fn handle(&mut self, signal: Signal) {
        if signal != Signal::TERM {
            return self.group.signal(signal);
        }
        if self.leaving {
            // Whoever repeats it means it.
            return self.group.signal(self.supervisor.stop_signal);
        }
        self.leaving = true;
        // Work is told to stop by the library, within its grace; then the term is given back.
        let tenure = self.supervisor.tenure.clone();
        tokio::spawn(async move { tenure.shutdown().await });
    }

    /// Without a guard nobody would end the child if this process were killed: end it now.
    fn unguarded(&mut self) {
        if !std::mem::take(&mut self.guarded) {
            return;
        }
        talk("the guard process has ended: stopping the program");
        match &self.work {
            Some(work) => {
                let election = work.election.clone();
                tokio::spawn(async move { election.resign().await });
            }
            None => {
                let tenure = self.supervisor.tenure.clone();
                tokio::spawn(async move { tenure.shutdown().await });
            }
        }
    }

    fn check_health(&mut self) {
        if let Some(health) = &mut self.health {
            health.begin();
        }
    }

    /// Ctrl-Z: the shell waits for this process, so it stops as well. The lease is not renewed
    /// meanwhile; the guard ends the child when it runs out.
    fn follow_stop(&mut self) {
        if !self.group.has_terminal() {
            return;
        }
        self.group.stand_aside();
        let _ = kill_process(getpid(), Signal::STOP);
        if self.term.is_valid() {
            self.group.go_on();
        }
    }

    /// Nothing of the child is left after this.
    fn end(&mut self) {
        let kept: Vec<Pid> = self.health.as_ref().and_then(Health::pid).into_iter().collect();
        self.group.end(&mut self.supervisor.guard, &kept);
    }
}

/// Tells whenever a child ends or stops.
fn child_signals() -> Result<unix::Signal, Failure> {
    let heard = unix::signal(SignalKind::child());
    heard.map_err(|error| Failure::new(1, format!("cannot listen to signals: {error}")))
}

async fn tick(health: &mut Option<Health>) {
    match health {
        Some(health) => health.tick().await,
        None => std::future::pending().await,
    }
}
