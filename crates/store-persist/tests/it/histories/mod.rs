//! Histories of the append-only file by seed: every setting and command that touches it at any
//! moment, `dir` among them, files that somebody removes, a disk that fails at any operation,
//! processes that are killed, machines that lose power, threads whose words come late or twice.
//!
//! The machine is the one that the server runs. What is promised after every start:
//! - with `always` everything acknowledged is there, with `everysec` all but the last two seconds;
//! - what is there is what was there after one of the units, whole;
//! - where an end was called whole, or was not refused with the file on, nothing at all is missing:
//!   what was taken while the first base was written included;
//! - the start is not refused, unless the disk fails while it is read;
//! - a file that nobody of ours wrote is as it was;
//! - where a file says how long the one before it was, a start notices what is missing there;
//! - what a base that came to nothing has written is gone once nobody writes it;
//! - data that a full sync replaced never comes back, unless the log said that it may; where the
//!   new data did not come, the files of the old are kept as they were;
//! - behind a full sync nothing is acknowledged against `always` before the new data has a file.

mod data;
mod full_sync;
mod world;

use world::{Flaw, World};

/// Histories per run, unless `CRASH_SEEDS` says otherwise. A few seconds.
const SEEDS: u64 = 3000;
/// Histories in which a flaw must be noticed at least once.
const FLAW_SEEDS: u64 = 3000;

#[expect(clippy::disallowed_methods, reason = "a test may be told how long to run")]
fn seed_count() -> u64 {
    std::env::var("CRASH_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

/// Runs one history. Says which promise it broke.
fn broken_promise(seed: u64, flaw: Option<Flaw>) -> Option<String> {
    World::begin(seed, flaw).run().err().map(|what| format!("seed {seed}: {what}"))
}

#[test]
fn every_promise_holds_in_every_history() {
    let first = testkit::seed();
    let count = seed_count();
    for seed in (0..count).map(|offset| first.wrapping_add(offset)) {
        if let Some(broken) = broken_promise(seed, None) {
            panic!("{broken}");
        }
    }
    println!("{count} histories, no promise broken");
}

/// How many of the histories show a flaw.
fn caught(flaw: Flaw) -> u64 {
    let first = testkit::seed();
    let seeds = (0..FLAW_SEEDS).map(|offset| first.wrapping_add(offset));
    let mut tried = 0;
    for seed in seeds {
        tried += 1;
        if let Some(broken) = broken_promise(seed, Some(flaw)) {
            println!("{flaw:?} is caught in history {tried}: {broken}");
            return tried;
        }
    }
    panic!("{flaw:?} went unnoticed in {FLAW_SEEDS} histories from seed {first} on");
}

#[test]
fn flaws_of_old_are_caught() {
    for flaw in Flaw::ALL {
        caught(flaw);
    }
}
