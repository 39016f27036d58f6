//! Sentinels keep their promises, broken ones are caught, and a failover can be read.

use store_simulator::sentinel::{CONTROLS, Control, Rule, World};

/// Worlds that must be quiet; a few seconds of work on a busy machine.
const SEEDS: u64 = 120;
/// Within how many worlds a broken rule must show.
const SEEDS_TO_CATCH: u64 = 10_000;

#[test]
fn sentinels_agree_on_one_primary_whatever_happens() {
    let (mut tries, mut elections, mut promotions) = (0, 0, 0);
    for seed in 0..SEEDS {
        let outcome = World::new(seed).run();
        let replay = "cargo xtask simulate store --worlds sentinel --trace --seed";
        assert_eq!(outcome.violation, None, "{replay} {seed}");
        tries += outcome.tries;
        elections += outcome.elections;
        promotions += outcome.promotions;
    }
    println!("{tries} failovers tried, {elections} leaders elected, {promotions} promoted");
    assert!(tries >= elections && elections >= promotions);
    assert!(promotions > SEEDS, "only {promotions} promotions: the worlds are too quiet");
}

fn catch(controls: impl Iterator<Item = &'static Control>) {
    for control in controls {
        let caught = (0..SEEDS_TO_CATCH).find(|seed| {
            World::flawed(*seed, control.flaw, control.breaks).run().violation.is_some()
        });
        let seed = caught.unwrap_or_else(|| panic!("{} is not caught", control.name));
        println!("{} is caught by {} in seed {seed}", control.name, control.breaks);
    }
}

#[test]
fn every_broken_rule_of_votes_is_caught() {
    catch(CONTROLS.iter().filter(|control| control.breaks == Rule::S1));
}

#[test]
fn every_other_broken_rule_of_sentinel_is_caught_by_the_one_that_it_breaks() {
    catch(CONTROLS.iter().filter(|control| control.breaks != Rule::S1));
}

#[test]
fn a_seed_of_sentinels_replays_event_by_event() {
    let trace = |seed| World::new(seed).traced().run().trace;
    assert_eq!(trace(3), trace(3));
    assert_ne!(trace(3), trace(4));
}

#[test]
fn a_trace_tells_the_steps_of_a_failover_in_order() {
    let steps = [
        "+sdown master",
        "+odown master",
        "+try-failover",
        "+vote-for-leader",
        "+elected-leader",
        "+selected-slave",
        "is told to be a primary",
        "+promoted-slave",
        "+slave-reconf-sent",
        "+failover-end",
        "+switch-master",
        "all agree",
    ];
    let has_all = |trace: &[String]| {
        let mut lines = trace.iter();
        steps.iter().all(|step| lines.any(|line| line.contains(step)))
    };
    let found = (0..SEEDS).find(|seed| has_all(&World::new(*seed).traced().run().trace));
    assert!(found.is_some(), "no world has a whole failover");
}
