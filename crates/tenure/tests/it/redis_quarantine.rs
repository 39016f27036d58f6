//! Who looks at an election in quarantine is told why, and finds it in the history.

use std::time::Duration;

use tenure::{Election, Leadership, Tenure, Vacancy};
use tenure_core::protocol::HistoryKind;
use testkit::{GENEROUS, RedisServer, wait_until};

const META: &str = "{tenure:job}:meta";
/// A lease that a busy machine renews in time.
const TTL: Duration = Duration::from_secs(2);

async fn contender(server: &RedisServer, name: &str) -> (Tenure, Election) {
    let tenure = Tenure::builder().instance(name).store(&server.url()).connect().await.unwrap();
    let election = tenure.election("job").ttl(TTL).fresh_store(true).start().await.unwrap();
    (tenure, election)
}

/// The quarantine that there is, or comes while somebody looks.
async fn quarantine_seen(tenure: &Tenure) -> String {
    for _ in 0..500 {
        let leadership = tenure.observe("job").unwrap().leader().await.unwrap();
        if let Leadership::Vacant(Vacancy::Quarantine { why, .. }) = leadership {
            return why;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("there never was a quarantine");
}

async fn quarantines_told(tenure: &Tenure) -> Vec<String> {
    let entries = tenure.observe("job").unwrap().history(100).await.unwrap();
    let told = entries.into_iter().filter_map(|entry| match entry.what {
        HistoryKind::Quarantined { detail } => Some(detail),
        _ => None,
    });
    told.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_life_that_a_renewal_noticed_first_stands_in_the_history() {
    let server = RedisServer::start();
    let (_ada, leader) = contender(&server, "ada").await;
    leader.wait_for_leadership_within(GENEROUS).await.unwrap();
    let (bob, standby) = contender(&server, "bob").await;
    // As after a fail-over: the record is there, written in the life of another server.
    server.cli(&["HSET", META, "incarnation", "another:life"]);
    wait_until("a renewal that notices", GENEROUS, || {
        server.cli(&["HGET", META, "incarnation"]) != "another:life"
    });
    assert!(leader.is_leader(), "whoever holds its term renews all the same");
    leader.stop().await;

    let why = quarantine_seen(&bob).await;
    assert!(why.contains("restarted or failed over"), "{why}");
    assert_eq!(quarantines_told(&bob).await, std::slice::from_ref(&why));
    standby.wait_for_leadership_within(GENEROUS).await.unwrap();
    assert_eq!(quarantines_told(&bob).await, [why], "once");
}

#[tokio::test]
async fn whoever_clears_is_named_to_those_who_look() {
    let server = RedisServer::start();
    let (_ada, leader) = contender(&server, "ada").await;
    leader.wait_for_leadership_within(GENEROUS).await.unwrap();
    let operator = Tenure::builder().instance("olga").store(&server.url()).connect().await.unwrap();
    operator.observe("job").unwrap().force_clear("a drill").await.unwrap();
    let why = quarantine_seen(&operator).await;
    assert!(why.contains("cleared by olga_") && why.ends_with(": a drill"), "{why}");
    assert_eq!(quarantines_told(&operator).await, [""; 0], "the term's end tells of it");
}
