//! What a bulkhead adds to a call that does next to nothing, with one caller and with eight.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use store_client::bulkhead::{Permits, Threads};
use trials::clock::now;
use trials::stats::Samples;

use crate::{Error, Plan, verdict};

const CALLERS: [usize; 2] = [1, 8];
const SHARES: [f64; 3] = [50.0, 90.0, 99.0];
/// What a permit may add at p50, and a thread at p99.
const PERMIT_MAX: Duration = Duration::from_micros(1);
const THREAD_MAX: Duration = Duration::from_millis(1);

/// Prints the table. Returns how many rows miss their must.
pub(crate) fn measure(plan: Plan) -> Result<usize, Error> {
    println!("| added to a call by | callers | p50 | p90 | p99 | must | reached |");
    println!("|---|---|---|---|---|---|---|");
    let mut misses = 0;
    for callers in CALLERS {
        let plain = sample(plan, callers, || Some(work()));
        let permits = Permits::new("permits", callers)?;
        let by_permits = sample(plan, callers, || permits.call(work).ok());
        let threads = Threads::builder("threads", callers).queue_max(callers).build()?;
        let by_threads = sample(plan, callers, || threads.call(work).ok());
        let rows = [("permits", by_permits, 0, PERMIT_MAX), ("threads", by_threads, 2, THREAD_MAX)];
        for (name, samples, judged, must) in rows {
            let added = SHARES
                .map(|share| samples.percentile(share).saturating_sub(plain.percentile(share)));
            let [p50, p90, p99] = added.map(micros);
            let reached = verdict(added[judged] <= must, &mut misses);
            let (share, must) = (SHARES[judged], micros(must));
            println!(
                "| {name} | {callers} | {p50} | {p90} | {p99} | p{share} ≤ {must} | {reached} |"
            );
        }
        let [p50, p90, p99] = SHARES.map(|share| micros(plain.percentile(share)));
        println!("| (the plain call itself) | {callers} | {p50} | {p90} | {p99} | | |");
    }
    Ok(misses)
}

fn work() -> u64 {
    black_box(40) + 2
}

/// How long each call took.
fn sample(plan: Plan, callers: usize, call: impl Fn() -> Option<u64> + Sync) -> Samples {
    let of_one = || {
        let mut taken = Vec::with_capacity(plan.calls);
        for _ in 0..plan.calls {
            let began_at = now();
            let answer = black_box(call());
            taken.push(now().since(began_at));
            assert_eq!(answer, Some(42), "there is a place for every caller");
        }
        taken
    };
    let mut samples = Samples::default();
    thread::scope(|scope| {
        let running: Vec<_> = (0..callers).map(|_| scope.spawn(of_one)).collect();
        for caller in running {
            let taken = caller.join().expect("a caller does not panic");
            taken.into_iter().for_each(|one| samples.add(one));
        }
    });
    samples
}

fn micros(duration: Duration) -> String {
    format!("{:.2} µs", duration.as_secs_f64() * 1e6)
}
