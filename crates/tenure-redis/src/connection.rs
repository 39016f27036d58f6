//! The connection for requests, kept alive.
//!
//! In: jobs, each one or two scripts with a deadline. Out: their replies, and the state of the
//! connection. One task owns everything:
//!
//! ```text
//! queue ─► waiting ─► batch (one pipeline) ─► in flight ─► replies to the jobs
//!                      ▲ line (open connection)  │ overdue, broken, wrong node, out of step
//!                      └──── dialling ◄──────────┘
//! ```
//! A line on which an answer is overdue is not abandoned at once: a little later a new one is
//! dialled beside it, and whichever answers first is used from then on, while the other may still
//! bring the answers that are on their way. Meanwhile nothing more is sent. So a busy server is not
//! asked twice by whoever waits for it, nor called by all at once, and a dead connection holds up
//! nobody for much longer than one dial.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{RedisError, Value};
use tenure_core::{StoreError, StoreErrorKind};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::dial::{Line, Route};
use super::error;
use super::mode::Mode;
use super::reply;
use super::request::Step;
use super::scripts::SCRIPT_COUNT;
use super::warnings::Warnings;
use tenure_backend::Connection;
use tenure_backend::clock::timer_now;

/// The most calls that may wait for the connection: every election of a large process at once.
pub(super) const CALLS_QUEUED_MAX: usize = 32_768;
/// The most calls in one pipeline, so that one batch delays the next by milliseconds at most.
const BATCH_CALLS_MAX: usize = 128;
/// The most pipelines without an answer, on all lines together.
const BATCHES_IN_FLIGHT_MAX: usize = 256;
/// The most pipelines without an answer on one line: two thousand calls keep any server busy, and a
/// call that waits here takes less memory than one that was sent.
const BATCHES_ON_LINE_MAX: usize = 16;
/// No line is suspected before an answer took this long, however impatient the caller.
const SUSPECT_AFTER: Duration = Duration::from_millis(100);
/// A line under suspicion is kept for at most this part of the time that its answer already took,
/// before another is dialled: little enough that a leader renews on the other in time.
const SUSPECT_SHARE: u32 = 2;
/// The wait between tries while the store refuses the credentials: a person has to act first.
const DENIED_WAIT: Duration = Duration::from_secs(2);

/// What a job's steps came to, in order.
#[derive(Debug)]
pub(super) struct Replies {
    pub(super) values: Vec<Value>,
    /// The steps themselves, for another node to carry out.
    pub(super) steps: Vec<Step>,
    /// Whether what they wrote is where the mode wants it.
    pub(super) settled: Result<(), StoreError>,
}

/// Steps to carry out in order before a deadline.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) steps: Vec<Step>,
    pub(super) deadline: Instant,
    pub(super) timeout: Duration,
    pub(super) send_mode: SendMode,
    pub(super) done: oneshot::Sender<Result<Replies, StoreError>>,
}

impl Job {
    /// How many replies it gets.
    fn reply_count(&self) -> usize {
        self.steps.len() * self.send_mode.replies_each()
    }
}

/// How steps go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendMode {
    /// As to whom they belong to.
    Plain,
    /// Another node sent them there for this once, with ASK: each is announced by ASKING.
    Asking,
}

impl SendMode {
    fn replies_each(self) -> usize {
        match self {
            SendMode::Plain => 1,
            SendMode::Asking => 2,
        }
    }
}

/// Whether the server is a store by itself or a node among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deployment {
    /// A server that sends requests elsewhere is the wrong one.
    Single,
    /// It sends some requests elsewhere, which says nothing about the others.
    Cluster,
}

/// What a connection is to be like.
#[derive(Clone, Debug)]
pub(super) struct ConnectionOptions {
    pub(super) mode: Mode,
    pub(super) deployment: Deployment,
    pub(super) warnings: Arc<Warnings>,
    /// Counts the pipelines sent.
    pub(super) batches_sent: Arc<AtomicU64>,
}

