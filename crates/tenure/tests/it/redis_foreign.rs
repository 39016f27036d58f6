//! What others write into our keys: reported, bounded, and not destroyed.

use std::time::Duration;

use tenure_core::protocol::{Acquire, Answer, LostWhy, Outcome, Request, Token};
use testkit::RedisServer;

use crate::actor::{Actor, LONG, attempt_of, is_granted};

const KEY: &str = "tenure:job";
const META: &str = "{tenure:job}:meta";
const SHORT: Duration = Duration::from_millis(500);

fn warns(answer: &Answer, of: &str) -> bool {
    answer.warnings.iter().any(|warning| warning.contains(of))
}

#[tokio::test]
async fn a_script_flush_goes_unnoticed() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    for _ in 0..3 {
        server.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    }
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(ada.release(token).await.unwrap().outcome, Outcome::Released);
    assert_eq!(server.cli(&["EXISTS", KEY]), "0");
}

#[tokio::test]
async fn a_side_record_of_another_type_or_version_is_a_conflict_and_stays() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    server.cli(&["SET", META, "mine"]);
    let outcome = ada.acquire(1).await.unwrap().outcome;
    assert!(matches!(&outcome, Outcome::Conflict { what } if what.contains(META)), "{outcome:?}");
    assert_eq!(server.cli(&["GET", META]), "mine");

    server.cli(&["DEL", META]);
    server.cli(&["HSET", META, "v", "2", "token", "5"]);
    let outcome = ada.acquire(2).await.unwrap().outcome;
    assert!(matches!(&outcome, Outcome::Conflict { what } if what.contains("version 2")));
    assert_eq!(server.cli(&["HGET", META, "token"]), "5");
    assert_eq!(server.cli(&["EXISTS", KEY]), "0");
}

#[tokio::test]
async fn side_keys_of_another_type_cost_warnings_and_not_the_lease() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    for side in ["history", "beats", "members"] {
        server.cli(&["SET", &format!("{{{KEY}}}:{side}"), "mine"]);
    }
    let answer = ada.acquire(1).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Granted { .. }), "{answer:?}");
    assert!(warns(&answer, "history") && warns(&answer, "members"), "{:?}", answer.warnings);
    let Outcome::Granted { token } = answer.outcome else { unreachable!() };
    assert_eq!(ada.renew(token).await.unwrap().outcome, Outcome::Renewed);
    let released = ada.release(token).await.unwrap();
    assert_eq!(released.outcome, Outcome::Released);
    assert!(warns(&released, "history"), "{:?}", released.warnings);
    assert_eq!(server.cli(&["GET", "{tenure:job}:history"]), "mine");
}

#[tokio::test]
async fn a_redisson_hash_at_the_key_is_reported_and_left_alone() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    server.cli(&["HSET", KEY, "0b7e:61", "1"]);
    let answer = ada.acquire(1).await.unwrap();
    assert!(matches!(&answer.outcome, Outcome::Conflict { what } if what.contains("hash")));
    let lost = ada.renew(Token::new(7).unwrap()).await.unwrap().outcome;
    assert!(matches!(lost, Outcome::Lost(LostWhy::Overwritten(_))), "{lost:?}");
    assert_eq!(server.cli(&["HGETALL", KEY]), "0b7e:61\n1");
    assert_eq!(server.cli(&["DBSIZE"]), "1", "a conflict leaves no trace");
}

#[tokio::test]
async fn a_token_that_is_no_number_counts_as_lost_and_is_told() {
    let server = RedisServer::start();
    for (index, garbage) in ["abc", "-1", "9007199254740992", "1e400", ""].iter().enumerate() {
        let name = format!("garbage-{index}");
        let ada = Actor::at(&server.url(), &name);
        let token = ada.lead(1).await;
        ada.release(token).await.unwrap();
        server.cli(&["HSET", &format!("{{tenure:{name}}}:meta"), "token", garbage]);
        let knowing = Acquire { floor: Some(token), ..attempt_of(2, SHORT) };
        let answer = ada.ask(Request::Acquire(knowing.clone())).await.unwrap();
        assert!(matches!(answer.outcome, Outcome::Quarantine { .. }), "{garbage:?}: {answer:?}");
        assert!(warns(&answer, "taken as lost"), "{garbage:?}: {:?}", answer.warnings);
    }
}

