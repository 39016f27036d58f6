//! The numbered stream of events, and the queues between the driver and whoever listens.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::Event;
use tokio::sync::Notify;

use crate::fork::Generation;

/// How many events may wait for one listener. A program that is this far behind is stuck, and the
/// newest events tell it more than the oldest.
pub(crate) const EVENTS_QUEUED_MAX: usize = 1024;

/// A stream of everything that happens in an election, in order.
///
/// No event is dropped silently: events are numbered without gaps, and a reader that falls more
/// than 1024 behind is told how many it missed.
#[derive(Debug)]
pub struct Events {
    queue: Arc<EventQueue>,
    born_in: Generation,
}

/// This many events were dropped because nobody read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{missed} events were missed: read faster, or use the latest status instead")]
pub struct Lagged {
    /// How many.
    pub missed: u64,
}

impl Events {
    pub(crate) fn new() -> Self {
        Events { queue: Arc::default(), born_in: Generation::current() }
    }

    pub(crate) fn queue(&self) -> &Arc<EventQueue> {
        &self.queue
    }

    /// The next event, or `None` after the last event of a stopped election. After [`Lagged`] the
    /// stream continues with the oldest event that is left.
    pub async fn next(&mut self) -> Option<Result<Arc<Event>, Lagged>> {
        loop {
            if !self.born_in.is_current() {
                return None; // A forked child hears nothing of its parent.
            }
            let filled = self.queue.filled.notified();
            match self.queue.take() {
                Taken::Event(event) => return Some(Ok(event)),
                Taken::Lagged(lagged) => return Some(Err(lagged)),
                Taken::Ended => return None,
                Taken::Nothing => filled.await,
            }
        }
    }

    /// The next event, if one is waiting.
    pub fn try_next(&mut self) -> Option<Result<Arc<Event>, Lagged>> {
        if !self.born_in.is_current() {
            return None;
        }
        match self.queue.take() {
            Taken::Event(event) => Some(Ok(event)),
            Taken::Lagged(lagged) => Some(Err(lagged)),
            Taken::Ended | Taken::Nothing => None,
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // In a forked child the lock may have been held by the parent's thread.
        if self.born_in.is_current() {
            self.queue.end();
        }
    }
}

/// A bounded queue of events for one reader.
#[derive(Default)]
pub(crate) struct EventQueue {
    state: Mutex<State>,
    filled: Notify,
}

#[derive(Default)]
struct State {
    events: VecDeque<Arc<Event>>,
    missed: u64,
    ended: bool,
}

pub(crate) enum Taken {
    Event(Arc<Event>),
    Lagged(Lagged),
    Nothing,
    Ended,
}

impl EventQueue {
    /// Adds an event; `false` once nobody reads any more.
    pub(crate) fn push(&self, event: Arc<Event>) -> bool {
        let mut state = self.lock();
        if state.ended {
            return false;
        }
        if state.events.len() == EVENTS_QUEUED_MAX {
            state.events.pop_front();
            state.missed += 1;
        }
        state.events.push_back(event);
        drop(state);
        self.filled.notify_one();
        true
    }

    pub(crate) fn take(&self) -> Taken {
        let mut state = self.lock();
        match std::mem::take(&mut state.missed) {
            0 => {}
            missed => return Taken::Lagged(Lagged { missed }),
        }
        match state.events.pop_front() {
            Some(event) => Taken::Event(event),
            None if state.ended => Taken::Ended,
            None => Taken::Nothing,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.events.is_empty() && state.missed == 0
    }

    /// Whether nobody reads any more, or nothing more will come.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// No event will come any more, or nobody wants one.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("EventQueue")
            .field("waiting", &state.events.len())
            .field("ended", &state.ended)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::{EventKind, Moment};

    fn event(number: u64) -> Arc<Event> {
        Arc::new(Event { number, at: Moment::ORIGIN, kind: EventKind::Warning(String::new()) })
    }

    #[test]
    fn a_reader_that_falls_behind_is_told_how_much_it_missed() {
        let mut events = Events::new();
        for number in 1..=EVENTS_QUEUED_MAX as u64 + 3 {
            assert!(events.queue.push(event(number)));
        }
        assert_eq!(events.try_next(), Some(Err(Lagged { missed: 3 })));
        assert_eq!(events.try_next().unwrap().unwrap().number, 4);
    }

    #[test]
    fn what_waits_is_read_before_the_end() {
        let mut events = Events::new();
        events.queue.push(event(1));
        events.queue.end();
        assert!(!events.queue.push(event(2)), "nothing comes after the end");
        assert_eq!(events.try_next().unwrap().unwrap().number, 1);
        assert_eq!(events.try_next(), None);
    }
}
