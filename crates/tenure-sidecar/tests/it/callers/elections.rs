//! Elections that are joined and left at run time.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_sidecar::{Hook, Sidecar};
use testkit::{GENEROUS, TempFolder, wait_until};

use super::{ADA, BOB, code, empty, said};
use crate::http::Stream;
use crate::stage::{RESOURCE, Stage};

const JOIN: &str = "/elections/nightly-report";
const KEEP: &str = "/elections/nightly-report/keep";

fn owned_by(owner: &str, within_ms: u64) -> String {
    json!({ "owner": owner, "within_ms": within_ms }).to_string()
}

fn keep_of(owner: &str) -> String {
    json!({ "owner": owner, "wait_ms": 20_000 }).to_string()
}

#[test]
fn a_program_joins_leads_and_leaves_on_each_store() {
    Stage::on_each(|stage| {
        let served = empty(stage, "ada");
        assert_eq!(served.get("/health").status, 200, "it waits for programs");
        assert_eq!(served.get("/leader").status, 503);
        let mut events = Stream::open(served.address, &[]);
        let body = json!({ "owner": ADA, "within_ms": 60_000, "priority": 7,
            "metadata": { "zone": "b" }, "version": "3" });
        let joined = served.post(JOIN, &body.to_string());
        assert_eq!((joined.status, &joined.json()["owner"]), (201, &ADA.into()), "{joined:?}");
        assert_eq!(served.post(JOIN, &body.to_string()).status, 200, "the same once more");
        testkit::wait_for("it leads", GENEROUS, || {
            let kept = served.post(KEEP, &keep_of(ADA));
            assert_eq!(kept.status, 200, "{kept:?}");
            kept.json()["valid_for_ms"].as_u64().filter(|valid| *valid > 0)
        });
        assert_eq!(served.get("/leader/nightly-report").status, 200);
        assert!(served.metrics().body.contains("leader_election_master_status"));
        let member = served.wait_for("it is listed", "/status", |status| {
            status["resources"][0]["members"][0].is_object()
        });
        let member = &member["resources"][0]["members"][0];
        assert_eq!((&member["priority"], &member["metadata"]["zone"]), (&7.into(), &"b".into()));
        events.next_with(|e| e.kind == "resource" && e.data["name"] == RESOURCE);

        let left = served.delete(&format!("{JOIN}?owner={ADA}"));
        assert_eq!((left.status, &left.json()["released"]), (200, &true.into()), "{left:?}");
        events.next_with(|e| e.kind == "gone" && e.data["name"] == RESOURCE);
        assert_eq!(code(&served.get("/leader/nightly-report")), said(404, "not-found"));
        assert_eq!(code(&served.post(KEEP, &keep_of(ADA))), said(404, "not-found"));
        let next = empty(stage, "bob");
        next.post(JOIN, &owned_by(BOB, 60_000));
        let leads = || next.post(KEEP, &keep_of(BOB)).json()["is_leader"] == true;
        wait_until("the next one leads", GENEROUS, leads);
    });
}

#[test]
fn a_program_that_is_gone_does_not_lead_for_ever() {
    let stage = Stage::redis();
    let served = empty(&stage, "ada");
    let mut last = None;
    wait_until("it leads", GENEROUS, || {
        // Once more, should it have been silent for too long on a busy machine.
        served.post(JOIN, &owned_by(ADA, 1_000));
        last = served.post(KEEP, &keep_of(ADA)).json()["token"].as_u64();
        last.is_some()
    });
    // It says nothing any more. Others hear of it from the store.
    let bob = stage.client("bob");
    let on_bob = stage.elect(&bob);
    wait_until("bob leads", GENEROUS, || on_bob.is_leader());
    assert!(on_bob.status().token.unwrap().get() > last.unwrap());
    wait_until("it was left", GENEROUS, || served.get("/leader/nightly-report").status == 404);
}

#[test]
fn each_election_has_one_owner_and_the_configured_have_none() {
    let stage = Stage::embedded();
    let (ada, leading) = stage.leader("ada");
    let served = stage.serve(Sidecar::builder(ada).election(leading).observe("mailer"));
    for path in [JOIN, "/elections/mailer"] {
        assert_eq!(code(&served.post(path, "")), said(409, "configured"), "{path}");
        assert_eq!(code(&served.delete(path)), said(409, "configured"), "{path}");
    }
    assert_eq!(code(&served.post(KEEP, &keep_of(ADA))), said(409, "configured"));
    let path = "/elections/backup";
    assert_eq!(served.post(path, &owned_by(ADA, 60_000)).status, 201);
    assert_eq!(code(&served.post(path, &owned_by(BOB, 60_000))), said(409, "other-owner"));
    assert_eq!(code(&served.post(path, &owned_by(ADA, 50_000))), said(409, "other-settings"));
    for words in ["", "?owner=bob-0123456789abcdef"] {
        let answer = served.delete(&format!("{path}{words}"));
        assert_eq!(code(&answer), said(409, "other-owner"), "{words}");
    }
    assert_eq!(code(&served.delete("/elections/unknown")), said(404, "not-found"));
    // Without an owner it belongs to everybody, and stays.
    assert_eq!(served.post("/elections/open", "").status, 201);
    assert_eq!(served.delete("/elections/open").status, 200);
    let drawn = served.post("/elections/drawn", "{\"within_ms\":60000}").json();
    let owner = drawn["owner"].as_str().unwrap();
    assert_eq!(served.delete(&format!("/elections/drawn?owner={owner}")).status, 200);
}

