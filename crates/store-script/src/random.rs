//! The generator behind `math.random`: the 48-bit one of POSIX, as in Redis, so that a seed gives
//! the same numbers.

/// Generator state. A copy of it is the run's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Random {
    state: u64,
    seeded: bool,
}

impl Default for Random {
    fn default() -> Self {
        Self { state: 0x1234_ABCD_330E, seeded: false }
    }
}

const MASK: u64 = (1 << 48) - 1;
/// The largest number drawn.
const DRAWN_MAX: u32 = i32::MAX as u32;

impl Random {
    /// Starts from `seed`, for the rest of the run.
    pub(crate) fn seeded(seed: i32) -> Self {
        Self { state: (u64::from(seed as u32) << 16) | 0x330E, seeded: true }
    }

    /// A fraction from 0 up to, but not including, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(0x5_DEEC_E66D).wrapping_add(0xB) & MASK;
        let drawn = (self.state >> 17) as u32;
        f64::from(drawn % DRAWN_MAX) / f64::from(DRAWN_MAX)
    }

    /// What the next run starts with, when this one started with `before`.
    pub(crate) fn after_run(self, before: Random) -> Random {
        if self.seeded {
            let mut next = before;
            next.fraction();
            return next;
        }
        self
    }
}
