//! Who follows whom: priorities, hand-overs that are refused, successors that die on the way.

use std::time::Duration;

use tenure::{Error, Failback, Tenure};
use testkit::proxy::{Proxy, Rule};
use testkit::{GENEROUS, RedisServer, wait_until};
use trials::clock;

use crate::instance::Instance;
use crate::player::{Player, join, start};

/// So long that whoever waited for a lease to run out would be found out.
const LONG: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_secs(2);
/// What a shared machine may add to anything.
const SLACK: Duration = Duration::from_secs(2);

async fn join_ranked(url: &str, name: &str, priority: i32) -> Player {
    let tenure = Tenure::builder().instance(name).store(url).connect().await.unwrap();
    // Standbys hear of each other with their own heartbeats, every other lease.
    start(tenure.election("job").ttl(TTL).fresh_store(true).priority(priority)).await
}

/// Waits until `count` members are in the store.
fn wait_for_members(server: &RedisServer, count: usize) {
    wait_until("all members to be there", GENEROUS, || {
        server.cli(&["HLEN", "{tenure:job}:members"]) == count.to_string()
    });
}

#[tokio::test]
async fn of_those_who_wait_the_highest_priority_goes_first() {
    let server = RedisServer::start();
    // Head starts are multiples of the round trip. A long one drowns what a busy machine adds.
    let proxy = Proxy::in_front_of(&server);
    proxy.set_rules(Rule::Delay(Duration::from_millis(30)));
    let url = server.url_at(proxy.port());
    let mut leader = join_ranked(&url, "leader", 0).await;
    leader.leads().await;
    // The names would decide otherwise.
    let mut low = join_ranked(&url, "a-low", 1).await;
    let mut high = join_ranked(&url, "c-high", 9).await;
    let mut middle = join_ranked(&url, "b-middle", 5).await;
    for standby in [&mut low, &mut high, &mut middle] {
        standby.fails("held").await;
        wait_until("everyone to know of everyone", GENEROUS, || {
            standby.election.status().seen_members.len() == 4
        });
    }
    while leader.events.try_next().is_some() {}
    // Standbys look when a lease that they saw would have ended, which is when a later one is
    // renewed. Half-way between two renewals none of them is about to look anyway.
    leader.renews().await;
    tokio::time::sleep(TTL / 6).await;

    leader.election.stop().await;
    high.leads().await;
    let named = high.election.hand_over_to_best().await.unwrap();
    assert_eq!(named, *middle.election.id(), "the best of those who are left");
    middle.leads().await;
    assert!(!low.election.is_leader() && !high.election.is_leader());
    let terms = |player: &Player| player.election.status().counts.terms;
    assert_eq!((terms(&high), terms(&middle), terms(&low)), (1, 1, 0));
}

#[tokio::test]
async fn a_leader_gives_way_to_a_higher_priority_only_when_it_was_told_to() {
    let server = RedisServer::start();
    let play = async |name: &str, priority: i32, failback: Option<Failback>| {
        let tenure = Tenure::builder().instance(name).store(&server.url()).connect().await.unwrap();
        let mut builder = tenure.election("job").ttl(TTL / 2).fresh_store(true).priority(priority);
        if let Some(failback) = failback {
            builder = builder.failback(failback);
        }
        start(builder).await
    };
    let mut stubborn = play("stubborn", 1, None).await;
    let first = stubborn.leads().await;
    let mut preferred = play("preferred", 9, None).await;
    preferred.fails("held").await;
    for _ in 0..6 {
        stubborn.renews().await;
    }
    assert!(stubborn.election.is_leader() && !preferred.election.is_leader(), "a standby stole");
    stubborn.election.stop().await;
    assert!(preferred.leads().await > first);
    preferred.election.stop().await;

    let delay = Duration::from_millis(1200);
    let failback = Failback { delay, min_tenure: Duration::from_millis(300) };
    let mut polite = play("polite", 1, Some(failback)).await;
    let second = polite.leads().await;
    let ready_at = clock::now();
    let mut preferred = play("preferred", 9, None).await;
    assert_eq!(polite.loses().await.code(), "failback");
    assert!(preferred.leads().await > second);
    assert!(clock::now().since(ready_at) >= delay, "the preferred one was not ready for long");
}

#[tokio::test]
async fn a_resigned_leader_lets_its_rival_go_first_and_stays_a_candidate() {
    let server = RedisServer::start();
    let mut ada = join(&server.url(), "ada", LONG).await;
    let first = ada.leads().await;
    let mut bob = join(&server.url(), "bob", LONG).await;
    bob.fails("held").await;

    ada.election.resign().await;
    let second = bob.leads().await;
    assert!(second > first);
    bob.election.stop().await;
    assert!(ada.leads().await > second, "it is a candidate again");
}

