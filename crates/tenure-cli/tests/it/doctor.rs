//! `tenure doctor` finds each problem that is planted, and nothing else.

use testkit::RedisServer;

use crate::stage::{Kind, NAME, Said, Stage, plain_command};

fn codes(stage: &Stage) -> Vec<String> {
    let json = stage.json(&["doctor", NAME]);
    let found = json["findings"].as_array().unwrap();
    found.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn finds(stage: &Stage, code: &str) {
    let found = codes(stage);
    assert!(found.iter().any(|other| other == code), "{code} is not in {found:?}");
}

/// What a test server on loopback always has.
const USUAL: [&str; 2] = ["no-persistence", "single-node"];

#[test]
fn a_fleet_of_two_on_a_plain_server_has_no_problem() {
    let stage = Stage::on(Kind::Redis);
    let _ada = stage.wrap("ada", &[], "sleep 600");
    stage.wait_for_leader("ada");
    let _bob = stage.wrap("bob", &[], "sleep 600");
    stage.wait_for_members(2);
    let json = stage.json(&["doctor", NAME]);
    assert_eq!(json["problems"], 0, "{json}");
    let mut found = codes(&stage);
    found.sort();
    assert_eq!(found, USUAL, "{json}");
    let text = stage.tenure(&["doctor", NAME]);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.out.contains("do: "), "each finding says what to do: {text:?}");
}

#[test]
fn trouble_of_the_store_is_found() {
    let stage = Stage::on(Kind::Redis);
    stage.store.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    finds(&stage, "eviction");
    stage.store.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    stage.store.cli(&["CONFIG", "SET", "appendonly", "yes"]);
    assert!(!codes(&stage).contains(&"no-persistence".to_owned()));
    stage.store.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    finds(&stage, "replica");
}

#[test]
fn missing_rights_are_found() {
    let rules = "user default on nopass ~* &* +@all -publish -xadd\n";
    let server = RedisServer::builder().acl(rules).start();
    let mut command = plain_command(&["doctor", "--json"]);
    command.env("TENURE_STORE", server.url());
    let said = Said::of(command);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("\"acl\"") && said.out.contains("xadd, publish"), "{said:?}");
}

#[test]
fn an_election_that_nobody_started_is_found() {
    let stage = Stage::on(Kind::Own);
    finds(&stage, "never-started");
    assert_eq!(stage.tenure(&["doctor", NAME]).code, 1);
}

#[test]
fn lonely_and_missing_candidates_are_found() {
    let stage = Stage::on(Kind::Own);
    let mut only = stage.wrap("ada", &[], "sleep 600");
    stage.wait_for_leader("ada");
    finds(&stage, "one-candidate");
    only.terminate();
    only.wait(testkit::GENEROUS);
    finds(&stage, "no-candidate");
}

#[test]
fn twins_and_unequal_leases_are_found() {
    let stage = Stage::on(Kind::Own);
    let _one = stage.wrap("ada", &[], "sleep 600");
    let _two = stage.wrap("ada", &["--ttl", "5s"], "sleep 600");
    stage.wait_for_members(2);
    finds(&stage, "duplicate-id");
    finds(&stage, "different-ttls");
}

#[test]
fn strange_keys_are_found() {
    let stage = Stage::on(Kind::Own);
    stage.store.cli(&["SET", "tenure:job", "somebody", "EX", "100"]);
    finds(&stage, "foreign-key");
    stage.store.cli(&["PERSIST", "tenure:job"]);
    finds(&stage, "key-without-ttl");
    stage.store.cli(&["DEL", "tenure:job"]);
    stage.store.cli(&["LPUSH", "tenure:job", "x"]);
    finds(&stage, "foreign-key");
}

#[test]
fn a_pause_and_a_leader_that_fell_silent_are_found() {
    let stage = Stage::on(Kind::Own);
    let mut ada = stage.wrap("ada", &[], "sleep 600");
    stage.wait_for_leader("ada");
    ada.pause();
    // As if its lease had been written by hand: the key stays, the heartbeats do not.
    stage.store.cli(&["PEXPIRE", "tenure:job", "600000"]);
    testkit::wait_until("the silence to be told", testkit::GENEROUS, || {
        codes(&stage).contains(&"leader-silent".to_owned())
    });
    drop(ada);
    stage.store.cli(&["DEL", "tenure:job"]);
    assert_eq!(stage.tenure(&["pause", NAME]).code, 0);
    finds(&stage, "paused");
}

#[test]
fn too_many_changes_are_found() {
    let stage = Stage::on(Kind::Own);
    for _ in 0..6 {
        assert_eq!(stage.tenure(&["run", NAME, "--", "true"]).code, 0);
    }
    finds(&stage, "frequent-changes");
}

#[test]
fn candidates_of_which_none_is_ready_are_found() {
    let stage = Stage::on(Kind::Own);
    let flags = ["--health-cmd", "false", "--health-every", "100ms"];
    let _sick = stage.wrap("ada", &flags, "sleep 600");
    testkit::wait_until("the illness to be told", testkit::GENEROUS, || {
        let found = codes(&stage);
        found.iter().any(|code| code == "none-ready" || code == "leader-stalled")
    });
}
