//! A process that lasts keeps its local store: when that is gone, it starts another.

use std::time::Duration;

use tenure::Tenure;
use tenure::backend::Connection;

use super::find::{Found, find};
use super::place::DataFolder;
use super::{TURN_TIMEOUT, start_apart};
use crate::output::talk;

/// Between two looks at the connection, and between the first two restarts.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The longest pause between two restarts: a store that cannot live must not be started for ever
/// and ever at the cost of everything else.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Starts the local store again whenever `tenure` misses it and it crashed or a signal ended it,
/// for as long as this process lives. One that was told to end by `local stop` is left alone.
pub(crate) fn keep(tenure: &Tenure) {
    let tenure = tenure.clone();
    let keeping = std::thread::Builder::new().name("local-store".to_owned());
    let kept = keeping.spawn(move || watch_over(&tenure));
    if let Err(error) = kept {
        talk(&format!("the local store will not be restarted if it crashes: {error}"));
    }
}

fn watch_over(tenure: &Tenure) {
    let Ok(place) = DataFolder::of_user() else { return };
    let mut pause = LOOK_EVERY;
    loop {
        std::thread::sleep(pause);
        let is_down = matches!(tenure.connection(), Connection::Down(_));
        if !is_down || !matches!(find(&place), Ok(Found::Absent { is_missed: true })) {
            // What lives is trusted a little more with every look.
            pause = (pause / 2).max(LOOK_EVERY);
            continue;
        }
        talk("the local store is gone: starting it again");
        match start_apart(TURN_TIMEOUT, || ()) {
            Ok(Some(_)) => {}
            Ok(None) => talk("the local store does not answer yet"),
            Err(failure) => talk(&failure.message),
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
