//! How long a command waits for a local store that does not answer.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::find::{Found, find_within};
use super::place::DataFolder;
use super::{LOOK_EVERY, TURN_TIMEOUT, start_apart};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{duration, talk};

/// What to do about a store that does not answer.
pub(super) const NEXT: &str = "`tenure local stop --force` ends it, or name a store with --store";
/// After this it is said that the store does not answer.
pub(super) const UNTOLD_MAX: Duration = Duration::from_secs(1);

/// What is said of a store that this command starts, or another one that has its turn.
const IS_STARTED: &str = "the local store is being started and does not answer yet";

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

/// The socket of the store. Waits until it answers; where there is none, one is started. Says so
/// after a second.
pub(super) fn reach_store(place: &DataFolder) -> Result<PathBuf, Failure> {
    let (limit, began_at) = (limit(), clock::steady());
    let mut seen: Option<String> = None;
    let mut is_told = false;
    loop {
        let waited = clock::steady().saturating_duration_since(began_at);
        let left = limit.map_or(TURN_TIMEOUT, |limit| limit.saturating_sub(waited));
        let mut tell = |silence: &str| {
            if !std::mem::replace(&mut is_told, true) {
                talk(&format!("{silence}: waiting for it"));
            }
        };
        if let Some(silence) = &seen
            && waited >= UNTOLD_MAX
        {
            tell(silence);
        }
        if let Some(silence) = seen.take().filter(|_| left.is_zero()) {
            let waited = duration(limit.unwrap_or_default());
            let why = format!("{silence} after {waited}: {NEXT}");
            return Err(Failure::new(exit::UNREACHABLE, why));
        }
        seen = Some(match find_within(place, left.clamp(LOOK_EVERY, UNTOLD_MAX))? {
            Found::Running(socket) => return Ok(socket),
            Found::Silent(silence) => silence.to_string(),
            Found::Absent { .. } => match start_apart(left, || tell(IS_STARTED))? {
                Some(socket) => return Ok(socket),
                None => IS_STARTED.to_owned(),
            },
        });
        std::thread::sleep(LOOK_EVERY);
    }
}
