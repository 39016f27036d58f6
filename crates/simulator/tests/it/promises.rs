//! What is promised holds, and what is not promised is seen to break.

use simulator::{CASES, Case, Mode, Promise, Subject, Violation, World};

const SEEDS: u64 = 200;

fn violations(case: &Case, ignores: &[Promise]) -> Vec<(u64, Violation)> {
    (0..SEEDS)
        .filter_map(|seed| {
            let world = World::new(case, Subject::Ours, seed, Mode::of_seed(seed));
            Some((seed, world.ignoring(ignores).run().violation?))
        })
        .collect()
}

#[test]
fn every_promise_holds_where_it_is_given() {
    for case in CASES {
        let found = violations(case, case.excused);
        assert!(found.is_empty(), "case {}: {:?}", case.name, found.first());
    }
}

#[test]
fn worlds_without_a_promise_are_seen_to_break_it() {
    for case in CASES.iter().filter(|case| !case.is_promised()) {
        let found = violations(case, &[]);
        let is_seen = found.iter().any(|(_, violation)| case.excused.contains(&violation.promise));
        assert!(is_seen, "case {}: nothing broke in {SEEDS} seeds", case.name);
    }
}

#[test]
fn worlds_are_lively_enough_to_mean_something() {
    for case in CASES {
        let terms: u64 = (0..50)
            .map(|seed| World::new(case, Subject::Ours, seed, Mode::Safety).run().terms)
            .sum();
        assert!(terms >= 100, "case {}: only {terms} terms in 50 worlds", case.name);
    }
}
