//! Servers that are full, gone, frozen, restarted or demoted, and lines that lose or slice bytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::backend::redis::RedisBackend;
use tenure::backend::{Backend, Connection};
use tenure_core::protocol::{Acquire, Call, Outcome, Request, Token};
use tenure_core::{Resource, StoreError, StoreErrorKind};
use testkit::proxy::{Cut, Direction, Door, Rule};
use testkit::{Proxy, RedisServer};

use crate::actor::{Actor, LONG, PATIENT, attempt_of, is_granted};

const SHORT: Duration = Duration::from_millis(500);
const QUICK: Duration = Duration::from_millis(300);

async fn is_up(backend: &Arc<dyn Backend>) {
    let mut state = backend.connection();
    let up = state.wait_for(|state| *state == Connection::Up);
    tokio::time::timeout(PATIENT, up).await.expect("the connection comes up").unwrap();
}

/// Renews until there is an answer: the line may have broken unnoticed.
async fn renewed_at_last(actor: &Actor, token: Token) -> Outcome {
    for _ in 0..500 {
        if let Ok(answer) = actor.renew(token).await {
            return answer.outcome;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no renewal was ever answered");
}

#[tokio::test]
async fn with_full_memory_nobody_is_granted_and_the_holder_renews() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    let free = ada.beside("bob");
    let other = Actor { resource: Resource::named("other").unwrap(), ..free };
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = other.acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::NotNow, "{error:?}");
    assert!(error.message().contains("OOM"), "{error:?}");
    assert_eq!(server.cli(&["EXISTS", "tenure:other"]), "0");
    for _ in 0..3 {
        assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    }
    let ttl: i64 = server.cli(&["PTTL", "tenure:job"]).parse().unwrap();
    assert!(ttl > LONG.as_millis() as i64 / 2);
    let to = other.id.clone();
    let handed = ada.ask(Request::Transfer { token, to, claim_ttl: SHORT }).await.unwrap().outcome;
    assert!(matches!(handed, Outcome::Transferred { .. }), "{handed:?}");

    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    other.lead(1).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let view = other.ask(Request::Observe { members: false }).await.unwrap().view;
    assert_eq!(other.release(view.token.unwrap()).await.unwrap().outcome, Outcome::Released);
}

#[tokio::test]
async fn a_server_that_restarts_empty_makes_everyone_wait() {
    let mut server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    server.restart();
    let lost = renewed_at_last(&ada, token).await;
    assert!(matches!(lost, Outcome::Lost(_)), "{lost:?}");
    // A newcomer that never saw a token waits, too, unless the user vouches for the store.
    let bob = ada.beside("bob");
    let newcomer = Acquire { fresh_store: false, ..attempt_of(1, SHORT) };
    let waiting = |answer: &Result<tenure_core::protocol::Answer, StoreError>| {
        matches!(answer.as_ref().map(|a| &a.outcome), Ok(Outcome::Quarantine { .. }))
    };
    let answer = bob.acquire_until("a quarantine", newcomer.clone(), waiting).await.unwrap();
    let Outcome::Quarantine { left, reason } = answer.outcome else { unreachable!() };
    assert!(left > SHORT && reason.contains("no record"), "{left:?}: {reason}");
    assert_eq!(server.cli(&["GET", "tenure:job"]), "~quarantine");
    let last = Acquire { attempt: 1000, ..newcomer };
    let answer = bob.acquire_until("a grant", last, is_granted).await.unwrap();
    assert!(answer.view.token > Some(token));
}

