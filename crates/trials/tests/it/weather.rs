//! A real server that misbehaves, and a network that does: one story each.

use std::time::Duration;

use tenure::{Reason, Role};
use testkit::proxy::{Cut, Direction, Proxy, Rule};
use testkit::{GENEROUS, RedisServer, wait_until};
use trials::clock;

use crate::player::join;

const TTL: Duration = Duration::from_secs(2);
const KEY: &str = "tenure:job";

#[tokio::test]
async fn a_lost_answer_to_an_acquire_costs_one_retry() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ttl = Duration::from_secs(6);
    let mut rival = join(&server.url(), "rival", ttl).await;
    let first = rival.leads().await;
    let mut player = join(&server.url_at(proxy.port()), "player", ttl).await;
    player.fails("held").await;

    // The grant is carried out, but the answer to it is swallowed and the connection dies with it.
    proxy.set_rule(Direction::ToClient, Rule::Swallow);
    rival.election.stop().await;
    wait_until("the grant on the server", GENEROUS, || {
        server.cli(&["GET", KEY]).starts_with("player")
    });
    let granted_at = clock::now();
    let in_store = server.cli(&["HGET", "{tenure:job}:meta", "token"]);
    proxy.cut(Cut::Reset);
    proxy.heal();

    let token = player.leads().await;
    assert!(token > first);
    assert_eq!(token.to_string(), in_store, "the same attempt must get the same term");
    assert!(clock::now().since(granted_at) < ttl, "it waited for its own lease to run out");
}

#[tokio::test]
async fn one_failed_renewal_changes_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut player = join(&server.url_at(proxy.port()), "player", TTL).await;
    player.leads().await;
    player.renews().await;

    proxy.cut(Cut::Reset);
    player.renews().await;
    player.renews().await;

    assert!(player.election.is_leader());
    assert_eq!(player.election.status().counts.terms, 1);
    assert_eq!(player.election.status().counts.losses, 0);
}

#[tokio::test]
async fn a_black_hole_ends_the_term_by_the_local_clock() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut player = join(&server.url_at(proxy.port()), "player", TTL).await;
    player.leads().await;
    player.renews().await;

    proxy.set_rules(Rule::HalfOpen);
    let cut_off_at = clock::now();
    assert_eq!(player.loses().await, Reason::LeaseEnded);
    assert!(!player.election.is_leader());
    assert!(clock::now().since(cut_off_at) < TTL + TTL);

    proxy.heal();
    player.leads().await;
}

#[tokio::test]
async fn flushall_ends_the_term_with_its_reason_and_a_greater_token_follows() {
    let server = RedisServer::start();
    let mut player = join(&server.url(), "player", TTL).await;
    let first = player.leads().await;

    server.cli(&["FLUSHALL"]);
    assert_eq!(player.loses().await.code(), "key-vanished");
    // The store forgot its past and this instance did not: nobody may lead for a lease.
    let Reason::Quarantine { why, .. } = player.fails("quarantine").await else { unreachable!() };
    assert!(why.contains("no record of earlier terms"), "{why}");
    assert!(player.leads().await > first);
}

#[tokio::test]
async fn script_flush_goes_unnoticed() {
    let server = RedisServer::start();
    let mut player = join(&server.url(), "player", TTL).await;
    player.leads().await;
    player.renews().await;

    server.cli(&["SCRIPT", "FLUSH"]);
    player.renews().await;
    player.renews().await;
    assert_eq!(player.election.status().counts.renewals_failed, 0);
}

#[tokio::test]
async fn something_else_at_the_key_is_a_conflict_and_stays_untouched() {
    let server = RedisServer::start();
    // As Redisson keeps its locks.
    server.cli(&["HSET", KEY, "thread-1", "1"]);
    server.cli(&["PEXPIRE", KEY, "600000"]);
    let mut player = join(&server.url(), "player", TTL).await;

    let Reason::Conflict(what) = player.fails("conflict").await else { unreachable!() };
    assert!(what.contains("hash"), "{what}");
    player.election.stop().await;
    assert_eq!(server.cli(&["HGETALL", KEY]), "thread-1\n1");
    assert!(server.cli(&["PTTL", KEY]).parse::<i64>().unwrap() > 500_000);
    assert_eq!(server.cli(&["EXISTS", "{tenure:job}:meta"]), "0");
}

