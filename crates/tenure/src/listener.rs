//! Listeners: functions of the application that are called for each event.
//!
//! They run on threads of their own, never on the driver's: one that blocks or panics holds up
//! nobody else, and each gets its events in order. The threads come from a pool that starts with
//! the first listener and gives them back when there is nothing to call.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tenure_core::Event;
use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;

use crate::events::{EventQueue, Taken};
use crate::fork::Generation;

/// How many listeners may be at work at the same time; more wait for a thread.
const LISTENER_THREADS_MAX: usize = 64;
/// How long an idle thread is kept for the next event.
const THREAD_KEPT: Duration = Duration::from_secs(5);
/// The pause before a thread is asked for again where there is none.
const START_AGAIN: Duration = Duration::from_millis(100);

/// A registered listener. Dropping this unregisters the listener; a call that has already begun
/// still completes.
#[derive(Debug)]
#[must_use = "dropping the handle unregisters the listener: keep it, or call `forever()`"]
pub struct ListenerHandle {
    listener: Weak<Listener>,
    born_in: Generation,
}

impl ListenerHandle {
    /// Keeps the listener registered for as long as the election lasts.
    pub fn forever(mut self) {
        self.listener = Weak::new();
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        // In a forked child nothing is called, and locks may have been held.
        if let Some(listener) = self.listener.upgrade().filter(|_| self.born_in.is_current()) {
            listener.unregister();
        }
    }
}

/// What is called for each event.
pub(crate) type Callback = Box<dyn FnMut(Arc<Event>) + Send>;

/// Wraps an async function so that it runs to its end for one event after the other. It runs in
/// the runtime it was registered from, when there was one.
pub(crate) fn blocking_on<F, Fut>(mut listener: F) -> Callback
where
    F: FnMut(Arc<Event>) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let registered_in = Handle::try_current().ok();
    Box::new(move |event| {
        let runtime = registered_in.clone().unwrap_or_else(Handle::current);
        let future: Pin<Box<dyn Future<Output = ()> + Send + '_>> = Box::pin(listener(event));
        runtime.block_on(future);
    })
}

pub(crate) struct Listener {
    queue: EventQueue,
    unregistered: AtomicBool,
    /// Whether a thread runs it or is about to.
    scheduled: AtomicBool,
    callback: Mutex<Callback>,
    pool: mpsc::UnboundedSender<Arc<Listener>>,
}

impl Listener {
    pub(crate) fn new(callback: Callback, pool: &ListenerPool) -> (Arc<Self>, ListenerHandle) {
        let listener = Arc::new(Listener {
            queue: EventQueue::default(),
            unregistered: AtomicBool::new(false),
            scheduled: AtomicBool::new(false),
            callback: Mutex::new(callback),
            pool: pool.scheduled.clone(),
        });
        let (weak, born_in) = (Arc::downgrade(&listener), Generation::current());
        let handle = ListenerHandle { listener: weak, born_in };
        (listener, handle)
    }

    /// Queues an event; `false` once the listener was unregistered.
    pub(crate) fn push(self: &Arc<Self>, event: Arc<Event>) -> bool {
        let queued = self.queue.push(event);
        if queued {
            self.schedule();
        }
        queued
    }

    fn schedule(self: &Arc<Self>) {
        if !self.scheduled.swap(true, Ordering::AcqRel) {
            // Bounded by the flag: each listener waits in this channel at most once.
            let _ = self.pool.send(Arc::clone(self));
        }
    }

    fn unregister(&self) {
        self.unregistered.store(true, Ordering::Release);
        self.queue.end();
    }

    /// Calls the listener for everything that waits, on a thread of the pool.
    fn drain(self: Arc<Self>) {
        loop {
            match self.queue.take() {
                Taken::Event(event) => self.call(event),
                Taken::Lagged(lagged) => {
                    tracing::warn!(target: "tenure", missed = lagged.missed, "a listener is slow");
                }
                Taken::Nothing | Taken::Ended => {
                    self.scheduled.store(false, Ordering::Release);
                    // An event may have come between the look and the flag.
                    if self.queue.is_empty() || self.scheduled.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
            }
        }
    }

    fn call(&self, event: Arc<Event>) {
        if self.unregistered.load(Ordering::Acquire) {
            return;
        }
        let mut callback = self.callback.lock().unwrap_or_else(PoisonError::into_inner);
        let number = event.number;
        if catch_unwind(AssertUnwindSafe(|| callback(event))).is_err() {
            tracing::error!(target: "tenure", event = number, "a listener panicked");
        }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// The threads that listeners run on.
#[derive(Debug)]
pub(crate) struct ListenerPool {
    scheduled: mpsc::UnboundedSender<Arc<Listener>>,
}

impl ListenerPool {
    /// Starts the thread that hands listeners to threads. It ends after the last listener.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (scheduled, mut due) = mpsc::unbounded_channel::<Arc<Listener>>();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("tenure-listeners".into()).spawn(move || {
            let threads = Arc::new(Threads::default());
            runtime.block_on(async {
                while let Some(listener) = due.recv().await {
                    threads.run(listener).await;
                }
            });
            threads.close();
            // A listener that never returns must not keep this thread as well.
            runtime.shutdown_background();
        })?;
        Ok(ListenerPool { scheduled })
    }
}

/// As many threads as listeners are at work at the same time. Not those of the runtime: where no
/// thread can be started for a while, as at a limit on processes, those panic, and nobody would be
/// called again.
#[derive(Default)]
struct Threads {
    state: Mutex<ThreadsState>,
    due_or_closed: Condvar,
}

#[derive(Default)]
struct ThreadsState {
    /// Bounded: each listener waits at most once.
    due: VecDeque<Arc<Listener>>,
    count: usize,
    idle: usize,
    closed: bool,
}

impl Threads {
    /// Has a thread call the listener: one that is idle, a new one, or the next that is done. Where
    /// none can be started it is tried again, for as long as listeners wait.
    async fn run(self: &Arc<Self>, listener: Arc<Listener>) {
        self.lock().due.push_back(listener);
        self.due_or_closed.notify_one();
        while self.takes_another() && self.start_thread().is_err() {
            tokio::time::sleep(START_AGAIN).await;
        }
    }

    /// Whether more wait than threads do, and counts the one that is to be started.
    fn takes_another(&self) -> bool {
        let mut state = self.lock();
        let takes = state.due.len() > state.idle && state.count < LISTENER_THREADS_MAX;
        state.count += usize::from(takes);
        takes
    }

    fn start_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let (threads, runtime) = (Arc::clone(self), Handle::current());
        let started = std::thread::Builder::new().name("tenure-listener".into()).spawn(move || {
            let _in_runtime = runtime.enter();
            threads.work();
        });
        started.map(drop).inspect_err(|_| self.lock().count -= 1)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(listener) = state.due.pop_front() {
                drop(state);
                // The log is the application's, too, and may panic. Each time, an event is gone.
                let drain = || Arc::clone(&listener).drain();
                while catch_unwind(AssertUnwindSafe(drain)).is_err() {}
                state = self.lock();
                continue;
            }
            state.idle += 1;
            let waited = self.due_or_closed.wait_timeout(state, THREAD_KEPT);
            let (now, kept) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            state.idle -= 1;
            if state.due.is_empty() && (kept.timed_out() || state.closed) {
                state.count -= 1;
                return;
            }
        }
    }

    /// Idle threads end.
    fn close(&self) {
        self.lock().closed = true;
        self.due_or_closed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, ThreadsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