#[tokio::test]
async fn a_hand_over_that_cannot_succeed_is_refused_with_its_reason_and_changes_nothing() {
    let server = RedisServer::start();
    let url = server.url();
    let play = async |name: &str, version: &str, ready: bool| {
        let tenure = Tenure::builder().instance(name).store(&url).connect().await.unwrap();
        let builder = tenure.election("job").ttl(LONG).fresh_store(true).version(version);
        start(builder.ready(ready)).await
    };
    let mut leader = play("leader", "2.0", true).await;
    leader.leads().await;
    let _unready = play("unready", "2.0", false).await;
    let paused = play("paused", "2.0", true).await;
    paused.election.stand_back();
    let _old = play("old", "1.9", true).await;
    let _twins = [play("twin", "2.0", true).await, play("twin", "2.0", true).await];
    let mut left = play("left", "2.0", true).await;
    left.fails("held").await;
    left.election.stop().await;
    wait_for_members(&server, 6);
    let record_of_paused = ["HGET", "{tenure:job}:members", paused.election.id().as_str()];
    wait_until("the pause to be known", GENEROUS, || server.cli(&record_of_paused).contains("r=0"));

    let operator = Tenure::connect(&url).await.unwrap();
    let cases = [
        ("nobody", "is not a member"),
        ("left", "is not a member"),
        ("unready", "it is not ready"),
        ("paused", "it is not ready"),
        ("old", "it runs an older version"),
        ("twin", "give the whole id"),
        ("leader", "leads already"),
    ];
    for (to, why) in cases {
        let error = leader.election.hand_over(to).await.unwrap_err();
        assert!(matches!(&error, Error::Refused { why: words } if words.contains(why)), "{error}");
        assert!(error.to_string().contains(to), "{error} does not name {to}");
        let asked =
            format!("{:?}", operator.observe("job").unwrap().ask_to_hand_over(to).await.unwrap());
        assert!(asked.starts_with("Refused") && asked.contains(why), "{to}: {asked}");
        assert!(leader.election.is_leader(), "{to}: the refusal cost the leadership");
    }
    assert_eq!(leader.election.status().counts.terms, 1);
    assert_eq!(leader.election.status().counts.ends, 0);
}

#[tokio::test]
async fn a_successor_that_dies_on_the_way_holds_others_up_for_the_claim_and_no_longer() {
    let server = RedisServer::start();
    let mut leader = join(&server.url(), "leader", LONG).await;
    let first = leader.leads().await;
    let mut doomed = Instance::start(&server.url(), "doomed", LONG);
    let mut third = join(&server.url(), "third", LONG).await;
    third.fails("held").await;
    wait_for_members(&server, 3);

    // It counts as alive: nobody waits three leases before a hand-over.
    doomed.process.kill();
    let election = leader.election.clone();
    let handing = tokio::spawn(async move { election.hand_over("doomed").await });
    while server.cli(&["GET", "tenure:job"]) != doomed.id {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!leader.election.is_leader());
    let reserved_at = clock::now();
    let claim: i64 = server.cli(&["PTTL", "tenure:job"]).parse().unwrap();
    assert!(claim <= 1000, "the reservation lasts {claim} ms");

    // Whoever is first; the old leader may, too.
    let (token, winner) = tokio::select! {
        token = third.leads() => (token, "third"),
        token = leader.leads() => (token, "leader"),
    };
    let waited = clock::now().since(reserved_at);
    println!("{winner} took over {waited:?} after a hand-over to a dead successor");
    assert!(waited < Duration::from_secs(1) + SLACK, "waited {waited:?}");
    // The reservation drew a number of its own.
    assert!(token > first + 1, "{first}, then {token}");
    assert!(third.election.is_leader() ^ leader.election.is_leader());
    let refused = handing.await.unwrap().unwrap_err();
    assert!(matches!(refused, tenure::Error::Refused { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_successor_that_wakes_too_late_takes_nothing_away() {
    let server = RedisServer::start();
    let mut leader = join(&server.url(), "leader", LONG).await;
    leader.leads().await;
    let mut frozen = Instance::start(&server.url(), "frozen", LONG);
    wait_for_members(&server, 2);
    frozen.process.pause();

    let operator = Tenure::connect(&server.url()).await.unwrap();
    let asked = operator.observe("job").unwrap().ask_to_hand_over("frozen").await.unwrap();
    let refused = format!("{asked:?}");
    assert!(refused.starts_with("Refused"), "it never took over: {refused}");
    // The old leader takes it back once the claim is over, under a greater token.
    assert_eq!(leader.loses().await.code(), "hand-over");
    leader.leads().await;
    frozen.process.resume();
    frozen.wait_for("resumed");
    let lost = tokio::time::timeout(TTL, leader.loses()).await;
    assert!(lost.is_err(), "a late claim took the leadership away: {lost:?}");
    assert!(leader.election.is_leader());
}
