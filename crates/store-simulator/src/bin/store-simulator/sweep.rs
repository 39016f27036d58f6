//! Many seeds on a few threads. Which seed is found does not depend on how many.

use std::ops::Range;
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::worlds::{Broken, Run, Worlds};

/// Seeds taken at once by a thread.
const CHUNK: u64 = 16;

/// What the worlds have shown.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) seeds: u64,
    pub(crate) counts: Vec<(&'static str, u64)>,
    pub(crate) violations: u64,
    pub(crate) first: Option<(u64, Broken)>,
    /// All seeds that broke a rule, up to a page of them.
    pub(crate) seeds_broken: Vec<u64>,
}

const SEEDS_TOLD_MAX: usize = 50;

impl Found {
    fn add(&mut self, seed: u64, run: Run) {
        self.seeds += 1;
        if self.counts.is_empty() {
            self.counts = run.counts;
        } else {
            for (sum, (_, count)) in self.counts.iter_mut().zip(run.counts) {
                sum.1 += count;
            }
        }
        let Some(broken) = run.broken else { return };
        self.violations += 1;
        if self.seeds_broken.len() < SEEDS_TOLD_MAX {
            self.seeds_broken.push(seed);
        }
        if self.first.as_ref().is_none_or(|(first, _)| seed < *first) {
            self.first = Some((seed, broken));
        }
    }
}

/// All these seeds; with a flaw, until it is caught.
pub(crate) fn sweep(worlds: &Worlds, seeds: Range<u64>, jobs: usize, flaw: Option<usize>) -> Found {
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new(Found::default());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let start = next.fetch_add(CHUNK, Ordering::Relaxed);
                    let is_caught = |found: &Found| flaw.is_some() && found.first.is_some();
                    let is_over = is_caught(&found.lock().expect("no thread panics with this"));
                    if start >= seeds.end || is_over {
                        return;
                    }
                    for seed in start..(start + CHUNK).min(seeds.end) {
                        let run = run(worlds, seed, flaw);
                        found.lock().expect("no thread panics with this").add(seed, run);
                    }
                }
            });
        }
    });
    found.into_inner().expect("no thread panics with this")
}

/// A panic is a finding like any other: its seed must come out.
fn run(worlds: &Worlds, seed: u64, flaw: Option<usize>) -> Run {
    let world = || (worlds.run)(seed, flaw, false);
    panic::catch_unwind(world).unwrap_or_else(|_| Run {
        broken: flaw.is_none().then(|| Broken {
            rule: "all".to_owned(),
            at: 0,
            what: "it panicked, see above".to_owned(),
        }),
        ..Run::default()
    })
}
