//! Addresses that lead to the wrong kind of server, and groups of servers that are not whole: each
//! error names the thing and what to do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use tenure::backend::redis::RedisBackend;
use tenure::backend::{Backend, Connection};
use tenure_core::{Resource, StoreError, StoreErrorKind};
use testkit::{ClusterGroup, RedisServer, SentinelGroup, wait_until};

use crate::actor::{Actor, PATIENT};

/// What the connection to an address is down for.
async fn trouble(address: &str) -> StoreError {
    let backend = RedisBackend::open(address).unwrap();
    let mut state = backend.connection();
    let down = state.wait_for(|state| matches!(state, Connection::Down(_)));
    let down = tokio::time::timeout(PATIENT, down).await.expect("an answer").unwrap().clone();
    let Connection::Down(error) = down else { unreachable!() };
    error
}

fn assert_says(error: &StoreError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[tokio::test]
async fn a_single_server_is_no_cluster() {
    let server = RedisServer::start();
    let port = server.port();
    let address = format!("redis+cluster://127.0.0.1:{port}");
    let error = trouble(&address).await;
    assert_eq!(error.kind(), StoreErrorKind::WrongAddress, "{error:?}");
    let advice = format!("write redis://127.0.0.1:{port}/0 in the store's address");
    assert_says(&error, &["is not a node of a cluster", &advice]);
    // Nobody has to wait for it.
    let ada = Actor::at(&address, "job");
    assert_says(&ada.acquire(1).await.unwrap_err(), &["is not a node of a cluster"]);
    assert_eq!(server.cli(&["DBSIZE"]), "0");
}

#[tokio::test]
async fn a_sentinel_is_neither_a_store_nor_a_cluster() {
    let group = SentinelGroup::start(0);
    let hosts = group.hosts();
    let sentinel = hosts.split(',').next().unwrap();
    let error = trouble(&format!("redis://{sentinel}")).await;
    assert_eq!(error.kind(), StoreErrorKind::WrongAddress, "{error:?}");
    assert_says(&error, &[sentinel, "is a sentinel", "redis+sentinel://"]);
    let error = trouble(&format!("redis+cluster://{sentinel}")).await;
    assert_says(&error, &["is not a node of a cluster"]);
}

#[tokio::test]
async fn a_server_is_no_sentinel() {
    let server = RedisServer::start();
    let port = server.port();
    let error = trouble(&format!("redis+sentinel://127.0.0.1:{port}/main")).await;
    assert_eq!(error.kind(), StoreErrorKind::WrongAddress, "{error:?}");
    assert_says(&error, &["is not a sentinel", "write redis://"]);
}

#[tokio::test]
async fn a_master_that_no_sentinel_knows_is_named() {
    let group = SentinelGroup::start(0);
    let error = trouble(&format!("redis+sentinel://{}/nobody", group.hosts())).await;
    assert_eq!(error.kind(), StoreErrorKind::WrongNode, "{error:?}");
    assert_says(&error, &["watches no primary \"nobody\"", "SENTINEL MASTERS"]);
}

#[tokio::test]
async fn sentinels_that_disagree_are_named_with_what_they_say() {
    let (one, other) = (SentinelGroup::start(0), SentinelGroup::start(0));
    let first = |group: &SentinelGroup| group.hosts().split(',').next().unwrap().to_owned();
    let address = format!("redis+sentinel://{},{}/main", first(&one), first(&other));
    let error = trouble(&address).await;
    assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error:?}");
    let masters = [&one, &other].map(|group| group.servers[0].port().to_string());
    assert_says(&error, &["disagree about the primary", &masters[0], &masters[1]]);
    assert_says(&error, &[&first(&one), &first(&other)]);
}

#[tokio::test]
async fn strict_without_a_count_is_refused_everywhere() {
    for place in ["redis://h", "unix:///s", "redis+sentinel://h/main", "redis+cluster://h"] {
        let error = RedisBackend::open(&format!("{place}?mode=strict")).unwrap_err().to_string();
        assert!(error.contains("number of replicas") && error.contains("&replicas=N"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_is_no_store_of_its_own() {
    let group = ClusterGroup::start().steady();
    let owner = group.owner_of(group.slot_of("tenure:job")).unwrap();
    let other = (owner + 1) % ClusterGroup::MASTERS;
    let ada = Actor::at(&group.server(other).url(), "job");
    let error = ada.acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::WrongAddress, "{error:?}");
    assert_says(&error, &["MOVED", "node of a cluster", "redis+cluster://"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_without_an_owner_is_named_and_others_are_served() {
    let group =
        ClusterGroup::start_with(|node| node.args(["--cluster-require-full-coverage", "no"]));
    let slot = group.slot_of("tenure:job");
    // Known before it is gone, and asked for after it is gone.
    let ada = Actor::at(&group.url(), "job");
    let token = ada.lead(1).await;
    group.uncover(slot);
    for actor in [ada.clone(), Actor::at(&group.url(), "job")] {
        let error = actor.renew(token).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error:?}");
        assert_says(&error, &[&slot.to_string(), "tenure:job", "redis-cli --cluster fix"]);
    }
    let other = Resource::named("another").unwrap();
    assert_ne!(group.slot_of(other.key()), slot);
    Actor { resource: other, ..ada.clone() }.lead(1).await;
    assert_eq!(*ada.backend.connection().borrow(), Connection::Up);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_serves_nothing_names_the_missing_slots() {
    let group = ClusterGroup::start().steady();
    let ada = Actor::at(&group.url(), "job");
    ada.lead(1).await;
    let gone = (group.slot_of("tenure:job") + 1) % 16_384;
    group.uncover(gone);
    wait_until("the cluster to be down", testkit::GENEROUS, || {
        (0..3).all(|node| group.server(node).cli(&["CLUSTER", "INFO"]).contains("state:fail"))
    });
    let mut last = String::new();
    for attempt in 2..200 {
        let error = ada.acquire(attempt).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error:?}");
        last = error.to_string();
        // Only the second survey tells what is missing.
        if last.contains(&format!("slots without an owner: {gone};")) {
            assert!(last.contains("CLUSTERDOWN") && last.contains("--cluster fix"), "{last}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the missing slot is not named: {last}");
}

/// A node that claims all slots and sends every request elsewhere: to itself.
fn circular_node() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten().take(100) {
            std::thread::spawn(move || serve_in_circles(stream, port));
        }
    });
    port
}

fn serve_in_circles(mut stream: std::net::TcpStream, port: u16) {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let request = String::from_utf8_lossy(&buffer[..count]).into_owned();
        let infos = request.matches("INFO\r\n").count();
        let reply = if request.contains("SLOTS") {
            format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{port}\r\n")
        } else if request.contains("EVAL") {
            format!("-MOVED 1 :{port}\r\n")
        } else {
            "$13\r\nrun_id:abcdef\r\n".repeat(infos.max(1))
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_request_is_not_sent_round_for_ever() {
    let port = circular_node();
    let ada = Actor::at(&format!("redis+cluster://127.0.0.1:{port}"), "job");
    let error = ada.acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error:?}");
    assert_says(&error, &["from node to node 5 times", &format!("127.0.0.1:{port}")]);
}