/// The way to the task that owns the connection.
#[derive(Debug)]
pub(super) struct Supervisor {
    queue: mpsc::Sender<Job>,
    state: watch::Receiver<Connection>,
    lines_opened: watch::Receiver<u64>,
}

impl Supervisor {
    /// Starts the task in the current runtime. It ends after this value and all its jobs.
    pub(super) fn start(route: Route, options: ConnectionOptions) -> Self {
        let (queue, jobs) = mpsc::channel(CALLS_QUEUED_MAX);
        let (state_sender, state) = watch::channel(Connection::Connecting);
        let (lines_sender, lines_opened) = watch::channel(0);
        let keeper = ConnectionTask {
            moved: route.moved(),
            route,
            options,
            jobs,
            state: state_sender,
            lines_opened: lines_sender,
            waiting: VecDeque::new(),
            open: None,
            retired: None,
            in_flight: FuturesUnordered::new(),
            dialling: Dialling::Idle,
            backoff: Backoff::default(),
        };
        tokio::spawn(keeper.run());
        Supervisor { queue, state, lines_opened }
    }

    /// Queues steps now; the future only waits.
    pub(super) fn carry_out(
        &self,
        steps: Vec<Step>,
        deadline: Instant,
        timeout: Duration,
        send_mode: SendMode,
    ) -> impl Future<Output = Result<Replies, StoreError>> + Send + use<> {
        let (done, replies) = oneshot::channel();
        let queued = self.queue(Job { steps, deadline, timeout, send_mode, done });
        let state = self.state.clone();
        async move {
            queued?;
            in_time(replies, deadline, timeout, &state).await
        }
    }

    /// Queues a job. Fails at once when too many wait already.
    fn queue(&self, job: Job) -> Result<(), StoreError> {
        self.queue.try_send(job).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => {
                StoreError::not_now(format!("{CALLS_QUEUED_MAX} calls wait already"))
            }
            mpsc::error::TrySendError::Closed(_) => {
                StoreError::unreachable("the runtime of this connection has ended")
            }
        })
    }

    /// The state of the connection.
    pub(super) fn state(&self) -> &watch::Receiver<Connection> {
        &self.state
    }

    /// Counts the connections opened so far: a change means that the store may be another one.
    pub(super) fn lines_opened(&self) -> watch::Receiver<u64> {
        self.lines_opened.clone()
    }
}

/// Waits for replies until the deadline. After it, the state of the connection says what is wrong.
pub(super) async fn in_time(
    replies: oneshot::Receiver<Result<Replies, StoreError>>,
    deadline: Instant,
    timeout: Duration,
    state: &watch::Receiver<Connection>,
) -> Result<Replies, StoreError> {
    match tokio::time::timeout_at(deadline, replies).await {
        Ok(Ok(replies)) => replies,
        Ok(Err(_)) => Err(StoreError::unreachable("the connection has ended")),
        Err(_) => Err(match &*state.borrow() {
            Connection::Down(why) if why.kind() != StoreErrorKind::TimedOut => why.clone(),
            _ => StoreError::timed_out(timeout),
        }),
    }
}

/// The open line and what is known about it.
struct Open {
    line: Line,
    number: u64,
    /// Scripts that the server has run on this line, so that their digest is enough.
    known_scripts: [bool; SCRIPT_COUNT],
    /// The batches in flight on it, in the order of sending.
    due: VecDeque<Due>,
    /// Whether an answer is overdue on it.
    is_suspect: bool,
    /// Its end tells the batches in flight that no answer will come.
    alive: watch::Sender<()>,
}

struct Due {
    batch_number: u64,
    /// When the line comes under suspicion without its answer.
    soonest: Instant,
    /// When nobody waits for its answer any more.
    latest: Instant,
    timeout: Duration,
}

