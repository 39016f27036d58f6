//! Work that runs once: scoped to one leadership, or once per tick across the fleet.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::protocol::{self, Hint, Outcome, Request, TickOutcome};
use tenure_core::{InstanceId, Moment, Reason, Resource, ServerTime, Token};

use crate::backend::{Backend, Signal, Subscription};
use crate::client::Client;
use crate::election::{Attempt, Ended, run_term};
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
/// The pause before a request that was not answered is repeated.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Which run of a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tick {
    /// The current period of this length, by the store's clock: the same for all instances,
    /// whatever their own clocks say. Periods are counted from 1970 in UTC, so a day begins at
    /// midnight UTC. Each length has a record of its own: who changes an hour to a day begins a
    /// new count.
    Every(Duration),
    /// The tick with this number. Everything up to the highest finished number counts as done.
    Number(u64),
    /// A name, such as that of a migration. Its outcome is kept for a while.
    Named(String),
}

impl Tick {
    /// The current period of length `period`.
    pub fn every(period: Duration) -> Self {
        Tick::Every(period)
    }

    /// The tick called `name`.
    pub fn named(name: &str) -> Self {
        Tick::Named(name.to_owned())
    }

    fn check(&self) -> Result<(), Error> {
        let why = match self {
            Tick::Every(period) if *period < PERIOD_MIN => {
                format!("a period of {period:?} is under {PERIOD_MIN:?}: lengthen it")
            }
            Tick::Every(period) if *period > PERIOD_MAX => {
                format!("a period of {} s is over 100 years: shorten it", period.as_secs())
            }
            Tick::Named(name) if name.is_empty() => "its name is empty: give it one".to_owned(),
            Tick::Named(name) if name.len() > TICK_NAME_LEN_MAX => {
                format!("its name is longer than {TICK_NAME_LEN_MAX} bytes: shorten it")
            }
            _ => return Ok(()),
        };
        Err(Error::Setting { setting: "tick", why })
    }

    fn at(&self, server_time: ServerTime) -> protocol::Tick {
        match self {
            Tick::Every(period) => {
                let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX).max(1);
                let period = Duration::from_micros(micros);
                protocol::Tick::Period { number: server_time.0 / micros, period }
            }
            Tick::Number(number) => protocol::Tick::Number(*number),
            Tick::Named(name) => protocol::Tick::Named(name.clone()),
        }
    }
}

/// What became of work that is to run once.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Once<T> {
    /// It ran here, to its end, inside its term; where there is a tick, the store has its outcome.
    Ran(T),
    /// It ran here, to its end, but the store could not be told while the term lasted. Nobody else
    /// knows, so it may run again.
    Unrecorded(T),
    /// It could not be started here, for this reason; see [`Job::run_startable`]. The tick is
    /// still open.
    NotStarted(String),
    /// It has run before, or elsewhere, and ended like this.
    AlreadyDone(TickOutcome),
    /// It runs elsewhere just now.
    RunningElsewhere {
        /// Where.
        by: InstanceId,
    },
    /// Somebody began it and never finished; see [`Job::rerun_crashed`].
    Unfinished {
        /// Who.
        by: InstanceId,
        /// Under which token.
        token: Token,
    },
    /// It began here but had to stop: the leadership was lost.
    Interrupted(Reason),
    /// It panicked, with these words.
    Panicked(String),
    /// Nobody may run it just now.
    NotNow(Reason),
}

impl<T> fmt::Display for Once<T> {
    /// One line for people. What the work returned is not part of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Once::Ran(_) => f.write_str("ran here"),
            Once::Unrecorded(_) => {
                f.write_str("ran here, but the store could not be told, so it may run again")
            }
            Once::NotStarted(why) => write!(f, "could not be started: {why}"),
            Once::AlreadyDone(TickOutcome::Succeeded) => f.write_str("already done"),
            Once::AlreadyDone(TickOutcome::Failed(words)) => {
                write!(f, "already done, and failed: {words}")
            }
            Once::RunningElsewhere { by } => write!(f, "{by} is at it"),
            Once::Unfinished { by, token } => {
                write!(f, "{by} began it under token {token} and never finished")
            }
            Once::Interrupted(reason) => write!(f, "interrupted: {reason}"),
            Once::Panicked(words) => write!(f, "panicked: {words}"),
            Once::NotNow(reason) => write!(f, "not now: {reason}"),
        }
    }
}

