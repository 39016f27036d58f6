//! What happens next: events in the order of their time, and of their making within a moment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Real time in milliseconds since the world began.
pub type Real = u64;

/// Events to come.
#[derive(Debug)]
pub struct Queue<E> {
    /// When, in which order within that moment, and the place in `events`: what is moved about is
    /// small.
    order: BinaryHeap<Reverse<(Real, u64, usize)>>,
    events: Vec<Option<E>>,
    free: Vec<usize>,
    now: Real,
    made: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { order: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), now: 0, made: 0 }
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
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(event);
        self.order.push(Reverse((time.max(self.now), self.made, place)));
    }

    /// `event` happens `delay` from now.
    pub fn after(&mut self, delay: Real, event: E) {
        self.at(self.now + delay, event);
    }

    /// When the next event happens, if one is left.
    pub fn next_at(&self) -> Option<Real> {
        self.order.peek().map(|Reverse((time, _, _))| *time)
    }

    /// Time moves on without an event, where another queue has one.
    pub fn move_to(&mut self, time: Real) {
        self.now = time.max(self.now);
    }

    /// Takes the next event; time moves to it.
    pub fn take_next(&mut self) -> Option<E> {
        let Reverse((time, _, place)) = self.order.pop()?;
        self.now = time;
        self.free.push(place);
        self.events[place].take()
    }
}
