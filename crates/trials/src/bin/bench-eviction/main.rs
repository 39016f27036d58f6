//! The hit rate of every eviction policy: our store beside redis-server, asked for the same keys
//! at the same time.
//!
//! `cargo xtask bench eviction [--quick]` builds and runs it.

use store_server::Server;
use testkit::RedisServer;
use trials::cache::{Cache, POLICIES, Plan, run};

const FULL: Plan = Plan {
    held: 20_000,
    universe: 200_000,
    value_len: 100,
    per_second: 10_000,
    warm_seconds: 40,
    seconds: 50,
};
const QUICK: Plan = Plan {
    held: 4_000,
    universe: 40_000,
    value_len: 200,
    per_second: 4_000,
    warm_seconds: 10,
    seconds: 15,
};
/// How much lower than redis-server's a hit rate may be, in percentage points.
const LOWER_MAX: f64 = 1.0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = match std::env::args().nth(1).as_deref() {
        None => FULL,
        Some("--quick") => QUICK,
        Some(other) => {
            return Err(format!("unknown argument {other}: only --quick is known").into());
        }
    };
    let seed = testkit::seed();
    let (mut servers, mut caches) = (Vec::new(), Vec::new());
    for policy in POLICIES {
        let ours = Server::builder().any_port().seed(seed).start()?;
        let theirs = RedisServer::start();
        let port = ours.port().ok_or("our server listens on a port")?;
        caches.push(Cache::new(port, policy, plan)?);
        caches.push(Cache::new(theirs.port(), policy, plan)?);
        servers.push((ours, theirs));
    }
    let seconds = plan.warm_seconds + plan.seconds;
    eprintln!("{} servers, {} keys in each, {seconds} seconds", caches.len(), plan.held);
    run(plan, seed, &mut caches)?;
    print(&plan, &mut caches)
}

fn print(plan: &Plan, caches: &mut [Cache]) -> Result<(), Box<dyn std::error::Error>> {
    println!("| policy | Tenure: hits | redis-server: hits | keys held by each | within a point |");
    println!("|---|---|---|---|---|");
    for (policy, pair) in POLICIES.iter().zip(caches.chunks_mut(2)) {
        let (ours, theirs) = (pair[0].hit_rate(), pair[1].hit_rate());
        let held = (pair[0].held()?, pair[1].held()?);
        let verdict = if ours >= theirs - LOWER_MAX { "yes" } else { "**no**" };
        println!(
            "| `{policy}` | {ours:.1} % | {theirs:.1} % | {} and {} | {verdict} |",
            held.0, held.1
        );
    }
    eprintln!("of {} keys, asked for {} times a second", plan.universe, plan.per_second);
    Ok(())
}