impl<T> Once<T> {
    /// What the work returned, if it ran here to its end and nobody runs it again.
    pub fn ran(self) -> Option<T> {
        match self {
            Once::Ran(value) => Some(value),
            _ => None,
        }
    }
}

impl Tenure {
    /// Tries once to lead `name` for one operation; see [`ElectionBuilder::try_acquire`].
    pub async fn try_acquire(&self, name: &str) -> Result<Option<Term>, Error> {
        self.election(name).try_acquire().await
    }

    /// Runs `work` once per `tick` across all instances: whoever comes first runs it. The lease is
    /// renewed while it runs.
    ///
    /// A tick whose outcome the store has is not begun again, and no two instances work on it at
    /// once. A tick that was begun and has no outcome is begun again, because its runner crashed
    /// or lost the leadership; [`Job::rerun_crashed`] switches that off. So work may begin twice:
    /// exactly once needs a resource that checks [`Term::token`].
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use tenure::{MemoryBackend, Once, Tenure, Tick};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let tenure = Tenure::with_backend(Arc::new(MemoryBackend::new())).await?;
    /// let daily = Tick::every(Duration::from_secs(24 * 60 * 60));
    /// let report = |_term| async { Ok::<_, std::io::Error>("42 rows") };
    /// assert!(matches!(tenure.once("daily", daily.clone(), report).await?, Once::Ran(Ok(_))));
    /// assert!(matches!(tenure.once("daily", daily, report).await?, Once::AlreadyDone(_)));
    /// # Ok::<(), tenure::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn once<F, Fut, T, E>(
        &self,
        name: &str,
        tick: Tick,
        work: F,
    ) -> Result<Once<Result<T, E>>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Display,
    {
        self.job(name).tick(tick).run(work).await
    }

    /// Work that is to run once under the leadership of `name`, with settings.
    pub fn job(&self, name: &str) -> Job {
        Job {
            client: Arc::clone(self.client()),
            name: name.to_owned(),
            key: None,
            tick: None,
            ttl: None,
            enabled: self.client().is_enabled(name),
            waits: None,
            reruns_crashed: true,
            keeps: KEEP_DEFAULT,
        }
    }
}

/// Why work was not even started; see [`Job::run_startable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotStarted<E>(pub E);

/// A job that has not run yet.
#[derive(Debug)]
#[must_use = "nothing happens before `run`"]
pub struct Job {
    client: Arc<Client>,
    name: String,
    key: Option<String>,
    tick: Option<Tick>,
    ttl: Option<Duration>,
    enabled: bool,
    waits: Option<Duration>,
    reruns_crashed: bool,
    keeps: Duration,
}

impl Job {
    /// Once per this tick. Without one, the work runs whenever the leadership is free.
    pub fn tick(mut self, tick: Tick) -> Self {
        self.tick = Some(tick);
        self
    }

    /// How long the lease lasts without renewal.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The whole key, instead of prefix and name.
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Whether there is an election at all; switched off, the work runs.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Waits for the outcome when the tick runs elsewhere, for at most `limit`; takes it over when
    /// the other did not even begin it. The way to run a database migration.
    pub fn wait_for_outcome(mut self, limit: Duration) -> Self {
        self.waits = Some(limit);
        self
    }

    /// Whether a tick that somebody began and never finished is run again; it is by default. Half
    /// of its effects may be there, so either it can be repeated, or its writes carry the token, or
    /// this is switched off.
    pub fn rerun_crashed(mut self, rerun: bool) -> Self {
        self.reruns_crashed = rerun;
        self
    }

    /// How long the outcome of a named tick is kept; 30 days by default.
    pub fn keep_outcome(mut self, keep: Duration) -> Self {
        self.keeps = keep;
        self
    }

    /// Runs `work` if it is its turn. Fails when settings do not fit, when the store does not
    /// answer, and with [`Error::TimedOut`] when an outcome was waited for in vain.
    pub async fn run<F, Fut, T, E>(self, work: F) -> Result<Once<Result<T, E>>, Error>
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

