//! A process that runs jobs: each time a one-shot election, and inside its term one tick at most.
//!
//! It does what `tenure::Job::run` does, step by step and without waiting: ask the store's time,
//! look at the tick, lead, begin the tick, work, record the outcome, step down.

use std::time::Duration;

use tenure_core::protocol::{Answer, Outcome, Request, Tick, TickOutcome, Token};
use tenure_core::{Contest, EventKind, Moment, Settings, StoreError};

use crate::algorithm::{Algorithm, Belief, JobReport, Op, Output, Reply, Want};
use crate::flaw::Flaw;
use crate::ours::Ours;
use crate::random::Random;

/// The pause before a request that was not answered is repeated.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Attempts of later elections of one process are numbered beyond those of earlier ones.
const ATTEMPTS_PER_RUN: u64 = 1_000_000;
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
    job: Job,
    election: Option<Ours>,
    runs: u64,
    asked: u64,
    outputs: std::collections::VecDeque<Output>,
    /// Somebody is due to lead: the next job needs no tick.
    owes_a_term: bool,
}

/// What is to be run.
#[derive(Clone, Debug, Default)]
struct Job {
    period: Option<Duration>,
    tick: Option<Tick>,
    reruns_crashed: bool,
}

/// How far a run has come.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    /// Nothing to do until then.
    Idle(Moment),
    /// A request of our own is under way; on which, and when to repeat it.
    Asking { ask: u64, request: Request, again_at: Option<Moment> },
    /// The election is under way, or its term is, and the next word is not ours.
    Waiting,
    /// The work is under way.
    Working(Token),
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
            job: Job::default(),
            election: None,
            runs: 0,
            asked: 0,
            outputs: std::collections::VecDeque::new(),
            owes_a_term: false,
        }
    }

    // ------------------------------------------------------------------ from one step to the next

    /// Chooses the next job and asks what has to be known before anybody leads.
    fn begin_run(&mut self, now: Moment) {
        self.runs += 1;
        self.job = self.next_job();
        match (&self.job.period, self.job.tick.clone()) {
            (Some(_), _) => self.ask(now, Request::Observe { members: false }),
            (None, Some(tick)) => self.ask(now, Request::TickLook { tick }),
            (None, None) => self.contend(now),
        }
    }

    fn next_job(&mut self) -> Job {
        let kind = self.random.below(100);
        if self.owes_a_term || kind < 15 {
            return Job::default();
        }
        if kind < 70 {
            let period = *self.random.pick(&self.periods);
            return Job { period: Some(period), tick: None, reruns_crashed: true };
        }
        let name = self.random.below(NAMES);
        let tick = Some(Tick::Named(format!("step-{name}")));
        Job { period: None, tick, reruns_crashed: name.is_multiple_of(2) }
    }

    fn contend(&mut self, now: Moment) {
        let mut election = Ours::new(self.settings.clone(), self.ttl, self.flaw, self.runs, now);
        election.number_attempts_after(self.runs * ATTEMPTS_PER_RUN);
        election.start(now);
        election.listening(now);
        self.election = Some(election);
        self.stage = Stage::Waiting;
    }

    /// The term is there.
    fn lead(&mut self, now: Moment, token: Token) {
        self.owes_a_term = false;
        let reruns_anyway = self.flaw == Some(Flaw::RerunsAnyway);
        match self.job.tick.clone() {
            Some(tick) => {
                let rerun_crashed = self.job.reruns_crashed || reruns_anyway;
                self.ask(now, Request::TickBegin { token, tick, rerun_crashed });
            }
            None => self.run(token),
        }
    }

    fn run(&mut self, token: Token) {
        self.stage = Stage::Working(token);
        let (tick, reruns_crashed) = (self.job.tick.clone(), self.job.reruns_crashed);
        self.outputs.push_back(Output::Run { tick, reruns_crashed });
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
        if let Some(tick) = self.job.tick.clone() {
            let reruns_crashed = self.job.reruns_crashed;
            self.outputs.push_back(Output::Report { tick, how, reruns_crashed });
        }
    }

    // ------------------------------------------------------------------ requests of our own

    fn ask(&mut self, _now: Moment, request: Request) {
        self.asked += 1;
        let ask = own_number(self.asked);
        let (op, timeout) = (Op::Call(request.clone()), self.settings.timing.try_timeout());
        self.outputs.push_back(Output::Ask { ask, op, timeout });
        self.stage = Stage::Asking { ask, request, again_at: None };
    }

    fn settle(&mut self, now: Moment, request: Request, reply: Result<Answer, StoreError>) {
        let needs_term = !matches!(request, Request::Observe { .. } | Request::TickLook { .. });
        // An answer that comes after the term counts as none.
        if needs_term && !self.is_leading(now) {
            if matches!(request, Request::TickFinish { .. }) {
                self.report(JobReport::Unrecorded);
            }
            return self.leave(now);
        }
        let answer = match reply {
            Ok(answer) => answer,
            Err(_) if needs_term => {
                let (ask, again_at) = (0, Some(now + ASK_AGAIN));
                self.stage = Stage::Asking { ask, request, again_at };
                return;
            }
            Err(_) => return self.rest(now),
        };
        match (request, answer.outcome) {
            (Request::Observe { .. }, _) => {
                let micros = self.job.period.unwrap_or(self.ttl).as_micros() as u64;
                let tick = period_tick(answer.view.server_time.0, micros);
                self.job.tick = Some(tick.clone());
                self.ask(now, Request::TickLook { tick });
            }
            (Request::TickLook { .. }, Outcome::TickDone(_)) => {
                self.report(JobReport::RefusedAsDone);
                self.rest(now);
            }
            (Request::TickLook { .. }, _) => self.contend(now),
            (Request::TickBegin { token, .. }, Outcome::TickRuns) => self.run(token),
            (Request::TickBegin { .. }, Outcome::TickDone(_)) => {
                self.report(JobReport::RefusedAsDone);
                self.leave(now);
            }
            (Request::TickBegin { .. }, Outcome::TickUnfinished { .. }) => {
                self.report(JobReport::RefusedAsUnfinished);
                self.leave(now);
            }
            (Request::TickFinish { .. }, Outcome::Done) => {
                self.report(JobReport::Ran);
                self.leave(now);
            }
            _ => self.leave(now),
        }
    }

    fn is_leading(&self, now: Moment) -> bool {
        self.belief().is_some_and(|belief| now < belief.until)
    }

    fn finish(&mut self, now: Moment, token: Token, outcome: TickOutcome) {
        match self.job.tick.clone() {
            Some(tick) => {
                let keep = Duration::from_secs(3600);
                self.ask(now, Request::TickFinish { token, tick, outcome, keep });
            }
            None => self.leave(now),
        }
    }

    /// Looks at what the election told.
    fn heard(&mut self, now: Moment, kind: &EventKind) {
        match kind {
            EventKind::Acquired { token, .. } => self.lead(now, *token),
            EventKind::Lost { .. } => {
                if let Stage::Asking { request: Request::TickFinish { .. }, .. } = self.stage {
                    self.report(JobReport::Unrecorded);
                }
                if !matches!(self.stage, Stage::Working(_)) {
                    self.stage = Stage::Leaving;
                }
            }
            _ => {}
        }
    }
}