#[tokio::test]
async fn a_restart_with_all_data_keeps_the_holder_and_quarantines_others() {
    let mut server = RedisServer::builder().args(["--appendonly", "yes"]).start();
    let ada = Actor::at(&server.url(), "job");
    let bob = ada.beside("bob");
    let token = match ada.ask(Request::Acquire(attempt_of(1, SHORT * 20))).await.unwrap().outcome {
        Outcome::Granted { token } => token,
        other => panic!("{other:?}"),
    };
    server.cli(&["CONFIG", "SET", "appendfsync", "always"]);
    ada.renew(token).await.unwrap();
    let kept = server.cli(&["HGET", "{tenure:job}:meta", "token"]);
    server.restart();
    assert_eq!(server.cli(&["HGET", "{tenure:job}:meta", "token"]), kept);
    assert_eq!(renewed_at_last(&ada, token).await, Outcome::Renewed);
    ada.release(token).await.unwrap();
    let outcome = bob.acquire(1).await.unwrap().outcome;
    assert!(matches!(outcome, Outcome::Quarantine { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_frozen_server_fails_calls_in_time_and_recovers() {
    let mut server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    server.pause();
    for _ in 0..3 {
        let asked_at = Instant::now();
        let error = ada.within(QUICK).renew(token).await.unwrap_err();
        assert!(asked_at.elapsed() < QUICK + Duration::from_secs(5), "{:?}", asked_at.elapsed());
        let expected =
            matches!(error.kind(), StoreErrorKind::TimedOut | StoreErrorKind::Unreachable);
        assert!(expected, "{error:?}");
    }
    assert!(matches!(&*ada.backend.connection().borrow(), Connection::Down(_)));
    server.resume();
    is_up(&ada.backend).await;
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
}

#[tokio::test]
async fn a_server_that_is_down_at_first_is_found_when_it_comes() {
    let mut server = RedisServer::start();
    server.kill();
    let ada = Actor::at(&server.url(), "job");
    let error = ada.within(QUICK).acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error:?}");
    server.restart();
    is_up(&ada.backend).await;
    ada.lead(2).await;
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_gets_the_same_term() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ada = Actor::at(&server.url_at(proxy.port()), "job");
    is_up(&ada.backend).await;
    proxy.set_rule(Direction::ToClient, Rule::Swallow);
    assert!(ada.within(QUICK).acquire(1).await.is_err());
    assert_eq!(server.cli(&["GET", "tenure:job"]), ada.id.as_str(), "it was carried out");
    let granted = server.cli(&["HGET", "{tenure:job}:meta", "token"]);
    proxy.heal();
    let token = ada.lead(1).await;
    assert_eq!(token.to_string(), granted);
    // And the other way to settle it: undone, and refused for good.
    let bob = ada.beside("bob");
    ada.release(token).await.unwrap();
    proxy.set_rule(Direction::ToClient, Rule::Swallow);
    assert!(bob.within(QUICK).acquire(1).await.is_err());
    proxy.heal();
    let undone = bob.ask(Request::Abandon { attempt: 1 }).await.unwrap().outcome;
    assert_eq!(undone, Outcome::Abandoned { was_granted: true });
    assert_eq!(bob.acquire(1).await.unwrap().outcome, Outcome::AttemptRefused);
    bob.lead(2).await;
}

#[tokio::test]
async fn a_dead_line_is_replaced_beside_and_holds_up_nobody_for_long() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ada = Actor::at(&server.url_at(proxy.port()), "job");
    let token = ada.lead(1).await;
    let before = proxy.connections_accepted();
    // The present connection dies silently; new ones work.
    proxy.set_rules(Rule::HalfOpen);
    assert!(ada.within(QUICK).renew(token).await.is_err());
    proxy.heal();
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    proxy.set_door(Door::Refuse);
    proxy.cut(Cut::Reset);
    assert!(ada.within(QUICK).renew(token).await.is_err());
    proxy.heal();
    is_up(&ada.backend).await;
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    assert!(proxy.connections_accepted() > before);
}

#[tokio::test]
async fn a_server_that_is_only_slow_is_not_dialled_for_every_answer_that_is_late() {
    const ROUNDS: u64 = 20;
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ada = Actor::at(&server.url_at(proxy.port()), "job");
    let token = ada.lead(1).await;
    let before = proxy.connections_accepted();
    // Later than a line is suspected, soon enough for the same line to be used on.
    proxy.set_rule(Direction::ToClient, Rule::Delay(Duration::from_millis(150)));
    for _ in 0..ROUNDS {
        assert!(ada.within(Duration::from_millis(50)).renew(token).await.is_err());
        is_up(&ada.backend).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let dialled = proxy.connections_accepted() - before;
    assert!(dialled <= ROUNDS / 2, "{dialled} connections for {ROUNDS} late answers");
}

#[tokio::test]
async fn a_line_that_ends_while_nobody_uses_it_is_replaced_before_the_next_request() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    let mut state = ada.backend.connection();
    state.mark_unchanged();
    server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    tokio::time::timeout(PATIENT, state.changed()).await.expect("it is noticed").unwrap();
    is_up(&ada.backend).await;
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
}

#[tokio::test]
async fn slow_and_sliced_answers_are_put_together() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ada = Actor::at(&server.url_at(proxy.port()), "job");
    let token = ada.lead(1).await;
    proxy.set_rules(Rule::Slice { bytes: 3, pause: Duration::from_micros(200) });
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    proxy.set_rules(Rule::Delay(Duration::from_millis(50)));
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    for bytes in [1, 5, 40, 200] {
        proxy.set_rule(Direction::ToClient, Rule::CutAfter { bytes, cut: Cut::Reset });
        // Cut in the middle of an answer: an error, and the next call works again.
        let _ = ada.within(Duration::from_secs(2)).renew(token).await;
        proxy.heal();
        assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed, "after {bytes}");
    }
}

