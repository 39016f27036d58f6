//! How long a command waits for a local store that does not answer.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::find::{Found, Silence, find_within};
use super::place::DataFolder;
use super::{LOOK_EVERY, TURN_TIMEOUT, start_apart};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{duration, talk};

/// What to do about a store that does not answer.
pub(super) const NEXT: &str = "`tenure local stop --force` ends it, or name a store with --store";
/// After this it is said that the store does not answer.
pub(super) const UNTOLD_MAX: Duration = Duration::from_secs(1);

/// How long a command waits that waits for what may pass, and since when that counts.
static PATIENCE: OnceLock<(Wait, Instant)> = OnceLock::new();

/// How long such a command waits for its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// As long as it takes.
    Endless,
    /// What `--wait-timeout` says.
    AtMost(Duration),
}

/// From here on, a local store that does not answer is waited for like any store that is down.
pub(crate) fn be_patient(wait: Wait) {
    let _ = PATIENCE.set((wait, clock::steady()));
}

/// What is left of `--wait-timeout` after the time in which a local store was waited for.
pub(crate) fn left_to_wait() -> Option<Duration> {
    match PATIENCE.get()? {
        (Wait::Endless, _) => None,
        (Wait::AtMost(limit), since) => {
            Some(limit.saturating_sub(clock::steady().saturating_duration_since(*since)))
        }
    }
}

/// How long this command waits for a local store that does not answer; `None` without an end.
fn limit() -> Option<Duration> {
    match PATIENCE.get() {
        None => Some(TURN_TIMEOUT),
        Some((Wait::Endless, _)) => None,
        Some((Wait::AtMost(limit), _)) => Some(*limit),
    }
}

/// Waits until the store answers or is gone; then another is started. Says so after a second.
pub(super) fn wait_for_answer(
    place: &DataFolder,
    silence: Silence,
    began_at: Instant,
) -> Result<PathBuf, Failure> {
    let limit = limit();
    let (mut silence, mut is_told) = (silence, false);
    loop {
        let waited = clock::steady().saturating_duration_since(began_at);
        if waited >= UNTOLD_MAX && !is_told {
            talk(&format!("{silence}: waiting for it"));
            is_told = true;
        }
        let left = limit.map_or(UNTOLD_MAX, |limit| limit.saturating_sub(waited));
        if left.is_zero() {
            break;
        }
        match find_within(place, left.clamp(LOOK_EVERY, UNTOLD_MAX))? {
            Found::Running(socket) => return Ok(socket),
            Found::Absent { .. } => return start_apart(),
            Found::Silent(seen) => silence = seen,
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let waited = duration(limit.unwrap_or_default());
    Err(Failure::new(exit::UNREACHABLE, format!("{silence} after {waited}: {NEXT}")))
}