#[test]
fn what_is_asked_for_is_bounded() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    let long = format!("/elections/{}", "x".repeat(257));
    for (path, body, told) in [
        (JOIN, "{\"ttl_ms\":1}", said(400, "bad-setting")),
        (JOIN, "{\"within_ms\":999}", said(400, "bad-setting")),
        (JOIN, "{\"within_ms\":86400001}", said(400, "bad-setting")),
        (JOIN, "{\"owner\":\"short\"}", said(400, "bad-owner")),
        (JOIN, "{\"tll_ms\":1000}", said(422, "unfit")),
        (JOIN, "{\"ttl_ms\":\"1s\"}", said(422, "unfit")),
        (JOIN, "{\"ttl_ms\":", said(400, "unreadable")),
        (JOIN, "[]", said(422, "unfit")),
        (KEEP, "{}", said(422, "unfit")),
        (KEEP, "{\"owner\":\"ada-0123456789abcdef\",\"wait_ms\":60001}", said(400, "bad-setting")),
        (&long, "", said(400, "bad-setting")),
        ("/beat/unknown", "", said(404, "not-found")),
    ] {
        assert_eq!(code(&served.post(path, body)), told, "{path} {body}");
    }
    let metadata = format!("{{\"metadata\":{{\"a\":\"{}\"}}}}", "x".repeat(5_000));
    assert_eq!(code(&served.post(JOIN, &metadata)), said(400, "bad-setting"));
    for number in 0..64 {
        assert_eq!(served.post(&format!("/elections/n{number}"), "").status, 201, "{number}");
    }
    assert_eq!(code(&served.post(JOIN, "")), said(503, "too-many"));
    assert_eq!(served.delete("/elections/n7").status, 200);
    assert_eq!(served.post(JOIN, "").status, 201);
}

#[test]
fn nobody_may_lead_while_a_caller_was_told_that_it_does() {
    let stage = Stage::redis();
    let served = empty(&stage, "ada");
    // A long lease makes a long promise: what is measured below is no accident.
    let body = json!({ "owner": ADA, "within_ms": 60_000, "ttl_ms": 8_000 });
    served.post(JOIN, &body.to_string());
    let mut promised = (Instant::now(), 0);
    wait_until("it leads", GENEROUS, || {
        let asked_at = Instant::now();
        let kept = served.post(KEEP, &keep_of(ADA)).json();
        promised = (asked_at, kept["valid_for_ms"].as_u64().unwrap_or(0));
        promised.1 > 1_000
    });
    assert_eq!(served.delete(&format!("{JOIN}?owner={ADA}")).status, 200);
    let (asked_at, valid_for_ms) = promised;
    assert!(asked_at.elapsed() >= Duration::from_millis(valid_for_ms), "released too early");
}

#[test]
fn hooks_follow_what_was_joined() {
    let stage = Stage::embedded();
    let folder = TempFolder::create();
    let path = folder.path().join("told");
    let command = format!("echo $TENURE_EVENT $TENURE_NAME >> {}", path.display());
    let builder = Sidecar::builder(stage.client("ada")).may_be_empty(true);
    let hooks = builder.hook(Hook::on_gain(&command)).hook(Hook::on_loss(&command));
    let served = stage.serve(hooks);
    let told = || std::fs::read_to_string(&path).unwrap_or_default();
    for round in 1..=2 {
        served.post(JOIN, "");
        wait_until("the gain was told", GENEROUS, || {
            told().matches("gain nightly-report").count() == round
        });
        served.delete(JOIN);
        assert_eq!(told().matches("loss nightly-report").count(), round, "ended with the leaving");
    }
}

#[test]
fn work_that_does_not_beat_loses_the_election_where_that_was_asked_for() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    served.post(JOIN, "{\"require_beat_ms\":400}");
    let beat = || served.post("/beat/nightly-report", "");
    wait_until("it leads", GENEROUS, || beat().json()["is_leader"] == true);
    let stalled = |history: &serde_json::Value| history["terms"][0]["reason"] == "work-stalled";
    served.wait_for("it stepped down", "/history/nightly-report", stalled);
}

#[test]
fn other_sites_can_neither_join_nor_leave() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    for (method, path) in [
        ("POST", JOIN),
        ("DELETE", JOIN),
        ("POST", KEEP),
        ("POST", "/beat/nightly-report"),
        ("POST", "/locks/x"),
        ("DELETE", "/locks/x?owner=ada-0123456789abcdef"),
        ("POST", "/locks/x/keep"),
        ("POST", "/ticks/x"),
        ("POST", "/ticks/x/keep"),
        ("POST", "/ticks/x/finish"),
    ] {
        let ask = |line: &str| {
            let answer = crate::http::request(served.address, method, path, &[line], "{}");
            code(&answer)
        };
        let origin = "Origin: http://evil.example";
        assert_eq!(ask(origin), said(403, "foreign-site"), "{method} {path}");
        assert_eq!(ask("Content-Type: text/plain"), said(415, "not-json"), "{method} {path}");
        assert_eq!(ask("Host: evil.example"), said(421, "unknown-host"), "{method} {path}");
        let long = format!("{{\"owner\":\"{}\"}}", "x".repeat(32 * 1024));
        let answer = crate::http::request(served.address, method, path, &[], &long);
        assert_eq!(code(&answer), said(413, "too-long"), "{method} {path}");
    }
}

#[test]
fn what_was_joined_ends_with_a_sidecar_that_is_dropped() {
    let stage = Stage::redis();
    let client = stage.client("ada");
    let served = stage.serve(Sidecar::builder(client.clone()).may_be_empty(true));
    served.post(JOIN, &owned_by(ADA, 60_000));
    wait_until("it leads", GENEROUS, || client.is_leader(RESOURCE));
    stage.end(served);
    wait_until("it is left", GENEROUS, || !client.is_leader(RESOURCE));
}