    /// Like [`run`](Self::run), for work that may fail before it has done anything, such as a
    /// program that is not there: `Err(NotStarted(why))` takes the begin back. The tick is then as
    /// open as before, and another instance may run it.
    pub async fn run_startable<F, Fut, T, E>(self, work: F) -> Result<Once<Result<T, E>>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = Result<Result<T, E>, NotStarted<E>>>,
        E: Display,
    {
        let turn = Turn::prepare(&self).await?;
        loop {
            match turn.look().await? {
                Stand::Done(outcome) => return Ok(Once::AlreadyDone(outcome)),
                // Trying would only disturb whoever is at it.
                Stand::Held if self.waits.is_some() => {
                    turn.wait().await?;
                    continue;
                }
                Stand::Held | Stand::Open => {}
            }
            let denied = match self.election().attempt().await? {
                Attempt::Granted(term) => return turn.run(term, work).await,
                Attempt::Denied(reason) => reason,
            };
            match (self.waits, denied) {
                (None, Reason::HeldBy(by)) => return Ok(Once::RunningElsewhere { by }),
                (None, reason) => return Ok(Once::NotNow(reason)),
                (Some(_), _) => turn.wait().await?,
            }
        }
    }

    fn election(&self) -> ElectionBuilder {
        let mut election = ElectionBuilder::new(Arc::clone(&self.client), &self.name);
        election = election.enabled(self.enabled);
        if let Some(ttl) = self.ttl {
            election = election.ttl(ttl);
        }
        if let Some(key) = &self.key {
            election = election.key(key);
        }
        election
    }
}

/// One run of a job, with its tick fixed.
struct Turn<'a> {
    job: &'a Job,
    backend: Arc<dyn Backend>,
    resource: Resource,
    tick: Option<protocol::Tick>,
    messages: Option<tokio::sync::Mutex<Subscription>>,
    gives_up_at: Moment,
}

impl<'a> Turn<'a> {
    async fn prepare(job: &'a Job) -> Result<Self, Error> {
        if let (Some(_), None) = (job.waits, &job.tick) {
            let why = "only a tick has an outcome to wait for: set one".to_owned();
            return Err(Error::Setting { setting: "wait_for_outcome", why });
        }
        let resource = job.election().resource()?;
        let backend = job.client.backend_when(job.enabled);
        let messages = match job.waits {
            Some(_) => {
                let messages = job.client.subscribe(Arc::clone(&backend), &resource).await?;
                Some(tokio::sync::Mutex::new(messages))
            }
            None => None,
        };
        let gives_up_at = job.client.clock.now() + job.waits.unwrap_or_default();
        let mut turn = Turn { job, backend, resource, tick: None, messages, gives_up_at };
        if let Some(tick) = &job.tick {
            tick.check()?;
            let server_time = match tick {
                Tick::Every(_) => turn.server_time().await?,
                _ => ServerTime::default(),
            };
            turn.tick = Some(tick.at(server_time));
        }
        Ok(turn)
    }

    async fn call(&self, request: Request) -> Result<protocol::Answer, Error> {
        let backend = Arc::clone(&self.backend);
        let answer = self.job.client.call_on(backend, &self.resource, request).await?;
        match answer.outcome {
            Outcome::Conflict { what } => Err(Error::Conflict { what }),
            _ => Ok(answer),
        }
    }

    async fn server_time(&self) -> Result<ServerTime, Error> {
        Ok(self.call(Request::Observe { members: false }).await?.view.server_time)
    }

    async fn look(&self) -> Result<Stand, Error> {
        let Some(tick) = self.tick.clone() else { return Ok(Stand::Open) };
        let answer = self.call(Request::TickLook { tick }).await?;
        Ok(match answer.outcome {
            Outcome::TickDone(outcome) => Stand::Done(outcome),
            _ if answer.view.holder.is_some() => Stand::Held,
            _ => Stand::Open,
        })
    }

