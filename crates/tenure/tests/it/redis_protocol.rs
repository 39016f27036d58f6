//! What the scripts do with leases of different lengths, with clocks that step and with servers
//! that take no writes any more. `cargo xtask conform` compares all of it with the model; these
//! are the stories that people met.

use std::sync::Arc;
use std::time::Duration;
use tenure_core::{StoreError, StoreErrorKind};

use tenure::backend::redis::RedisBackend;
use tenure::{Leadership, Tenure, Vacancy};
use tenure_core::protocol::{
    Answer, Call, CloseReason, LostWhy, MemberRecord, Outcome, Request, Token,
};
use testkit::{GENEROUS, RedisServer, WallClock, wait_until};

use crate::actor::{Actor, LONG, PATIENT, attempt_of};

const KEY: &str = "tenure:job";
const META: &str = "{tenure:job}:meta";
const SHORT: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);

fn cast(server: &RedisServer) -> [Actor; 3] {
    let ada = Actor::new("ada", "job", Arc::new(RedisBackend::open(&server.url()).unwrap()));
    let (bob, eve) = (ada.beside("bob"), ada.beside("eve"));
    [ada, bob, eve]
}

/// Asks as an instance that knows of leases as long as `fleet_max_ttl`.
async fn ask(actor: &Actor, request: Request, fleet_max_ttl: Duration) -> Answer {
    let (resource, id) = (actor.resource.clone(), actor.id.clone());
    let call = Call { resource, id, request, timeout: PATIENT, fleet_max_ttl };
    actor.backend.call(call).await.unwrap()
}

fn quarantine_left(answer: &Answer) -> Duration {
    match &answer.outcome {
        Outcome::Quarantine { left, .. } => *left,
        other => panic!("no quarantine but {other:?}"),
    }
}

fn beat(ttl: Duration) -> Request {
    let record = MemberRecord { ready: true, ttl, ..MemberRecord::default() };
    Request::Beat { record, members: false }
}

/// As after a restart with the data of before.
fn restart(server: &RedisServer) {
    server.cli(&["HSET", META, "incarnation", "another:life"]);
    server.cli(&["DEL", KEY]);
}

#[tokio::test]
async fn a_quarantine_covers_the_longest_lease_of_whoever_asks_first() {
    let server = RedisServer::start();
    let [ada, bob, _] = cast(&server);
    let acquire = |attempt| Request::Acquire(attempt_of(attempt, SHORT));
    assert!(matches!(ask(&ada, acquire(1), SHORT).await.outcome, Outcome::Granted { .. }));
    restart(&server);
    // A lease of a minute was granted and forgotten. Whoever knows of such leases only beats.
    ask(&bob, beat(SHORT), MINUTE).await;
    let left = quarantine_left(&ask(&bob, acquire(1), SHORT).await);
    assert!(left > MINUTE / 2, "{left:?} is shorter than a lease that may be believed in");
}

#[tokio::test]
async fn a_running_quarantine_is_lengthened_for_longer_leases_and_once() {
    let server = RedisServer::start();
    let [ada, bob, eve] = cast(&server);
    let acquire = |attempt| Request::Acquire(attempt_of(attempt, SHORT));
    ask(&ada, acquire(1), SHORT).await;
    restart(&server);
    let short = quarantine_left(&ask(&bob, acquire(1), SHORT).await);
    assert!(short <= SHORT * 2, "{short:?}");
    let long = Request::Acquire(attempt_of(1, MINUTE));
    let left = quarantine_left(&ask(&eve, long, Duration::ZERO).await);
    assert!(left > MINUTE / 2, "{left:?} is shorter than a lease that may be believed in");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let later =
        quarantine_left(&ask(&eve, Request::Acquire(attempt_of(2, MINUTE)), Duration::ZERO).await);
    assert!(later < left, "it began when the life was new, not when somebody asks again");
}

