//! Work that runs once: under one leadership, or once per tick across all instances.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::job_run::{JobEnd, JobRun, JobSettings, JobStep, JobTick, WorkEnd};
use tenure_core::protocol::{self, Hint, Outcome, Request, TickId, TickOutcome, View};
use tenure_core::timing::duration_text;
use tenure_core::{InstanceId, Moment, Reason, Resource, StoreError, Token};

use crate::backend::{Backend, Connection, Signal, Subscription};
use crate::client::Client;
use crate::config::ElectionConfig;
use crate::election::{Attempt, Ended, run_term};
use crate::term::Phase;
use crate::{ElectionBuilder, Error, Tenure, Term};

/// How long the outcome of a named tick is kept, unless told otherwise.
const KEEP_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The shortest period: ticks are counted by the store's clock, in milliseconds.
const PERIOD_MIN: Duration = Duration::from_millis(1);
/// The longest period: the store counts microseconds in 53 bits.
const PERIOD_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
/// The longest name of a tick, in bytes.
const TICK_NAME_LEN_MAX: usize = 256;
/// How much of an error's text is kept as the outcome.
const FAILURE_LEN_MAX: usize = 500;
/// How often to look for an outcome that no message announced.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One occasion to run a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick(pub(crate) JobTick);

impl Tick {
    /// The current period of this length by the store's clock: the same for all instances, whatever
    /// their own clocks say. Periods are counted from 1970 in UTC, so a day begins at midnight UTC.
    /// Each length is recorded separately: changing an hour to a day starts a new count.
    pub fn every(period: Duration) -> Self {
        Tick(JobTick::Every(period))
    }

    /// The tick with this number. All ticks up to the highest finished number count as done.
    pub fn number(number: u64) -> Self {
        Tick(JobTick::Known(TickId::Number(number)))
    }

    /// The tick with this name, for example that of a database migration. Its outcome is kept for a
    /// while.
    pub fn named(name: &str) -> Self {
        Tick(JobTick::Known(TickId::Named(name.to_owned())))
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let why = match &self.0 {
            JobTick::Every(period) if *period < PERIOD_MIN => {
                let [period, least] = [*period, PERIOD_MIN].map(duration_text);
                format!("a period of {period} is under {least}: lengthen it")
            }
            JobTick::Every(period) if *period > PERIOD_MAX => {
                format!("a period of {} is over 100 years: shorten it", duration_text(*period))
            }
            JobTick::Known(TickId::Named(name)) if name.is_empty() => {
                "its name is empty: give it one".to_owned()
            }
            JobTick::Known(TickId::Named(name)) if name.len() > TICK_NAME_LEN_MAX => {
                format!("its name is longer than {TICK_NAME_LEN_MAX} bytes: shorten it")
            }
            _ => return Ok(()),
        };
        Err(Error::Setting { setting: "tick", why })
    }
}

/// The outcome of a job.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
#[must_use = "it may not have run"]
pub enum OnceOutcome<T> {
    /// The work ran here, to its end and within its term. If there is a tick, the store has
    /// recorded its outcome.
    Ran(T),
    /// The work ran here to its end, but its outcome could not be recorded during the term. For
    /// other instances the tick has begun and has no outcome: it may run again, or, with
    /// [`Job::rerun_crashed`] switched off, it is left to an operator.
    Unrecorded(T),
    /// The work could not be started here, for this reason; see [`Job::run_startable`]. The tick is
    /// still open.
    NotStarted(String),
    /// The tick has already run, here or on another instance, with this outcome.
    AlreadyDone(TickOutcome),
    /// Another instance is running the tick now.
    RunningElsewhere {
        /// The instance that runs it.
        by: InstanceId,
    },
    /// An instance began the tick and never recorded an outcome; see [`Job::rerun_crashed`].
    Unfinished {
        /// The instance that began it.
        by: InstanceId,
        /// The token of its term; `None` if the record has none.
        token: Option<Token>,
    },
    /// The work began here but had to stop because the leadership was lost.
    Interrupted(Reason),
    /// The work panicked with this message.
    Panicked(String),
    /// No instance may run it at the moment, for this reason.
    NotNow(Reason),
}