enum Dialling {
    Idle,
    At(Instant),
    Now(Pin<Box<dyn Future<Output = Result<Line, StoreError>> + Send>>),
}

/// What came back for a batch: the jobs in the order of the pipeline.
struct Landed {
    line_number: u64,
    batch_number: u64,
    jobs: Vec<Job>,
    replies: Result<Vec<Value>, RedisError>,
}

type Flying = Pin<Box<dyn Future<Output = Landed> + Send>>;

enum Event {
    Jobs,
    Closed,
    Landed(Landed),
    Dialled(Result<Line, StoreError>),
    Overdue,
    Ended(StoreError),
    Retired,
    Moved,
}

struct ConnectionTask {
    route: Route,
    /// Changes when the store has moved to another place.
    moved: Option<watch::Receiver<u64>>,
    options: ConnectionOptions,
    jobs: mpsc::Receiver<Job>,
    state: watch::Sender<Connection>,
    lines_opened: watch::Sender<u64>,
    waiting: VecDeque<Job>,
    open: Option<Open>,
    /// The line before, for as long as somebody waits for answers on it.
    retired: Option<Open>,
    in_flight: FuturesUnordered<Flying>,
    dialling: Dialling,
    backoff: Backoff,
}

impl ConnectionTask {
    async fn run(mut self) {
        self.dialling = Dialling::Now(self.dial());
        let mut is_closed = false;
        let mut fresh = Vec::new();
        while !(is_closed && self.waiting.is_empty() && self.in_flight.is_empty()) {
            match self.next_event(&mut fresh, is_closed).await {
                Event::Jobs => self.collect(&mut fresh).await,
                Event::Closed => is_closed = true,
                Event::Landed(landed) => self.land(landed),
                Event::Dialled(Ok(line)) => self.use_line(line),
                Event::Dialled(Err(error)) => self.dial_failed(error),
                Event::Overdue if is_closed => return,
                Event::Overdue => self.suspect(),
                Event::Ended(error) => self.leave_line(error),
                Event::Retired => self.retired = None,
                Event::Moved => self.follow(),
            }
            self.send_batches().await;
            if is_closed && self.open.is_none() {
                return;
            }
        }
    }

    async fn next_event(&mut self, fresh: &mut Vec<Job>, is_closed: bool) -> Event {
        let takes_jobs = !is_closed && self.waiting.len() < CALLS_QUEUED_MAX;
        let overdue_at = self.open.as_ref().filter(|open| !open.is_suspect);
        let overdue_at = overdue_at.and_then(Open::first_due).map(|due| due.soonest);
        let retired_at = self.retired.as_ref().map(Open::ends_at);
        tokio::select! {
            biased;
            Some(landed) = self.in_flight.next() => Event::Landed(landed),
            dialled = dialled(&mut self.dialling, &self.route) => Event::Dialled(dialled),
            // Before new jobs, which must not follow others onto a line that is dead.
            () = sleep_until(overdue_at) => Event::Overdue,
            error = ended(&mut self.open) => Event::Ended(error),
            () = sleep_until(retired_at) => Event::Retired,
            () = changed(&mut self.moved) => Event::Moved,
            count = self.jobs.recv_many(fresh, BATCH_CALLS_MAX), if takes_jobs => match count {
                0 => Event::Closed,
                _ => Event::Jobs,
            },
        }
    }

    /// Takes all jobs of this scheduling round: who queues many at once gets one pipeline.
    async fn collect(&mut self, fresh: &mut Vec<Job>) {
        tokio::task::yield_now().await;
        while fresh.len() < CALLS_QUEUED_MAX {
            match self.jobs.try_recv() {
                Ok(job) => fresh.push(job),
                Err(_) => break,
            }
        }
        self.waiting.extend(fresh.drain(..));
        if self.open.is_none() {
            let now = timer_now();
            self.waiting.retain(|job| job.deadline > now);
            if let Connection::Down(error) = &*self.state.borrow()
                && error.needs_person()
            {
                fail_all(self.waiting.drain(..), error);
            }
        }
    }