#[tokio::test]
async fn a_late_answer_is_never_taken_for_the_next_one() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ada = Actor::at(&server.url_at(proxy.port()), "job");
    let bob = Actor { resource: Resource::named("other").unwrap(), ..ada.beside("bob") };
    let token = ada.lead(1).await;
    let other = bob.lead(1).await;
    proxy.set_rule(Direction::ToClient, Rule::Delay(Duration::from_millis(200)));
    for _ in 0..5 {
        let _ = ada.within(Duration::from_millis(50)).renew(token).await;
        let answer = bob.renew(other).await.unwrap();
        assert_eq!((answer.view.token, answer.view.holder), (Some(other), Some(bob.id.clone())));
    }
    proxy.heal();
    assert_eq!(ada.renew(token).await.unwrap().view.token, Some(token));
}

#[tokio::test]
async fn a_demoted_master_is_left_and_a_new_one_found() {
    let server = RedisServer::start();
    let next = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let ada = Actor::at(&server.url_at(proxy.port()), "job");
    let token = ada.lead(1).await;
    server.cli(&["REPLICAOF", "127.0.0.1", &next.port().to_string()]);
    let error = ada.within(QUICK).renew(token).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::WrongNode, "{error:?}");
    let error = ada.within(QUICK).renew(token).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::WrongNode, "{error:?}");
    proxy.set_target(([127, 0, 0, 1], next.port()).into());
    let outcome = renewed_at_last(&ada, token).await;
    assert!(matches!(outcome, Outcome::Lost(_)), "{outcome:?}");
}

#[tokio::test]
async fn a_failover_is_noticed_by_the_replication_id_and_quarantines() {
    let server = RedisServer::start();
    let replica = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    // The first replica changes nothing for anybody.
    replica.cli(&["REPLICAOF", "127.0.0.1", &server.port().to_string()]);
    testkit::wait_until("the copy", testkit::GENEROUS, || {
        replica.cli(&["EXISTS", "tenure:job"]) == "1"
    });
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    ada.release(token).await.unwrap();
    let token = ada.lead(2).await;
    testkit::wait_until("the copy", testkit::GENEROUS, || {
        replica.cli(&["HGET", "{tenure:job}:meta", "token"]) == token.to_string()
    });
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    let bob = Actor::at(&replica.url(), "job");
    // The holder with its key goes on, everyone else waits after it.
    let there = Actor { backend: Arc::clone(&bob.backend), ..ada.clone() };
    assert_eq!(there.renew(token).await.unwrap().outcome, Outcome::Renewed);
    there.release(token).await.unwrap();
    let outcome = bob.acquire(1).await.unwrap().outcome;
    let is_told =
        matches!(&outcome, Outcome::Quarantine { reason, .. } if reason.contains("failed"));
    assert!(is_told, "{outcome:?}");
}