/// Requests of the election have even numbers, with the run above this bit; our own have odd ones.
const RUN_SHIFT: u32 = 32;

fn own_number(asked: u64) -> u64 {
    asked * 2 + 1
}

/// The period of this length at a reading of the store's clock.
fn period_tick(server_micros: u64, period_micros: u64) -> Tick {
    let period = Duration::from_micros(period_micros);
    Tick::Period { number: server_micros / period_micros, period }
}

impl Algorithm for Runner {
    fn start(&mut self, _now: Moment) {}

    fn reply(&mut self, now: Moment, ask: u64, reply: Result<Reply, StoreError>) {
        if ask.is_multiple_of(2) {
            let (run, ask) = (ask >> RUN_SHIFT, (ask & ((1 << RUN_SHIFT) - 1)) / 2);
            if let Some(election) = self.election.as_mut().filter(|_| run == self.runs) {
                election.reply(now, ask, reply);
            }
            return;
        }
        let Stage::Asking { ask: asked, request, .. } = &self.stage else { return };
        if *asked == ask {
            let reply = match reply {
                Ok(Reply::Answer(answer)) => Ok(answer),
                Ok(_) => Err(StoreError::Unexpected("a plain reply to a call".into())),
                Err(error) => Err(error),
            };
            self.settle(now, request.clone(), reply);
        }
    }

    fn wake(&mut self, now: Moment) {
        if let Some(election) = &mut self.election {
            election.wake(now);
        }
        match self.stage.clone() {
            Stage::Idle(until) if now >= until => self.begin_run(now),
            Stage::Asking { request, again_at: Some(at), .. } if now >= at => {
                match self.is_leading(now) {
                    true => self.ask(now, request),
                    false => self.leave(now),
                }
            }
            Stage::Leaving if self.election.as_ref().is_none_or(|one| one.is_over()) => {
                self.rest(now);
            }
            Stage::Waiting if self.election.as_ref().is_some_and(|one| one.is_over()) => {
                self.rest(now);
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
        let Stage::Working(token) = self.stage else { return };
        match ended {
            WorkEnd::NotStarted if self.flaw == Some(Flaw::NeverStartedCounts) => {
                self.finish(now, token, TickOutcome::Failed("not started".into()));
            }
            WorkEnd::NotStarted => match self.job.tick.clone() {
                Some(tick) => self.ask(now, Request::TickReopen { token, tick }),
                None => self.leave(now),
            },
            WorkEnd::Stopped => self.leave(now),
            WorkEnd::Returned => {
                if self.flaw == Some(Flaw::DoneAfterLease) {
                    self.report(JobReport::Ran);
                }
                self.finish(now, token, TickOutcome::Succeeded);
            }
        }
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
                if let Stage::Idle(until) = &mut self.stage {
                    *until = (*until).min(now);
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
                Output::Ask { ask: (self.runs << RUN_SHIFT) + ask * 2, op, timeout }
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
            Stage::Idle(until) => *until,
            Stage::Asking { again_at: Some(at), .. } => *at,
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
