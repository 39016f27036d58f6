//! What happens next: events in the order of their time, and of their making within a moment.

use std::collections::BTreeMap;

/// Real time in milliseconds since the world began.
pub type Real = u64;

/// Events to come.
#[derive(Debug)]
pub struct Queue<E> {
    events: BTreeMap<(Real, u64), E>,
    now: Real,
    made: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), now: 0, made: 0 }
    }
}

impl<E> Queue<E> {
    /// The time of the event that was taken last.
    pub fn now(&self) -> Real {
        self.now
    }

    /// `event` happens at `time`, or now if that is over.
    pub fn at(&mut self, time: Real, event: E) {
        self.made += 1;
        self.events.insert((time.max(self.now), self.made), event);
    }

    /// `event` happens `delay` from now.
    pub fn after(&mut self, delay: Real, event: E) {
        self.at(self.now + delay, event);
    }

    /// When the next event happens, if one is left.
    pub fn next_at(&self) -> Option<Real> {
        self.events.first_key_value().map(|((time, _), _)| *time)
    }

    /// Time moves on without an event, where another queue has one.
    pub fn move_to(&mut self, time: Real) {
        self.now = time.max(self.now);
    }

    /// Takes the next event; time moves to it.
    pub fn take_next(&mut self) -> Option<E> {
        let ((time, _), event) = self.events.pop_first()?;
        self.now = time;
        Some(event)
    }
}
