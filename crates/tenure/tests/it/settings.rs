//! Settings that do not fit are refused with the rule they broke, before anything happens.

use std::sync::Arc;
use std::time::Duration;

use tenure::backend::{Backend, ConnectError};
use tenure::testing::World;
use tenure::{ElectionBuilder, Error, MemoryBackend, Tenure};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[tokio::test]
async fn a_bad_election_names_the_setting() {
    let world = World::new();
    let tenure = world.client("ada").await;
    type Case = (fn(ElectionBuilder) -> ElectionBuilder, &'static str);
    let cases: [Case; 9] = [
        (|e| e.ttl(Duration::from_millis(10)), "ttl is 10ms"),
        (|e| e.ttl(seconds(9)).renew_every(seconds(9)), "renew_every 9s + one try"),
        (|e| e.stop_grace(seconds(9)), "stop_grace 9s exceed"),
        (|e| e.fleet_max_ttl(seconds(1)), "fleet_max_ttl 1s contradicts"),
        (|e| e.key("a}b"), "hash tag"),
        (|e| e.key(""), "key is empty"),
        (|e| e.metadata("address", &"x".repeat(5000)), "metadata: 5007 bytes"),
        (|e| e.version(&"1.".repeat(100)), "version: longer"),
        (|e| e.require_beat(Duration::ZERO), "require_beat"),
    ];
    for (change, part) in cases {
        let error = change(tenure.election("x")).start().await.unwrap_err();
        assert!(error.to_string().contains(part), "{error:?} should contain {part:?}");
    }
    for name in ["", "a b", "a\nb"] {
        assert!(matches!(tenure.election(name).start().await, Err(Error::Name(_))), "{name:?}");
        assert!(matches!(tenure.observe(name), Err(Error::Name(_))), "{name:?}");
    }
    let leader = world.advance_while(tenure.observe("x").unwrap().leader()).await.unwrap();
    assert!(leader.leader().is_none(), "nothing was touched");
}

#[tokio::test]
async fn a_bad_client_says_what_to_do() {
    let error = Tenure::builder().connect().await.unwrap_err();
    assert!(error.to_string().contains("redis://"), "{error}");
    let store = || Arc::new(MemoryBackend::new());
    let error = Tenure::builder().backend(store()).instance("a b").connect().await.unwrap_err();
    assert!(matches!(error, Error::Name(_)), "{error}");
    let error = Tenure::builder().backend(store()).ttl(seconds(0)).connect().await.unwrap_err();
    assert!(matches!(error, Error::Timing(_)), "{error}");
    let error = Tenure::connect("carrier-pigeon://roof").await.unwrap_err();
    assert!(matches!(error, Error::Connect(ConnectError::Address(_))), "{error}");
}

#[tokio::test]
async fn a_third_party_brings_its_own_scheme_and_its_own_connector() {
    let store = MemoryBackend::new();
    let shared = store.clone();
    let builder = Tenure::builder().scheme("memory", move |address| {
        assert_eq!(address, "memory:here");
        let backend: Arc<dyn Backend> = Arc::new(shared.clone());
        Box::pin(std::future::ready(Ok(backend)))
    });
    let ada = builder.store("memory:here").connect().await.unwrap();
    let election = ada.election("x").start().await.unwrap();
    let term = election.wait_for_leadership().await.unwrap();

    let bob = Tenure::builder().connector(move || {
        let backend: Arc<dyn Backend> = Arc::new(store);
        Box::pin(std::future::ready(Ok(backend)))
    });
    let bob = bob.connect().await.unwrap();
    assert!(bob.try_acquire("x").await.unwrap().is_none(), "both share one store");
    assert_eq!(
        bob.observe("x").unwrap().leader().await.unwrap().leader().unwrap().token,
        Some(term.token())
    );
}

#[tokio::test]
async fn prefixes_and_whole_keys_keep_elections_apart() {
    let world = World::new();
    let ada = world.builder("ada").prefix("team-a:").connect().await.unwrap();
    let bob = world.builder("bob").prefix("team-b:").connect().await.unwrap();
    let on_ada = ada.election("job").start().await.unwrap();
    let on_bob = bob.election("job").start().await.unwrap();
    world.settle().await;
    assert!(on_ada.is_leader() && on_bob.is_leader(), "two different resources");
    assert_eq!(on_ada.resource().key(), "team-a:job");
    let same = bob.election("other-name").key("team-a:job").start().await.unwrap();
    world.advance(seconds(1)).await;
    assert!(!same.is_leader(), "the same key is the same resource");
    assert_eq!(same.status().seen_leader.unwrap().id, *on_ada.id());
    assert!(bob.observe_key("job", "team-a:job").is_ok());
}

#[tokio::test]
async fn two_processes_under_one_name_are_two_instances() {
    let world = World::new();
    let (first, second) = (world.client("web").await, world.client("web").await);
    assert_ne!(first.id(), second.id());
    let (on_first, on_second) =
        (first.election("x").start().await.unwrap(), second.election("x").start().await.unwrap());
    world.advance(seconds(1)).await;
    assert!(on_first.is_leader() ^ on_second.is_leader());
}
