//! Many clients and a store that comes back.

use testkit::RedisServer;
use trials::storm::ride_out;

/// Bounded for every run; `cargo xtask bench election` does it with five hundred.
const CLIENTS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_lost_their_store_together_come_back_without_a_storm() {
    let mut server = RedisServer::start();
    let storm = ride_out(&mut server, CLIENTS).await.unwrap();
    println!("{storm:?}");
    // Two each and no more: none was dialled in vain once the store was back. Some slack, because
    // a busy machine may let a dial time out.
    let limit = CLIENTS as u64 * 3;
    assert!(storm.connections <= limit, "{storm:?}");
    assert!(storm.leader_stayed, "the lease was valid all the while: {storm:?}");
}
