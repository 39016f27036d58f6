//! What programs hold over HTTP: elections, locks, ticks.

mod elections;
mod locks;
mod ticks;

use tenure_sidecar::Sidecar;
use testkit::{GENEROUS, wait_until};

use crate::http::Answer;
use crate::stage::{Served, Stage};

pub(crate) const ADA: &str = "ada-0123456789abcdef";
pub(crate) const BOB: &str = "bob-0123456789abcdef";

/// A sidecar that nothing is configured for.
pub(crate) fn empty(stage: &Stage, name: &str) -> Served {
    let served = stage.serve(Sidecar::builder(stage.client(name)).may_be_empty(true));
    wait_until("the store answers", GENEROUS, || served.get("/ticks/any?named=none").status == 200);
    served
}

/// Posts until the store has answered: on a busy machine it may come too late at first. What an
/// owner asks for may be repeated.
pub(crate) fn post(served: &Served, path: &str, body: &str) -> Answer {
    let is_answered = |answer: &Answer| {
        answer.status != 503 || !["store", "unrecorded"].contains(&code(answer).1.as_str())
    };
    testkit::wait_for("an answer of the store", GENEROUS, || {
        Some(served.post(path, body)).filter(is_answered)
    })
}

/// The word for what was wrong.
pub(crate) fn code(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    assert!(body["error"].as_str().is_some_and(|error| error.len() > 10), "{answer:?}");
    (answer.status, body["code"].as_str().unwrap_or_default().to_owned())
}

pub(crate) fn said(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// As languages write numbers that have only one kind of them.
#[test]
fn whole_numbers_may_have_a_fraction_of_zero() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    let body = |within: &str| format!("{{\"owner\":\"{ADA}\",\"within_ms\":{within}}}");
    assert_eq!(post(&served, "/locks/x", &body("10000.0")).status, 201);
    assert_eq!(served.post("/locks/x/keep", &format!("{{\"owner\":\"{ADA}\"}}")).status, 200);
    for wrong in ["10000.5", "1e30", "-1.0", "\"10000\""] {
        assert_eq!(code(&served.post("/locks/y", &body(wrong))), said(422, "unfit"), "{wrong}");
    }
}

#[test]
fn lengths_that_keep_everybody_out_for_ever_are_refused() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    for (path, field) in [
        ("/elections/x", "lock_delay_ms"),
        ("/elections/x", "require_beat_ms"),
        ("/locks/x", "lock_delay_ms"),
    ] {
        let refused = served.post(path, &format!("{{\"{field}\":86400001}}"));
        assert_eq!(code(&refused), said(400, "bad-setting"), "{path} {field}");
        assert!(refused.json()["error"].as_str().unwrap().contains(field), "{refused:?}");
    }
}

#[test]
fn answers_have_exactly_the_fields_that_are_described() {
    let stage = Stage::embedded();
    let served = empty(&stage, "ada");
    let description = served.json("/openapi.json");
    let check = |schema: &str, answer: Answer| {
        let schema = &description["components"]["schemas"][schema];
        let answer = answer.json();
        let fields = answer.as_object().unwrap();
        let described = schema["properties"].as_object().unwrap();
        assert!(fields.keys().all(|field| described.contains_key(field)), "{answer}");
        for required in schema["required"].as_array().unwrap() {
            assert!(fields.contains_key(required.as_str().unwrap()), "{required}: {answer}");
        }
        answer
    };
    let owner = format!("{{\"owner\":\"{ADA}\"}}");
    let joined = format!("{{\"owner\":\"{ADA}\",\"within_ms\":60000}}");
    check("Standing", post(&served, "/elections/x", &joined));
    wait_until("it leads", GENEROUS, || {
        check("Standing", served.post("/elections/x/keep", &owner))["is_leader"] == true
    });
    check("Leading", served.post("/beat/x", &owner));
    check("LeadingAll", {
        served.post("/elections/y", "");
        served.get("/leader")
    });
    check("Left", served.delete(&format!("/elections/x?owner={ADA}")));
    check("Held", post(&served, "/locks/x", &owner));
    check("Held", served.post("/locks/x/keep", &owner));
    check("Released", served.delete(&format!("/locks/x?owner={ADA}")));
    check("Problem", served.post("/locks/x/keep", &owner));
    let begin = format!("{{\"owner\":\"{ADA}\",\"named\":\"one\"}}");
    check("Tick", post(&served, "/ticks/z", &begin));
    check("Tick", served.post("/ticks/z/keep", &owner));
    check("Tick", served.get("/ticks/z?named=one"));
    let finish = format!("{{\"owner\":\"{ADA}\",\"result\":\"ok\"}}");
    check("Finished", served.post("/ticks/z/finish", &finish));
    check("Tick", post(&served, "/ticks/z", &begin));
}