#[tokio::test]
async fn a_key_without_expiry_is_pointed_out_and_healed() {
    let server = RedisServer::start();
    server.cli(&["SET", KEY, "crashed-between-two-calls"]);
    let ttl = Duration::from_millis(600);
    let mut player = join(&server.url(), "player", ttl).await;

    let warning = player.warned().await;
    assert!(warning.contains("without an expiry"), "{warning}");
    player.leads().await;
}

#[tokio::test]
async fn full_memory_stops_new_terms_but_no_renewal() {
    let server = RedisServer::start();
    let mut leader = join(&server.url(), "leader", TTL).await;
    leader.leads().await;

    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    leader.renews().await;
    leader.renews().await;
    assert!(leader.election.is_leader());

    leader.election.stop().await;
    let mut late = join(&server.url(), "late", TTL).await;
    let Reason::Store(error) = late.fails("store").await else { unreachable!() };
    assert!(error.to_string().contains("OOM"), "{error}");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    late.leads().await;
}

#[tokio::test]
async fn a_user_who_may_not_publish_leads_all_the_same_and_is_told() {
    let server = RedisServer::builder()
        .acl("user default on nopass ~* &* +@all\nuser quiet on >secret ~* &* +@all -publish")
        .login("quiet", "secret")
        .start();
    let mut player = join(&server.url(), "player", TTL).await;
    let warning = player.warned().await;
    assert!(warning.starts_with("hints:"), "{warning}");
    player.leads().await;
    assert!(player.election.is_leader());
}

#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_waited_for() {
    let mut server = RedisServer::start();
    server.kill();
    let mut player = join(&server.url(), "player", TTL).await;
    let Reason::Store(error) = player.fails("store").await else { unreachable!() };
    assert!(error.is_temporary(), "{error}");
    assert_eq!(player.election.status().role, Role::Unknown);
    assert!(!player.election.is_leader());

    server.restart();
    player.leads().await;
}

#[test]
fn a_blocked_runtime_stops_neither_renewals_nor_the_truth() {
    let mut server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let player = runtime.block_on(async {
        let mut player = join(&server.url(), "player", TTL).await;
        player.leads().await;
        // From here on the only thread of the application's runtime is blocked.
        std::thread::sleep(TTL + TTL / 2);
        player
    });
    assert!(player.election.is_leader(), "renewals stopped with the runtime");
    assert!(player.election.status().counts.renewals >= 2);

    server.pause();
    std::thread::sleep(TTL + TTL / 4);
    assert!(!player.election.is_leader(), "still leading without a store");
    server.resume();
}

#[tokio::test]
async fn after_a_release_nothing_is_sent_in_the_name_of_the_term() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut player = join(&server.url_at(proxy.port()), "player", TTL).await;
    let token = player.leads().await;
    player.renews().await;

    player.election.stop().await;
    assert_eq!(server.cli(&["EXISTS", KEY]), "0");
    let mark = proxy.mark();
    tokio::time::sleep(TTL).await;
    let after = proxy.traffic_since(mark, Direction::ToServer);
    assert!(!after.contains(token.to_string()), "the term was mentioned after its release");
    assert!(!after.contains(player.election.id().as_str()), "the instance spoke after it left");
}

#[tokio::test]
async fn stopping_during_an_acquire_leaves_no_key_behind() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    for delay in [0, 1, 2, 5, 10] {
        proxy.set_rules(Rule::Delay(Duration::from_millis(delay)));
        let player = join(&server.url_at(proxy.port()), "player", TTL).await;
        tokio::time::sleep(Duration::from_millis(delay)).await;
        player.election.stop().await;
        assert_eq!(server.cli(&["EXISTS", KEY]), "0", "key left after a delay of {delay} ms");
    }
}
