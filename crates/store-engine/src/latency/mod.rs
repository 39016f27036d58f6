//! How long things took: a histogram per command, and samples of events that took too long.

pub(crate) mod commands;

use std::collections::{BTreeMap, VecDeque};

/// Samples kept per event, one per second at most.
const SAMPLES_MAX: usize = 160;
/// Buckets per doubling of the time.
const STEPS: usize = 8;
/// Doublings from one microsecond up to over an hour.
const DOUBLINGS: usize = 32;

/// Durations of one command in microseconds, in buckets an eighth of a doubling wide.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u32; STEPS * DOUBLINGS]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: Box::new([0; STEPS * DOUBLINGS]) }
    }
}

impl Histogram {
    /// Counts a duration.
    #[inline]
    pub fn add(&mut self, micros: u64) {
        let bucket = &mut self.counts[bucket_of(micros)];
        *bucket = bucket.saturating_add(1);
    }

    /// How many durations there are.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// How many durations are at most `2^n` microseconds (n = 0, 1, …), as far as the number
    /// grows; the bounds are told as Redis rounds them.
    pub fn cumulative(&self) -> Vec<(u64, u64)> {
        let mut told = Vec::new();
        let (mut sum, mut before, mut at) = (0, 0, 0);
        for doubling in 0..DOUBLINGS {
            // Buckets up to and with the one whose durations end at the bound.
            let bound = bucket_of(1 << doubling) + 1;
            while at < bound.min(self.counts.len()) {
                sum += u64::from(self.counts[at]);
                at += 1;
            }
            if sum > before {
                let nanos = 1024u64 << doubling;
                told.push(((nanos + nanos / 128 - 1) / 1000, sum));
            }
            before = sum;
        }
        told
    }

    /// The duration that `percent` of all do not exceed.
    pub fn percentile(&self, percent: f64) -> f64 {
        let wanted = (percent / 100.0 * self.total() as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            sum += u64::from(*count);
            if sum >= wanted {
                return upper_end(bucket) as f64;
            }
        }
        0.0
    }
}

/// Durations below the number of steps have buckets of their own; above, the bits behind the
/// highest one choose the step.
#[inline]
fn bucket_of(micros: u64) -> usize {
    if micros < STEPS as u64 {
        return micros as usize;
    }
    let doubling = micros.ilog2() as usize;
    let step = (micros >> (doubling - 3)) as usize & (STEPS - 1);
    ((doubling - 2) * STEPS + step).min(STEPS * DOUBLINGS - 1)
}

/// The longest duration of a bucket.
fn upper_end(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let (doubling, step) = (bucket / STEPS + 2, bucket % STEPS);
    ((STEPS + step + 1) as u64) << (doubling - 3)
}

/// One event's samples.
#[derive(Debug, Default)]
pub struct EventSamples {
    /// Unix seconds and milliseconds, oldest first.
    pub samples: VecDeque<(u64, u64)>,
    /// The longest ever.
    pub longest_ms: u64,
}

/// Events that took at least as long as the setting says.
#[derive(Debug, Default)]
pub struct LatencyMonitor {
    events: BTreeMap<&'static str, EventSamples>,
}

impl LatencyMonitor {
    /// Adds a sample. Within one second only the longest counts.
    pub fn add(&mut self, event: &'static str, at_s: u64, milliseconds: u64) {
        let event = self.events.entry(event).or_default();
        event.longest_ms = event.longest_ms.max(milliseconds);
        if let Some((second, longest)) = event.samples.back_mut()
            && *second == at_s
        {
            *longest = (*longest).max(milliseconds);
            return;
        }
        if event.samples.len() == SAMPLES_MAX {
            event.samples.pop_front();
        }
        event.samples.push_back((at_s, milliseconds));
    }

    /// The samples of an event.
    pub fn event(&self, name: &[u8]) -> Option<&EventSamples> {
        let found = self.events.iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, samples)| samples)
    }

    /// All events by name.
    pub fn events(&self) -> impl ExactSizeIterator<Item = (&'static str, &EventSamples)> {
        self.events.iter().map(|(name, samples)| (*name, samples))
    }

    /// Forgets an event. False when there is none of the name.
    pub fn forget(&mut self, name: &[u8]) -> bool {
        let before = self.events.len();
        self.events.retain(|known, _| known.as_bytes() != name);
        self.events.len() < before
    }

    /// Forgets all events and tells how many there were.
    pub fn forget_all(&mut self) -> usize {
        std::mem::take(&mut self.events).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_contain_what_they_count() {
        let mut last = 0;
        for micros in 0..1_000_000 {
            let bucket = bucket_of(micros);
            assert!(bucket == last || bucket == last + 1, "{micros}");
            assert!(upper_end(bucket) >= micros, "{micros} in {bucket}");
            last = bucket;
        }
        assert_eq!(bucket_of(u64::MAX), STEPS * DOUBLINGS - 1);
    }

    #[test]
    fn percentiles_and_bounds_are_near() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.add(micros));
        assert_eq!(histogram.total(), 1000);
        assert!((histogram.percentile(50.0) - 500.0).abs() < 70.0);
        let cumulative = histogram.cumulative();
        assert_eq!(cumulative[0], (1, 1));
        assert_eq!(cumulative.last().unwrap().1, 1000);
    }

    #[test]
    fn within_a_second_only_the_longest_sample_counts() {
        let mut monitor = LatencyMonitor::default();
        for (second, ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            monitor.add("command", second, ms);
        }
        let event = monitor.event(b"command").unwrap();
        assert_eq!(event.samples, [(1, 9), (2, 3)]);
        assert_eq!(event.longest_ms, 9);
        (3..1000).for_each(|second| monitor.add("command", second, 1));
        assert_eq!(monitor.event(b"command").unwrap().samples.len(), SAMPLES_MAX);
    }
}
