//! Many seeds on a few threads. What is found does not depend on how many.

use std::any::Any;
use std::io::{IsTerminal, Write};
use std::panic;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use simulator::{Case, Mode, Promise, Subject, Violation, World};

/// Seeds taken at once by a thread: enough to keep threads from waiting for each other.
const CHUNK: u64 = 16;

/// When to stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// All seeds have run.
    Done,
    /// The first seed that breaks a promise is known.
    Broken,
}

/// What the worlds of one case have shown.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) seeds: u64,
    pub(crate) terms: u64,
    pub(crate) violations: u64,
    /// How often each promise was the first to break, and in which seed first.
    pub(crate) by_promise: Vec<(Promise, u64, u64)>,
    pub(crate) first: Option<(u64, Violation)>,
}

impl Found {
    fn add(&mut self, seed: u64, terms: u64, violation: Option<Violation>) {
        self.seeds += 1;
        self.terms += terms;
        let Some(violation) = violation else { return };
        self.violations += 1;
        match self.by_promise.iter_mut().find(|(promise, ..)| *promise == violation.promise) {
            Some((_, count, first)) => {
                *count += 1;
                *first = seed.min(*first);
            }
            None => self.by_promise.push((violation.promise, 1, seed)),
        }
        if self.first.as_ref().is_none_or(|(first, _)| seed < *first) {
            self.first = Some((seed, violation));
        }
    }
}

/// What is run and looked at.
#[derive(Clone, Copy)]
pub(crate) struct Sweep {
    pub(crate) case: &'static Case,
    pub(crate) subject: Subject,
    pub(crate) ignores: &'static [Promise],
    /// The one promise to look at.
    pub(crate) only: Option<Promise>,
    pub(crate) seeds: u64,
    pub(crate) until: Until,
}

pub(crate) fn sweep(plan: Sweep, jobs: usize) -> Found {
    panic::set_hook(Box::new(|_| {})); // The row tells it, once.
    let next = AtomicU64::new(0);
    let found = Mutex::new(Found::default());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let start = next.fetch_add(CHUNK, Ordering::Relaxed);
                    if start >= plan.seeds {
                        break;
                    }
                    run_chunk(plan, start..(start + CHUNK).min(plan.seeds), &found);
                    let found = found.lock().expect("no thread panics while it holds this");
                    if plan.until == Until::Broken && found.first.is_some() {
                        break;
                    }
                    show_progress(plan.case.name, found.seeds, plan.seeds);
                }
            });
        }
    });
    drop(panic::take_hook());
    let mut found = found.into_inner().expect("no thread panics while it holds this");
    found.by_promise.sort();
    found
}

fn run_chunk(plan: Sweep, seeds: std::ops::Range<u64>, found: &Mutex<Found>) {
    let Sweep { case, subject, ignores, only, .. } = plan;
    for seed in seeds {
        // A panic is a finding like any other: its seed must come out.
        let run = || {
            let world = World::new(case, subject, seed, Mode::of_seed(seed)).ignoring(ignores);
            match only {
                Some(promise) => world.judging_only(promise).run(),
                None => world.run(),
            }
        };
        let (terms, violation) = match panic::catch_unwind(run) {
            Ok(outcome) => (outcome.terms, outcome.violation),
            Err(_) if only.is_some() => (0, None),
            Err(cause) => (0, Some(panicked(cause.as_ref()))),
        };
        let mut found = found.lock().expect("no thread panics while it holds this");
        found.add(seed, terms, violation);
    }
}

fn panicked(cause: &(dyn Any + Send)) -> Violation {
    let what = cause.downcast_ref::<String>().map(String::as_str);
    let what = what.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("panic");
    Violation { promise: Promise::Sound, at: 0, what: what.to_owned() }
}

/// Talk, for a person who waits.
fn show_progress(name: &str, done: u64, all: u64) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() && (done / CHUNK).is_multiple_of(16) {
        let _ = write!(stderr, "\r{name}: {done} of {all}   \r");
    }
}
