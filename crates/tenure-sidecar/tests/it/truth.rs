//! Every field changes when the truth does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tenure::{Election, Tenure};
use tenure_sidecar::Sidecar;
use testkit::{GENEROUS, wait_for, wait_until};

use crate::stage::{RESOURCE, Served, Stage};

const KEY: &str = "tenure:nightly-report";

/// Whatever each field was found to be in the course of a story.
#[derive(Default)]
struct Found(BTreeMap<String, BTreeSet<String>>);

impl Found {
    fn note(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(members) => {
                // An object that may be missing counts as a field, too.
                self.add(path, "present");
                members
                    .iter()
                    .for_each(|(name, value)| self.note(&format!("{path}.{name}"), value));
            }
            Value::Array(items) if items.iter().all(Value::is_object) => {
                self.add(path, &items.len().to_string());
                items.iter().for_each(|item| self.note(&format!("{path}[]"), item));
            }
            other => self.add(path, &other.to_string()),
        }
    }

    fn add(&mut self, path: &str, value: &str) {
        self.0.entry(path.to_owned()).or_default().insert(value.to_owned());
    }

    /// The fields that were the same from the beginning to the end.
    fn constant(&self) -> Vec<&str> {
        let same = self.0.iter().filter(|(_, values)| values.len() == 1);
        same.map(|(path, _)| path.as_str()).collect()
    }
}

struct Story {
    stage: Stage,
    served: Served,
    resource: Found,
    health: Found,
    standby: Found,
}

impl Story {
    fn look(&mut self) {
        self.resource.note("", &self.served.resource());
        self.health.note("", &self.served.json("/health"));
        self.standby.note("", &self.served.json("/monitoring/standby-status"));
    }

    /// Looks until the resource is as wanted.
    fn until(&mut self, what: &str, condition: impl Fn(&Value) -> bool) {
        wait_until(what, GENEROUS, || {
            let resource = self.served.resource();
            self.resource.note("", &resource);
            condition(&resource)
        });
        self.look();
    }

    fn cli(&mut self, words: &[&str]) {
        self.stage.server().cli(words);
    }

    fn wait(&self, what: &str, condition: impl FnMut() -> bool) {
        wait_until(what, GENEROUS, condition);
    }
}

#[test]
fn every_field_changes_when_the_truth_changes() {
    let mut stage = Stage::redis();
    stage.server().pause();
    let ada = stage.client("ada");
    let on_ada = stage.elect(&ada);
    let served = stage.serve_election(&ada, &on_ada);
    assert_eq!(served.get("/readyz").status, 503, "nothing was heard yet");
    assert_eq!(served.get("/livez").status, 200, "which is no reason to be killed");
    let (resource, health, standby) = Default::default();
    let mut story = Story { stage, served, resource, health, standby };
    story.look();
    story.stage.server().resume();
    story.wait("ada leads", || on_ada.is_leader());
    story.until("the leader is seen", |r| r["leader"]["leads_for_ms"].is_u64());
    assert_eq!(story.served.get("/readyz").status, 200);

    let (bob, on_bob) = members_come_and_get_ready(&mut story);
    requests_are_made(&mut story, [&ada, &bob], [&on_ada, &on_bob]);
    members_fall_silent(&mut story, &bob, &on_bob);
    the_store_fails(&mut story, &on_ada);
    strangers_interfere(&mut story);
    everybody_leaves(&mut story, &on_ada, &on_bob);

    // What is fixed when the sidecar starts, or has a test of its own.
    let fixed = [
        "",
        ".counts",
        ".enabled",
        ".key",
        ".members[]",
        ".members[].ttl_ms",
        ".members[].metadata",
        ".members[].metadata.zone",
        ".members[].stalled",
        ".members[].version",
        ".ttl_ms",
        // There is one outage in this story; `stale.rs` has more.
        ".unknown.last_leader",
        ".unknown.last_leader.foreign",
        ".unknown.last_leader.id",
        ".unknown.last_leader.instance",
        ".unknown.last_leader.token",
        ".unknown.since",
        ".unknown.text",
        ".name",
        ".reason",
        ".store",
        ".takes_part",
    ];
    let constant: Vec<&str> = story.resource.constant();
    let unexpected: Vec<_> = constant.iter().filter(|p| !fixed.contains(p)).collect();
    assert!(unexpected.is_empty(), "never changed in /status: {unexpected:?}");
    let fixed = [
        "",
        ".results",
        ".results.leader_election",
        ".results.leader_election.data",
        ".results.leader_election.data.instance_id",
        ".results.leader_election.data.resources",
        ".results.leader_election.data.resources.nightly-report",
    ];
    let unexpected: Vec<_> =
        story.health.constant().into_iter().filter(|p| !fixed.contains(p)).collect();
    assert!(unexpected.is_empty(), "never changed in /health: {unexpected:?}");
    let fixed = ["", ".standbyEnabled", ".instanceId", ".name"];
    let unexpected: Vec<_> =
        story.standby.constant().into_iter().filter(|p| !fixed.contains(p)).collect();
    assert!(unexpected.is_empty(), "never changed in the standby status: {unexpected:?}");
}

