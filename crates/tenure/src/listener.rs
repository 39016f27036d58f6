//! Listeners: functions of the application that are called for each event.
//!
//! They run on threads of their own, never on the driver's: one that blocks or panics holds up
//! nobody else, and each gets its events in order. The threads come from a pool that starts with
//! the first listener and gives them back when there is nothing to call.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
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
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(LISTENER_THREADS_MAX)
            .thread_keep_alive(THREAD_KEPT)
            .thread_name("tenure-listener")
            .build()?;
        std::thread::Builder::new().name("tenure-listeners".into()).spawn(move || {
            runtime.block_on(async {
                while let Some(listener) = due.recv().await {
                    tokio::task::spawn_blocking(move || listener.drain());
                }
            });
            // A listener that never returns must not keep this thread as well.
            runtime.shutdown_background();
        })?;
        Ok(ListenerPool { scheduled })
    }
}
