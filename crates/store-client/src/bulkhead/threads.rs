//! Isolation by threads: a pool of fixed size, a queue of fixed length, a time-out for every call.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;

use super::error::{BulkheadError, CallError};
use super::pool::{GivenUp, Pool, ThreadCounts, Work};

/// How long a call may take, unless told otherwise.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Calls of one dependency, on threads of their own. Clones share the threads; when the last clone
/// is dropped, waiting calls are refused, and each thread ends with the call that it is making.
///
/// A call that is over its time-out cannot be stopped: its caller gets [`CallError::TimedOut`], it
/// keeps its thread until it ends, and [`Threads::counts`] tells of it as overdue. When all threads
/// are taken by such calls, others are refused, which is the purpose: they take nothing else.
#[derive(Clone, Debug)]
pub struct Threads {
    owner: Arc<Owner>,
    timeout: Duration,
}

#[derive(Debug)]
struct Owner(Arc<Pool>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// What happens to a call for which there is neither a thread nor a place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// It is refused.
    #[default]
    Refuse,
    /// It gets the place of the call that has waited longest, which is told so: for results that
    /// are worth less the older they are. Where there is no queue it is refused.
    DropOldest,
}

/// Makes [`Threads`].
#[derive(Clone, Debug)]
#[must_use = "call build"]
pub struct ThreadsBuilder {
    name: Arc<str>,
    threads: usize,
    queue_max: usize,
    timeout: Duration,
    when_full: WhenFull,
}

impl ThreadsBuilder {
    /// How many calls may wait for a thread; 0 by default.
    pub fn queue_max(mut self, calls: usize) -> Self {
        self.queue_max = calls;
        self
    }

    /// How long a call may take, including the time that it waits; one second by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What happens to a call when there is no place for it; by default it is refused.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// When `threads` is 0, or the system cannot start a thread.
    pub fn build(self) -> Result<Threads, BulkheadError> {
        let pool = Pool::start(self.name, self.threads, self.queue_max, self.when_full)?;
        Ok(Threads { owner: Arc::new(Owner(pool)), timeout: self.timeout })
    }
}

impl Threads {
    /// The settings of a pool of `threads` threads for the dependency `name`.
    pub fn builder(name: impl Into<Arc<str>>, threads: usize) -> ThreadsBuilder {
        let (name, when_full) = (name.into(), WhenFull::default());
        ThreadsBuilder { name, threads, queue_max: 0, timeout: TIMEOUT, when_full }
    }

    /// Makes the call on a thread of the pool, and waits for its result. It blocks: in async code,
    /// use [`Threads::call_async`].
    ///
    /// # Errors
    /// When there is no place, the time-out passes, or the call panics.
    pub fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        self.call_within(self.timeout, call)
    }

    /// As [`Threads::call`], with a time-out of its own.
    ///
    /// # Errors
    /// When there is no place, the time-out passes, or the call panics.
    pub fn call_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let id = self.submit(call, move |outcome| drop(sender.send(outcome)))?;
        match receiver.recv_timeout(timeout) {
            Ok(outcome) => self.result(outcome),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(self.pool().closed()),
            Err(mpsc::RecvTimeoutError::Timeout) => match self.pool().give_up(id, true) {
                GivenUp::Ended => self.result(receiver.recv().map_err(|_| self.pool().closed())?),
                given_up => Err(self.timed_out(timeout, &given_up)),
            },
        }
    }

    /// As [`Threads::call`], for async code. When the future is dropped, a call that waits is not
    /// made, and one that runs counts as overdue until it ends.
    ///
    /// # Errors
    /// When there is no place, the time-out passes, or the call panics.
    ///
    /// # Panics
    /// Outside of a tokio runtime whose timers are on.
    pub async fn call_async<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        self.call_async_within(self.timeout, call).await
    }

    /// As [`Threads::call_async`], with a time-out of its own.
    ///
    /// # Errors
    /// When there is no place, the time-out passes, or the call panics.
    ///
    /// # Panics
    /// Outside of a tokio runtime whose timers are on.
    pub async fn call_async_within<T: Send + 'static>(
        &self,
        timeout: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (sender, mut receiver) = oneshot::channel();
        let id = self.submit(call, move |outcome| drop(sender.send(outcome)))?;
        let waiter = Waiter { pool: self.pool(), id };
        let answered = tokio::time::timeout(timeout, &mut receiver).await;
        std::mem::forget(waiter);
        let closed = |_| self.pool().closed();
        match answered {
            Ok(outcome) => self.result(outcome.map_err(closed)?),
            Err(_) => match self.pool().give_up(id, true) {
                GivenUp::Ended => self.result(receiver.await.map_err(closed)?),
                given_up => Err(self.timed_out(timeout, &given_up)),
            },
        }
    }

    /// The counts so far.
    pub fn counts(&self) -> ThreadCounts {
        self.pool().counts()
    }

    fn pool(&self) -> &Pool {
        &self.owner.0
    }

    fn submit<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
        hand_over: impl FnOnce(Outcome<T>) + Send + 'static,
    ) -> Result<u64, CallError> {
        self.pool().submit(Box::new(Call { call: Some(call), outcome: None, hand_over }))
    }

    fn result<T>(&self, outcome: Outcome<T>) -> Result<T, CallError> {
        outcome.map_err(|failure| match failure {
            Failure::NotMade(error) => error,
            Failure::Panicked(message) => {
                CallError::Panicked { name: Arc::clone(&self.pool().name), message }
            }
        })
    }

    fn timed_out(&self, after: Duration, given_up: &GivenUp) -> CallError {
        let has_begun = !matches!(given_up, GivenUp::NotBegun);
        CallError::TimedOut { name: Arc::clone(&self.pool().name), after, has_begun }
    }
}

/// Gives the call up when the future that waits for it is dropped.
struct Waiter<'a> {
    pool: &'a Pool,
    id: u64,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.pool.give_up(self.id, false);
    }
}

type Outcome<T> = Result<T, Failure>;

enum Failure {
    NotMade(CallError),
    Panicked(String),
}

/// A call with the way back to its caller.
struct Call<T, F, H> {
    call: Option<F>,
    outcome: Option<Outcome<T>>,
    hand_over: H,
}

impl<T, F, H> Work for Call<T, F, H>
where
    T: Send,
    F: FnOnce() -> T + Send,
    H: FnOnce(Outcome<T>) + Send,
{
    fn run(&mut self) -> bool {
        let Some(call) = self.call.take() else { return false };
        // Nothing of the caller's is seen again after a panic: the call owns what it uses.
        let outcome = catch_unwind(AssertUnwindSafe(call));
        let outcome = outcome.map_err(|panic| Failure::Panicked(message_of(panic)));
        let has_panicked = outcome.is_err();
        self.outcome = Some(outcome);
        has_panicked
    }

    fn deliver(self: Box<Self>, not_made: Option<CallError>) {
        let outcome = not_made.map(|error| Err(Failure::NotMade(error))).or(self.outcome);
        if let Some(outcome) = outcome {
            (self.hand_over)(outcome);
        }
    }
}

fn message_of(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().unwrap_or(&"no message").to_string(),
    }
}
