//! A process that runs jobs: each time a one-shot election, and inside its term one tick at most.
//!
//! What it asks and what the answers mean is decided by the machine that `tenure::Job::run` uses.

use std::time::Duration;

use tenure_core::job_run::{self, JobEnd, JobRun, JobSettings, JobStep, JobTick};
use tenure_core::protocol::{Answer, Request, TickId, TickOutcome};
use tenure_core::{Contest, EventKind, Moment, Reason, Settings, StoreError};

use crate::algorithm::{Algorithm, Belief, JobReport, Op, Output, Reply, Want};
use crate::flaw::Flaw;
use crate::ours::Ours;
use crate::random::Random;

/// How long the outcomes of named ticks are kept.
const KEEP: Duration = Duration::from_secs(3600);
/// Attempts of later elections of one process are numbered beyond those of earlier ones.
const ATTEMPTS_PER_ELECTION: u64 = 1_000_000;
/// In percent, how often the outcome of a tick is waited for.
const WAITS_PERCENT: u64 = 40;
/// How often whoever waits looks again before it gives up.
const LOOKS_MAX: u32 = 20;
/// How many names there are for ticks: few, so that many ask for the same.
const NAMES: u64 = 12;

/// One process that runs jobs, one after the other.
pub(crate) struct Runner {
    settings: Settings,
    flaw: Option<Flaw>,
    random: Random,
    periods: Vec<Duration>,
    ttl: Duration,
    stage: Stage,
    job: Option<JobRun>,
    reruns_crashed: bool,
    election: Option<Ours>,
    elections: u64,
    /// Why the last of them gave no term, as far as it was told.
    failed: Option<Reason>,
    /// Whether this run goes on once its election is over.
    looks_again: bool,
    /// How often this run has waited and looked again.
    looks: u32,
    asked: u64,
    outputs: std::collections::VecDeque<Output>,
    /// Somebody is due to lead: the next job needs no tick.
    owes_a_term: bool,
}

/// How far a run has come.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// Nothing to do until then.
    Idle(Moment),
    /// A request of our own waits for its pause to be over.
    Pausing { request: Request, until: Moment },
    /// A request of our own is under way.
    Asking(u64),
    /// Looks again then how the tick stands.
    LooksAgain(Moment),
    /// The election is under way, or its term is, and the next word is not ours.
    Waiting,
    /// The work is under way.
    Working,
    /// Nothing more is done in this run.
    Leaving,
}

impl Runner {
    pub(crate) fn new(
        settings: Settings,
        (ttl, flaw): (Duration, Option<Flaw>),
        periods: Vec<Duration>,
        seed: u64,
        now: Moment,
    ) -> Self {
        let mut random = Random::seeded(seed);
        let starts_at = now + ttl.mul_f64(random.below(100) as f64 / 200.0);
        Runner {
            settings: Settings { contest: Contest::OneShot, ..settings },
            flaw,
            random,
            periods,
            ttl,
            stage: Stage::Idle(starts_at),
            job: None,
            reruns_crashed: true,
            election: None,
            elections: 0,
            failed: None,
            looks_again: false,
            looks: 0,
            asked: 0,
            outputs: std::collections::VecDeque::new(),
            owes_a_term: false,
        }
    }

    // ------------------------------------------------------------------ from one step to the next

    /// Chooses the next job and asks what has to be known before anybody leads.
    fn begin_run(&mut self, now: Moment) {
        self.looks = 0;
        let mut job = JobRun::new(self.next_job());
        let step = job.look();
        self.job = Some(job);
        self.follow(now, step);
    }

    fn next_job(&mut self) -> JobSettings {
        self.reruns_crashed = true;
        let kind = self.random.below(100);
        let tick = if self.owes_a_term || kind < 15 {
            None
        } else if kind < 70 {
            Some(JobTick::Every(*self.random.pick(&self.periods)))
        } else {
            let name = self.random.below(NAMES);
            self.reruns_crashed = name.is_multiple_of(2);
            Some(JobTick::Known(TickId::Named(format!("step-{name}"))))
        };
        let waits = tick.is_some() && self.random.percent(WAITS_PERCENT);
        let rerun_crashed = self.reruns_crashed || self.flaw == Some(Flaw::RerunsAnyway);
        JobSettings { tick, rerun_crashed, keep: KEEP, waits, ttl: self.ttl }
    }

    /// Does what the job's machine says.
    fn follow(&mut self, now: Moment, step: JobStep) {
        match step {
            JobStep::Ask { request, after } if after.is_zero() => self.ask(request),
            JobStep::Ask { request, after } => {
                self.stage = Stage::Pausing { request, until: now + after };
            }
            JobStep::Lead => self.contend(now),
            JobStep::Wait => self.wait(now),
            JobStep::Work => {
                self.stage = Stage::Working;
                let (tick, reruns_crashed) = (self.tick(), self.reruns_crashed);
                self.outputs.push_back(Output::Run { tick, reruns_crashed });
            }
            JobStep::End(end) => {
                self.report_end(end);
                match self.election {
                    Some(_) => self.leave(now),
                    None => self.rest(now),
                }
            }
        }
    }

