//! What is promised of a cluster holds, what is broken on purpose is caught.

use store_simulator::cluster::{CONTROLS, World};

/// Worlds that must be quiet; a few seconds of work on a busy machine.
const SEEDS: u64 = 40;
/// Within how many worlds a broken rule must show.
const SEEDS_TO_CATCH: u64 = 200;
/// Broken so that few worlds show it; `cargo xtask simulate store --worlds cluster` looks for them.
const RARE: &[&str] = &[
    "accept-old-acks",
    "claim-on-full-disk",
    "dead-keeps-slots",
    "epoch-without-persist",
    "no-grandmaster-rule",
    "no-unclaimed-bits",
    "stands-behind",
    "vote-before-fsync",
    "vote-on-full-disk",
    "votes-unseen",
];

#[test]
fn nodes_agree_and_nobody_acts_without_a_majority_whatever_happens() {
    let (mut elections, mut failures, mut moves, mut slots) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let outcome = World::new(seed).run();
        let replay = format!("cargo xtask simulate store --worlds cluster --seed {seed} --trace");
        assert_eq!(outcome.violation, None, "{replay}");
        elections += outcome.elections;
        failures += outcome.failures;
        moves += outcome.moves;
        slots += outcome.slots_moved;
    }
    println!("{failures} failures, {elections} elections, {moves} moves, {slots} slots moved");
    assert!(failures > SEEDS && elections > SEEDS / 2, "the worlds are too quiet");
    assert!(moves > SEEDS / 20 && slots > SEEDS, "the worlds are too quiet");
}

#[test]
fn every_broken_rule_is_caught_by_the_one_that_it_breaks() {
    for control in CONTROLS.iter().filter(|control| !RARE.contains(&control.name)) {
        let caught = (0..SEEDS_TO_CATCH).find(|seed| {
            World::flawed(*seed, control.flaw, control.breaks).run().violation.is_some()
        });
        let seed = caught.unwrap_or_else(|| panic!("{} is not caught", control.name));
        println!("{} is caught by {} in seed {seed}", control.name, control.breaks);
    }
}

#[test]
fn a_seed_replays_event_by_event() {
    let trace = |seed| World::new(seed).traced().run().trace;
    assert!(trace(3).len() > 50, "a trace tells what happened");
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3), trace(4));
}

#[test]
fn a_cluster_of_forty_heals_and_suspects_nobody_who_works() {
    let scale = World::measure(1, 40);
    assert_eq!(scale.false_suspicions, 0);
    assert!(scale.healed_ms.is_some(), "{scale:?}");
    // A ping and a pong a second, and some for those who were silent: far from all to all.
    let per_node = scale.messages * 1000 / scale.quiet_ms / 40;
    assert!((2..=40).contains(&per_node), "{per_node} messages per node and second");
}
