//! A key that moves is on one side, and nothing that was confirmed is lost.

use store_simulator::moves::{CONTROLS, World};

/// Worlds that must be quiet; a second or two of work on a busy machine.
const SEEDS: u64 = 60;
/// Within how many worlds a broken rule must show.
const SEEDS_TO_CATCH: u64 = 50;

#[test]
fn keys_that_move_are_never_lost_whoever_crashes() {
    let (mut writes, mut keys, mut postponed, mut crashes) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let outcome = World::new(seed).run();
        let replay = format!("cargo xtask simulate store --worlds moves --seed {seed} --trace");
        assert_eq!(outcome.violation, None, "{replay}");
        writes += outcome.writes;
        keys += outcome.keys_moved;
        postponed += outcome.postponed;
        crashes += outcome.crashes;
    }
    println!("{writes} writes, {keys} keys moved, {postponed} requests waited, {crashes} crashes");
    assert!(keys > 10 * SEEDS && crashes > SEEDS, "the worlds are too quiet");
    assert!(writes > 100 * SEEDS && postponed > 10 * SEEDS, "the worlds are too quiet");
}

#[test]
fn a_rule_of_moving_keys_that_is_broken_is_caught() {
    for control in CONTROLS {
        let caught = (0..SEEDS_TO_CATCH).find(|seed| {
            World::flawed(*seed, control.flaw, control.breaks).run().violation.is_some()
        });
        let seed = caught.unwrap_or_else(|| panic!("{} is not caught", control.name));
        println!("{} is caught by {} in seed {seed}", control.name, control.breaks);
    }
}

#[test]
fn a_seed_of_moves_replays_event_by_event() {
    let trace = |seed| World::new(seed).traced().run().trace;
    assert!(trace(3).len() > 50, "a trace tells what happened");
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3), trace(4));
}
