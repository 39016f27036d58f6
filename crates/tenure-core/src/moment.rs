//! Moments of the local clock that keeps running while the host is suspended.
//!
//! The core never reads a clock. A driver reads one (`CLOCK_BOOTTIME` on Linux) and passes the
//! reading in; two readings are comparable only within one process on one host.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A reading of the local suspend-aware clock, in nanoseconds since an arbitrary origin.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// Before every reading of a clock.
    pub const ORIGIN: Moment = Moment(0);
    /// After every reading of a clock: "never".
    pub const NEVER: Moment = Moment(u64::MAX);

    /// The moment `nanos` nanoseconds after the clock's origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Moment(nanos)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not later.
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long until `later`; zero if that has passed.
    pub const fn until(self, later: Moment) -> Duration {
        later.since(self)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_add(nanos))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, duration: Duration) -> Moment {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(self.0.saturating_sub(nanos))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Moment::NEVER => f.write_str("never"),
            Moment(nanos) => {
                write!(f, "{}.{:06}s", nanos / 1_000_000_000, nanos / 1_000 % 1_000_000)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::ORIGIN - Duration::from_secs(1), Moment::ORIGIN);
        assert_eq!(Moment::ORIGIN.since(Moment::NEVER), Duration::ZERO);
        assert_eq!(Moment::ORIGIN + Duration::MAX, Moment::NEVER);
    }
}
