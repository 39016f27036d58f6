//! Many clients and a store that comes back.

use std::time::Duration;

use testkit::RedisServer;
use trials::storm::{Outage, Storm, ride_out};

/// Bounded for every run; `cargo xtask bench election` does it with five hundred.
const CLIENTS: usize = 100;
/// What a shared machine may add to anything.
const SLACK: Duration = Duration::from_secs(2);

/// Two each and no more: none is dialled in vain once the store is back, and no request is doubted
/// that is only slow. Some slack, because a busy machine may let a dial time out.
fn assert_no_storm(storm: &Storm) {
    println!("{storm:?}");
    let limit = CLIENTS as u64 * 5 / 2;
    assert!(storm.connections <= limit, "more than {limit} connections: {storm:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_lost_their_store_together_come_back_without_a_storm() {
    let mut server = RedisServer::start();
    let storm = ride_out(&mut server, CLIENTS, Outage::WITHIN_THE_LEASE).await.unwrap();
    assert_no_storm(&storm);
    assert!(storm.leader_stayed, "the lease was valid all the while: {storm:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_that_ended_all_leases_somebody_leads_within_the_bound() {
    let mut server = RedisServer::start();
    let storm = ride_out(&mut server, CLIENTS, Outage::BEYOND_THE_LEASE).await.unwrap();
    assert_no_storm(&storm);
    assert!(storm.leader_after < storm.leader_bound + SLACK, "{storm:?}");
}
