//! The thread that holds terms to their deadlines by the clock alone.
//!
//! The driver tells work to stop in time, but it also carries out calls of the backend, and one
//! that blocks would keep everybody else waiting. This thread calls nobody: it knows when work
//! under each term has to stop, is cut off and is over, and wakes whoever waits for that. The
//! driver hears of it as a wish, so that both agree. `Term::is_stopping` does the same on use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tenure_core::Moment;

use crate::alarm::ThreadAlarm;
use crate::clock::Clock;
use crate::fork::Generation;
use crate::state::ElectionState;

/// The deadlines of all terms of one client under which work runs. Its thread ends with it.
pub(crate) struct Deadlines {
    born_in: Generation,
    /// `None` where nobody watches: a test moves its clock while everything is at rest, and without
    /// a thread the driver alone does it.
    shared: Option<Arc<Shared>>,
}

struct Shared {
    queue: Mutex<Queue>,
    alarm: ThreadAlarm,
}

/// Bounded by the elections there are: each stands here once, and once more for each term that was
/// abandoned, until the moment for which it was queued has come.
#[derive(Default)]
struct Queue {
    due: BTreeMap<(Moment, u64), Weak<ElectionState>>,
    numbers: u64,
    is_closed: bool,
}

impl Deadlines {
    /// Starts the thread, for clients that live by the system's clock.
    pub(crate) fn start(clock: &Clock) -> std::io::Result<Arc<Self>> {
        let born_in = Generation::current();
        if matches!(clock, Clock::Manual(_)) {
            return Ok(Arc::new(Deadlines { born_in, shared: None }));
        }
        let shared = Arc::new(Shared { queue: Mutex::default(), alarm: ThreadAlarm::new() });
        let watched = Arc::clone(&shared);
        std::thread::Builder::new().name("tenure-clock".into()).spawn(move || watched.run())?;
        Ok(Arc::new(Deadlines { born_in, shared: Some(shared) }))
    }

    /// Has the election look at the clock at that moment.
    pub(crate) fn add(&self, moment: Moment, election: Weak<ElectionState>) {
        let Some(shared) = &self.shared else { return };
        let mut queue = shared.lock();
        queue.numbers += 1;
        let place = (moment, queue.numbers);
        queue.due.insert(place, election);
        if queue.due.first_key_value().is_some_and(|(first, _)| *first == place) {
            shared.alarm.set(moment);
        }
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        // A forked child has no such thread, and the lock may have been held when it was forked.
        if let Some(shared) = self.shared.as_ref().filter(|_| self.born_in.is_current()) {
            let mut queue = shared.lock();
            queue.is_closed = true;
            // The moment after the clock's origin: at once.
            shared.alarm.set(Moment::from_nanos(1));
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            self.alarm.wait();
            loop {
                let mut queue = self.lock();
                if queue.is_closed {
                    return;
                }
                let Some(first) = queue.due.first_entry() else { break };
                let (moment, _) = *first.key();
                if moment > Clock::System.now() {
                    self.alarm.set(moment);
                    break;
                }
                let election = first.remove();
                // It queues itself again, and may be the last to hold this very thread's owner.
                drop(queue);
                if let Some(election) = election.upgrade() {
                    election.look_at_clock(moment);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Deadlines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queued = self.shared.as_ref().map(|shared| shared.lock().due.len());
        f.debug_struct("Deadlines").field("queued", &queued).finish()
    }
}
