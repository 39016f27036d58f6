//! A hundred callers of two dependencies, one of which never answers: how soon they are refused,
//! and what the other one feels of it.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use store_client::bulkhead::{CallError, Threads};
use trials::clock::now;
use trials::stats::Samples;

use crate::{Error, Plan, verdict};

const CALLERS: usize = 100;
/// How long a caller does other things between its calls.
const PAUSE: Duration = Duration::from_millis(20);
/// What a call of the healthy dependency takes.
const HEALTHY: Duration = Duration::from_millis(1);
const STUCK_THREADS: usize = 8;
/// Longer than the measurement, so that the places stay taken.
const FOR_EVER: Duration = Duration::from_secs(3600);
const REFUSAL_MAX: Duration = Duration::from_millis(1);
/// How much slower the healthy one may become.
const SLOWER_MAX: f64 = 2.0;

/// Prints the table. Returns how many rows miss their must.
pub(crate) fn measure(plan: Plan) -> Result<usize, Error> {
    let healthy = Threads::builder("healthy", 16).queue_max(CALLERS).build()?;
    let before = run(plan, &healthy, None).healthy;
    let (stuck, answers) = get_stuck()?;
    let beside = run(plan, &healthy, Some(&stuck));
    drop(answers);
    let mut misses = 0;
    println!("| {CALLERS} callers | measured | must | reached |\n|---|---|---|---|");
    let refused = beside.refused.percentile(99.0);
    let reached = verdict(!beside.refused.is_empty() && refused <= REFUSAL_MAX, &mut misses);
    println!("| a refusal by a stuck dependency | {} | p99 ≤ 1 ms | {reached} |", beside.refused);
    println!("| the other dependency, both healthy | {before} | | |");
    let slower =
        beside.healthy.percentile(99.0).as_secs_f64() / before.percentile(99.0).as_secs_f64();
    let reached = verdict(slower <= SLOWER_MAX, &mut misses);
    println!("| the other dependency, one stuck | {} | p99 ≤ 2 × | {reached} |", beside.healthy);
    Ok(misses)
}

/// A dependency all of whose places are taken by calls that hang until the senders are dropped.
fn get_stuck() -> Result<(Threads, Vec<Sender<()>>), Error> {
    let stuck = Threads::builder("stuck", STUCK_THREADS).queue_max(STUCK_THREADS).build()?;
    let mut answers = Vec::new();
    for _ in 0..2 * STUCK_THREADS {
        let (answer, answered) = channel::<()>();
        answers.push(answer);
        let stuck = stuck.clone();
        thread::spawn(move || stuck.call_within(FOR_EVER, move || answered.recv().is_ok()));
    }
    while stuck.counts().running + stuck.counts().waiting < 2 * STUCK_THREADS {
        thread::sleep(HEALTHY);
    }
    Ok((stuck, answers))
}

#[derive(Default)]
struct Measured {
    healthy: Samples,
    refused: Samples,
}

fn run(plan: Plan, healthy: &Threads, stuck: Option<&Threads>) -> Measured {
    let mut measured = Measured::default();
    thread::scope(|scope| {
        let one = |_| scope.spawn(|| call(plan, healthy, stuck));
        let running: Vec<_> = (0..CALLERS).map(one).collect();
        for caller in running {
            let (healthy, refused) = caller.join().expect("a caller does not panic");
            healthy.into_iter().for_each(|one| measured.healthy.add(one));
            refused.into_iter().for_each(|one| measured.refused.add(one));
        }
    });
    measured
}

/// One caller: how long its calls and its refusals took.
fn call(plan: Plan, healthy: &Threads, stuck: Option<&Threads>) -> (Vec<Duration>, Vec<Duration>) {
    let (mut taken, mut refused) = (Vec::new(), Vec::new());
    for _ in 0..plan.paced_calls {
        if let Some(stuck) = stuck {
            let began_at = now();
            let answer = stuck.call(|| ());
            refused.push(now().since(began_at));
            assert!(matches!(answer, Err(CallError::Refused { .. })), "{answer:?}");
        }
        let began_at = now();
        let answer = healthy.call(|| thread::sleep(HEALTHY));
        taken.push(now().since(began_at));
        assert_eq!(answer, Ok(()), "there is a place for every caller");
        thread::sleep(PAUSE);
    }
    (taken, refused)
}