impl<T> fmt::Display for OnceOutcome<T> {
    /// One line of text. It does not contain what the work returned.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OnceOutcome::Ran(_) => f.write_str("ran here"),
            OnceOutcome::Unrecorded(_) => {
                f.write_str("ran here, but the store could not record it: it counts as unfinished")
            }
            OnceOutcome::NotStarted(why) => write!(f, "could not be started: {why}"),
            OnceOutcome::AlreadyDone(TickOutcome::Succeeded) => f.write_str("already done"),
            OnceOutcome::AlreadyDone(TickOutcome::Failed(words)) => {
                write!(f, "already done, and failed: {words}")
            }
            OnceOutcome::RunningElsewhere { by } => write!(f, "{by} is running it"),
            OnceOutcome::Unfinished { by, token: Some(token) } => {
                write!(f, "{by} began it under token {token} and never finished")
            }
            OnceOutcome::Unfinished { by, token: None } => {
                write!(f, "{by} began it and never finished")
            }
            OnceOutcome::Interrupted(reason) => write!(f, "interrupted: {reason}"),
            OnceOutcome::Panicked(words) => write!(f, "panicked: {words}"),
            OnceOutcome::NotNow(reason) => write!(f, "not now: {reason}"),
        }
    }
}

impl<T> OnceOutcome<T> {
    /// What the work returned, if this is [`OnceOutcome::Ran`].
    pub fn ran(self) -> Option<T> {
        match self {
            OnceOutcome::Ran(value) => Some(value),
            _ => None,
        }
    }
}

impl Tenure {
    /// Tries once to lead `name` for one operation; see [`ElectionBuilder::try_acquire`].
    pub async fn try_acquire(&self, name: &str) -> Result<Option<Term>, Error> {
        self.election(name).try_acquire().await
    }

    /// Runs `work` once per `tick` across all instances: the first instance that asks runs it. The
    /// lease is renewed while it runs.
    ///
    /// A tick with a recorded outcome does not run again, and no two instances run a tick at the
    /// same time. A tick that was begun and has no outcome runs again, because its runner crashed
    /// or lost the leadership; [`Job::rerun_crashed`] switches that off. So work may begin twice:
    /// "exactly once" needs a resource that checks [`Term::token`].
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use tenure::{MemoryBackend, OnceOutcome, Tenure, Tick};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let tenure = Tenure::builder().backend(Arc::new(MemoryBackend::new())).connect().await?;
    /// let daily = Tick::every(Duration::from_secs(24 * 60 * 60));
    /// let report = |_term| async { Ok::<_, std::io::Error>("42 rows") };
    /// let first = tenure.once("daily", daily.clone(), report).await?;
    /// assert!(matches!(first, OnceOutcome::Ran(Ok(_))));
    /// let second = tenure.once("daily", daily, report).await?;
    /// assert!(matches!(second, OnceOutcome::AlreadyDone(_)));
    /// # Ok::<(), tenure::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn once<F, Fut, T, E>(
        &self,
        name: &str,
        tick: Tick,
        work: F,
    ) -> Result<OnceOutcome<Result<T, E>>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Display,
    {
        self.job(name).tick(tick).run(work).await
    }

    /// The settings of a job that runs under the leadership of `name`.
    pub fn job(&self, name: &str) -> Job {
        Job {
            client: Arc::clone(self.client()),
            name: name.to_owned(),
            config: self.client().election_config(name),
            tick: None,
            waits: None,
            reruns_crashed: true,
            keeps: KEEP_DEFAULT,
        }
    }
}

/// Why work could not be started; see [`Job::run_startable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotStarted<E>(pub E);

/// The settings of a job that has not run yet.
#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Job {
    client: Arc<Client>,
    name: String,
    config: ElectionConfig,
    tick: Option<Tick>,
    waits: Option<Duration>,
    reruns_crashed: bool,
    keeps: Duration,
}

impl Job {
    /// Runs the job once per tick. Without a tick, it runs whenever the leadership is free.
    pub fn tick(mut self, tick: Tick) -> Self {
        self.tick = Some(tick);
        self
    }