#[tokio::test]
async fn a_restart_does_not_shorten_the_quarantine_of_a_clear() {
    let server = RedisServer::start();
    let [ada, bob, _] = cast(&server);
    ask(&ada, Request::Acquire(attempt_of(1, SHORT)), SHORT).await;
    let clear = Request::Clear { reason: "wedged".into(), quarantine: LONG };
    ask(&ada, clear, Duration::ZERO).await;
    server.cli(&["HSET", META, "incarnation", "another:life"]);
    let answer = ask(&bob, Request::Acquire(attempt_of(1, SHORT)), SHORT).await;
    assert!(quarantine_left(&answer) > LONG / 2, "{answer:?}");
    assert!(answer.warnings.is_empty(), "{:?}", answer.warnings);
    let left: u64 = server.cli(&["PTTL", KEY]).parse().unwrap();
    assert!(Duration::from_millis(left) > LONG / 2, "plain SET NX is kept out as long");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clear_waits_as_long_as_leases_last_and_not_longer() {
    let server = RedisServer::start();
    let [ada, ..] = cast(&server);
    ask(&ada, Request::Acquire(attempt_of(1, SHORT)), SHORT).await;
    let operator = Tenure::builder().instance("olga").store(&server.url()).connect().await.unwrap();
    operator.observe("job").unwrap().force_clear("a drill").await.unwrap();
    match operator.observe("job").unwrap().leader().await.unwrap() {
        Leadership::Vacant(Vacancy::Quarantine { left, .. }) => {
            assert!(left <= SHORT * 2, "{left:?} for leases of {SHORT:?}");
        }
        other => panic!("no quarantine but {other:?}"),
    }
}

#[tokio::test]
async fn a_crashed_leader_is_not_waited_for_as_long_as_the_clock_stepped_back() {
    let Some(clock) = WallClock::build() else { return };
    clock.move_by(3600);
    let server = RedisServer::builder().under(&clock).start();
    let [ada, bob, _] = cast(&server);
    let acquire = |attempt| Request::Acquire(attempt_of(attempt, SHORT));
    ask(&ada, acquire(1), SHORT).await;
    ask(&ada, Request::Pause { lasts: SHORT }, SHORT).await;
    clock.move_by(0);
    wait_until("the clock has stepped back", GENEROUS, || {
        server.cli(&["PTTL", KEY]).parse::<i64>().unwrap() > 1_800_000
    });
    let answer = ask(&bob, acquire(1), SHORT).await;
    assert_eq!(answer.outcome, Outcome::Held);
    assert!(answer.view.pttl.unwrap() <= SHORT * 2, "{answer:?}");
    assert!(answer.view.paused_for.unwrap() <= SHORT, "{answer:?}");
    assert!(answer.warnings[0].contains("stepped back"), "{:?}", answer.warnings);
    let granted = bob.acquire_until("a grant", attempt_of(2, SHORT), crate::actor::is_granted);
    granted.await.unwrap();
}

#[tokio::test]
async fn a_quarantine_is_not_lengthened_by_a_clock_that_steps_back() {
    let Some(clock) = WallClock::build() else { return };
    clock.move_by(3600);
    let server = RedisServer::builder().under(&clock).start();
    let [ada, bob, _] = cast(&server);
    let acquire = |attempt| Request::Acquire(attempt_of(attempt, SHORT));
    ask(&ada, acquire(1), SHORT).await;
    restart(&server);
    quarantine_left(&ask(&bob, acquire(1), SHORT).await);
    clock.move_by(0);
    wait_until("the clock has stepped back", GENEROUS, || {
        server.cli(&["PTTL", KEY]).parse::<i64>().unwrap() > 1_800_000
    });
    let left = quarantine_left(&ask(&bob, acquire(2), SHORT).await);
    assert!(left <= SHORT * 2, "{left:?}");
}

/// What a server says to one request once it follows a master that knows nothing of the term.
async fn ask_a_replica(
    request: impl FnOnce(Token, &Actor) -> Request + Send + 'static,
) -> StoreError {
    let (server, other) = (RedisServer::start(), RedisServer::start());
    other.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
    let [ada, bob, _] = cast(&server);
    let token = ada.lead(1).await;
    // What it knew is gone with the first synchronisation; the connection stays.
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    wait_until("the data of the new master", GENEROUS, || server.cli(&["EXISTS", META]) == "0");
    let request = request(token, &bob);
    let said = ada.ask(request.clone()).await;
    said.map(|answer| panic!("{request:?} was answered by {answer:?}")).unwrap_err()
}

/// A thread for each request: all of them wait in the same seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 5)]
async fn a_master_that_became_a_replica_has_no_say_about_terms() {
    let asked = [
        tokio::spawn(ask_a_replica(|token, _| Request::Renew {
            token,
            ttl: LONG,
            fleet_max_ttl: LONG,
        })),
        tokio::spawn(ask_a_replica(|token, _| Request::Adopt {
            token,
            ttl: LONG,
            fleet_max_ttl: LONG,
        })),
        tokio::spawn(ask_a_replica(|token, _| Request::Release {
            token,
            reason: CloseReason::Released,
        })),
        tokio::spawn(ask_a_replica(|token, bob| Request::Transfer {
            token,
            to: bob.id.clone(),
            claim_ttl: SHORT,
        })),
        tokio::spawn(ask_a_replica(|token, _| Request::Refuse { token, reason: "busy".into() })),
    ];
    for said in asked {
        let error = said.await.unwrap();
        assert_eq!(error.kind(), StoreErrorKind::WrongNode, "{error:?}");
    }
}

#[tokio::test]
async fn a_changed_side_record_ends_no_term_while_the_key_is_there() {
    let changes: [&[&str]; 9] = [
        &["HSET", META, "holder", "mallory"],
        &["HSET", META, "token", "5"],
        &["HSET", META, "token", "9007199254740991"],
        &["HSET", META, "token", "x"],
        &["HSET", META, "v", "2"],
        &["HSET", META, "paused_until", "9007199254740991"],
        &["HDEL", META, "holder", "token"],
        &["DEL", META],
        &["SET", META, "a string"],
    ];
    for change in changes {
        let server = RedisServer::start();
        let [ada, bob, _] = cast(&server);
        let token = ada.lead(1).await;
        server.cli(change);
        for _ in 0..2 {
            let answer = ada.renew(token).await.unwrap();
            assert_eq!(answer.outcome, Outcome::Renewed, "{change:?}: {answer:?}");
        }
        assert!(!crate::actor::is_granted(&bob.acquire(1).await), "{change:?}");
        let seen = bob.ask(Request::Observe { members: true }).await.unwrap();
        assert_eq!(seen.view.holder, Some(ada.id.clone()), "{change:?}");
        assert_eq!(ada.release(token).await.unwrap().outcome, Outcome::Released, "{change:?}");
        assert_eq!(server.cli(&["EXISTS", KEY]), "0", "{change:?}");
    }
}

#[tokio::test]
async fn a_term_that_was_closed_is_not_revived_by_its_note() {
    let server = RedisServer::start();
    let [ada, bob, _] = cast(&server);
    let first = ada.lead(1).await;
    ada.release(first).await.unwrap();
    let second = ada.lead(2).await;
    let lost = ada.renew(first).await.unwrap().outcome;
    assert_eq!(lost, Outcome::Lost(LostWhy::OtherTerm(Some(second))));
    let to_bob = Request::Transfer { token: second, to: bob.id.clone(), claim_ttl: LONG };
    assert!(matches!(ada.ask(to_bob).await.unwrap().outcome, Outcome::Transferred { .. }));
    let third = bob.lead(1).await;
    let back = Request::Transfer { token: third, to: ada.id.clone(), claim_ttl: LONG };
    bob.ask(back).await.unwrap();
    // Reserved for it, not yet claimed: a late copy of an old renewal must not take it.
    let late = ada.renew(second).await.unwrap().outcome;
    assert!(matches!(late, Outcome::Lost(_)), "{late:?}");
}