    fn report_end(&mut self, end: JobEnd) {
        match end {
            JobEnd::Ran { is_recorded: true } => self.report(JobReport::Ran),
            JobEnd::Ran { is_recorded: false } => self.report(JobReport::Unrecorded),
            JobEnd::AlreadyDone(_) => self.report(JobReport::RefusedAsDone),
            JobEnd::Unfinished { .. } => self.report(JobReport::RefusedAsUnfinished),
            _ => {}
        }
    }

    fn tick(&self) -> Option<TickId> {
        self.job.as_ref().and_then(JobRun::tick).cloned()
    }

    /// Tells the job's machine something and does what it says.
    fn tell(&mut self, now: Moment, told: impl FnOnce(&mut JobRun) -> JobStep) {
        if let Some(step) = self.job.as_mut().map(told) {
            self.follow(now, step);
        }
    }

    fn contend(&mut self, now: Moment) {
        self.elections += 1;
        self.failed = None;
        let (settings, number) = (self.settings.clone(), self.elections);
        let mut election = Ours::new(settings, self.ttl, self.flaw, number, now);
        election.number_attempts_after(number * ATTEMPTS_PER_ELECTION);
        election.start(now);
        election.listening(now);
        self.election = Some(election);
        self.stage = Stage::Waiting;
    }

    /// Tells the job's machine that its election gave no term.
    fn settle_election(&mut self, now: Moment) {
        match self.failed.take() {
            None => self.rest(now),
            Some(Reason::Store(error)) => {
                self.tell(now, |job| job.handle_untried(error.is_temporary()));
            }
            Some(Reason::Conflict(_)) => self.tell(now, |job| job.handle_untried(false)),
            Some(_) => self.tell(now, JobRun::handle_denied),
        }
    }

    /// Looks again a little later, once nothing is led any more; not for ever.
    fn wait(&mut self, now: Moment) {
        if self.election.as_ref().is_some_and(|election| !election.is_over()) {
            self.looks_again = true;
            return self.leave(now);
        }
        self.election = None;
        if self.owes_a_term || self.looks >= LOOKS_MAX {
            return self.rest(now);
        }
        self.looks += 1;
        let pause = self.ttl.mul_f64((5 + self.random.below(60)) as f64 / 100.0);
        self.stage = Stage::LooksAgain(now + pause);
    }

    fn leave(&mut self, now: Moment) {
        self.stage = Stage::Leaving;
        if let Some(election) = &mut self.election {
            election.want(now, Want::Stop);
        }
    }

    fn rest(&mut self, now: Moment) {
        self.election = None;
        let share = if self.owes_a_term { 10 } else { 60 };
        let pause = self.ttl.mul_f64((5 + self.random.below(share)) as f64 / 100.0);
        self.stage = Stage::Idle(now + pause);
    }

    fn report(&mut self, how: JobReport) {
        if let Some(tick) = self.tick() {
            let reruns_crashed = self.reruns_crashed;
            self.outputs.push_back(Output::Report { tick, how, reruns_crashed });
        }
    }

    // ------------------------------------------------------------------ requests of our own

    fn ask(&mut self, request: Request) {
        self.asked += 1;
        let ask = own_number(self.asked);
        let (op, timeout) = (Op::Call(request), self.settings.timing.try_timeout());
        self.outputs.push_back(Output::Ask { ask, op, timeout });
        self.stage = Stage::Asking(ask);
    }

    fn settle(&mut self, now: Moment, reply: Result<Answer, StoreError>) {
        let leads = self.is_leading(now);
        self.tell(now, |job| match reply {
            Ok(answer) => job.handle_answer(answer, leads),
            Err(error) => job.handle_unanswered(error.is_temporary(), leads),
        });
    }

    fn is_leading(&self, now: Moment) -> bool {
        self.belief().is_some_and(|belief| now < belief.until)
    }

    /// Looks at what the election told.
    fn heard(&mut self, now: Moment, kind: &EventKind) {
        match kind {
            EventKind::Acquired { token, .. } => {
                self.owes_a_term = false;
                self.tell(now, |job| job.handle_granted(*token));
            }
            EventKind::ElectionFailed { reason } => self.failed = Some(reason.clone()),
            EventKind::Lost { .. } => match self.stage {
                Stage::Asking(_) | Stage::Pausing { .. } => self.tell(now, JobRun::handle_lost),
                Stage::Working => {}
                _ => self.stage = Stage::Leaving,
            },
            _ => {}
        }
    }
}

/// Requests of elections have even numbers, with their election above this bit; our own have odd
/// ones.
const ELECTION_SHIFT: u32 = 32;