    /// How long the lease lasts without renewal.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.config.ttl = ttl;
        self
    }

    /// The whole key in the store, instead of prefix and name.
    pub fn key(mut self, key: &str) -> Self {
        self.config.key = Some(key.to_owned());
        self
    }

    /// Whether an election is held for the job. If `false`, the work always runs.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.config.enabled = enabled;
        self
    }

    /// If another instance runs the tick, waits for its outcome for at most `limit`, and takes the
    /// tick over if the other instance never began it. Use this for a database migration.
    ///
    /// A store that does not answer meanwhile, or cannot serve at the moment, is waited for as
    /// well; after `limit`, [`Error::TimedOut`] has the reason. An error that only an operator can
    /// fix, such as a refused login, ends the wait at once.
    pub fn wait_for_outcome(mut self, limit: Duration) -> Self {
        self.waits = Some(limit);
        self
    }

    /// Whether a tick that was begun and has no outcome runs again; `true` by default. Part of its
    /// effects may be there already. So the work must be repeatable, or its writes must carry the
    /// token, or you must switch this off.
    pub fn rerun_crashed(mut self, rerun: bool) -> Self {
        self.reruns_crashed = rerun;
        self
    }

    /// How long the outcome of a named tick is kept; 30 days by default.
    pub fn keep_outcome(mut self, keep: Duration) -> Self {
        self.keeps = keep;
        self
    }

    /// Runs `work` if the tick is open and no other instance runs it. Fails if settings contradict
    /// each other, if the store does not answer, and with [`Error::TimedOut`] if the outcome was
    /// waited for and did not come in time.
    pub async fn run<F, Fut, T, E>(self, work: F) -> Result<OnceOutcome<Result<T, E>>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Display,
    {
        self.run_startable(|term| {
            let working = work(term);
            async { Ok(working.await) }
        })
        .await
    }

    /// Like [`run`](Self::run), for work that may fail before it has done anything, for example
    /// because a program is missing. If it returns `Err(NotStarted(why))`, the tick stays open, and
    /// another instance may run it.
    pub async fn run_startable<F, Fut, T, E>(
        self,
        work: F,
    ) -> Result<OnceOutcome<Result<T, E>>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = Result<Result<T, E>, NotStarted<E>>>,
        E: Display,
    {
        let mut turn = Turn::prepare(&self).await?;
        let mut step = turn.run.look();
        loop {
            step = match step {
                JobStep::Ask { request, .. } => turn.ask(request).await,
                JobStep::Lead => match turn.lead().await {
                    Ok(term) => return turn.run_under(term, work).await,
                    Err(step) => step,
                },
                JobStep::Wait => {
                    turn.wait().await?;
                    turn.run.look()
                }
                JobStep::End(end) => return turn.without_term(end),
                JobStep::Work => unreachable!("nobody leads yet"),
            }
        }
    }

    fn election(&self) -> ElectionBuilder {
        let client = Arc::clone(&self.client);
        ElectionBuilder::with_config(client, &self.name, self.config.clone())
    }
}

/// One run of a job, with its tick fixed.
struct Turn<'a> {
    job: &'a Job,
    backend: Arc<dyn Backend>,
    resource: Resource,
    run: JobRun,
    messages: Option<tokio::sync::Mutex<Subscription>>,
    gives_up_at: Moment,
    /// How long a request inside a term may take: it may have gone out on a connection that is
    /// dead, and is repeated on another.
    try_timeout: Duration,
    /// Whether the store has ever answered this run: a look, and a try to lead.
    was_answered: bool,
    was_tried: bool,
    /// Why nothing came of the last request or try, and which it was.
    trouble: Option<(JobPhase, Trouble)>,
    /// A holder without expiry, and since when it was seen like that. Each try is an election of
    /// its own: only a run that remembers can tell that nobody is behind it.
    endless: Option<(InstanceId, Moment)>,
}

/// What was being done when something was in the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum JobPhase {
    /// Reading: what works says nothing about writing.
    Look,
    Lead,
}

