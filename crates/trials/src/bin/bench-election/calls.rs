//! What single calls cost: the check, acquiring, renewing.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::Tenure;
use testkit::RedisServer;
use tokio::runtime::Runtime;
use trials::clock;
use trials::stats::Samples;

use crate::Result;
use crate::polling::Poller;
use crate::report::Report;

const ROUNDS: usize = 500;
const CHECKS: u32 = 2_000_000;
const TTL: Duration = Duration::from_secs(10);

pub(crate) fn measure(runtime: &Runtime, report: &mut Report) -> Result {
    let server = RedisServer::start();
    let url = server.url();
    let ours = runtime.block_on(ours(&url))?;
    let theirs = runtime.block_on(theirs(&url))?;
    let flag = AtomicBool::new(true);
    let polled = best_of_five(|| flag.load(Ordering::Relaxed));
    report.aim(
        "`is_leader()`",
        (ours.check, format!("{:.0} ns, no I/O", ours.check)),
        format!("{polled:.0} ns, a flag that time does not bound"),
        50.0,
        "ns",
    );
    let millis = |samples: &Samples| samples.percentile(99.0).as_secs_f64() * 1e3;
    let acquire = (millis(&ours.acquire), ours.acquire.to_string());
    report.aim("acquire, p99", acquire, theirs.acquire.to_string(), 10.0, "ms");
    let renew = (millis(&ours.renew), ours.renew.to_string());
    report.aim("renew, p99", renew, theirs.renew.to_string(), 5.0, "ms");
    Ok(())
}

struct Calls {
    check: f64,
    acquire: Samples,
    renew: Samples,
}

async fn ours(url: &str) -> Result<Calls> {
    let tenure = Tenure::builder().store(url).fresh_store(true).ttl(TTL).connect().await?;
    let mut calls = Calls { check: 0.0, acquire: Samples::default(), renew: Samples::default() };
    for round in 0..ROUNDS {
        let asked_at = clock::now();
        let term = tenure.try_acquire(&format!("call-{round}")).await?.ok_or("not granted")?;
        calls.acquire.add(clock::now().since(asked_at));
        let asked_at = clock::now();
        if !term.renew().await {
            return Err("not renewed".into());
        }
        calls.renew.add(clock::now().since(asked_at));
    }
    let election = tenure.election("check").start().await?;
    let _term = election.wait_for_leadership().await?;
    calls.check = best_of_five(|| election.is_leader());
    Ok(calls)
}

async fn theirs(url: &str) -> Result<Calls> {
    let mut calls = Calls { check: 0.0, acquire: Samples::default(), renew: Samples::default() };
    let poller = Poller::connect(url, "polled", "poller", TTL).await?;
    for round in 0..ROUNDS {
        let mut poller = poller.beside(format!("polled-{round}"));
        let asked_at = clock::now();
        poller.acquire().await?;
        calls.acquire.add(clock::now().since(asked_at));
        let asked_at = clock::now();
        poller.renew().await?;
        calls.renew.add(clock::now().since(asked_at));
    }
    Ok(calls)
}

/// Nanoseconds per call, in the quietest of five rounds.
fn best_of_five(mut check: impl FnMut() -> bool) -> f64 {
    let mut round = || {
        let began_at = clock::now();
        for _ in 0..CHECKS {
            black_box(check());
        }
        clock::now().since(began_at).as_nanos() as f64 / f64::from(CHECKS)
    };
    (0..5).map(|_| round()).fold(f64::INFINITY, f64::min)
}