fn members_come_and_get_ready(story: &mut Story) -> (Tenure, Election) {
    let bob = story.stage.client("bob");
    let election = bob.election(RESOURCE).priority(5).metadata("zone", "b");
    let election = election.require_beat(Duration::from_secs(60)).ready(false);
    let on_bob = story.stage.runtime.block_on(election.start()).unwrap();
    story.until("bob is listed", |r| r["members"].as_array().unwrap().len() == 2);
    let refused = story.served.post("/hand-over/nightly-report", "{\"to\":\"bob\"}");
    assert_eq!(refused.status, 409, "{refused:?}");
    on_bob.set_ready(true);
    story.until("bob is ready", |r| {
        r["members"].as_array().unwrap().iter().all(|m| m["ready"] == true)
    });
    (bob, on_bob)
}

fn requests_are_made(
    story: &mut Story,
    [ada, bob]: [&Tenure; 2],
    [on_ada, on_bob]: [&Election; 2],
) {
    let election = ada.observe(RESOURCE).unwrap();
    story.stage.runtime.block_on(election.pause(Duration::from_secs(60))).unwrap();
    story.until("the pause is seen", |r| r["paused_for_ms"].is_u64());
    story.stage.runtime.block_on(ada.observe(RESOURCE).unwrap().resume()).unwrap();

    // Work that takes its time: the wish stands until it has ended.
    let handed = story.served.post("/hand-over/nightly-report", "{\"to\":\"bob\"}");
    assert_eq!(handed.status, 200, "{handed:?}");
    story.wait("bob leads", || on_bob.is_leader());
    story.until("bob is seen to lead", |r| r["leader"]["instance"] == "bob");
    let term = term_of(story, on_bob);
    let asking = bob.clone();
    let asked = story
        .stage
        .runtime
        .spawn(async move { asking.observe(RESOURCE).unwrap().ask_to_resign().await });
    story.until("the wish is seen", |r| r["wish"]["kind"] == "resign");
    drop(term);
    assert!(story.stage.runtime.block_on(asked).unwrap().unwrap().is_done());
    // On a busy machine bob may be the first again.
    hand_over(story, on_ada);
    story.until("ada leads", |r| r["role"] == "leader");
    story.until("it was renewed", |r| !r["renewals_ms"].as_array().unwrap().is_empty());
}

fn members_fall_silent(story: &mut Story, bob: &Tenure, on_bob: &Election) {
    let beats = format!("{{{KEY}}}:beats");
    testkit::wait_until("bob is silent", GENEROUS, || {
        story.cli(&["ZADD", &beats, "1000", bob.id().as_str()]);
        let resource = story.served.resource();
        story.resource.note("", &resource);
        resource["members"].as_array().unwrap().iter().any(|m| m["alive"] == false)
    });
    // A side record in the way of the heartbeat is a warning, not a failure.
    story.cli(&["RENAME", &beats, "aside"]);
    story.cli(&["SET", &beats, "in the way"]);
    story.until("the warning is seen", |r| !r["warnings"].as_array().unwrap().is_empty());
    story.cli(&["RENAME", "aside", &beats]);
    // Nobody hands over to the silent: first it has to be heard again.
    hand_over(story, on_bob);
}

fn hand_over(story: &Story, to: &Election) {
    let body = format!("{{\"to\":\"{}\"}}", to.id());
    story.wait("it leads", || {
        story.served.post("/hand-over/nightly-report", &body);
        to.is_leader()
    });
}

/// The term of an instance that leads, or is made to: on a busy machine a lease may have ended.
fn term_of(story: &Story, election: &Election) -> tenure::Term {
    wait_for("its term", GENEROUS, || {
        hand_over(story, election);
        election.term()
    })
}

