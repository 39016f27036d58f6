//! Many seeds on a few threads. Which seed is found does not depend on how many.

use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use store_simulator::replication::{Control, Outcome, Rule, Violation, World};

/// Seeds taken at once by a thread.
const CHUNK: u64 = 16;

/// What the worlds have shown.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) seeds: u64,
    pub(crate) writes: u64,
    pub(crate) full_syncs: u64,
    pub(crate) partial_syncs: u64,
    pub(crate) waits: u64,
    pub(crate) violations: u64,
    pub(crate) first: Option<(u64, Violation)>,
}

impl Found {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.writes += outcome.writes;
        self.full_syncs += outcome.full_syncs;
        self.partial_syncs += outcome.partial_syncs;
        self.waits += outcome.waits;
        let Some(violation) = outcome.violation else { return };
        self.violations += 1;
        if self.first.as_ref().is_none_or(|(first, _)| seed < *first) {
            self.first = Some((seed, violation));
        }
    }
}

/// All seeds below `seeds`; with a control, until it is caught.
pub(crate) fn sweep(seeds: u64, jobs: usize, control: Option<&Control>) -> Found {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Found::default());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let start = next.fetch_add(CHUNK, Ordering::Relaxed);
                    let is_caught = |found: &Found| control.is_some() && found.first.is_some();
                    let is_over = is_caught(&found.lock().expect("no thread panics with this"));
                    if start >= seeds || is_over {
                        return;
                    }
                    for seed in start..(start + CHUNK).min(seeds) {
                        let outcome = run(seed, control);
                        found.lock().expect("no thread panics with this").add(seed, outcome);
                    }
                }
            });
        }
    });
    found.into_inner().expect("no thread panics with this")
}

/// A panic is a finding like any other: its seed must come out.
fn run(seed: u64, control: Option<&Control>) -> Outcome {
    let world = || match control {
        Some(control) => World::flawed(seed, control.flaw, control.breaks).run(),
        None => World::new(seed).run(),
    };
    panic::catch_unwind(world).unwrap_or_else(|_| Outcome {
        violation: control.is_none().then(|| Violation {
            rule: Rule::R5,
            at: 0,
            what: "it panicked, see above".to_owned(),
        }),
        writes: 0,
        full_syncs: 0,
        partial_syncs: 0,
        waits: 0,
        trace: Vec::new(),
    })
}
