//! Scripts for the state machine: what comes in at which moment, and the trace that must come out;
//! and many machines that share a store.
//!
//! `UPDATE_SCENARIOS=1 cargo test -p tenure-core` writes the traces anew; read the difference
//! before committing it.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
#![allow(clippy::disallowed_methods, reason = "scenarios are files; only the crate is pure")]

mod herd;
mod replies;
mod rounds;
mod script;

use std::path::Path;

use rounds::Rounds;
use script::Script;

#[test]
fn every_scenario_gives_the_trace_written_beside_it() {
    play_all("tests/scenarios", 20, Script::play);
}

#[test]
fn every_round_gives_the_trace_written_beside_it() {
    play_all("tests/rounds", 9, Rounds::play);
}

fn play_all(folder: &str, count_min: usize, play: fn(&str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut paths: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= count_min, "scenarios are missing from {}", folder.display());
    let update = std::env::var_os("UPDATE_SCENARIOS").is_some();
    for path in paths {
        let written = std::fs::read_to_string(&path).unwrap();
        let played = play(&written);
        match update {
            true => std::fs::write(&path, played).unwrap(),
            false => assert_same(&path, &written, &played),
        }
    }
}

fn assert_same(path: &Path, written: &str, played: &str) {
    let differs = written.lines().zip(played.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or_else(|| written.lines().count().min(played.lines().count()));
    assert!(
        written == played,
        "{}:{}: expected {:?}, got {:?}",
        path.display(),
        line + 1,
        written.lines().nth(line),
        played.lines().nth(line)
    );
}
