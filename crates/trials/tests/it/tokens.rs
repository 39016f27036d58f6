//! Tokens only grow, whatever the store forgets.

use std::time::Duration;

use tenure::Tenure;
use testkit::proxy::{Cut, Direction, Proxy, Rule};
use testkit::{GENEROUS, RedisServer, wait_until};

use crate::player::{Player, join, start};

const TTL: Duration = Duration::from_secs(1);

/// One that was just started, and does not claim to know this store.
async fn newcomer(url: &str, name: &str) -> Player {
    let tenure = Tenure::builder().instance(name).store(url).connect().await.unwrap();
    start(tenure.election("job").ttl(TTL)).await
}

/// How many seconds a server has been running.
fn uptime(server: &RedisServer) -> u64 {
    let info = server.cli(&["INFO", "server"]);
    let line = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
    line.unwrap().trim().parse().unwrap()
}

fn run_id(info: &str) -> Option<&str> {
    info.lines().find_map(|line| line.strip_prefix("run_id:"))
}

#[tokio::test]
async fn tokens_grow_through_releases_a_flush_and_a_restart_without_data() {
    let mut server = RedisServer::start();
    let mut ada = join(&server.url(), "ada", TTL).await;
    let mut tokens = vec![ada.leads().await];
    let mut bob = join(&server.url(), "bob", TTL).await;
    bob.fails("held").await;

    ada.election.resign().await;
    tokens.push(bob.leads().await);
    bob.election.stop().await;
    tokens.push(ada.leads().await);

    server.cli(&["FLUSHALL"]);
    assert_eq!(ada.loses().await.code(), "key-vanished");
    tokens.push(ada.leads().await);

    let before = server.cli(&["INFO", "server"]);
    server.restart();
    assert_ne!(run_id(&before), run_id(&server.cli(&["INFO", "server"])), "another life");
    ada.loses().await;
    tokens.push(ada.leads().await);

    // Whoever never saw one of them gets a greater one as well.
    ada.election.stop().await;
    server.restart();
    let mut newcomer = newcomer(&server.url(), "newcomer").await;
    newcomer.fails("quarantine").await;
    tokens.push(newcomer.leads().await);
    assert!(tokens.is_sorted_by(|before, after| before < after), "{tokens:?}");
}

#[tokio::test]
async fn after_a_failover_to_a_replica_without_the_key_nobody_leads_too_early() {
    let at_once = ["--repl-diskless-sync-delay", "0"];
    let mut primary = RedisServer::builder().args(at_once).start();
    let replica = RedisServer::start();
    let to_primary = Proxy::in_front_of(&primary);
    let replication = Proxy::in_front_of(&primary);
    let follows = replica.cli(&["REPLICAOF", "127.0.0.1", &replication.port().to_string()]);
    if follows != "OK" {
        println!("skipped: this server does not replicate: {follows}");
        return;
    }
    wait_until("the replica to follow", GENEROUS, || {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    let url = primary.url_at(to_primary.port());
    // Nothing reaches the replica any more; the primary does not know that yet.
    replication.set_rule(Direction::ToClient, Rule::Swallow);
    let mut leader = join(&url, "leader", TTL).await;
    let first = leader.leads().await;
    leader.renews().await;

    // By its age alone the replica must not be taken for a store that may have lost something.
    wait_until("the replica to be older than any lease", GENEROUS, || uptime(&replica) > 2);
    primary.kill();
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(replica.cli(&["DBSIZE"]), "0", "the replica must know nothing");
    to_primary.set_target(([127, 0, 0, 1], replica.port()).into());
    to_primary.cut(Cut::Reset);

    // A stranger to the resource waits for as long as anyone could still believe in a lease.
    let mut newcomer = newcomer(&url, "newcomer").await;
    let reason = newcomer.fails("quarantine").await.to_string();
    assert!(reason.contains("fresh_store"), "{reason} does not say how to skip it");
    leader.loses().await;
    let (token, other) = tokio::select! {
        token = newcomer.leads() => (token, &leader),
        token = leader.leads() => (token, &newcomer),
    };
    assert!(token > first, "{token} after {first}");
    assert!(!other.election.is_leader(), "two at once");
}
