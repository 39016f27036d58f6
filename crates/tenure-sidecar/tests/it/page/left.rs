//! Elections that programs join and leave while the page is open.

use std::time::Duration;

use serde_json::json;
use tenure_sidecar::{ServerSettings, Sidecar};
use testkit::{GENEROUS, wait_until};

use super::overview::rows;
use crate::browser::Browser;
use crate::stage::{Served, Stage};

fn join(served: &Served, name: &str) {
    let joined = served.post(&format!("/elections/{name}"), "{\"ttl_ms\":60000}");
    assert_eq!(joined.status, 201, "{joined:?}");
}

fn leave(served: &Served, name: &str) {
    assert_eq!(served.delete(&format!("/elections/{name}")).status, 200);
}

fn empty(stage: &Stage) -> Served {
    stage.serve(Sidecar::builder(stage.client("ada")).may_be_empty(true))
}

#[test]
fn what_was_left_is_shown_no_more_and_comes_back_as_another_one() {
    let stage = Stage::embedded();
    let served = empty(&stage);
    let browser = Browser::open(&format!("http://{}/", served.address));
    browser.wait_text("#resources", |text| text.starts_with("No election yet"));
    for name in ["one", "two", "three"] {
        join(&served, name);
    }
    wait_until("all are listed", GENEROUS, || rows(&browser).len() == 3);
    leave(&served, "two");
    wait_until("it is gone", GENEROUS, || rows(&browser) == ["one", "three"]);

    // Its own view says so as well, and offers nothing.
    browser.run("location.hash = '#/e/one'");
    browser.wait_text(".leader", |text| text == "ada");
    leave(&served, "one");
    browser.wait_text("#resources", |text| text == "This sidecar has no election one.");
    let buttons = "return [...document.querySelectorAll('#resources button')].length";
    assert_eq!(browser.run(buttons), json!(0));

    join(&served, "one");
    browser.wait_text(".leader", |text| text == "ada");
    let token = served.json("/leader/one")["token"].to_string();
    browser.wait_text(".facts", |text| text.contains(&token));
    browser.run("location.hash = '#/'");
    wait_until("its line is that of the new one", GENEROUS, || {
        browser.text(".elections tr[data-name='one'] .token") == token
    });
    leave(&served, "one");
    leave(&served, "three");
    browser.wait_text("#resources", |text| text.starts_with("No election yet"));
}

/// Nobody tells the page what was left while it was cut off, or with the sidecar before.
#[test]
fn what_was_left_while_nobody_listened_is_shown_no_more() {
    let stage = Stage::embedded();
    let served = empty(&stage);
    join(&served, "one");
    join(&served, "two");
    let address = served.address;
    let browser = Browser::open(&format!("http://{address}/"));
    wait_until("both are listed", GENEROUS, || rows(&browser).len() == 2);
    leave(&served, "one");
    leave(&served, "two");
    wait_until("none is listed", GENEROUS, || rows(&browser).is_empty());
    join(&served, "one");
    join(&served, "two");
    wait_until("both are listed again", GENEROUS, || rows(&browser).len() == 2);
    stage.end(served);
    browser.wait_text("#link-text", |text| text == "connection lost");

    let (bob, leading) = stage.leader("bob");
    let builder = Sidecar::builder(bob).election(leading).observe("mailer");
    let settings = ServerSettings::listen(address.to_string());
    let _again = stage.serve_at(builder, settings).unwrap();
    browser.wait_text("#link-text", |text| text == "live");
    wait_until("only those of the new sidecar are listed", GENEROUS, || {
        let mut rows = rows(&browser);
        rows.sort();
        rows == ["mailer", "nightly-report"]
    });
}

/// Whoever is asked for is who leads now, and the answer comes from a person.
#[test]
fn a_yes_that_comes_after_the_term_is_no_yes_to_the_next() {
    let stage = Stage::embedded();
    let join = |name: &str| {
        let client = stage.builder(name).ttl(Duration::from_secs(60)).connect();
        let client = stage.runtime.block_on(client).unwrap();
        let election = stage.elect(&client);
        (client, election)
    };
    let (ada, on_ada) = join("ada");
    wait_until("ada leads", GENEROUS, || on_ada.is_leader());
    let (_bob, on_bob) = join("bob");
    let served = stage.serve_election(&ada, &on_ada);
    let browser = Browser::open(&format!("http://{}/", served.address));
    browser.wait_text(".leader", |text| text == "ada");
    browser.click(".actions button");
    browser.wait_text("#ask-title", |text| text == "Let ada resign?");
    wait_until("it is handed over", GENEROUS, || {
        served.post("/hand-over/nightly-report", "{\"to\":\"bob\"}").status == 200
    });
    browser.click("#ask-yes");
    browser.wait_text("#ask-outcome", |text| text.contains("is over: nothing was asked for"));
    assert!(on_bob.is_leader(), "bob was not meant");
}