#[tokio::test]
async fn numbers_far_in_the_future_are_refused_or_cut_short() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    ada.release(token).await.unwrap();

    // A token of the next decade: nobody could draw a greater one for years.
    server.cli(&["HSET", META, "token", "9007199254740000"]);
    let outcome = ada.acquire(2).await.unwrap().outcome;
    assert!(matches!(&outcome, Outcome::Conflict { what } if what.contains("year")), "{outcome:?}");
    server.cli(&["HSET", META, "token", &token.to_string()]);

    // The same, seen by the caller.
    let floor = Token::new(9_007_199_254_740_000).unwrap();
    let outcome =
        ada.ask(Request::Acquire(Acquire { floor: Some(floor), ..attempt_of(3, LONG) })).await;
    let outcome = outcome.unwrap().outcome;
    assert!(matches!(&outcome, Outcome::Conflict { what } if what.contains("year")), "{outcome:?}");

    // A quarantine for centuries ends after the longest lease.
    server.cli(&["HSET", META, "quarantine_until", "9007199254740000"]);
    let answer = ada.ask(Request::Acquire(attempt_of(4, SHORT))).await.unwrap();
    let Outcome::Quarantine { left, .. } = answer.outcome else { panic!("{answer:?}") };
    assert!(left <= LONG * 2, "{left:?}");
    assert!(warns(&answer, "cut short"), "{:?}", answer.warnings);
}

#[tokio::test]
async fn a_forged_cover_of_a_quarantine_draws_no_token_of_the_future() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    ada.release(token).await.unwrap();
    for (attempt, covers) in (2..).zip(["4000000000000000 0", "9007199254740991 0"]) {
        server.cli(&["HSET", META, "quarantine_covers", covers]);
        let next = ada.lead(attempt).await;
        assert!(next.get() < token.get() + 3_600_000_000, "{next} follows {token}");
        ada.release(next).await.unwrap();
    }
    server.cli(&["HSET", META, "quarantine_until", "7", "quarantine_covers", "4000000000000000 7"]);
    let next = ada.lead(4).await;
    assert!(next.get() < token.get() + 3_600_000_000, "{next} follows {token}");
}

