//! Ticks as a server records them, and as versions before this one did.

use std::time::Duration;

use tenure::{OnceOutcome, Tenure};
use tenure_core::protocol::{Outcome, Request, TickId, TickOutcome, Token};
use testkit::RedisServer;

use crate::actor::{Actor, LONG};

const TICKS: &str = "{tenure:job}:ticks";
const HOUR: Duration = Duration::from_secs(60 * 60);

async fn begin(actor: &Actor, token: Token, tick: &TickId) -> Outcome {
    let request = Request::TickBegin { token, tick: tick.clone(), rerun_crashed: false };
    actor.ask(request).await.unwrap().outcome
}

async fn finish(actor: &Actor, token: Token, tick: &TickId) {
    let outcome = TickOutcome::Succeeded;
    let request = Request::TickFinish { token, tick: tick.clone(), outcome, keep: LONG };
    assert_eq!(actor.ask(request).await.unwrap().outcome, Outcome::Done);
}

/// The number of the current period by the server's clock.
fn number_now(server: &RedisServer, period: Duration) -> u64 {
    let time = server.cli(&["TIME"]);
    time.lines().next().unwrap().parse::<u64>().unwrap() / period.as_secs()
}

fn hour(number: u64) -> TickId {
    TickId::Period { number, period: HOUR }
}

#[tokio::test]
async fn a_job_whose_period_was_changed_goes_on() {
    let server = RedisServer::start();
    let tenure = Tenure::builder().store(&server.url()).fresh_store(true).connect().await.unwrap();
    // From short to long: all share a name, and the short ones have by far the greatest numbers.
    for seconds in [1, 3600, 86_400, 60] {
        let tick = tenure::Tick::every(Duration::from_secs(seconds));
        let once = tenure.once("job", tick, |_| async { Ok::<_, String>(()) }).await.unwrap();
        assert_eq!(once, OnceOutcome::Ran(Ok(())), "every {seconds} s");
    }
    for seconds in [3600, 86_400] {
        let tick = tenure::Tick::every(Duration::from_secs(seconds));
        let once = tenure.once("job", tick, |_| async { Ok::<_, String>(()) }).await.unwrap();
        let is_right = match once {
            OnceOutcome::AlreadyDone(TickOutcome::Succeeded) => true,
            // The hour or the day may have ended meanwhile.
            OnceOutcome::Ran(_) => number_now(&server, Duration::from_secs(60)).is_multiple_of(60),
            _ => false,
        };
        assert!(is_right, "every {seconds} s");
    }
}

#[tokio::test]
async fn what_an_earlier_version_recorded_is_understood() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    let now = number_now(&server, HOUR);
    let earlier = |done: u64| {
        server.cli(&["DEL", TICKS]);
        server.cli(&["HSET", TICKS, "done", &done.to_string(), "outcome", "failed no paper"]);
    };
    earlier(now);
    let failed = Outcome::TickDone(TickOutcome::Failed("no paper".into()));
    assert_eq!(begin(&ada, token, &hour(now)).await, failed, "done before the upgrade");
    let done = Outcome::TickDone(TickOutcome::Succeeded);
    assert_eq!(begin(&ada, token, &hour(now - 1)).await, done, "a later one has run");
    assert_eq!(begin(&ada, token, &TickId::Number(now)).await, failed);
    assert_eq!(begin(&ada, token, &TickId::Number(now - 1)).await, done);
    earlier(now - 1);
    assert_eq!(begin(&ada, token, &hour(now)).await, Outcome::TickRuns);

    // Of another period, or finished while the clock was ahead: it says nothing.
    earlier(number_now(&server, Duration::from_secs(1)));
    assert_eq!(begin(&ada, token, &hour(now)).await, Outcome::TickRuns);
    server.cli(&["DEL", TICKS]);
    let begun = format!("begun 7 {}", ada.id.as_str());
    server.cli(&["HSET", TICKS, &format!("begun:{now}"), &begun]);
    let unfinished = begin(&ada, token, &hour(now)).await;
    assert!(matches!(unfinished, Outcome::TickUnfinished { .. }), "{unfinished:?}");
}

#[tokio::test]
async fn an_earlier_version_beside_this_one_does_not_run_a_tick_again() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    let now = number_now(&server, HOUR);
    for tick in [hour(now), TickId::Number(now + 7)] {
        assert_eq!(begin(&ada, token, &tick).await, Outcome::TickRuns);
        finish(&ada, token, &tick).await;
        let (TickId::Period { number, .. } | TickId::Number(number)) = tick else { continue };
        // What such a version compares with.
        assert_eq!(server.cli(&["HGET", TICKS, "done"]), number.to_string());
        assert_eq!(server.cli(&["HGET", TICKS, "outcome"]), "ok");
    }
    // Then that one finishes the next, and this one knows it.
    server.cli(&["HSET", TICKS, "done", &(now + 8).to_string(), "outcome", "ok"]);
    let done = Outcome::TickDone(TickOutcome::Succeeded);
    assert_eq!(begin(&ada, token, &TickId::Number(now + 8)).await, done);
}

#[tokio::test]
async fn what_others_wrote_into_the_record_breaks_nothing() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    let now = number_now(&server, HOUR);
    let series = format!("series:{}", HOUR.as_micros());
    let long = "string.rep('x', 400000)";
    let many = "string.rep('1 ok\\n', 100000)";
    let hostile = ["''", "'\\n\\n'", "'garbage'", "'-5 ok'", "'99999999999999999999 ok'", "'7'"];
    for value in hostile.into_iter().chain([long, many]) {
        for field in [series.as_str(), "done", "outcome", "done_of"] {
            server.cli(&["DEL", TICKS]);
            let write = format!("return redis.call('HSET', KEYS[1], ARGV[1], {value})");
            assert_eq!(server.cli(&["EVAL", &write, "1", TICKS, field]), "1");
            assert_eq!(begin(&ada, token, &hour(now)).await, Outcome::TickRuns, "{field}");
            finish(&ada, token, &hour(now)).await;
            let done = begin(&ada, token, &hour(now)).await;
            assert_eq!(done, Outcome::TickDone(TickOutcome::Succeeded), "{field}");
        }
    }
}

#[tokio::test]
async fn periods_that_are_over_are_forgotten() {
    let server = RedisServer::start();
    let ada = Actor::at(&server.url(), "job");
    let token = ada.lead(1).await;
    for length in 1..=300_u64 {
        // Numbers from long ago, each of another length.
        let tick = TickId::Period { number: 5, period: Duration::from_millis(length) };
        assert_eq!(begin(&ada, token, &tick).await, Outcome::TickRuns);
        finish(&ada, token, &tick).await;
    }
    let kept: u64 = server.cli(&["HLEN", TICKS]).parse().unwrap();
    assert!(kept <= 140, "{kept} fields");
    let now = hour(number_now(&server, HOUR));
    finish(&ada, token, &now).await;
    for length in 301..=600_u64 {
        let tick = TickId::Period { number: 5, period: Duration::from_millis(length) };
        finish(&ada, token, &tick).await;
    }
    assert!(matches!(begin(&ada, token, &now).await, Outcome::TickDone(_)), "it is not over");
}
