//! The only place where the driver reads a clock.

use std::time::{Duration, Instant};

/// A moment after which work ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(duration: Duration) -> Self {
        Self(Instant::now() + duration)
    }

    pub(crate) fn has_passed(self) -> bool {
        Instant::now() >= self.0
    }
}
