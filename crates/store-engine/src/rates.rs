//! How much happens per second, from samples of counters.

use std::collections::VecDeque;

/// Samples kept: with one per tenth of a second, about what the last second and a half brought.
const SAMPLES_MAX: usize = 16;
/// Between two samples.
const PERIOD_MS: u64 = 100;

/// Counters at a moment, or what they grow by per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    /// Requests run.
    pub commands: u64,
    /// Bytes read from clients.
    pub input_bytes: u64,
    /// Bytes written to clients.
    pub output_bytes: u64,
    /// Bytes that came from the primary.
    pub received_bytes: u64,
    /// Bytes that were sent to replicas.
    pub sent_bytes: u64,
}

/// Samples of counters.
#[derive(Debug, Default)]
pub struct RateMeter {
    samples: VecDeque<(u64, Amounts)>,
}

impl RateMeter {
    /// Whether it is time for another sample.
    #[inline]
    pub fn is_due(&self, now_ms: u64) -> bool {
        self.samples.back().is_none_or(|(at_ms, _)| now_ms >= at_ms + PERIOD_MS)
    }

    /// Adds a sample.
    pub fn add(&mut self, now_ms: u64, amounts: Amounts) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back((now_ms, amounts));
    }

    /// What came per second lately, with the counters as they are now.
    pub fn rates(&self, now_ms: u64, now: Amounts) -> Amounts {
        let window_ms = PERIOD_MS * SAMPLES_MAX as u64;
        let recent = |(at_ms, _): &&(u64, Amounts)| at_ms + window_ms >= now_ms;
        let Some((at_ms, before)) = self.samples.iter().find(recent) else {
            return Amounts::default();
        };
        let elapsed_ms = now_ms.saturating_sub(*at_ms).max(1);
        // Counters may have been set to zero meanwhile.
        let rate = |now: u64, before: u64| now.saturating_sub(before) * 1000 / elapsed_ms;
        Amounts {
            commands: rate(now.commands, before.commands),
            input_bytes: rate(now.input_bytes, before.input_bytes),
            output_bytes: rate(now.output_bytes, before.output_bytes),
            received_bytes: rate(now.received_bytes, before.received_bytes),
            sent_bytes: rate(now.sent_bytes, before.sent_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_last_moments() {
        let of = |commands| Amounts { commands, ..Amounts::default() };
        let mut meter = RateMeter::default();
        for tenth in 0..100 {
            assert!(meter.is_due(tenth * 100));
            meter.add(tenth * 100, of(tenth * 50));
            assert!(!meter.is_due(tenth * 100 + 99));
        }
        assert_eq!(meter.rates(9900, of(4950)).commands, 500);
        assert_eq!(meter.rates(20_000, of(4950)), Amounts::default());
        assert_eq!(meter.rates(9900, of(0)).commands, 0);
    }
}
