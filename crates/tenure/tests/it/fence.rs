//! Fenced values on a real server.

use std::time::Duration;

use tenure::backend::redis::RedisBackend;
use tenure::fence::{FencedError, FencedValue, FencedWrite, StaleToken};
use tenure_core::{StoreErrorKind, Token};
use testkit::RedisServer;

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

#[tokio::test]
async fn a_leader_of_the_past_cannot_write() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let report = FencedValue::new("report").unwrap();
    report.set(&mut connection, token(17), b"old", None).await.unwrap();
    report.set(&mut connection, token(17), b"same leader", None).await.unwrap();
    report.set(&mut connection, token(18), b"new", None).await.unwrap();

    let stale = StaleToken { given: token(17), highest: token(18) };
    let refused = report.set(&mut connection, token(17), b"late", None).await;
    assert_eq!(refused, Err(FencedError::Stale(stale)));
    assert_eq!(report.delete(&mut connection, token(17)).await, Err(FencedError::Stale(stale)));
    assert_eq!(server.cli(&["GET", "report"]), "new");
    assert_eq!(server.cli(&["GET", report.fence_key()]), "18");

    let ttl = Some(Duration::from_secs(100));
    report.set(&mut connection, token(19), b"short-lived", ttl).await.unwrap();
    assert!(server.cli(&["PTTL", "report"]).parse::<u64>().unwrap() <= 100_000);
    report.delete(&mut connection, token(19)).await.unwrap();
    assert_eq!(server.cli(&["EXISTS", "report"]), "0");
    let refused = report.set(&mut connection, token(18), b"late", None).await;
    assert!(matches!(refused, Err(FencedError::Stale(_))), "the fence outlives its value");
}

#[tokio::test]
async fn the_connection_of_the_election_writes_as_well() {
    let server = RedisServer::start();
    let backend = RedisBackend::open(&server.url()).unwrap();
    let value = FencedValue::new("{app}:state").unwrap();
    let patience = Duration::from_secs(20);
    let set = FencedWrite::Set { value: b"\x00\xff", ttl: None };
    value.write_through(&backend, token(5), set, patience).await.unwrap();
    server.cli(&["SCRIPT", "FLUSH"]);
    value.write_through(&backend, token(6), FencedWrite::Delete, patience).await.unwrap();
    let refused = value.write_through(&backend, token(5), set, patience).await;
    assert!(matches!(refused, Err(FencedError::Stale(_))), "{refused:?}");
    assert_eq!(server.cli(&["EXISTS", "{app}:state"]), "0");
}

#[tokio::test]
async fn a_blocking_connection_runs_the_command_itself() {
    let server = RedisServer::start();
    let value = FencedValue::new("report").unwrap();
    let mut connection = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
    for (number, expected) in [(9, true), (8, false)] {
        let write = FencedWrite::Set { value: b"x", ttl: None };
        let reply = value.command(token(number), &write).query(&mut connection).unwrap();
        assert_eq!(FencedValue::outcome(token(number), &reply).is_ok(), expected);
    }
}

#[tokio::test]
async fn a_fence_that_is_no_token_is_not_climbed_over() {
    let server = RedisServer::start();
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let report = FencedValue::new("report").unwrap();
    for garbage in ["abc", "-1", "1e400", ""] {
        server.cli(&["SET", report.fence_key(), garbage]);
        let refused = report.set(&mut connection, token(17), b"x", None).await;
        let is_told = matches!(
            &refused,
            Err(FencedError::Store(error)) if error.kind() == StoreErrorKind::Unexpected
        );
        assert!(is_told, "{garbage}: {refused:?}");
    }
    server.cli(&["DEL", report.fence_key()]);
    server.cli(&["HSET", report.fence_key(), "a", "b"]);
    let refused = report.set(&mut connection, token(17), b"x", None).await;
    assert!(matches!(&refused, Err(FencedError::Store(_))), "{refused:?}");
    assert_eq!(server.cli(&["EXISTS", "report"]), "0");
}
