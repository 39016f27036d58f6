//! How many requests a small fleet makes while nothing happens.

use std::time::Duration;

use tenure::Tenure;
use testkit::RedisServer;
use tokio::runtime::Runtime;
use trials::clock;

use crate::polling::Poller;
use crate::report::Report;
use crate::{Result, Scale};

const INSTANCES: usize = 10;
const TTL: Duration = Duration::from_secs(30);

pub(crate) fn measure(runtime: &Runtime, scale: &Scale, report: &mut Report) -> Result {
    let lasts = Duration::from_secs(60) * scale.minutes as u32;
    eprintln!("counting requests of {INSTANCES} instances at a lease of {TTL:?} for {lasts:?}…");
    // Two servers, so that each side's requests are counted without looking at their words.
    let (our_server, their_server) = (RedisServer::start(), RedisServer::start());
    let (ours, theirs) = runtime.block_on(async {
        let mut clients = Vec::new();
        for index in 0..INSTANCES {
            let name = format!("n{index}");
            let client = Tenure::builder().instance(&name).store(&our_server.url()).ttl(TTL);
            let tenure = client.fresh_store(true).connect().await?;
            clients.push(tenure.election("quiet").start().await?);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Connections and first tries are set-up.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (our_monitor, their_monitor) = (our_server.monitor(), their_server.monitor());
        let until = clock::now() + lasts;
        let mut pollers = Vec::new();
        for index in 0..INSTANCES {
            let id = format!("p{index}");
            let poller = Poller::connect(&their_server.url(), "polled", &id, TTL).await?;
            pollers.push(poller.take_part(Duration::from_millis(300) * index as u32, until));
        }
        their_monitor.clear();
        our_monitor.clear();
        for result in futures_util::future::join_all(pollers).await {
            result?;
        }
        let counts = (our_monitor.requests().len(), their_monitor.requests().len());
        Ok::<_, Box<dyn std::error::Error>>(counts)
    })?;
    let per_minute = |count: usize| count as f64 * 60.0 / lasts.as_secs_f64();
    report.aim(
        "requests per minute, 10 instances, ttl 30 s",
        (per_minute(ours), format!("{:.0}", per_minute(ours))),
        format!("{:.0}", per_minute(theirs)),
        40.0,
        "",
    );
    Ok(())
}