    async fn send_batches(&mut self) {
        let mode = self.options.mode;
        // What is not sent on a line under suspicion goes out on whichever line answers first.
        while let Some(open) = self.open.as_mut().filter(|open| open.takes_more(mode))
            && self.in_flight.len() < BATCHES_IN_FLIGHT_MAX
        {
            let now = timer_now();
            let count = self.waiting.len().min(BATCH_CALLS_MAX);
            // A call past its deadline was given up by its caller: carrying it out now would be
            // one more surprise.
            let jobs: Vec<Job> =
                self.waiting.drain(..count).filter(|job| job.deadline > now).collect();
            if jobs.is_empty() {
                match self.waiting.is_empty() {
                    true => return,
                    false => continue,
                }
            }
            let number = self.options.batches_sent.fetch_add(1, Ordering::Relaxed);
            let mut flying = open.send(number, jobs, mode);
            // Polled once right here, so that batches enter the connection in their order.
            let polled = std::future::poll_fn(|context| Poll::Ready(flying.as_mut().poll(context)));
            match polled.await {
                Poll::Ready(landed) => self.land(landed),
                Poll::Pending => self.in_flight.push(flying),
            }
        }
    }

    fn land(&mut self, landed: Landed) {
        let Landed { line_number, batch_number, jobs, replies } = landed;
        let is_current = self.open.as_ref().is_some_and(|open| open.number == line_number);
        let verdict = match replies {
            Ok(values) => self.deliver(jobs, values, is_current),
            Err(error) => {
                let current = self.open.as_ref().filter(|_| is_current);
                let error = match current {
                    Some(open) => open.line.failure(&error),
                    None => error::from_connection(&error),
                };
                fail_all(jobs, &error);
                Err(error)
            }
        };
        if !is_current {
            let retired = self.retired.as_mut().filter(|open| open.number == line_number);
            retired
                .into_iter()
                .for_each(|open| open.due.retain(|d| d.batch_number != batch_number));
            return;
        }
        match verdict {
            Ok(()) => self.line_answered(batch_number),
            Err(error) => self.leave_line(error),
        }
    }

    /// Hands out the replies. `Err` when the line cannot be used any further.
    fn deliver(
        &mut self,
        jobs: Vec<Job>,
        values: Vec<Value>,
        is_current: bool,
    ) -> Result<(), StoreError> {
        let reply_count: usize = jobs.iter().map(Job::reply_count).sum();
        let settled = self.options.mode.verdict(values.get(reply_count));
        let deployment = self.options.deployment;
        let mut values = values.into_iter();
        let mut verdict = Ok(());
        let mut again = Vec::new();
        for job in jobs {
            let replies = values.by_ref().take(job.reply_count());
            // Only the last of each step's replies says something.
            let each = job.send_mode.replies_each();
            let replies: Vec<Value> = replies.skip(each - 1).step_by(each).collect();
            if is_current && replies.iter().any(is_unknown_script) && job.deadline > timer_now() {
                again.push(job);
                continue;
            }
            match in_step(&job.steps, &replies) {
                Ok(()) => {
                    if let Some(error) =
                        replies.iter().find_map(|reply| node_left(reply, deployment))
                    {
                        verdict = Err(error);
                    }
                    // The caller may have given up; then nobody waits for it.
                    let (steps, settled) = (job.steps, settled.clone());
                    let _ = job.done.send(Ok(Replies { values: replies, steps, settled }));
                }
                Err(error) => {
                    let _ = job.done.send(Err(error.clone()));
                    verdict = Err(error);
                }
            }
        }
        if let Some(open) = self.open.as_mut().filter(|_| !again.is_empty()) {
            // The scripts were flushed: their sources go along again, oldest jobs first.
            open.known_scripts = [false; SCRIPT_COUNT];
            again.into_iter().rev().for_each(|job| self.waiting.push_front(job));
        }
        verdict
    }

