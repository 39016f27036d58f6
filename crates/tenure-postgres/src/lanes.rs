//! Calls in order: those about one election go one after the other, all others beside them.
//!
//! Two calls of this process about one election would only lose races to each other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_backend::Calling;
use tenure_backend::clock::timer_now;
use tenure_core::StoreError;
use tenure_core::protocol::{Answer, Call};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::calls::Caller;

/// The most calls that may wait: every election of a large process at once.
const CALLS_QUEUED_MAX: usize = 32_768;

#[derive(Debug)]
pub(crate) struct Lanes {
    caller: Arc<Caller>,
    runtime: Handle,
    lanes: Arc<Open>,
}

/// The lanes on which something waits, by the key of their election.
#[derive(Debug, Default)]
struct Open {
    lanes: Mutex<HashMap<Box<str>, mpsc::UnboundedSender<Job>>>,
    queued: AtomicUsize,
}

#[derive(Debug)]
struct Job {
    call: Call,
    deadline: Instant,
    done: oneshot::Sender<Result<Answer, StoreError>>,
}

impl Lanes {
    pub(crate) fn new(caller: Arc<Caller>, runtime: Handle) -> Self {
        Lanes { caller, runtime, lanes: Arc::default() }
    }

    /// Queues a call now; the future only waits.
    pub(crate) fn call(&self, call: Call) -> Calling {
        let timeout = call.timeout;
        let deadline = timer_now() + timeout;
        let (done, answer) = oneshot::channel();
        if self.lanes.queued.load(Ordering::Acquire) >= CALLS_QUEUED_MAX {
            let error = StoreError::not_now(format!("{CALLS_QUEUED_MAX} calls wait already"));
            return Box::pin(std::future::ready(Err(error)));
        }
        self.queue(Job { call, deadline, done });
        let pool = Arc::clone(&self.caller.pool);
        Box::pin(async move {
            match tokio::time::timeout_at(deadline, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(StoreError::unreachable("the runtime of the store has ended")),
                Err(_) => Err(pool.silence(timeout)),
            }
        })
    }

    fn queue(&self, job: Job) {
        self.lanes.queued.fetch_add(1, Ordering::AcqRel);
        let key: Box<str> = job.call.resource.key().into();
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get(&key) else {
            let (sender, jobs) = mpsc::unbounded_channel();
            // It is not closed: its other end is right here.
            let _ = sender.send(job);
            lanes.insert(key.clone(), sender);
            drop(lanes);
            let (caller, lanes) = (Arc::clone(&self.caller), Arc::clone(&self.lanes));
            self.runtime.spawn(serve(caller, lanes, key, jobs));
            return;
        };
        let Err(mpsc::error::SendError(job)) = lane.send(job) else { return };
        // The task was ended with its runtime: whoever waits is told so.
        drop(job);
        lanes.remove(&key);
        self.lanes.queued.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, mpsc::UnboundedSender<Job>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next job of a lane, or the end of the lane.
    fn next(&self, key: &str, jobs: &mut mpsc::UnboundedReceiver<Job>) -> Option<Job> {
        let mut lanes = self.lock();
        // Under the lock: whoever queues next finds the lane gone, and opens another.
        match jobs.try_recv() {
            Ok(job) => Some(job),
            Err(_) => {
                lanes.remove(key);
                None
            }
        }
    }
}

async fn serve(
    caller: Arc<Caller>,
    lanes: Arc<Open>,
    key: Box<str>,
    mut jobs: mpsc::UnboundedReceiver<Job>,
) {
    while let Some(job) = lanes.next(&key, &mut jobs) {
        lanes.queued.fetch_sub(1, Ordering::AcqRel);
        // A call past its deadline was abandoned by its caller: carrying it out now would be one
        // more surprise.
        if job.deadline <= timer_now() {
            let _ = job.done.send(Err(caller.pool.silence(job.call.timeout)));
            continue;
        }
        let timeout = job.call.timeout;
        let carried_out = caller.carry_out(job.call, job.deadline);
        let carried_out = tokio::time::timeout_at(job.deadline, carried_out).await;
        // Whoever asked may be gone.
        let _ = job.done.send(carried_out.unwrap_or_else(|_| Err(caller.pool.silence(timeout))));
    }
}
