//! Readings of a clock that never goes back.

use std::ops::Add;
use std::time::Duration;

/// A reading of the caller's monotonic clock. Time-outs of replication never use the wall clock,
/// which steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// So many milliseconds after the caller's zero.
    pub const fn from_ms(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// How much time passed since `earlier`; none when it lies ahead.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }
}
