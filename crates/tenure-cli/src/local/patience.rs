//! How long a command waits for a local store that does not answer.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::find::{Found, Silence, find_within};
use super::place::Place;
use super::{LOOK_EVERY, TURN_TIMEOUT, start_apart};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{duration, talk};

/// After this it is said that the store does not answer.
pub(super) const UNTOLD_MAX: Duration = Duration::from_secs(1);

/// What `--wait-timeout` says, and since when that counts.
static WAIT_TIMEOUT: OnceLock<(Duration, Instant)> = OnceLock::new();

/// From here on, nobody waits longer than this for the local store.
pub(crate) fn wait_at_most(limit: Duration) {
    let _ = WAIT_TIMEOUT.set((limit, clock::steady()));
}

/// What is left of `--wait-timeout` after the time in which a local store was waited for.
pub(crate) fn left_to_wait() -> Option<Duration> {
    let (limit, since) = WAIT_TIMEOUT.get()?;
    Some(limit.saturating_sub(clock::steady().saturating_duration_since(*since)))
}

/// Says that the store is silent, and waits until it answers or is gone. Then another is started.
pub(super) fn wait_for_answer(place: &Place, silence: &Silence) -> Result<PathBuf, Failure> {
    let limit = WAIT_TIMEOUT.get().map_or(TURN_TIMEOUT, |(limit, _)| TURN_TIMEOUT.min(*limit));
    talk(&format!("{silence}: waiting for it"));
    // One second is over already.
    let given_up_at = clock::steady() + limit.saturating_sub(UNTOLD_MAX);
    while clock::steady() < given_up_at {
        let left = given_up_at.saturating_duration_since(clock::steady());
        match find_within(place, left.clamp(LOOK_EVERY, UNTOLD_MAX))? {
            Found::Running(socket) => return Ok(socket),
            Found::Absent { .. } => return start_apart(),
            Found::Silent(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
    let limit = duration(limit);
    let next = "`tenure local stop --force` ends it, or name a store with --store";
    Err(Failure::new(exit::UNREACHABLE, format!("{silence} within {limit}: {next}")))
}
