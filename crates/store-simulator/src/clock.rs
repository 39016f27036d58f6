//! Clocks of a host: one that runs a little fast or slow, and one on the wall that steps.

use crate::queue::Real;

/// The two clocks of one host.
#[derive(Clone, Debug)]
pub struct Clock {
    off_ppm: i64,
    wall_ahead: i64,
}

/// What the wall clock of a perfect host shows when a world begins, in unix milliseconds.
const EPOCH: i64 = 1_700_000_000_000;

impl Clock {
    /// A clock that is off by `off_ppm` millionths, beside a wall clock `wall_ahead` ms ahead.
    pub fn new(off_ppm: i64, wall_ahead: i64) -> Self {
        Self { off_ppm, wall_ahead }
    }

    /// What the clock that never goes back shows, in milliseconds.
    pub fn monotonic(&self, real: Real) -> u64 {
        // Every host began at another time.
        1_000_000 + (real as i64 + real as i64 * self.off_ppm / 1_000_000) as u64
    }

    /// When it will show `reading`, at the earliest.
    pub fn real_at(&self, reading: u64) -> Real {
        let ahead = reading.saturating_sub(1_000_000) as i64;
        let mut real = (ahead - ahead * self.off_ppm / 1_000_000).max(0) as Real;
        while self.monotonic(real) < reading {
            real += 1;
        }
        real
    }

    /// What the wall clock shows, in unix milliseconds.
    pub fn wall(&self, real: Real) -> u64 {
        (EPOCH + real as i64 + self.wall_ahead) as u64
    }

    /// The wall clock is set.
    pub fn step_wall(&mut self, by: i64) {
        self.wall_ahead += by;
    }
}