fn the_store_fails(story: &mut Story, on_ada: &Election) {
    hand_over(story, on_ada);
    story.stage.server().pause();
    story.until("the store is missed", |r| r["store"]["state"] == "down");
    story.wait("ada gives up", || !on_ada.is_leader());
    story.until("what was known is over", |r| r["unknown"].is_object());
    story.stage.server().resume();
    story.until("the store is back", |r| r["store"]["state"] == "up");
    story.stage.server().restart();
    story.until("the store lost its past", |r| r["vacancy"]["code"] == "quarantine");
    story.until("somebody leads", |r| r["leader"].is_object());
}

fn strangers_interfere(story: &mut Story) {
    story.cli(&["SET", KEY, "stranger", "PX", "60000"]);
    story.until("a stranger leads", |r| r["leader"]["foreign"] == true);
    story.cli(&["DEL", KEY]);
    story.until("one of us leads", |r| r["leader"]["foreign"] == false);
}

fn everybody_leaves(story: &mut Story, on_ada: &Election, on_bob: &Election) {
    story.wait("somebody leads", || on_bob.is_leader() || on_ada.is_leader());
    // Work that takes its time to stop: meanwhile everybody knows that bob is leaving.
    let work = term_of(story, on_bob);
    let leaving = on_bob.clone();
    let left = story.stage.runtime.spawn(async move { leaving.stop().await });
    story.until("bob is seen to leave", |r| {
        r["members"].as_array().unwrap().iter().any(|m| m["departing"] == true)
    });
    drop(work);
    story.stage.runtime.block_on(left).unwrap();
    story.stage.runtime.block_on(on_ada.stop());
    story.until("nobody leads", |r| r["vacancy"]["code"] == "free");
    assert_eq!(story.served.json("/health")["status"], "Unhealthy", "the election was stopped");
    assert_eq!(story.served.get("/health").status, 503);
}

#[test]
fn stalled_work_is_shown() {
    let stage = Stage::embedded();
    let ada = stage.client("ada");
    let election = ada.election(RESOURCE).require_beat(Duration::from_millis(500)).start();
    let on_ada = stage.runtime.block_on(election).unwrap();
    let served = stage.serve_election(&ada, &on_ada);
    served.wait_for("ada is found out", "/status", |status| {
        let members = status["resources"][0]["members"].as_array().unwrap();
        members.iter().any(|member| member["stalled"] == true)
    });
}

#[test]
fn the_other_mapping_of_health_calls_a_standby_degraded() {
    let mut stage = Stage::redis();
    let (_ada, _leading) = stage.leader("ada");
    let bob = stage.client("bob");
    let on_bob = stage.elect(&bob);
    let builder = Sidecar::builder(bob).election(on_bob);
    let served = stage.serve(builder.standby_is_degraded(true));
    served.wait_for("bob stands by", "/health", |health| health["status"] == "Degraded");
    assert_eq!(served.get("/health").status, 200);
    stage.server().pause();
    let health =
        served.wait_for("the store is missed", "/health", |health| health["status"] == "Unhealthy");
    assert_eq!(health["results"]["leader_election"]["data"]["is_leader"], false);
    assert_eq!(served.get("/readyz").status, 200, "it knows whom to ask");
    stage.server().resume();
    served.wait_for("the store is back", "/health", |health| health["status"] != "Unhealthy");
}

#[test]
fn switched_off_it_leads_alone_and_says_so() {
    let stage = Stage::embedded();
    let ada = stage.client("ada");
    let election = ada.election(RESOURCE).enabled(false).start();
    let election = stage.runtime.block_on(election).unwrap();
    wait_until("it leads", GENEROUS, || election.is_leader());
    let served = stage.serve_election(&ada, &election);
    let standby = served.json("/monitoring/standby-status");
    assert_eq!(standby["standbyEnabled"], false);
    assert_eq!(standby["role"], "PRIMARY");
    assert_eq!(served.resource()["enabled"], false);
    assert_eq!(served.get("/leader").status, 200);
    assert_eq!(served.get("/readyz").status, 200);
}

#[test]
fn history_survives_a_restart_of_the_sidecar() {
    let stage = Stage::redis();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve_election(&ada, &leading);
    stage.runtime.block_on(leading.resign());
    served.wait_for("a second term", "/history/nightly-report", |history| {
        history["terms"].as_array().unwrap().len() == 2
    });
    let before = served.json("/history/nightly-report")["terms"].take();
    stage.end(served);
    let looker = stage.client("operator");
    let again = stage.serve(Sidecar::builder(looker).observe(RESOURCE));
    assert_eq!(again.json("/history/nightly-report")["terms"], before);
}
