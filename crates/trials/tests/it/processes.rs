//! Processes that die, stop and lose their store.

use std::time::Duration;

use testkit::{GENEROUS, RedisServer, wait_until};
use trials::clock;
use trials::record::Record;

use crate::instance::{Instance, token_in};

const TTL: Duration = Duration::from_secs(2);
/// What a shared machine may add to anything.
const SLACK: Duration = Duration::from_secs(2);

#[test]
fn after_kill_9_of_the_leader_the_next_one_leads_when_the_lease_is_over_and_not_before() {
    let server = RedisServer::start();
    let mut leader = Instance::start(&server.url(), "first", TTL);
    let first = leader.wait_for_work();
    let mut standby = Instance::start(&server.url(), "second", TTL);
    // Kill it right after a renewal would be due, so that the remaining lease is known to be long.
    let left: i64 = server.cli(&["PTTL", "tenure:job"]).parse().unwrap();
    let seen_at = clock::now();

    leader.process.kill();
    let second = standby.wait_for_work();

    let lease_over_at = seen_at + Duration::from_millis(left.try_into().unwrap());
    assert!(second.at >= lease_over_at - Duration::from_millis(20), "led {second:?} too early");
    assert!(second.at < lease_over_at + TTL + SLACK, "led {second:?} late: {lease_over_at:?}");
    assert!(token_in(&second) > token_in(&first), "tokens must grow");
}

#[test]
fn with_the_server_stopped_the_leader_ends_its_work_before_the_key_could_expire() {
    let mut server = RedisServer::start();
    let mut leader = Instance::start(&server.url(), "only", TTL);
    leader.wait_until_watched();
    let left: i64 = server.cli(&["PTTL", "tenure:job"]).parse().unwrap();
    let key_lives_until = clock::now() + Duration::from_millis(left.try_into().unwrap()) + TTL;

    server.pause();
    let [not_leading, ended] = leader.wait_for_both(["is-leader false", "work-end"]);
    server.resume();

    // At the latest a renewal that was under way gave the key one more lease.
    assert!(not_leading.at < key_lives_until, "{not_leading:?} after {key_lives_until:?}");
    assert!(ended.at < key_lives_until, "{ended:?} after {key_lives_until:?}");
    leader.wait_for_work();
}

#[test]
fn a_leader_stopped_past_its_lease_is_none_at_its_very_first_look() {
    let server = RedisServer::start();
    let mut leader = Instance::start(&server.url(), "sleeper", TTL);
    let first = leader.wait_until_watched();
    let mut standby = Instance::start(&server.url(), "waiter", TTL);

    leader.process.pause();
    let second = standby.wait_for_work();
    leader.process.resume();

    let [resumed, _] = leader.wait_for_both(["resumed", "work-end"]);
    assert_eq!(resumed.text, "resumed leader-before=true leader=false");
    let told: Vec<_> =
        leader.all_lines().iter().filter(|line| line.text.contains("told")).collect();
    // Nobody could have stopped in time, so that is no overrun of the work.
    assert_eq!(
        told.first().map(|line| line.text.as_str()),
        Some("told lost not-running"),
        "{told:?}"
    );
    assert!(token_in(&second) > token_in(&first));
    assert!(standby.process.is_running());
}

#[test]
fn sigterm_ends_work_then_releases_and_the_standby_leads_at_once() {
    let server = RedisServer::start();
    // A long lease: whoever waited for it to expire would be far too late.
    let ttl = Duration::from_secs(20);
    let mut leader = Instance::start_with(&server.url(), "a", ttl, &["--lingers-ms", "300"]);
    leader.wait_for_work();
    let mut standby = Instance::start(&server.url(), "b", ttl);
    wait_for_members(&server, 2);

    let told_at = clock::now();
    leader.process.terminate();
    let ended = leader.wait_for("work-end");
    let next = standby.wait_for_work();

    assert!(ended.at < next.at, "work of both at once: {ended:?}, {next:?}");
    assert!(next.at < told_at + Duration::from_millis(300) + SLACK + SLACK);
    leader.wait_for("stopped");
}

#[test]
fn a_third_process_asks_for_a_resignation_and_for_a_hand_over() {
    let server = RedisServer::start();
    let ttl = Duration::from_secs(20);
    let mut instances = vec![Instance::start(&server.url(), "a", ttl)];
    instances[0].wait_for_work();
    instances.push(Instance::start(&server.url(), "b", ttl));
    wait_for_members(&server, 2);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let operator = runtime.block_on(tenure::Tenure::connect(&server.url())).unwrap();

    let asked = runtime.block_on(operator.observe("job").unwrap().ask_to_resign()).unwrap();
    assert!(asked.is_done(), "{asked:?}");
    instances[1].wait_for_work();

    let refused =
        runtime.block_on(operator.observe("job").unwrap().ask_to_hand_over("nobody")).unwrap();
    assert!(format!("{refused:?}").contains("not a member"), "{refused:?}");

    let asked = runtime.block_on(operator.observe("job").unwrap().ask_to_hand_over("a")).unwrap();
    assert!(asked.is_done(), "{asked:?}");
    instances[0].wait_for_work();

    let mut record = Record::default();
    for instance in &mut instances {
        instance.record_work(&mut record, clock::now());
    }
    assert_eq!(record.len(), 3, "{record:?}");
    assert_eq!(record.overlaps(), []);
    assert_eq!(record.token_disorder(), []);
}

#[test]
fn a_rolling_restart_of_five_moves_the_leadership_a_bounded_number_of_times() {
    let server = RedisServer::start();
    let ttl = Duration::from_secs(10);
    let start = |name: &str| Instance::start(&server.url(), name, ttl);
    let names = ["a", "b", "c", "d", "e"];
    let mut running = vec![start(names[0])];
    running[0].wait_for_work();
    running.extend(names[1..].iter().map(|name| start(name)));
    wait_for_members(&server, 5);
    let mut gone = Vec::new();

    for index in 0..names.len() {
        running[index].process.terminate();
        running[index].wait_for("stopped");
        gone.push(std::mem::replace(&mut running[index], start(names[index])));
        wait_for_members(&server, 5);
    }

    let mut record = Record::default();
    let now = clock::now();
    gone.iter_mut().chain(&mut running).for_each(|instance| instance.record_work(&mut record, now));
    println!("terms in a rolling restart of five: {}", record.len());
    assert!(record.len() <= names.len() + 1, "{} terms: {record:?}", record.len());
    assert_eq!(record.overlaps(), []);
    assert_eq!(record.token_disorder(), []);
    let longest = record.longest_gap().unwrap();
    println!("longest time without a leader: {longest:?}");
    assert!(longest < SLACK, "leaderless for {longest:?} although every leader released");
}

fn wait_for_members(server: &RedisServer, count: usize) {
    wait_until("all members to be there", GENEROUS, || {
        server.cli(&["ZCARD", "{tenure:job}:beats"]) == count.to_string()
    });
}
