//! The threads of one dependency and the calls that wait for them. Everything that is counted is
//! counted under one lock, so that a call is always in exactly one state.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::error::{BulkheadError, CallError};
use super::threads::WhenFull;

/// A call, and whoever waits for it.
pub(super) trait Work: Send {
    /// Makes the call, and keeps its result. True when it panicked.
    fn run(&mut self) -> bool;
    /// Hands the result over, or the reason why there is none.
    fn deliver(self: Box<Self>, not_made: Option<CallError>);
}

/// The counts of [`Threads`](super::Threads).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadCounts {
    /// Calls that run now, overdue ones included.
    pub running: usize,
    /// Calls that run although their time-out has passed: each keeps a thread until it ends.
    pub overdue: usize,
    /// Calls in the queue now.
    pub waiting: usize,
    /// Calls that ended since the start, panics and overdue ones included.
    pub ended: u64,
    /// Calls that panicked since the start.
    pub panicked: u64,
    /// Calls whose time-out passed since the start, begun or not.
    pub timed_out: u64,
    /// Calls that were refused since the start because all places were taken.
    pub refused: u64,
    /// Calls that lost their place in the queue to a newer one since the start.
    pub dropped: u64,
}

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) name: Arc<str>,
    threads: usize,
    queue_max: usize,
    when_full: WhenFull,
    state: Mutex<State>,
    has_work: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(u64, Box<dyn Work>)>,
    /// The calls that run, and whether each is overdue.
    running: HashMap<u64, bool>,
    last_id: u64,
    is_closed: bool,
    counts: ThreadCounts,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("counts", &self.counts).finish_non_exhaustive()
    }
}

/// What had become of a call when nobody waited for it any more.
pub(super) enum GivenUp {
    NotBegun,
    StillRuns,
    /// Its result is there, or will be in a moment.
    Ended,
}

impl Pool {
    pub(super) fn start(
        name: Arc<str>,
        threads: usize,
        queue_max: usize,
        when_full: WhenFull,
    ) -> Result<Arc<Self>, BulkheadError> {
        if threads == 0 {
            return Err(BulkheadError::NoPlace { name });
        }
        let (state, has_work) = Default::default();
        let pool = Arc::new(Self { name, threads, queue_max, when_full, state, has_work });
        for _ in 0..threads {
            let (worker, name) = (Arc::clone(&pool), format!("bulkhead {}", pool.name));
            let started = std::thread::Builder::new().name(name).spawn(move || worker.work());
            if let Err(source) = started {
                pool.close();
                let name = Arc::clone(&pool.name);
                return Err(BulkheadError::NoThreads { name, threads, source });
            }
        }
        Ok(pool)
    }

    /// Takes the call in, or says why not. Returns its number.
    pub(super) fn submit(&self, work: Box<dyn Work>) -> Result<u64, CallError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(self.closed());
        }
        let dropped = match state.in_hand() < self.threads + self.queue_max {
            true => None,
            false => Some(self.make_place(&mut state)?),
        };
        state.last_id += 1;
        let id = state.last_id;
        state.queue.push_back((id, work));
        drop(state);
        self.has_work.notify_one();
        if let Some(oldest) = dropped {
            deliver(oldest, Some(CallError::Dropped { name: Arc::clone(&self.name) }));
        }
        Ok(id)
    }

    fn make_place(&self, state: &mut State) -> Result<Box<dyn Work>, CallError> {
        // Without a queue, whoever is in it is on the way to a free thread.
        let oldest = match self.when_full {
            WhenFull::DropOldest if self.queue_max > 0 => state.queue.pop_front(),
            _ => None,
        };
        let Some((_, work)) = oldest else {
            state.counts.refused += 1;
            let (running, waiting) = (state.running.len(), state.queue.len());
            return Err(CallError::Refused { name: Arc::clone(&self.name), running, waiting });
        };
        state.counts.dropped += 1;
        Ok(work)
    }

    /// Nobody waits for this call any more, because its time-out passed or its future was dropped.
    pub(super) fn give_up(&self, id: u64, is_timed_out: bool) -> GivenUp {
        let mut state = self.lock();
        let removed = state
            .queue
            .iter()
            .position(|(other, _)| *other == id)
            .and_then(|at| state.queue.remove(at));
        let found = match (&removed, state.running.get_mut(&id)) {
            (Some(_), _) => GivenUp::NotBegun,
            (None, Some(is_overdue)) => {
                *is_overdue = true;
                GivenUp::StillRuns
            }
            (None, None) => return GivenUp::Ended,
        };
        state.counts.timed_out += u64::from(is_timed_out);
        // What the call owns may take its time to go.
        drop(state);
        drop(removed);
        found
    }

    pub(super) fn counts(&self) -> ThreadCounts {
        let state = self.lock();
        let overdue = state.running.values().filter(|is_overdue| **is_overdue).count();
        let (running, waiting) = (state.running.len(), state.queue.len());
        ThreadCounts { running, overdue, waiting, ..state.counts }
    }

    /// Takes no more calls. Those that wait are told so, those that run go on.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waiting = std::mem::take(&mut state.queue);
        drop(state);
        self.has_work.notify_all();
        for (_, work) in waiting {
            deliver(work, Some(self.closed()));
        }
    }

    pub(super) fn closed(&self) -> CallError {
        CallError::Closed { name: Arc::clone(&self.name) }
    }

    /// The life of one thread.
    fn work(&self) {
        while let Some((id, mut work)) = self.next() {
            let has_panicked = work.run();
            let mut state = self.lock();
            state.running.remove(&id);
            state.counts.ended += 1;
            state.counts.panicked += u64::from(has_panicked);
            drop(state);
            deliver(work, None);
        }
    }

    /// The next call to make, as soon as there is one; none once the pool is closed.
    fn next(&self) -> Option<(u64, Box<dyn Work>)> {
        let mut state = self.lock();
        loop {
            if let Some((id, work)) = state.queue.pop_front() {
                state.running.insert(id, false);
                return Some((id, work));
            }
            if state.is_closed {
                return None;
            }
            state = self.has_work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing of others runs under the lock, so nothing is half done in it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn in_hand(&self) -> usize {
        self.running.len() + self.queue.len()
    }
}

/// A result may panic where it is dropped, which must not end the thread.
fn deliver(work: Box<dyn Work>, not_made: Option<CallError>) {
    let _ = catch_unwind(AssertUnwindSafe(|| work.deliver(not_made)));
}
