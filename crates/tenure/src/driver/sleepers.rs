//! Handles that wait for a moment on the client's clock.

use std::collections::BTreeMap;

use tenure_core::Moment;
use tokio::sync::oneshot;

/// How many may be waiting before those are looked for that nobody waits for any more. Every call
/// leaves one behind when its answer comes first.
const SWEPT_FROM: usize = 256;

/// Whoever waits, by the moment. At most twice as many as wait, or a few: those that were abandoned
/// are dropped whenever there are twice as many as were left after the last time.
pub(super) struct Sleepers {
    waiting: BTreeMap<(Moment, u64), oneshot::Sender<()>>,
    numbers: u64,
    swept_at: usize,
}

impl Default for Sleepers {
    fn default() -> Self {
        Sleepers { waiting: BTreeMap::new(), numbers: 0, swept_at: SWEPT_FROM }
    }
}

impl Sleepers {
    pub(super) fn add(&mut self, until: Moment, wake: oneshot::Sender<()>) {
        self.numbers += 1;
        self.waiting.insert((until, self.numbers), wake);
        if self.waiting.len() >= self.swept_at {
            self.waiting.retain(|_, wake| !wake.is_closed());
            self.swept_at = SWEPT_FROM.max(self.waiting.len() * 2);
        }
    }

    pub(super) fn wakes_at(&self) -> Moment {
        self.waiting.first_key_value().map_or(Moment::NEVER, |((at, _), _)| *at)
    }

    /// Wakes all whose moment has come.
    pub(super) fn wake(&mut self, now: Moment) {
        while let Some(sleeper) = self.waiting.first_entry() {
            if sleeper.key().0 > now {
                return;
            }
            // Whoever slept may be gone.
            let _ = sleeper.remove().send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_nobody_waits_for_are_forgotten() {
        let mut sleepers = Sleepers::default();
        let (wake, mut patient) = oneshot::channel();
        let at = |second: u64| Moment::from_nanos(second * 1_000_000_000);
        sleepers.add(at(1), wake);
        for _ in 0..100_000 {
            let (wake, impatient) = oneshot::channel();
            sleepers.add(at(3600), wake);
            drop(impatient);
            assert!(sleepers.waiting.len() <= SWEPT_FROM, "{}", sleepers.waiting.len());
        }
        let waiting: Vec<_> = (0..1_000)
            .map(|_| {
                let (wake, waits) = oneshot::channel();
                sleepers.add(at(2), wake);
                waits
            })
            .collect();
        sleepers.wake(at(2));
        assert_eq!(patient.try_recv(), Ok(()));
        assert!(waiting.into_iter().all(|mut waits| waits.try_recv() == Ok(())));
    }
}