    fn line_answered(&mut self, batch_number: u64) {
        let Some(open) = &mut self.open else { return };
        // Others that are overdue too say nothing new about a line that answers.
        let now = timer_now();
        open.due.retain(|due| due.batch_number != batch_number && due.soonest > now);
        if !std::mem::take(&mut open.is_suspect) {
            return self.backoff.reset();
        }
        // It was only slow: the next time it is waited for longer, until one answer is in time.
        self.dialling = Dialling::Idle;
        self.state.send_replace(Connection::Up);
    }

    /// An answer is overdue: dial a second line soon, and see which of them answers first.
    fn suspect(&mut self) {
        let Some(open) = &mut self.open else { return };
        open.is_suspect = true;
        let timeout = open.first_due().map_or(Duration::ZERO, |due| due.timeout);
        self.state.send_replace(Connection::Down(StoreError::timed_out(timeout)));
        let wait = self.backoff.next_from(timeout / SUSPECT_SHARE);
        self.dialling = Dialling::At(timer_now() + wait);
    }

    /// The store is elsewhere now: nothing more goes out here, but answers may still come in.
    fn follow(&mut self) {
        self.retired = self.open.take().or(self.retired.take());
        self.state.send_replace(Connection::Down(StoreError::wrong_node(
            "another server is the primary now",
        )));
        self.dialling = Dialling::Now(self.dial());
    }

    /// The line is broken, out of step or leads to the wrong node.
    fn leave_line(&mut self, error: StoreError) {
        self.open = None;
        self.state.send_replace(Connection::Down(error));
        if matches!(self.dialling, Dialling::Idle) {
            self.dialling = Dialling::At(timer_now() + self.backoff.next());
        }
    }

    fn use_line(&mut self, line: Line) {
        line.warning.iter().for_each(|warning| self.options.warnings.tell(warning.clone()));
        let number = self.lines_opened.borrow().wrapping_add(1);
        self.retired = self.open.replace(Open {
            line,
            number,
            known_scripts: [false; SCRIPT_COUNT],
            due: VecDeque::new(),
            is_suspect: false,
            alive: watch::channel(()).0,
        });
        self.dialling = Dialling::Idle;
        self.lines_opened.send_replace(number);
        self.state.send_replace(Connection::Up);
    }

    fn dial_failed(&mut self, error: StoreError) {
        let wait = match &error {
            error if error.needs_person() && self.open.is_none() => {
                fail_all(self.waiting.drain(..), error);
                DENIED_WAIT
            }
            _ => self.backoff.next(),
        };
        self.dialling = Dialling::At(timer_now() + wait);
        self.state.send_replace(Connection::Down(error));
    }

    fn dial(&self) -> Pin<Box<dyn Future<Output = Result<Line, StoreError>> + Send>> {
        dial(&self.route)
    }
}

impl Open {
    /// When nobody waits for an answer on this line any more.
    fn ends_at(&self) -> Instant {
        self.due.iter().map(|due| due.latest).max().unwrap_or_else(timer_now)
    }

    /// What is overdue first. Answers come in order, so a patient caller in front says nothing.
    fn first_due(&self) -> Option<&Due> {
        self.due.iter().min_by_key(|due| due.soonest)
    }

    /// Whether a batch may follow those on their way. Behind one that waits for replicas the server
    /// would leave it lying, and its own wait would begin when its time is nearly over.
    fn takes_more(&self, mode: Mode) -> bool {
        let limit = if mode.awaits_replicas() { 1 } else { BATCHES_ON_LINE_MAX };
        !self.is_suspect && self.due.len() < limit
    }

