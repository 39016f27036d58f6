//! A short run of `cargo xtask bench eviction`, with bounds that noise does not reach.

use store_server::Server;
use testkit::RedisServer;
use trials::cache::{Cache, Plan, run};

const PLAN: Plan = Plan {
    held: 1_000,
    universe: 10_000,
    value_len: 400,
    per_second: 1_500,
    warm_seconds: 4,
    seconds: 5,
};
/// Percentage points: the short run has few keys, and connections weigh as much as many of them.
const LOWER_MAX: f64 = 6.0;

/// The control is the random policy: it must lose.
#[test]
fn hit_rates_are_about_those_of_redis_and_lfu_beats_chance() {
    const POLICIES: [&str; 3] = ["allkeys-lfu", "allkeys-lru", "allkeys-random"];
    let (mut servers, mut caches) = (Vec::new(), Vec::new());
    for policy in POLICIES {
        let (ours, theirs) = (Server::builder().any_port().start().unwrap(), RedisServer::start());
        caches.push(Cache::new(ours.port().unwrap(), policy, PLAN).unwrap());
        caches.push(Cache::new(theirs.port(), policy, PLAN).unwrap());
        servers.push((ours, theirs));
    }
    run(PLAN, testkit::seed(), &mut caches).unwrap();
    let rates: Vec<f64> = caches.iter().map(Cache::hit_rate).collect();
    println!("ours and theirs by policy: {rates:.1?}");
    for (policy, pair) in POLICIES.iter().zip(rates.chunks(2)) {
        assert!(pair[0] > pair[1] - LOWER_MAX, "{policy}: {pair:.1?}");
    }
    assert!(rates[0] > rates[4] + 2.0, "LFU {:.1} %, random {:.1} %", rates[0], rates[4]);
}