/// What is in the way of a run.
enum Trouble {
    Failed(Error),
    Denied(Reason),
}

impl Trouble {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Trouble::Failed(Error::Store(error)) => Some(error),
            _ => None,
        }
    }

    fn reason(&self) -> Option<Reason> {
        match self {
            Trouble::Failed(Error::Store(error)) => Some(Reason::Store(error.clone())),
            Trouble::Failed(_) => None,
            Trouble::Denied(reason) => Some(reason.clone()),
        }
    }
}

impl<'a> Turn<'a> {
    async fn prepare(job: &'a Job) -> Result<Self, Error> {
        if let (Some(_), None) = (job.waits, &job.tick) {
            let why = "only a tick has an outcome to wait for: set one".to_owned();
            return Err(Error::Setting { setting: "wait_for_outcome", why });
        }
        job.tick.as_ref().map_or(Ok(()), Tick::check)?;
        let resource = job.election().resource()?;
        let timing = job.config.timing()?;
        let backend = job.client.backend_when(job.config.enabled);
        let messages = match job.waits {
            Some(_) => {
                let messages = job.client.subscribe(Arc::clone(&backend), &resource).await?;
                Some(tokio::sync::Mutex::new(messages))
            }
            None => None,
        };
        let gives_up_at = job.client.clock.now() + job.waits.unwrap_or_default();
        let run = JobRun::new(JobSettings {
            tick: job.tick.as_ref().map(|tick| tick.0.clone()),
            rerun_crashed: job.reruns_crashed,
            keep: job.keeps,
            waits: job.waits.is_some(),
            ttl: timing.ttl(),
        });
        Ok(Turn {
            job,
            backend,
            resource,
            run,
            messages,
            gives_up_at,
            try_timeout: timing.try_timeout(),
            was_answered: false,
            was_tried: false,
            trouble: None,
            endless: None,
        })
    }

    /// Whether asking again may help. What is refused after it was accepted is what people have
    /// changed, and may put right; what is refused from the start stays refused.
    fn may_pass(&self, error: &Error, phase: Option<JobPhase>) -> bool {
        let Error::Store(error) = error else { return false };
        let was_accepted = match phase {
            Some(JobPhase::Look) => self.was_answered,
            Some(JobPhase::Lead) => self.was_tried,
            None => false,
        };
        let is_shut_out = || {
            let connection = self.backend.connection();
            matches!(&*connection.borrow(), Connection::Down(error) if error.needs_person())
        };
        let may_be_undone = || was_accepted || self.was_answered && is_shut_out();
        error.is_temporary() || error.needs_person() && may_be_undone()
    }

    /// Asks before anybody leads.
    async fn ask(&mut self, request: Request) -> JobStep {
        match self.in_time(self.call(request)).await {
            Ok(answer) => {
                self.was_answered = true;
                let held = why_held(&answer.view);
                let step = self.run.handle_answer(answer, false);
                let held = held.filter(|_| step == JobStep::Wait).map(Trouble::Denied);
                self.note(JobPhase::Look, held);
                step
            }
            Err(error) => {
                let may_answer = self.may_pass(&error, Some(JobPhase::Look));
                self.note(JobPhase::Look, Some(Trouble::Failed(error)));
                self.run.handle_unanswered(may_answer, false)
            }
        }
    }

    /// Tries to lead, once: the term, or what to do without one.
    async fn lead(&mut self) -> Result<Term, JobStep> {
        let election = self.job.election().endless_holder(self.endless.clone());
        match self.in_time(election.attempt()).await {
            Ok(attempt) => {
                let reason = match attempt {
                    Attempt::Granted(term) => {
                        self.note(JobPhase::Lead, None);
                        return Ok(term);
                    }
                    Attempt::Denied(reason) => reason,
                    Attempt::TakesPart => Reason::HeldBy(self.job.client.id.clone()),
                };
                self.was_tried = true;
                let reason = self.looked_at(reason).await;
                self.note(JobPhase::Lead, Some(Trouble::Denied(reason)));
                Err(self.run.handle_denied())
            }
            Err(error) => {
                let may_answer = self.may_pass(&error, Some(JobPhase::Lead));
                self.note(JobPhase::Lead, Some(Trouble::Failed(error)));
                Err(self.run.handle_untried(may_answer))
            }
        }
    }

