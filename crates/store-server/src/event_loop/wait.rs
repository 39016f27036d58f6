//! How the loop waits for what comes next.
//!
//! To sleep and to be woken costs as much processor time as several small requests, so that a
//! server which sleeps between them is the dearer the quicker it answers. When clients ask without
//! a pause, it pays to look again a few times before sleeping. When they do not, every such look is
//! in vain. Nobody knows beforehand, so [`SpinBackoff`] goes by what came of the last attempts.

use std::io;
use std::time::Duration;

use mio::Events;

use super::EventLoop;

/// Looks before sleeping: together they take no longer than a sleep costs on a quiet machine. More
/// would pay on a busy one, where sleeps are dearer.
const LOOKS: usize = 32;
/// Waits without such looks after attempts that came to nothing, one after the other.
const UNTRIED_MAX: u32 = 63;

/// Whether it is worth looking again before sleeping.
#[derive(Debug, Default)]
pub(super) struct SpinBackoff {
    /// Waits left before the next attempt.
    untried: u32,
    /// How many there will be if that one comes to nothing, too.
    untried_next: u32,
}

impl SpinBackoff {
    /// Whether to try it at this wait.
    #[inline]
    fn tries(&mut self) -> bool {
        let tries = self.untried == 0;
        self.untried = self.untried.saturating_sub(1);
        tries
    }

    /// Something came while the loop looked again.
    fn note_success(&mut self) {
        self.untried_next = 0;
    }

    /// Nothing came.
    fn note_failure(&mut self) {
        self.untried = self.untried_next;
        self.untried_next = (2 * self.untried_next + 1).min(UNTRIED_MAX);
    }
}

/// What lies between two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// Nothing: something had come before the loop looked for the first time.
    None,
    /// A pause, before which the turn was [ended](EventLoop::end_turn).
    Pause,
}

impl EventLoop {
    /// Waits for events, unless something else is to be done.
    ///
    /// How long it may sleep is asked only when there is nothing at the first look: to find that
    /// out takes about as long as the look.
    pub(super) fn wait(&mut self, events: &mut Events) -> io::Result<Gap> {
        let tries = self.spin_backoff.tries();
        if tries {
            self.poll.poll(events, Some(Duration::ZERO))?;
            if !events.is_empty() {
                return Ok(Gap::None);
            }
        }
        self.end_turn();
        let sleep_max = self.sleep_max();
        let has_looked = match sleep_max {
            Some(Duration::ZERO) => tries,
            _ => tries && self.look_again(events)?,
        };
        if !has_looked {
            self.poll.poll(events, sleep_max)?;
        }
        Ok(Gap::Pause)
    }

    /// Looks for what comes before it would have been worth sleeping. Whether anything did.
    fn look_again(&mut self, events: &mut Events) -> io::Result<bool> {
        for _ in 1..LOOKS {
            self.poll.poll(events, Some(Duration::ZERO))?;
            if !events.is_empty() {
                self.spin_backoff.note_success();
                return Ok(true);
            }
        }
        self.spin_backoff.note_failure();
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many waits are attempts, when each comes to what `comes` says.
    fn attempts(backoff: &mut SpinBackoff, waits: usize, comes: bool) -> usize {
        let tried = (0..waits).filter(|_| {
            let tries = backoff.tries();
            match comes {
                _ if !tries => {}
                true => backoff.note_success(),
                false => backoff.note_failure(),
            }
            tries
        });
        tried.count()
    }

    #[test]
    fn looking_again_is_given_up_when_nothing_comes_and_taken_up_when_something_does() {
        let mut backoff = SpinBackoff::default();
        assert_eq!(attempts(&mut backoff, 1000, true), 1000, "it pays every time");
        let vain = attempts(&mut backoff, 6400, false);
        assert!((100..=107).contains(&vain), "{vain} in vain: one in 64 when it never pays");
        // The next attempt finds that clients ask without a pause again.
        let paid = attempts(&mut backoff, 1000, true);
        assert!((1000 - UNTRIED_MAX as usize..1000).contains(&paid), "{paid}");
        assert_eq!(attempts(&mut backoff, 1000, true), 1000);
    }
}