    fn send(&mut self, batch_number: u64, mut jobs: Vec<Job>, mode: Mode) -> Flying {
        if mode.awaits_replicas() {
            jobs.iter_mut().flat_map(|job| &mut job.steps).for_each(Step::await_replicas);
        }
        let mut pipeline = redis::Pipeline::with_capacity(jobs.len());
        let steps = jobs.iter().flat_map(|job| job.steps.iter().map(|step| (step, job.send_mode)));
        for (step, send_mode) in steps {
            if send_mode == SendMode::Asking {
                pipeline.add_command(redis::cmd("ASKING"));
            }
            let is_known = &mut self.known_scripts[step.script as usize];
            pipeline.add_command(step.command(*is_known, &self.line.seen_run));
            *is_known = true;
        }
        let first = jobs.iter().min_by_key(|job| job.deadline);
        let last = jobs.iter().max_by_key(|job| job.deadline);
        if let (Some(first), Some(last)) = (first, last) {
            let now = timer_now();
            let soonest = first.deadline.max(now + SUSPECT_AFTER);
            if let Some(question) = mode.question(now, first.deadline) {
                pipeline.add_command(question);
            }
            let (latest, timeout) = (last.deadline, first.timeout);
            self.due.push_back(Due { batch_number, soonest, latest, timeout });
        }
        let (mut connection, line_number) = (self.line.connection.clone(), self.number);
        let mut alive = self.alive.subscribe();
        Box::pin(async move {
            let count = pipeline.len();
            let replies = tokio::select! {
                biased;
                replies = connection.send_packed_commands(&pipeline, 0, count) => replies,
                _ = alive.changed() => Err(replaced()),
            };
            Landed { line_number, batch_number, jobs, replies }
        })
    }
}

fn replaced() -> RedisError {
    RedisError::from(io::Error::new(io::ErrorKind::ConnectionAborted, "connection replaced"))
}

fn dial(route: &Route) -> Pin<Box<dyn Future<Output = Result<Line, StoreError>> + Send>> {
    let route = route.clone();
    Box::pin(async move { route.open().await })
}

async fn dialled(dialling: &mut Dialling, route: &Route) -> Result<Line, StoreError> {
    loop {
        match dialling {
            Dialling::Idle => std::future::pending().await,
            Dialling::At(at) => {
                tokio::time::sleep_until(*at).await;
                *dialling = Dialling::Now(dial(route));
            }
            Dialling::Now(opening) => return opening.await,
        }
    }
}

/// Waits until a line that nobody uses at the moment is closed by the other side. Found out only by
/// the next request, it would cost that one a dial. Batches in flight hear of it themselves.
async fn ended(open: &mut Option<Open>) -> StoreError {
    match open.as_mut().filter(|open| open.due.is_empty()) {
        Some(open) => open.line.ended().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn changed(moved: &mut Option<watch::Receiver<u64>>) {
    if let Some(receiver) = moved
        && receiver.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn fail_all(jobs: impl IntoIterator<Item = Job>, error: &StoreError) {
    for job in jobs {
        let _ = job.done.send(Err(error.clone()));
    }
}

fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

fn node_left(reply: &Value, deployment: Deployment) -> Option<StoreError> {
    let Value::ServerError(error) = reply else { return None };
    if deployment == Deployment::Cluster && ["MOVED", "ASK"].contains(&error.code()) {
        return None;
    }
    Some(error::from_reply(error)).filter(error::leaves_node)
}

/// Every reply must carry the number of its own step: one reply too many or too few would
/// otherwise hand each caller the answer of another.
fn in_step(steps: &[Step], replies: &[Value]) -> Result<(), StoreError> {
    if replies.len() != steps.len() {
        return Err(StoreError::unexpected("fewer replies than requests"));
    }
    for (step, reply) in steps.iter().zip(replies) {
        let is_own = match reply {
            Value::ServerError(_) => true,
            reply => reply::number_of(reply) == Some(step.number),
        };
        if !is_own {
            return Err(StoreError::unexpected("a reply that belongs to no request"));
        }
    }
    Ok(())
}