fn own_number(asked: u64) -> u64 {
    asked * 2 + 1
}

impl Algorithm for Runner {
    fn start(&mut self, _now: Moment) {}

    fn reply(&mut self, now: Moment, ask: u64, reply: Result<Reply, StoreError>) {
        if ask.is_multiple_of(2) {
            let (run, ask) = (ask >> ELECTION_SHIFT, (ask & ((1 << ELECTION_SHIFT) - 1)) / 2);
            if let Some(election) = self.election.as_mut().filter(|_| run == self.elections) {
                election.reply(now, ask, reply);
            }
            return;
        }
        if self.stage == Stage::Asking(ask) {
            let reply = match reply {
                Ok(Reply::Answer(answer)) => Ok(answer),
                Ok(_) => Err(StoreError::unexpected("a plain reply to a call")),
                Err(error) => Err(error),
            };
            self.settle(now, reply);
        }
    }

    fn wake(&mut self, now: Moment) {
        if let Some(election) = &mut self.election {
            election.wake(now);
        }
        match self.stage.clone() {
            Stage::Idle(until) if now >= until => self.begin_run(now),
            Stage::LooksAgain(until) if now >= until => self.tell(now, JobRun::look),
            Stage::Pausing { request, until } if now >= until => self.ask(request),
            Stage::Leaving if self.election.as_ref().is_none_or(|one| one.is_over()) => {
                match std::mem::take(&mut self.looks_again) {
                    true => self.wait(now),
                    false => self.rest(now),
                }
            }
            Stage::Waiting if self.election.as_ref().is_some_and(|one| one.is_over()) => {
                self.settle_election(now);
            }
            _ => {}
        }
    }

    fn work(&mut self, now: Moment, running: bool) {
        if let Some(election) = &mut self.election {
            election.work(now, running);
        }
    }

    fn worked(&mut self, now: Moment, ended: WorkEnd) {
        if self.stage != Stage::Working {
            return;
        }
        let failed = TickOutcome::Failed("not started".into());
        let ended = match ended {
            WorkEnd::NotStarted if self.flaw == Some(Flaw::NeverStartedCounts) => {
                job_run::WorkEnd::Returned(failed)
            }
            WorkEnd::NotStarted => job_run::WorkEnd::NotStarted,
            WorkEnd::Stopped => job_run::WorkEnd::Stopped,
            WorkEnd::Returned => job_run::WorkEnd::Returned(TickOutcome::Succeeded),
        };
        if ended == job_run::WorkEnd::Returned(TickOutcome::Succeeded)
            && self.flaw == Some(Flaw::DoneAfterLease)
        {
            self.report(JobReport::Ran);
        }
        self.tell(now, |job| job.handle_worked(ended));
    }

    fn hint(&mut self, now: Moment, hint: tenure_core::protocol::Hint) {
        if let Some(election) = &mut self.election {
            election.hint(now, hint);
        }
    }

    fn want(&mut self, now: Moment, want: Want) {
        match (want, &mut self.election) {
            (Want::Ready(true), _) => {
                self.owes_a_term = true;
                if let Stage::Idle(until) | Stage::LooksAgain(until) = self.stage {
                    self.stage = Stage::Idle(until.min(now));
                }
            }
            (Want::Resign | Want::HandOver | Want::RenewNow | Want::Beat, Some(election)) => {
                election.want(now, want);
            }
            _ => {}
        }
    }

    fn poll_output(&mut self) -> Output {
        if let Some(output) = self.outputs.pop_front() {
            return output;
        }
        let Some(election) = &mut self.election else {
            return Output::WaitUntil(self.wakes_at());
        };
        let now = election.now();
        match election.poll_output() {
            Output::Ask { ask, op, timeout } => {
                Output::Ask { ask: (self.elections << ELECTION_SHIFT) + ask * 2, op, timeout }
            }
            Output::Tell(event) => {
                self.heard(now, &event.kind);
                Output::Tell(event)
            }
            Output::WaitUntil(moment) => Output::WaitUntil(moment.min(self.wakes_at())),
            other => other,
        }
    }

    fn belief(&self) -> Option<Belief> {
        self.election.as_ref()?.belief()
    }

    fn is_over(&self) -> bool {
        false
    }
}

impl Runner {
    fn wakes_at(&self) -> Moment {
        let is_over = self.election.as_ref().is_none_or(|election| election.is_over());
        match &self.stage {
            Stage::Idle(until) | Stage::LooksAgain(until) => *until,
            Stage::Pausing { until, .. } => *until,
            // To be done with this run.
            Stage::Leaving | Stage::Waiting if is_over => Moment::ORIGIN,
            _ => Moment::NEVER,
        }
    }
}

/// How the work of a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkEnd {
    /// By itself, inside its term.
    Returned,
    /// Because it had to.
    Stopped,
    /// It could not even begin.
    NotStarted,
}