#[tokio::test]
async fn calls_made_together_go_out_together() {
    let server = RedisServer::start();
    let backend = Arc::new(RedisBackend::open(&server.url()).unwrap());
    let ada = Actor::new("ada", "job", backend.clone());
    is_up(&ada.backend).await;
    let calls: Vec<_> = (0..100)
        .map(|number| {
            let resource = Resource::named(&format!("job-{number}")).unwrap();
            let request = Request::Acquire(attempt_of(1, LONG));
            let (id, fleet_max_ttl) = (ada.id.clone(), LONG);
            backend.call(Call { resource, id, request, timeout: PATIENT, fleet_max_ttl })
        })
        .collect();
    let before = backend.pipelines_sent();
    for call in calls {
        let outcome = call.await.unwrap().outcome;
        assert!(matches!(outcome, Outcome::Granted { .. }), "{outcome:?}");
    }
    assert_eq!(backend.pipelines_sent() - before, 1);
}

#[tokio::test]
async fn one_bad_answer_in_a_batch_hurts_nobody_else() {
    let server = RedisServer::start();
    let backend = Arc::new(RedisBackend::open(&server.url()).unwrap());
    let ada = Actor::new("ada", "job", backend.clone());
    is_up(&ada.backend).await;
    server.cli(&["HSET", "tenure:bad", "a", "b"]);
    let call = |name: &str, token| {
        let resource = Resource::named(name).unwrap();
        let request = match token {
            None => Request::Acquire(attempt_of(1, LONG)),
            Some(tick) => Request::TickLook { tick },
        };
        let (id, fleet_max_ttl) = (ada.id.clone(), LONG);
        backend.call(Call { resource, id, request, timeout: PATIENT, fleet_max_ttl })
    };
    let calls =
        [call("good", None), call("bad", None), call("fine", None), call("good", Some(tick()))];
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await.unwrap().outcome);
    }
    assert!(matches!(outcomes[0], Outcome::Granted { .. }), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Conflict { .. }), "{outcomes:?}");
    assert!(matches!(outcomes[2], Outcome::Granted { .. }), "{outcomes:?}");
    assert!(matches!(outcomes[3], Outcome::TickUnknown), "{outcomes:?}");
}

fn tick() -> tenure_core::protocol::TickId {
    tenure_core::protocol::TickId::Number(1)
}

#[tokio::test]
async fn a_standby_asks_once_and_a_renewal_is_one_request() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let bob = ada.beside("bob");
    let token = ada.lead(1).await;
    bob.acquire(1).await.unwrap();
    ada.renew(token).await.unwrap();
    let monitor = server.monitor();
    bob.acquire(2).await.unwrap();
    assert_eq!(monitor.requests().len(), 1, "{:?}", monitor.requests());
    ada.renew(token).await.unwrap();
    assert_eq!(monitor.requests().len(), 2, "{:?}", monitor.requests());
}

#[tokio::test]
async fn after_the_backend_is_dropped_a_queued_release_still_goes_out() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    let reason = tenure_core::protocol::CloseReason::Released;
    let request = Request::Release { token, reason };
    let (resource, id, fleet_max_ttl) = (ada.resource.clone(), ada.id.clone(), LONG);
    drop(ada.backend.call(Call { resource, id, request, timeout: PATIENT, fleet_max_ttl }));
    drop(ada);
    for _ in 0..1000 {
        if server.cli(&["EXISTS", "tenure:job"]) == "0" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the release never arrived");
}

#[tokio::test]
async fn tokens_stay_above_every_floor_that_was_seen() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    ada.release(token).await.unwrap();
    let floor = Token::new(token.get() + 3_600_000_000).unwrap();
    let acquire = Acquire { floor: Some(floor), ..attempt_of(2, SHORT) };
    let acquire = Acquire { fleet_max_ttl: SHORT, ..acquire };
    server.cli(&["HSET", "{tenure:job}:meta", "max_ttl", "500"]);
    let answer = ada.acquire_until("a grant", acquire, is_granted).await.unwrap();
    assert!(answer.view.token > Some(floor));
}
