//! Percentiles of what was measured.

use std::fmt;
use std::time::Duration;

/// Durations of one kind, in the order in which they were measured.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds one.
    pub fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value that `percent` of all samples do not exceed; zero without samples.
    pub fn percentile(&self, percent: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = |percent| self.percentile(percent).as_secs_f64() * 1e3;
        write!(f, "p50 {:.2} ms, p99 {:.2} ms (n={})", millis(50.0), millis(99.0), self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_the_sorted_samples() {
        let mut samples = Samples::default();
        (1..=100).rev().for_each(|n| samples.add(Duration::from_millis(n)));
        assert_eq!(samples.percentile(50.0), Duration::from_millis(50));
        assert_eq!(samples.percentile(99.0), Duration::from_millis(99));
        assert_eq!(samples.percentile(100.0), Duration::from_millis(100));
        assert_eq!(Samples::default().percentile(99.0), Duration::ZERO);
    }
}
