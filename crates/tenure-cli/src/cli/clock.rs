//! The only place where the client reads a clock.

use std::time::{Duration, Instant};

/// Measures from its making on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn reading(self) -> Duration {
        self.0.elapsed()
    }
}