#[tokio::test]
async fn a_forged_end_of_a_lease_delays_nobody_for_ever() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    for (attempt, field) in [(1, "expires_at"), (1_000, "renewed_at")] {
        let first = ada.ask(Request::Acquire(attempt_of(attempt, SHORT))).await;
        assert!(is_granted(&first), "{first:?}");
        server.cli(&["DEL", KEY]);
        server.cli(&["HSET", META, "expires_at", "9007199254740991"]);
        server.cli(&["HDEL", META, if field == "renewed_at" { field } else { "nothing" }]);
        let lock_delay = Duration::from_millis(200);
        let delayed = Acquire { lock_delay, ..attempt_of(attempt + 1, SHORT) };
        let last = ada.acquire_until("a grant", delayed, is_granted).await.unwrap();
        ada.release(last.view.token.unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_forged_quarantine_is_bounded() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    server.cli(&["SET", KEY, "~quarantine"]);
    let answer = ada.ask(Request::Acquire(attempt_of(1, SHORT))).await.unwrap();
    let Outcome::Quarantine { left, .. } = answer.outcome else { panic!("{answer:?}") };
    assert!(left <= SHORT * 2, "{left:?}");
    assert!(warns(&answer, "without a bound"), "{:?}", answer.warnings);
    let last = ada.acquire_until("a grant", attempt_of(2, SHORT), is_granted).await.unwrap();
    assert!(last.view.token.is_some());
}

#[tokio::test]
async fn any_bytes_at_the_key_are_shown_and_healed_safely() {
    let server = RedisServer::start();
    let values = ["\u{1b}[31m\r\nowned", "\u{202e}evil", "back\\slash", "", "LONG"];
    for (index, value) in values.iter().enumerate() {
        let name = format!("odd-{index}");
        let ada = Actor::at(&server.url(), &name);
        let key = format!("tenure:{name}");
        match *value {
            "LONG" => server.cli(&["SETRANGE", &key, "1000000", "x"]),
            value => server.cli(&["SET", &key, value]),
        };
        let seen = ada.ask(Request::Acquire(attempt_of(1, SHORT))).await.unwrap();
        assert_eq!(seen.outcome, Outcome::Held);
        assert!(seen.view.foreign && seen.view.pttl.is_none());
        let holder = seen.view.holder.unwrap();
        assert!(holder.as_str().len() < 3000);
        assert!(!holder.as_str().contains(['\u{1b}', '\r', '\n', '\u{202e}']), "{holder}");
        let heal = Acquire { heal: Some(holder), ..attempt_of(2, SHORT) };
        let healed = ada.ask(Request::Acquire(heal)).await.unwrap();
        assert!(healed.view.pttl.is_some(), "{name}: {healed:?}");
        assert!(warns(&healed, "no expiry"), "{:?}", healed.warnings);
    }
    // Bytes that are no text at all.
    server.cli(&["EVAL", "return redis.call('SET', KEYS[1], '\\255\\254\\0')", "1", KEY]);
    let ada = Actor::at(&server.url(), "job");
    let holder = ada.acquire(1).await.unwrap().view.holder.unwrap();
    assert_eq!(holder.as_str(), r"\xff\xfe\x00");
    let heal = Acquire { heal: Some(holder), ..attempt_of(2, SHORT) };
    let healed = ada.ask(Request::Acquire(heal)).await.unwrap();
    assert!(healed.view.pttl.is_some(), "{healed:?}");
}

#[tokio::test]
async fn forged_members_are_capped_and_aged_out() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let forge = "for i = 1, 6000 do \
        redis.call('ZADD', KEYS[1], i % 3 == 0 and '9e15' or ARGV[1], 'forged' .. i) \
        redis.call('HSET', KEYS[2], 'forged' .. i, '99999999999999999 p=2147483647;r=1') end";
    let now = server.cli(&["TIME"]).lines().next().unwrap().to_owned() + "000";
    let keys = ["{tenure:job}:beats", "{tenure:job}:members"];
    server.cli(&["EVAL", forge, "2", keys[0], keys[1], &now]);
    let acquire = Acquire { members: true, ..attempt_of(1, LONG) };
    let answer = ada.ask(Request::Acquire(acquire)).await.unwrap();
    assert!(matches!(answer.outcome, Outcome::Granted { .. }), "{:?}", answer.outcome);
    let members = answer.view.members.unwrap();
    assert!(members.len() <= 1024, "{}", members.len());
    let future = members.iter().find(|member| member.beat_at > answer.view.server_time);
    assert!(future.is_none(), "{future:?}");
    let ahead = members.iter().find(|m| m.ready_since > Some(answer.view.server_time));
    assert!(ahead.is_none(), "{ahead:?}");
    let left: u64 = server.cli(&["ZCARD", keys[0]]).parse().unwrap();
    assert!(left <= 4097, "{left} beats are kept");
}

#[tokio::test]
async fn silent_members_are_forgotten_but_never_the_holder() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let bob = ada.beside("bob");
    ada.lead(1).await;
    let ancient = ["ZADD", "{tenure:job}:beats", "1", "gone", "1", ada.id.as_str()];
    server.cli(&ancient);
    server.cli(&["HSET", "{tenure:job}:members", "gone", "0 p=1"]);
    let acquire = Acquire { members: true, ..attempt_of(1, LONG) };
    let answer = bob.ask(Request::Acquire(acquire)).await.unwrap();
    let members: Vec<_> = answer.view.members.unwrap().into_iter().map(|m| m.id).collect();
    assert!(members.contains(&ada.id) && members.contains(&bob.id), "{members:?}");
    assert_eq!(members.len(), 2, "{members:?}");
    assert_eq!(server.cli(&["HEXISTS", "{tenure:job}:members", "gone"]), "0");
}

#[tokio::test]
async fn abandoned_attempts_are_bounded() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    for number in 0..400 {
        let passing = ada.beside(&format!("passing-{number}"));
        passing.ask(Request::Abandon { attempt: 1 }).await.unwrap();
    }
    let fields: u64 = server.cli(&["HLEN", META]).parse().unwrap();
    assert!(fields < 300, "{fields} fields");
}
