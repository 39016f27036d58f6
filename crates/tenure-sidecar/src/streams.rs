//! Who follows events now: how many there may be, and that somebody came.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many may follow events at a time. Each is a connection and a task.
pub(crate) const STREAMS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: AtomicUsize,
    arrived: Notify,
}

impl Streams {
    /// A place, unless all are taken.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<StreamSlot> {
        let entered = self.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| {
            (open < STREAMS_MAX).then_some(open + 1)
        });
        entered.ok()?;
        self.arrived.notify_waiters();
        Some(StreamSlot(Arc::clone(self)))
    }

    pub(crate) fn count(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn any(&self) -> bool {
        self.count() > 0
    }

    /// Waits until somebody comes.
    pub(crate) async fn arrival(&self) {
        self.arrived.notified().await;
    }
}

/// One who follows; leaves by being dropped.
#[derive(Debug)]
pub(crate) struct StreamSlot(Arc<Streams>);

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_few_and_given_back() {
        let streams = Arc::new(Streams::default());
        let mut places: Vec<StreamSlot> =
            (0..STREAMS_MAX).filter_map(|_| streams.enter()).collect();
        assert!(streams.enter().is_none());
        places.pop();
        assert!(streams.enter().is_some());
    }
}
