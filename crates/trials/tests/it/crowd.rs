//! Many candidates and one release: one winner, few requests.

use std::time::Duration;

use futures_util::future::join_all;
use tenure::{Election, EventKind, Tenure};
use testkit::proxy::{Proxy, Rule};
use testkit::{GENEROUS, RedisServer, wait_until};

const CANDIDATES: usize = 200;
/// How many join at a time.
const BATCH: usize = 20;
/// What the network adds on each way.
const DELAY: Duration = Duration::from_millis(20);
const TTL: Duration = Duration::from_secs(5);

#[tokio::test]
async fn two_hundred_candidates_and_a_release_make_one_winner_and_few_tries() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    // Head starts are multiples of the round trip. On loopback one is so short that two hundred
    // threads of one process cannot all be woken within it, and chance would decide who is first.
    proxy.set_rules(Rule::Delay(DELAY));
    let url = server.url_at(proxy.port());
    let mut elections = Vec::new();
    for batch in 0..CANDIDATES / BATCH {
        // In no order of rank, as a fleet starts.
        let ranks = (0..BATCH).map(|index| (batch * BATCH + index) * 83 % CANDIDATES);
        elections.extend(join_all(ranks.map(|rank| join(&url, rank))).await);
    }
    wait_until("everyone to know of everyone", GENEROUS * 3, || {
        elections.iter().all(|election| election.status().seen_members.len() == CANDIDATES)
    });
    let first_leader = elections.iter().position(Election::is_leader).unwrap();
    let tries_before = tries_at_rest(&elections).await;

    elections[first_leader].stop().await;
    wait_until("a new leader", GENEROUS, || elections.iter().any(Election::is_leader));
    // Whoever would try as well does so within the longest head start.
    tokio::time::sleep(TTL / 3).await;

    let gone = elections[first_leader].id().clone();
    let leaders: Vec<_> = elections.iter().filter(|election| election.is_leader()).collect();
    assert_eq!(leaders.len(), 1, "one winner");
    let tries = tries(&elections) - tries_before;
    println!("tries after a release with {CANDIDATES} candidates: {tries}");
    assert!(tries <= 5, "{tries} tries");
    // Equal priorities: the lowest id of those who are left.
    let first = elections.iter().map(Election::id).filter(|id| **id != gone).min();
    assert_eq!(Some(leaders[0].id()), first);
}

/// The tries when nobody is about to look: standbys look together, when a lease they saw might have
/// ended, and those looks have nothing to do with a release.
async fn tries_at_rest(elections: &[Election]) -> u64 {
    loop {
        let before = tries(elections);
        tokio::time::sleep(TTL / 10).await;
        if tries(elections) == before {
            return before;
        }
    }
}

/// Attempts that were answered, over all elections.
fn tries(elections: &[Election]) -> u64 {
    let counts = elections.iter().map(|election| election.status().counts);
    counts.map(|counts| counts.terms + counts.attempts_failed).sum()
}

async fn join(url: &str, rank: usize) -> Election {
    let name = format!("n{rank:03}");
    let tenure = Tenure::builder().instance(&name).store(url).connect().await.unwrap();
    let mut builder = tenure.election("job").ttl(TTL).fresh_store(true);
    let mut events = builder.events();
    let election = builder.start().await.unwrap();
    // Its first try is over, one way or the other, before the next ones start.
    loop {
        let event = events.next().await.unwrap().unwrap();
        if matches!(event.kind, EventKind::Acquired { .. } | EventKind::ElectionFailed { .. }) {
            return election;
        }
    }
}
