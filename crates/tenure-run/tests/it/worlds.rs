//! The promise, in many worlds; and the rules broken one at a time, each of which must be caught.

use crate::world::{Flaw, World};

/// How many worlds a test run looks at, unless told otherwise.
const SEEDS: u64 = 400;
/// On how many threads worlds run that must be quiet.
const THREADS: u64 = 4;
/// Within how many worlds a broken rule must show.
const SEEDS_TO_CATCH: u64 = 5_000;
/// Seeds that caught the rarest flaws before. A test run tries them first, to be quick.
const LIKELY: [u64; 2] = [3_140, 1_253];

#[expect(clippy::disallowed_methods, reason = "how much is tested is not part of the machine")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn no_program_acts_outside_its_term() {
    if let Some(seed) = number("RUN_SEED") {
        let world = World::new(seed, None, true).run();
        assert_eq!(world.violation, None, "seed {seed}");
        return;
    }
    let seeds = number("RUN_SEEDS").unwrap_or(SEEDS);
    let terms = terms_of(seeds);
    println!("{seeds} worlds, {terms} terms, nothing broken");
    assert!(terms > seeds, "only {terms} terms: the worlds are too quiet");
}

/// Runs so many worlds, on a few threads, and counts their terms.
#[expect(clippy::disallowed_methods, reason = "the machine owns no thread, but its worlds may")]
fn terms_of(seeds: u64) -> u64 {
    let run = move |first: u64| -> u64 {
        let worlds = (first..seeds).step_by(THREADS as usize).map(|seed| {
            let world = World::new(seed, None, false).run();
            assert_eq!(world.violation, None, "repeat it with RUN_SEED={seed}");
            world.terms
        });
        worlds.sum()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|first| scope.spawn(move || run(first))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// What a world says about a broken rule must be what that rule is for.
fn is_caught(flaw: Flaw, promises: &[&str]) {
    // A long run says how rare each is.
    let likely = LIKELY.into_iter().filter(|_| number("RUN_SEEDS").is_none());
    let caught = likely.chain(0..SEEDS_TO_CATCH).find_map(|seed| {
        let violation = World::new(seed, Some(flaw), false).run().violation?;
        promises.iter().any(|promise| violation.contains(promise)).then_some((seed, violation))
    });
    let (seed, violation) = caught.unwrap_or_else(|| panic!("{flaw:?} is not caught"));
    println!("{flaw:?} is caught by seed {seed}: {violation}");
}

const OVERLAP: [&str; 2] = ["was given back", "after the lease"];

#[test]
fn what_cannot_be_killed_and_counts_as_gone_is_caught() {
    is_caught(Flaw::RefusedIsGone, &OVERLAP[..1]);
}

#[test]
fn a_guard_that_is_trusted_blindly_is_caught() {
    is_caught(Flaw::GuardIsTrusted, &["nobody has guarded", "after the lease"]);
}

#[test]
fn a_death_at_the_gate_that_counts_as_an_end_is_caught() {
    is_caught(Flaw::DeathAtTheGateIsAnEnd, &["never ran ended by itself"]);
}

#[test]
fn a_list_from_before_the_end_of_the_leader_is_caught() {
    is_caught(Flaw::ListedTooEarly, &OVERLAP[..1]);
}

#[test]
fn a_list_that_changed_while_it_was_made_is_caught() {
    is_caught(Flaw::EndedSinceIsNoChange, &OVERLAP[..1]);
}

#[test]
fn talking_before_stopping_is_caught() {
    is_caught(Flaw::TalksFirst, &OVERLAP);
}

#[test]
fn a_wrapper_that_rests_after_a_term_is_caught() {
    is_caught(Flaw::RestsAfterATerm, &["a zombie for too long"]);
}

#[test]
fn a_silent_guard_that_counts_as_no_program_is_caught() {
    is_caught(Flaw::SilenceIsNoProgram, &["can be executed could not be"]);
}

#[test]
fn a_child_of_a_stranger_that_counts_as_the_programs_is_caught() {
    is_caught(Flaw::OnlyChildrenAreStrangers, &["which is Stranger, was killed"]);
}

#[test]
fn a_health_check_of_which_no_guard_hears_is_caught() {
    is_caught(Flaw::ChecksAreNotTold, &[OVERLAP[1], "has not heard of it"]);
}

#[test]
fn a_health_check_that_begins_while_there_is_no_guard_is_caught() {
    is_caught(Flaw::ChecksDoNotWait, &["has not heard of it"]);
}

#[test]
fn a_guard_that_is_run_too_late_and_does_not_say_so_is_caught() {
    is_caught(Flaw::LatenessIsNotSaid, &["did not say why"]);
}

#[test]
fn a_program_that_is_killed_though_it_had_ended_is_caught() {
    is_caught(Flaw::KillsBeforeLooking, &["ended by itself ended with its term"]);
}
