//! Ticks of jobs whose work runs in the caller.

use serde_json::{Value, json};
use tenure::Tenure;
use tenure_sidecar::Sidecar;
use testkit::{GENEROUS, RedisServer, wait_until};

use super::{ADA, BOB, code, empty, post, said};
use crate::http::Answer;
use crate::stage::{Served, Stage};

const JOB: &str = "/ticks/backup";

fn begin(served: &Served, owner: &str, more: Value) -> Answer {
    let mut body = json!({ "owner": owner, "named": "one", "within_ms": 60_000, "ttl_ms": 10_000 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    post(served, JOB, &body.to_string())
}

fn finish(served: &Served, owner: &str, result: &str, why: &str) -> Answer {
    let body = json!({ "owner": owner, "result": result, "why": why });
    served.post("/ticks/backup/finish", &body.to_string())
}

fn state(served: &Served, words: &str) -> Value {
    served.json(&format!("{JOB}?{words}"))["state"].take()
}

#[test]
fn a_tick_runs_once_on_each_store() {
    Stage::on_each(|stage| {
        let (here, there) = (empty(stage, "ada"), empty(stage, "bob"));
        assert_eq!(state(&there, "named=one"), "open");
        let begun = begin(&here, ADA, json!({}));
        assert_eq!((begun.status, &begun.json()["state"]), (201, &"begun".into()), "{begun:?}");
        assert!(begun.json()["valid_for_ms"].as_u64() > Some(0));
        assert_eq!(state(&there, "named=one"), "running");
        for served in [&here, &there] {
            assert_eq!(code(&begin(served, BOB, json!({}))), said(409, "running"));
            assert_eq!(code(&finish(served, BOB, "ok", "")), said(409, "not-running"));
        }
        assert_eq!(begin(&here, ADA, json!({})).status, 200, "the same run");
        let other = json!({ "owner": ADA, "number": 3 });
        assert_eq!(code(&here.post(JOB, &other.to_string())), said(409, "other-tick"));
        let kept = here.post("/ticks/backup/keep", &json!({ "owner": ADA }).to_string());
        assert_eq!((kept.status, &kept.json()["token"]), (200, &begun.json()["token"]));

        let finished = finish(&here, ADA, "ok", "");
        assert_eq!((finished.status, &finished.json()["recorded"]), (200, &true.into()));
        assert_eq!(state(&there, "named=one"), "done");
        for served in [&here, &there] {
            let again = begin(served, BOB, json!({}));
            assert_eq!((again.status, &again.json()["state"]), (200, &"done".into()));
        }
        assert_eq!(code(&finish(&here, ADA, "ok", "")), said(409, "not-running"));
    });
}

#[test]
fn failures_are_recorded_and_what_never_started_stays_open() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    assert_eq!(begin(&served, ADA, json!({})).status, 201);
    assert_eq!(finish(&served, ADA, "not-started", "no disk").status, 200);
    assert_eq!(state(&served, "named=one"), "open");
    wait_until("it begins again", GENEROUS, || begin(&served, ADA, json!({})).status == 201);
    assert_eq!(finish(&served, ADA, "failed", "disk full").status, 200);
    let seen = served.json(&format!("{JOB}?named=one"));
    assert_eq!((&seen["state"], &seen["why"]), (&"failed".into(), &"disk full".into()));
}

#[test]
fn a_runner_that_is_gone_leaves_the_tick_to_another() {
    let stage = Stage::redis();
    let (here, there) = (empty(&stage, "ada"), empty(&stage, "bob"));
    assert_eq!(begin(&here, ADA, json!({ "within_ms": 1_000 })).status, 201);
    wait_until("it is unfinished", GENEROUS, || state(&there, "named=one") == "unfinished");
    let cautious = begin(&there, BOB, json!({ "rerun_crashed": false }));
    assert_eq!(code(&cautious), said(409, "unfinished"));
    wait_until("bob runs it", GENEROUS, || begin(&there, BOB, json!({})).status == 201);
    assert_eq!(code(&finish(&here, ADA, "ok", "")), said(409, "not-running"), "too late");
    assert_eq!(finish(&there, BOB, "ok", "").status, 200);
}

#[test]
fn the_outcome_is_waited_for() {
    let stage = Stage::redis();
    let (here, there) = (empty(&stage, "ada"), empty(&stage, "bob"));
    begin(&here, ADA, json!({}));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| begin(&there, BOB, json!({ "wait_ms": 60_000 })));
        assert_eq!(finish(&here, ADA, "ok", "").status, 200);
        let waited = waiting.join().unwrap();
        assert_eq!((waited.status, &waited.json()["state"]), (200, &"done".into()), "{waited:?}");
    });
}

#[test]
fn periods_and_numbers_are_ticks_too_and_nonsense_is_none() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    let day = 24 * 60 * 60 * 1_000;
    for (body, words) in [
        (json!({ "owner": ADA, "every_ms": day }), format!("every_ms={day}")),
        (json!({ "owner": ADA, "number": 7 }), "number=7".to_owned()),
    ] {
        wait_until("it begins", GENEROUS, || served.post(JOB, &body.to_string()).status == 201);
        assert_eq!(finish(&served, ADA, "ok", "").status, 200);
        assert_eq!(state(&served, &words), "done", "{words}");
    }
    for (body, told) in [
        ("{}", said(400, "bad-setting")),
        ("{\"named\":\"\"}", said(400, "bad-setting")),
        ("{\"every_ms\":0}", said(400, "bad-setting")),
        ("{\"named\":\"a\",\"number\":1}", said(400, "bad-setting")),
        ("{\"nmaed\":\"a\"}", said(422, "unfit")),
    ] {
        assert_eq!(code(&served.post(JOB, body)), told, "{body}");
    }
    for words in ["", "?every_ms=abc", "?named=", "?number=1&named=a"] {
        assert_eq!(code(&served.get(&format!("{JOB}{words}"))).0, 400, "{words}");
    }
    let body = json!({ "owner": ADA, "result": "maybe" }).to_string();
    assert_eq!(code(&served.post("/ticks/backup/finish", &body)), said(422, "unfit"));
}

#[test]
fn a_quorum_refuses_ticks_with_the_reason() {
    let stage = Stage::embedded();
    let nodes = [(); 3].map(|()| RedisServer::start());
    let addresses: Vec<String> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let address = format!("redis+quorum://{}", addresses.join(","));
    let client = Tenure::builder().store(&address).fresh_store(true).connect();
    let client = stage.runtime.block_on(client).unwrap();
    let served = stage.serve(Sidecar::builder(client).may_be_empty(true));
    wait_until("the nodes answer", GENEROUS, || {
        let refused = served.get(&format!("{JOB}?named=one"));
        refused.json()["code"] == "store-refuses" && refused.body.contains("quorum")
    });
}
