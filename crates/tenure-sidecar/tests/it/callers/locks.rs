//! Locks that programs take, keep and release.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use testkit::{GENEROUS, wait_until};

use super::{ADA, BOB, code, empty, post, said};
use crate::http::head;
use crate::stage::{Served, Stage};

const LOCK: &str = "/locks/invoices";
const KEEP: &str = "/locks/invoices/keep";

fn acquire(served: &Served, owner: &str, wait_ms: u64) -> crate::http::Answer {
    let body = json!({ "owner": owner, "wait_ms": wait_ms, "within_ms": 60_000, "ttl_ms": 10_000 });
    post(served, LOCK, &body.to_string())
}

fn keep(served: &Served, owner: &str) -> crate::http::Answer {
    served.post(KEEP, &json!({ "owner": owner }).to_string())
}

fn release(served: &Served, owner: &str) -> crate::http::Answer {
    served.delete(&format!("{LOCK}?owner={owner}"))
}

#[test]
fn one_at_a_time_holds_it_here_and_elsewhere_on_each_store() {
    Stage::on_each(|stage| {
        let (here, there) = (empty(stage, "ada"), empty(stage, "bob"));
        let held = acquire(&here, ADA, 0);
        assert_eq!(held.status, 201, "{held:?}");
        let held = held.json();
        assert!(held["valid_for_ms"].as_u64() <= held["remaining_ms"].as_u64());
        for other in [&here, &there] {
            assert_eq!(code(&acquire(other, BOB, 0)), said(409, "held"));
            assert_eq!(code(&acquire(other, BOB, 50)), said(409, "held"));
            assert_eq!(code(&keep(other, BOB)), said(409, "not-held"));
            assert_eq!(code(&release(other, BOB)), said(409, "not-held"));
        }
        let again = acquire(&here, ADA, 0);
        assert_eq!((again.status, &again.json()["token"]), (200, &held["token"]), "the same hold");
        assert_eq!(keep(&here, ADA).json()["token"], held["token"]);
        std::thread::scope(|scope| {
            let in_turn = |served: &Served| {
                let waited = acquire(served, BOB, 60_000);
                assert_eq!(waited.status, 201, "{waited:?}");
                assert!(waited.json()["token"].as_u64() > held["token"].as_u64());
                assert_eq!(release(served, BOB).json()["released"], true);
            };
            let (here, there) = (&here, &there);
            scope.spawn(move || in_turn(there));
            scope.spawn(move || in_turn(here));
            assert_eq!(release(here, ADA).json()["released"], true);
        });
        assert_eq!(code(&keep(&here, ADA)), said(409, "not-held"));
    });
}

#[test]
fn a_holder_that_is_gone_loses_it() {
    let stage = Stage::redis();
    let served = empty(&stage, "ada");
    let body = json!({ "owner": ADA, "within_ms": 1_000 });
    assert_eq!(post(&served, LOCK, &body.to_string()).status, 201);
    let next = acquire(&served, BOB, 60_000);
    assert_eq!(next.status, 201, "{next:?}");
    assert_eq!(code(&keep(&served, ADA)), said(409, "not-held"));
    assert_eq!(keep(&served, BOB).status, 200);
}

#[test]
fn whoever_hangs_up_waits_no_more() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    acquire(&served, ADA, 0);
    let body = json!({ "owner": BOB, "wait_ms": 60_000, "within_ms": 86_400_000 }).to_string();
    let mut waiting = TcpStream::connect(served.address).unwrap();
    waiting.write_all(head(served.address, "POST", LOCK, &[], &body).as_bytes()).unwrap();
    waiting.write_all(body.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(waiting);
    // Long enough for the end of the connection to be seen, should it come late.
    std::thread::sleep(Duration::from_millis(100));
    release(&served, ADA);
    wait_until("it is free", GENEROUS, || {
        acquire(&served, "eve-0123456789abcdef", 0).status == 201
    });
}

#[test]
fn what_an_operator_ends_is_lost() {
    let stage = Stage::redis();
    let served = empty(&stage, "ada");
    acquire(&served, ADA, 0);
    let observer = stage.client("operator").observe("invoices").unwrap();
    stage.runtime.block_on(observer.force_clear("by hand")).unwrap();
    wait_until("it is lost", GENEROUS, || keep(&served, ADA).status == 409);
    assert_eq!(code(&release(&served, ADA)), said(409, "not-held"));
}

#[test]
fn a_lock_and_an_election_of_one_name_exclude_each_other() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    served.post("/elections/invoices", "");
    assert_eq!(code(&acquire(&served, ADA, 0)), said(409, "taken"));
    served.delete("/elections/invoices");
    assert_eq!(acquire(&served, ADA, 60_000).status, 201);
    assert_eq!(code(&served.post("/elections/invoices", "")), said(409, "taken"));
}

#[test]
fn locks_are_bounded() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    for (body, told) in [
        ("{\"wait_ms\":60001}", said(400, "bad-setting")),
        ("{\"ttl_ms\":1}", said(400, "bad-setting")),
        ("{\"within_ms\":1}", said(400, "bad-setting")),
        ("{\"owner\":\"a\"}", said(400, "bad-owner")),
        ("{\"wait\":1}", said(422, "unfit")),
    ] {
        assert_eq!(code(&served.post(LOCK, body)), told, "{body}");
    }
    assert_eq!(code(&served.delete(LOCK)).0, 400);
    assert_eq!(served.post(LOCK, "").status, 201, "and nothing of the refused is left");
}
