//! Many clients that lose their store together and find it again.

use std::time::Duration;

use redis::Connection;
use tenure::backend::Connection as Link;
use tenure::{Election, Tenure};
use tenure_redis::REDIAL_WAIT_MAX;
use testkit::RedisServer;

use crate::clock;

/// A lease, and how long the store is away: longer than the longest wait between two dials.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// How long a lease lasts.
    pub ttl: Duration,
    /// For how long the store is away.
    pub lasts: Duration,
}

impl Outage {
    /// So long a lease that a leader keeps its term through the outage.
    pub const WITHIN_THE_LEASE: Outage =
        Outage { ttl: Duration::from_secs(30), lasts: Duration::from_secs(2) };
    /// So long an outage that nobody leads any more when the store comes back.
    pub const BEYOND_THE_LEASE: Outage =
        Outage { ttl: Duration::from_secs(2), lasts: Duration::from_secs(3) };

    /// So long an outage that everybody has been silent for too long to be counted as alive, and
    /// each says anew that it is there.
    pub const BEYOND_MEMBERSHIP: Outage =
        Outage { ttl: Duration::from_secs(2), lasts: Duration::from_secs(8) };

    /// How soon after the store's return somebody must lead: P6, with the quarantine of a store
    /// that restarted.
    pub fn leader_bound(&self) -> Duration {
        self.ttl.mul_f64(1.01) + Duration::from_millis(2) + self.ttl + Duration::from_secs(1)
    }
}

/// After some seconds the waits between dials are drawn from zero to the longest, so a connection
/// is dialled at a rate of two in that time when the store comes back, and more rarely from then
/// on; as much again is chance.
const BUSIEST_PER_WAIT: f64 = 2.0 * 2.0;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Over how long the busiest stretch is counted.
const STRETCH: Duration = Duration::from_millis(100);
/// A connection for requests and one for hints.
const CONNECTIONS_EACH: u64 = 2;
/// When waiting is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the clients came back.
#[derive(Debug)]
pub struct Storm {
    /// How many clients there were.
    pub clients: usize,
    /// From the store's return until all were connected again.
    pub took: Duration,
    /// How many connections the store accepted meanwhile.
    pub connections: u64,
    /// The most it accepted per second, over a tenth of one.
    pub busiest_per_second: u64,
    /// The most it should accept, by the waits between dials; all at once would be ten per
    /// connection and second.
    pub busiest_bound: u64,
    /// From the store's return until all were connected and somebody led.
    pub leader_after: Duration,
    /// How long that may take.
    pub leader_bound: Duration,
    /// Whether whoever led before the outage led through it.
    pub leader_stayed: bool,
}

/// Whatever ends a trial.
type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Connects `count` clients that contend for one resource, takes the store away for a while with
/// all it knows kept, and watches them come back.
pub async fn ride_out(server: &mut RedisServer, count: usize, outage: Outage) -> Result<Storm> {
    let mut clients = Vec::with_capacity(count);
    let mut elections = Vec::with_capacity(count);
    for index in 0..count {
        let builder = Tenure::builder().instance(&format!("n{index:03}")).store(&server.url());
        let client = builder.ttl(outage.ttl).fresh_store(true).connect().await?;
        elections.push(client.election("storm").start().await?);
        clients.push(client);
    }
    wait_until("a leader", || leader(&elections).is_some()).await?;
    wait_until("all to be connected", || clients.iter().all(is_up)).await?;
    let led_before = leader(&elections);

    server.cli(&["SAVE"]);
    server.kill();
    tokio::time::sleep(outage.lasts).await;
    server.restart();

    let returned_at = clock::now();
    let (took, samples) = watch(server, &clients).await?;
    wait_until("a leader again", || leader(&elections).is_some()).await?;
    let leader_after = clock::now().since(returned_at);
    let last = samples.last().map_or(0, |sample| sample.1);
    Ok(Storm {
        clients: count,
        took,
        connections: last,
        busiest_per_second: busiest(&samples),
        busiest_bound: busiest_bound(count),
        leader_after,
        leader_bound: outage.leader_bound(),
        leader_stayed: led_before.is_some() && leader(&elections) == led_before,
    })
}

/// The most connections per second that clients should make.
fn busiest_bound(clients: usize) -> u64 {
    let connections = clients as f64 * CONNECTIONS_EACH as f64;
    (connections * BUSIEST_PER_WAIT / REDIAL_WAIT_MAX.as_secs_f64()) as u64
}

fn is_up(client: &Tenure) -> bool {
    client.connection() == Link::Up
}

fn leader(elections: &[Election]) -> Option<usize> {
    elections.iter().position(Election::is_leader)
}

/// How long it took, and how many connections had been accepted at which time.
async fn watch(
    server: &RedisServer,
    clients: &[Tenure],
) -> Result<(Duration, Vec<(Duration, u64)>)> {
    let began_at = clock::now();
    let mut connection = redis::Client::open(server.url())?.get_connection()?;
    let mut samples = vec![(Duration::ZERO, 0)];
    let expected = clients.len() as u64 * CONNECTIONS_EACH;
    loop {
        let at = clock::now().since(began_at);
        samples.push((at, accepted(&mut connection)?));
        let all_there = samples.last().is_some_and(|(_, count)| *count >= expected);
        if all_there && clients.iter().all(is_up) {
            return Ok((at, samples));
        }
        if at > PATIENCE {
            return Err(format!("not all were back after {at:?}: {:?}", samples.last()).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Connections that a server accepted since its start, without the one that asks.
fn accepted(connection: &mut Connection) -> Result<u64> {
    let info: String = redis::cmd("INFO").arg("stats").query(connection)?;
    let line = info.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
    let count: u64 = line.ok_or("INFO stats counts no connections")?.trim().parse()?;
    Ok(count.saturating_sub(1))
}

/// The most connections per second in any stretch.
fn busiest(samples: &[(Duration, u64)]) -> u64 {
    let mut most = 0;
    let mut first = 0;
    for (index, (at, count)) in samples.iter().enumerate() {
        while at.saturating_sub(samples[first].0) > STRETCH && first + 1 < index {
            first += 1;
        }
        let lasted = at.saturating_sub(samples[first].0).max(LOOK_EVERY);
        most = most.max(((count - samples[first].1) as f64 / lasted.as_secs_f64()) as u64);
    }
    most
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let until = clock::now() + PATIENCE;
    while !is_so() {
        if clock::now() >= until {
            return Err(format!("{what}: not after {PATIENCE:?}").into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_stretch_is_a_rate_over_a_tenth_of_a_second() {
        let millis = Duration::from_millis;
        let steady: Vec<_> = (0..100).map(|step| (millis(step * 10), step)).collect();
        assert_eq!(busiest(&steady), 100);
        let mut burst = steady;
        burst.iter_mut().skip(50).for_each(|sample| sample.1 += 90);
        assert!((900..=1_100).contains(&busiest(&burst)), "{}", busiest(&burst));
    }
}
