//! What is broken on purpose is caught.

use simulator::{CONTROLS, Case, Mode, RivalKind, Subject, World};

const SEEDS_MAX: u64 = 5_000;
/// Seeds that caught the rarest ones when all were counted; they are tried first, to be quick.
const LIKELY: [u64; 4] = [2_570, 992, 713, 338];

#[test]
fn every_control_is_caught_by_the_promise_it_breaks() {
    for control in CONTROLS {
        let case = Case::named(control.case).unwrap();
        let is_caught = LIKELY.into_iter().chain(0..SEEDS_MAX).any(|seed| {
            let world = World::new(case, control.subject, seed, Mode::of_seed(seed));
            world.judging_only(control.breaks).run().violation.is_some()
        });
        let (name, breaks) = (control.name, control.breaks);
        assert!(is_caught, "{name}: {breaks} caught it in none of {SEEDS_MAX} {}", case.name);
    }
}

#[test]
fn controls_elect_one_leader_in_fair_weather() {
    let case = Case::named("calm").unwrap();
    for kind in [RivalKind::S0, RivalKind::S1, RivalKind::S2, RivalKind::S3b] {
        for seed in 0..50 {
            let outcome = World::new(case, Subject::Rival(kind), seed, Mode::of_seed(seed)).run();
            assert_eq!(outcome.violation, None, "{kind:?} seed {seed}: it is caught for nothing");
            assert!(outcome.terms > 0, "{kind:?} seed {seed}: nobody ever led");
        }
    }
}

#[test]
fn broken_rules_do_no_harm_where_they_do_not_matter() {
    let case = Case::named("calm").unwrap();
    for control in CONTROLS.iter().filter(|control| control.name == "no-quarantine") {
        for seed in 0..50 {
            let outcome = World::new(case, control.subject, seed, Mode::of_seed(seed)).run();
            assert_eq!(outcome.violation, None, "{} seed {seed}", control.name);
        }
    }
}
