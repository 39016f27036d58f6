//! Clocks that run a little fast or slow, jump, or stand still: functions of the world's real time.

/// Real time in nanoseconds since the world began.
pub(crate) type Real = u64;

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// The rate of a clock that stands still, in parts per million off the real one.
const STANDS_STILL: i64 = -1_000_000;

/// A clock as a line through one point.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    anchored_at: Real,
    reading: u64,
    off_ppm: i64,
    /// How far it is ahead of the real one by nature, whatever jumps came to it.
    pub(crate) drawn_ahead: i64,
}

impl Clock {
    pub(crate) fn new(reading: u64, off_ppm: i64) -> Self {
        Clock { anchored_at: 0, reading, off_ppm, drawn_ahead: 0 }
    }

    /// What the clock shows at `real`, in nanoseconds.
    pub(crate) fn at(&self, real: Real) -> u64 {
        let passed = real - self.anchored_at;
        self.reading
            + passed / 1_000_000 * self.rate()
            + passed % 1_000_000 * self.rate() / 1_000_000
    }

    /// When the clock shows `reading`, if it goes on like this; never for one that stands still.
    pub(crate) fn real_at(&self, reading: u64) -> Option<Real> {
        let ahead = reading.saturating_sub(self.reading);
        if ahead == 0 {
            return Some(self.anchored_at);
        }
        if self.rate() == 0 {
            return None;
        }
        let passed = u128::from(ahead) * 1_000_000 / u128::from(self.rate()) + 1;
        u64::try_from(passed).ok().and_then(|passed| self.anchored_at.checked_add(passed))
    }

    pub(crate) fn off_ppm(&self) -> i64 {
        self.off_ppm
    }

    pub(crate) fn set_rate(&mut self, now: Real, off_ppm: i64) {
        *self = Clock { anchored_at: now, reading: self.at(now), off_ppm, ..*self };
    }

    /// The clock of a host that is frozen as a whole.
    pub(crate) fn stand_still(&mut self, now: Real) {
        self.set_rate(now, STANDS_STILL);
    }

    pub(crate) fn step_forward(&mut self, now: Real, by: u64) {
        self.set_rate(now, self.off_ppm);
        self.reading += by;
    }

    pub(crate) fn step_back(&mut self, now: Real, by: u64) {
        self.set_rate(now, self.off_ppm);
        self.reading -= by;
    }

    fn rate(&self) -> u64 {
        (1_000_000 + self.off_ppm) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_and_its_moment_agree_at_every_rate() {
        for off_ppm in [-5_000, -1, 0, 3, 5_000] {
            let mut clock = Clock::new(77 * SECOND, off_ppm);
            clock.set_rate(5 * SECOND, -off_ppm);
            for reading in [83 * SECOND, 83 * SECOND + 1, 900 * SECOND + 12_345_678] {
                let real = clock.real_at(reading).unwrap();
                assert!(clock.at(real) >= reading, "{off_ppm}: not yet {reading}");
                assert!(clock.at(real - 2) <= reading, "{off_ppm}: later than needed");
            }
        }
    }

    #[test]
    fn a_clock_that_stands_still_never_gets_there() {
        let mut clock = Clock::new(0, 100);
        clock.stand_still(SECOND);
        assert_eq!(clock.at(9 * SECOND), clock.at(SECOND));
        assert_eq!(clock.real_at(2 * SECOND), None);
        clock.set_rate(9 * SECOND, 100);
        assert_eq!(clock.at(10 * SECOND), 2 * (SECOND + 100_000));
    }
}
