//! Waiting for a condition, with a bound that only a hang can reach.

use std::thread;
use std::time::{Duration, Instant};

/// A bound for things that take milliseconds on an idle machine. Tests run on two busy cores, so
/// it is long; a test that passes never waits for it.
pub const GENEROUS: Duration = Duration::from_secs(30);

/// Short enough that a test does not notice, long enough that waiting costs no CPU.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(2);
/// A look that starts a program costs more: the pause after it is as long as it took, up to this.
const LOOK_AGAIN_AFTER_MAX: Duration = Duration::from_millis(50);

/// Returns as soon as `condition` holds.
///
/// # Panics
/// When it does not hold within `bound`; the message says `what` was awaited.
///
/// ```
/// let mut looks = 0;
/// testkit::wait_until("the third look", testkit::GENEROUS, || {
///     looks += 1;
///     looks == 3
/// });
/// ```
#[track_caller]
pub fn wait_until(what: &str, bound: Duration, mut condition: impl FnMut() -> bool) {
    wait_for(what, bound, || condition().then_some(()));
}

/// Returns the first value that `attempt` yields.
///
/// # Panics
/// When it yields none within `bound`; the message says `what` was awaited.
#[track_caller]
pub fn wait_for<T>(what: &str, bound: Duration, mut attempt: impl FnMut() -> Option<T>) -> T {
    let started_at = Instant::now();
    loop {
        let looked_at = Instant::now();
        if let Some(value) = attempt() {
            return value;
        }
        assert!(started_at.elapsed() < bound, "waited {bound:?} in vain for {what}");
        thread::sleep(looked_at.elapsed().clamp(LOOK_AGAIN_AFTER, LOOK_AGAIN_AFTER_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_in_vain_says_what_was_awaited() {
        let outcome = std::panic::catch_unwind(|| {
            wait_until("a second moon", Duration::from_millis(1), || false);
        });

        let payload = outcome.unwrap_err();
        let message = payload.downcast_ref::<String>().unwrap();
        assert!(message.contains("a second moon"), "{message}");
    }

    #[test]
    fn a_condition_that_holds_late_still_ends_the_wait() {
        let mut looks = 0;
        let value = wait_for("the fourth look", GENEROUS, || {
            looks += 1;
            (looks == 4).then_some("seen")
        });
        assert_eq!(value, "seen");
    }
}
