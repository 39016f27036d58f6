//! Processes whose wall clocks are wrong, or jump: nothing may depend on them.

use std::time::Duration;

use testkit::{RedisServer, WallClock};
use trials::clock;

use crate::instance::{Instance, token_in};

const TTL: Duration = Duration::from_secs(2);
/// What a shared machine may add to anything.
const SLACK: Duration = Duration::from_secs(2);
const HOUR: i64 = 60 * 60;

#[test]
fn a_wall_clock_that_jumps_by_an_hour_moves_no_leadership() {
    let (Some(ahead), Some(behind)) = (WallClock::build(), WallClock::build()) else { return };
    let server = RedisServer::start();
    let mut leader = Instance::start_under(&ahead, &server.url(), "ahead", TTL);
    let first = leader.wait_until_watched();
    let mut standby = Instance::start_under(&behind, &server.url(), "behind", TTL);

    ahead.move_by(HOUR);
    behind.move_by(-HOUR);
    // The instances count whole seconds.
    let has_moved = |line: &str, seconds: i64| {
        let moved = line.strip_prefix("wall-clock ").and_then(|text| text.parse::<i64>().ok());
        assert!(moved.is_some_and(|moved| moved.abs_diff(seconds) <= 1), "{line}");
    };
    has_moved(&leader.wait_for("wall-clock").text, HOUR);
    has_moved(&standby.wait_for("wall-clock").text, -HOUR);
    // Several renewals, and longer than any lease.
    std::thread::sleep(TTL * 2);
    ahead.move_by(-HOUR);
    behind.move_by(HOUR);
    leader.wait_for("wall-clock");
    standby.wait_for("wall-clock");
    std::thread::sleep(TTL);

    let lost = leader.all_lines().iter().any(|line| line.text == "is-leader false");
    assert!(!lost, "the leader's jump cost it the leadership");
    let took = standby.all_lines().iter().any(|line| line.text.starts_with("work-begin"));
    assert!(!took, "the standby's jump made it take over");
    let in_store = server.cli(&["HGET", "{tenure:job}:meta", "token"]);
    assert_eq!(in_store, token_in(&first).to_string(), "still the first term");
}

#[test]
fn a_standby_with_a_wrong_wall_clock_takes_over_when_the_lease_is_over_and_not_before() {
    for hours in [-1, 1] {
        let Some(wrong) = WallClock::build() else { return };
        let server = RedisServer::start();
        let mut leader = Instance::start(&server.url(), "right", TTL);
        leader.wait_for_work();
        wrong.move_by(hours * HOUR);
        let mut standby = Instance::start_under(&wrong, &server.url(), "wrong", TTL);
        let left: u64 = server.cli(&["PTTL", "tenure:job"]).parse().unwrap();
        let lease_over_at = clock::now() + Duration::from_millis(left);

        leader.process.kill();
        // While it waits, the clock jumps the other way.
        wrong.move_by(-hours * HOUR);
        let second = standby.wait_for_work();

        assert!(second.at >= lease_over_at - Duration::from_millis(20), "{second:?} too early");
        assert!(second.at < lease_over_at + TTL + SLACK, "{second:?}, {lease_over_at:?}");
    }
}
