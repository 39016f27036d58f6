//! `key-load-delay` and `rdb-key-save-delay`: time per key that tests ask for, so that they can
//! look at a server that loads or saves.

use std::time::Duration;

/// The longest rest between two looks whether it is still wanted.
const REST_MAX: Duration = Duration::from_millis(10);

/// How long every key takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyDelay {
    /// Microseconds for each key; when negative, one microsecond for so many keys.
    delay_us: i64,
    /// Keys that have yet to be waited for.
    keys: u64,
}

impl KeyDelay {
    pub(crate) fn new(delay_us: i64) -> Self {
        Self { delay_us, keys: 0 }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.delay_us == 0
    }

    /// Waits for so many further keys, while `is_wanted`.
    pub(crate) fn wait(&mut self, keys: u64, is_wanted: &dyn Fn() -> bool) {
        let rest_us = self.take_us(keys);
        let mut rest = Duration::from_micros(rest_us);
        while !rest.is_zero() && is_wanted() {
            let slice = rest.min(REST_MAX);
            std::thread::sleep(slice);
            rest -= slice;
        }
    }

    fn take_us(&mut self, keys: u64) -> u64 {
        let delay = self.delay_us.unsigned_abs();
        if self.delay_us >= 0 {
            return keys.saturating_mul(delay);
        }
        self.keys += keys;
        let rest_us = self.keys / delay;
        self.keys %= delay;
        rest_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_per_key_or_per_many_keys() {
        let taken = |delay_us, keys: &[u64]| {
            let mut delay = KeyDelay::new(delay_us);
            keys.iter().map(|keys| delay.take_us(*keys)).collect::<Vec<_>>()
        };
        assert_eq!(taken(0, &[5]), [0]);
        assert_eq!(taken(20, &[5, 1]), [100, 20]);
        assert_eq!(taken(-10, &[5, 5, 25]), [0, 1, 2]);
        assert_eq!(taken(i64::from(i32::MAX), &[u64::MAX]), [u64::MAX]);
    }
}
