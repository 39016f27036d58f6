//! Mode `strict`: what the replicas do not have is not held.

use std::time::Duration;

use tenure::backend::redis::RedisBackend;
use tenure::core::protocol::{Acquire, Outcome, Request, StoreError};
use tenure::{Role, Tenure};
use testkit::{GENEROUS, RedisServer, wait_until};

use crate::actor::{Actor, attempt_of, is_granted};

fn replica_of(master: &RedisServer) -> RedisServer {
    let port = master.port().to_string();
    let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start();
    wait_until("the replica to be in step", GENEROUS, || {
        replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
    });
    replica
}

fn strict(server: &RedisServer, replicas: u32) -> String {
    format!("{}/0?mode=strict&replicas={replicas}", server.url())
}

#[tokio::test]
async fn a_grant_without_its_replicas_is_no_grant() {
    let master = RedisServer::start();
    let mut replica = replica_of(&master);
    let ada = Actor::at(&strict(&master, 1), "job").within(Duration::from_secs(2));
    replica.pause();
    let error = ada.acquire(1).await.unwrap_err();
    let StoreError::NotNow(text) = &error else { panic!("{error:?}") };
    assert!(text.contains("0 of 1 replicas"), "{text}");
    // The master wrote it down all the same; the same attempt finds it once the replica is back.
    assert_eq!(master.cli(&["GET", "tenure:job"]), ada.id.as_str());
    replica.resume();
    let acquire = attempt_of(1, Duration::from_secs(60));
    let request = Request::Acquire(acquire);
    let mut answer = ada.ask(request.clone()).await;
    for _ in 0..20 {
        if is_granted(&answer) {
            break;
        }
        answer = ada.ask(request.clone()).await;
    }
    let Outcome::Granted { token } = answer.unwrap().outcome else { panic!("not granted") };
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    // More replicas than there are: nothing is ever held.
    let bob = Actor::at(&strict(&master, 2), "other").within(Duration::from_secs(1));
    assert!(matches!(bob.acquire(1).await, Err(StoreError::NotNow(_))));
}

#[tokio::test]
async fn a_leader_without_replicas_steps_down_and_comes_back() {
    let master = RedisServer::start();
    let mut replica = replica_of(&master);
    let tenure = Tenure::connect(&strict(&master, 1)).await.unwrap();
    let election =
        tenure.election("job").ttl(Duration::from_secs(1)).fresh_store(true).start().await.unwrap();
    let leading = || election.role() == Role::Leader;
    wait_until("a leader", GENEROUS, leading);
    let first = election.term().unwrap().token();
    replica.pause();
    wait_until("its end", GENEROUS, || !election.is_leader());
    let status = election.status();
    let text = format!("{status:?}");
    assert!(text.contains("0 of 1 replicas"), "{text}");
    replica.resume();
    wait_until("a leader again", GENEROUS, leading);
    assert!(election.term().unwrap().token() > first);
}

#[tokio::test]
async fn however_old_a_server_is_a_missing_record_is_waited_out() {
    let master = RedisServer::start();
    let _replica = replica_of(&master);
    let ttl = Duration::from_millis(100);
    wait_until("the server to be older than any lease", GENEROUS, || {
        let info = master.cli(&["INFO", "server"]);
        let age = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        age.is_some_and(|age| age.trim().parse::<u64>().unwrap() > 2)
    });
    let attempt = || Request::Acquire(Acquire { fresh_store: false, ..attempt_of(1, ttl) });
    let ada = Actor::at(&master.url(), "available");
    assert!(is_granted(&ada.ask(attempt()).await), "nothing speaks against it");
    // A flush leaves the same emptiness behind, and a leader that believes in its lease.
    let bob = Actor::at(&strict(&master, 1), "strict");
    let answer = bob.ask(attempt()).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Quarantine { .. }), "{answer:?}");
}

#[tokio::test]
async fn the_mode_shows_in_the_address() {
    let address = "redis://127.0.0.1:1/0?mode=strict&replicas=2";
    let backend = RedisBackend::open(address).unwrap();
    assert_eq!(tenure::backend::Backend::describe(&backend), address);
    let error = RedisBackend::open("redis://127.0.0.1:1?mode=strict").unwrap_err();
    assert!(error.to_string().contains("replicas"), "{error}");
}
