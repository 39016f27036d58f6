//! A seed is a world: the same one every time.

use simulator::{CONTROLS, Case, Mode, Subject, World};

fn trace(case: &str, subject: Subject, seed: u64) -> Vec<String> {
    let case = Case::named(case).expect("the test names a case");
    World::new(case, subject, seed, Mode::of_seed(seed)).traced().run().trace
}

#[test]
fn a_seed_replays_event_by_event() {
    for seed in [1, 2, 405] {
        let first = trace("mixture", Subject::Ours, seed);
        assert!(first.len() > 100, "a trace tells what happened");
        assert_eq!(first, trace("mixture", Subject::Ours, seed), "seed {seed}");
    }
    assert_ne!(trace("mixture", Subject::Ours, 1), trace("mixture", Subject::Ours, 2));
}

#[test]
fn a_trace_ends_with_the_broken_promise() {
    let control = CONTROLS.iter().find(|control| control.name == "no-quarantine").unwrap();
    let last = trace(control.case, control.subject, 0).pop().unwrap();
    assert!(last.contains("IS BROKEN"), "{last}");
}