    /// Why the try was refused, with a look at whoever holds the resource: what has no expiry is
    /// no lease, so nobody may be at work behind it.
    async fn looked_at(&mut self, reason: Reason) -> Reason {
        let Reason::HeldBy(by) = reason else { return reason };
        let request = Request::Observe { members: false };
        let Ok(answer) = self.in_time(self.call(request)).await else { return Reason::HeldBy(by) };
        let (view, now) = (answer.view, self.job.client.clock.now());
        let endless = view.holder.filter(|id| view.pttl.is_none() && !id.is_mark());
        self.endless = match (self.endless.take(), endless) {
            (Some((known, since)), Some(holder)) if known == holder => Some((known, since)),
            (_, Some(holder)) => Some((holder, now)),
            (_, None) => None,
        };
        match &self.endless {
            Some((holder, _)) => Reason::Conflict(format!(
                "key {:?} holds {:?} without an expiry, so nobody may be running it",
                self.resource.key(),
                holder.as_str()
            )),
            None => Reason::HeldBy(by),
        }
    }

    /// Waits for `future`, where the outcome is waited for not much longer than that may take.
    async fn in_time<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let Some(waited) = self.job.waits else { return future.await };
        let client = &self.job.client;
        let left = client.clock.now().until(self.gives_up_at).max(LOOK_EVERY);
        tokio::select! {
            biased;
            done = future => done,
            slept = client.sleep(left) => {
                slept.and(Err(Error::Store(StoreError::timed_out(left.min(waited)))))
            }
        }
    }

    /// Keeps why nothing came of it. Whoever waits says so when that changes.
    ///
    /// A look that works does not end trouble with a try: the store may still refuse all writes.
    fn note(&mut self, phase: JobPhase, trouble: Option<Trouble>) {
        let before = self.trouble.as_ref();
        let led_in_vain = before.is_some_and(|(earlier, _)| *earlier == JobPhase::Lead);
        if trouble.is_none() && phase == JobPhase::Look && led_in_vain {
            return;
        }
        let told = before.and_then(|(_, trouble)| trouble.reason());
        let was_there = before.and_then(|(_, trouble)| trouble.store_error()).is_none();
        let name = self.resource.name();
        match trouble.as_ref().and_then(Trouble::reason) {
            _ if self.job.waits.is_none() => {}
            Some(Reason::Store(error))
                if was_there && self.may_pass(&Error::Store(error.clone()), Some(phase)) =>
            {
                tracing::warn!(
                    target: "tenure", resource = name, detail = %error, "waiting for the store"
                );
            }
            Some(Reason::Store(_)) => {}
            Some(Reason::Conflict(detail)) if told != Some(Reason::Conflict(detail.clone())) => {
                tracing::warn!(target: "tenure", resource = name, detail, "waits");
            }
            Some(reason) if told.as_ref().map(Reason::code) != Some(reason.code()) => {
                tracing::info!(
                    target: "tenure", resource = name, reason = reason.code(), detail = %reason,
                    "waits"
                );
            }
            None if !was_there => {
                tracing::info!(target: "tenure", resource = name, "the store answers again");
            }
            _ => {}
        }
        self.trouble = trouble.map(|trouble| (phase, trouble));
    }

    /// What is said where nobody led here.
    fn without_term<T>(&mut self, end: JobEnd) -> Result<OnceOutcome<T>, Error> {
        match (end, self.trouble.take().map(|(_, trouble)| trouble)) {
            (JobEnd::AlreadyDone(outcome), _) => Ok(OnceOutcome::AlreadyDone(outcome)),
            (_, Some(Trouble::Denied(Reason::HeldBy(by)))) => {
                Ok(OnceOutcome::RunningElsewhere { by })
            }
            (_, Some(Trouble::Denied(reason))) => Ok(OnceOutcome::NotNow(reason)),
            (_, Some(Trouble::Failed(error))) => Err(error),
            (end, None) => unreachable!("{end:?} without a reason"),
        }
    }

    async fn call(&self, request: Request) -> Result<protocol::Answer, Error> {
        self.call_within(request, Duration::MAX).await
    }

    async fn call_within(
        &self,
        request: Request,
        timeout: Duration,
    ) -> Result<protocol::Answer, Error> {
        let (client, backend) = (&self.job.client, Arc::clone(&self.backend));
        let answer = client.call_within(backend, &self.resource, request, timeout).await?;
        match answer.outcome {
            Outcome::Conflict { what } => Err(Error::Conflict { what }),
            _ => Ok(answer),
        }
    }

    /// Waits until something may have changed.
    async fn wait(&self) -> Result<(), Error> {
        let client = &self.job.client;
        let now = client.clock.now();
        if now >= self.gives_up_at {
            let waited = self.job.waits.unwrap_or_default();
            let what = "the outcome of the tick";
            let reason = self.trouble.as_ref().and_then(|(_, trouble)| trouble.reason());
            return Err(Error::TimedOut { what, waited, reason });
        }
        let pause = now.until(self.gives_up_at).min(LOOK_EVERY);
        let heard = async {
            let messages = self.messages.as_ref()?;
            next_of_interest(&mut *messages.lock().await).await
        };
        tokio::select! {
            Some(()) = heard => Ok(()),
            slept = client.sleep(pause) => slept,
        }
    }

    async fn run_under<F, Fut, T, E>(
        &mut self,
        term: Term,
        work: F,
    ) -> Result<OnceOutcome<Result<T, E>>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = Result<Result<T, E>, NotStarted<E>>>,
        E: Display,
    {
        let step = self.run.handle_granted(term.token());
        let once = match self.ask_under(&term, step).await {
            Ok(None) => Ok(self.work(&term, work).await),
            Ok(Some(end)) => self.refused(&term, end),
            Err(error) => Err(error),
        };
        term.resign().await;
        once
    }

    /// Why it is not run now.
    fn refused<T>(&self, term: &Term, end: JobEnd) -> Result<OnceOutcome<T>, Error> {
        Ok(match end {
            JobEnd::AlreadyDone(outcome) => OnceOutcome::AlreadyDone(outcome),
            JobEnd::Unfinished { by, token } => OnceOutcome::Unfinished { by, token },
            JobEnd::LostBefore(Some(why)) => OnceOutcome::Interrupted(Reason::Lost(why)),
            JobEnd::Unanswered(Some(other)) => {
                return Err(crate::observe::unexpected(&other, "tick"));
            }
            _ => OnceOutcome::Interrupted(term.stop_reason().unwrap_or(Reason::LeaseEnded)),
        })
    }

    async fn work<F, Fut, T, E>(&mut self, term: &Term, work: F) -> OnceOutcome<Result<T, E>>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = Result<Result<T, E>, NotStarted<E>>>,
        E: Display,
    {
        let mut work = Some(work);
        // Told to stop or not: work that never started has no part of the tick's effects.
        let was_not_started = AtomicBool::new(false);
        let ended = run_term(term.double(), &mut |term| {
            let working = (work.take().expect("a term runs its work once"))(term);
            let was_not_started = &was_not_started;
            async move {
                let returned = working.await;
                was_not_started.store(returned.is_err(), Ordering::Relaxed);
                returned
            }
        })
        .await;
        let is_untouched = work.is_some() || was_not_started.load(Ordering::Relaxed);
        let worked = match &ended {
            Ended::Returned(Ok(Ok(_))) => WorkEnd::Returned(TickOutcome::Succeeded),
            Ended::Returned(Ok(Err(error))) => WorkEnd::Returned(failed(error)),
            Ended::Panicked(words) => WorkEnd::Returned(failed(words)),
            Ended::Returned(Err(_)) => WorkEnd::NotStarted,
            Ended::Stopped if is_untouched => WorkEnd::NotStarted,
            Ended::Stopped => WorkEnd::Stopped,
        };
        let is_recorded = self.record(term, worked).await;
        match ended {
            Ended::Returned(Ok(returned)) if is_recorded => OnceOutcome::Ran(returned),
            Ended::Returned(Ok(returned)) => OnceOutcome::Unrecorded(returned),
            Ended::Returned(Err(NotStarted(why))) => OnceOutcome::NotStarted(why.to_string()),
            Ended::Panicked(words) => OnceOutcome::Panicked(words),
            Ended::Stopped => {
                OnceOutcome::Interrupted(term.stop_reason().unwrap_or(Reason::LeaseEnded))
            }
        }
    }

    /// Tells the store what became of the tick; whether it has its outcome. A tick without one
    /// counts as begun and not finished: it runs again, unless [`Job::rerun_crashed`] says
    /// otherwise.
    async fn record(&mut self, term: &Term, worked: WorkEnd) -> bool {
        let step = self.run.handle_worked(worked);
        let unknown = match self.ask_under(term, step).await {
            Ok(Some(JobEnd::Ran { is_recorded: false })) if self.job.reruns_crashed => {
                "the outcome of a tick could not be recorded, so it may run again"
            }
            Ok(Some(JobEnd::Ran { is_recorded: false })) => {
                "the outcome of a tick could not be recorded: it counts as begun"
            }
            Ok(Some(JobEnd::NotStarted { is_reopened: false })) => {
                "the store could not record that a tick was not started: it counts as begun"
            }
            end => return matches!(end, Ok(Some(JobEnd::Ran { is_recorded: true }))),
        };
        let (name, token) = (self.resource.name(), term.token().get());
        tracing::warn!(target: "tenure", resource = name, token, "{unknown}");
        false
    }

    /// Asks until the work can begin or nothing more is asked, for as long as work may take under
    /// the term: whoever asks longer counts as work that does not stop. What is told of work that
    /// was cut off is told until the term is over.
    async fn ask_under(&mut self, term: &Term, mut step: JobStep) -> Result<Option<JobEnd>, Error> {
        let until = match term.state().phase() {
            Phase::Open | Phase::Stopping => Phase::CutOff,
            Phase::CutOff | Phase::Over => Phase::Over,
        };
        let mut failure = None;
        loop {
            let (request, after) = match step {
                JobStep::Ask { request, after } => (request, after),
                JobStep::End(JobEnd::Unanswered(None)) => {
                    return Err(failure.unwrap_or(Error::Closed));
                }
                JobStep::End(end) => return Ok(Some(end)),
                JobStep::Work | JobStep::Lead | JobStep::Wait => return Ok(None),
            };
            if !after.is_zero() {
                self.job.client.sleep(after).await?;
            }
            let answer = tokio::select! {
                biased;
                answer = self.call_within(request, self.try_timeout) => Some(answer),
                () = term.state().reaches(until) => None,
            };
            step = match answer {
                Some(Ok(answer)) => self.run.handle_answer(answer, term.is_valid()),
                Some(Err(error)) => {
                    let may_answer = self.may_pass(&error, None);
                    failure = Some(error);
                    self.run.handle_unanswered(may_answer, term.is_valid())
                }
                None => self.run.handle_lost(),
            };
        }
    }
}

/// Why nobody else can lead now, as far as the key tells.
fn why_held(view: &View) -> Option<Reason> {
    let holder = view.holder.clone()?;
    Some(match holder.is_mark() {
        true => Reason::Quarantine {
            left: view.pttl.unwrap_or_default(),
            why: view.quarantine_why.clone().unwrap_or_default(),
        },
        false => Reason::HeldBy(holder),
    })
}

/// Waits for a message that may change the state of a tick. Members come and go with every try:
/// looking again because of them would keep all who wait busy with each other.
async fn next_of_interest(messages: &mut Subscription) -> Option<()> {
    loop {
        match messages.next().await? {
            Signal::Hint(Hint::Members | Hint::Granted { .. } | Hint::Wished { .. }) => {}
            _ => return Some(()),
        }
    }
}

fn failed(error: &impl Display) -> TickOutcome {
    TickOutcome::Failed(error.to_string().chars().take(FAILURE_LEN_MAX).collect())
}