    /// Waits until something may have changed.
    async fn wait(&self) -> Result<(), Error> {
        let client = &self.job.client;
        let now = client.clock.now();
        if now >= self.gives_up_at {
            let waited = self.job.waits.unwrap_or_default();
            let what = "the outcome of the tick";
            return Err(Error::TimedOut { what, waited, reason: None });
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

    async fn run<F, Fut, T, E>(&self, term: Term, work: F) -> Result<Once<Result<T, E>>, Error>
    where
        F: FnOnce(Term) -> Fut,
        Fut: Future<Output = Result<Result<T, E>, NotStarted<E>>>,
        E: Display,
    {
        if let Some(refused) = self.begin(&term).await? {
            term.resign().await;
            return Ok(refused);
        }
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
        let once = match ended {
            Ended::Returned(Ok(returned)) => {
                let outcome = returned.as_ref().map_or_else(failed, |_| TickOutcome::Succeeded);
                match self.record(&term, outcome).await {
                    true => Once::Ran(returned),
                    false => Once::Unrecorded(returned),
                }
            }
            Ended::Returned(Err(NotStarted(why))) => {
                self.reopen(&term).await;
                Once::NotStarted(why.to_string())
            }
            Ended::Panicked(words) => {
                self.record(&term, failed(&words)).await;
                Once::Panicked(words)
            }
            Ended::Stopped => {
                if work.is_some() || was_not_started.load(Ordering::Relaxed) {
                    self.reopen(&term).await;
                }
                Once::Interrupted(term.stop_reason().unwrap_or(Reason::LeaseEnded))
            }
        };
        term.resign().await;
        Ok(once)
    }

    /// Begins the tick inside the term; what speaks against running it comes back.
    async fn begin<T>(&self, term: &Term) -> Result<Option<Once<T>>, Error> {
        let Some(tick) = self.tick.clone() else { return Ok(None) };
        let rerun_crashed = self.job.reruns_crashed;
        let request = Request::TickBegin { token: term.token(), tick, rerun_crashed };
        let outcome = match self.call_under(term, request).await {
            Err(Error::NotLeading { .. }) => {
                let reason = term.stop_reason().unwrap_or(Reason::LeaseEnded);
                return Ok(Some(Once::Interrupted(reason)));
            }
            outcome => outcome?,
        };
        Ok(match outcome {
            Outcome::TickRuns => None,
            Outcome::TickDone(outcome) => Some(Once::AlreadyDone(outcome)),
            Outcome::TickUnfinished { by, token } => Some(Once::Unfinished { by, token }),
            Outcome::Lost(why) => Some(Once::Interrupted(Reason::Lost(why))),
            other => return Err(crate::observe::unexpected(&other, "tick")),
        })
    }

    /// Records the outcome; whether the store has it. A tick without one counts as begun and not
    /// finished: it runs again, unless [`Job::rerun_crashed`] says otherwise.
    async fn record(&self, term: &Term, outcome: TickOutcome) -> bool {
        let Some(tick) = self.tick.clone() else { return true };
        let (token, keep) = (term.token(), self.job.keeps);
        let request = Request::TickFinish { token, tick, outcome, keep };
        let is_recorded = matches!(self.call_under(term, request).await, Ok(Outcome::Done));
        if !is_recorded {
            tracing::warn!(target: "tenure", resource = self.resource.name(), token = token.get(),
                "the outcome of a tick could not be recorded, so it may run again");
        }
        is_recorded
    }

    /// Takes the begin of a tick back whose work never started.
    async fn reopen(&self, term: &Term) {
        let Some(tick) = self.tick.clone() else { return };
        let token = term.token();
        let request = Request::TickReopen { token, tick };
        if !matches!(self.call_under(term, request).await, Ok(Outcome::Done)) {
            tracing::warn!(target: "tenure", resource = self.resource.name(), token = token.get(),
                "the store could not be told that a tick was not started: it counts as begun");
        }
    }

    /// Asks for as long as the term lasts. All requests about a tick may be repeated by the term
    /// that made them. An answer that comes after the term counts as none.
    async fn call_under(&self, term: &Term, request: Request) -> Result<Outcome, Error> {
        loop {
            let answer = tokio::select! {
                biased;
                answer = self.call(request.clone()) => answer,
                () = term.lost() => Err(Error::NotLeading { name: self.resource.name().to_owned() }),
            };
            match answer {
                Err(Error::Store(error)) if error.is_temporary() && term.is_valid() => {
                    self.job.client.sleep(ASK_AGAIN).await?;
                }
                answer => return Ok(answer?.outcome),
            }
        }
    }
}

/// How a tick stands, before anything is tried.
enum Stand {
    Done(TickOutcome),
    /// Somebody holds the resource, perhaps for this very tick.
    Held,
    Open,
}

/// Waits for a message that may change how a tick stands. Members come and go with every try:
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
