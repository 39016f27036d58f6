//! `tenure doctor` finds each problem that is planted, and nothing else.

mod election;
mod postgres;
mod servers;
mod store;

use std::collections::BTreeSet;

use crate::stage::{CommandOutput, Kind, NAME, Stage, plain_command};

/// Tests that plant what the doctor is to find, each under the code of its finding. A body returns
/// the codes that were found while it was there.
macro_rules! planted {
    ($($code:literal: fn $name:ident() $body:block)*) => {
        /// What is planted here.
        pub(super) const CODES: &[&str] = &[$($code),*];

        $(#[test]
        fn $name() {
            let found: Vec<String> = $body;
            assert!(found.iter().any(|code| code == $code), "{} is not in {found:?}", $code);
        })*
    };
}
use planted;

/// What is found at the stage's store and election.
fn codes(stage: &Stage) -> Vec<String> {
    codes_of(&stage.json(&["doctor", NAME]))
}

/// What is found at another address.
fn codes_at(store: &str) -> Vec<String> {
    codes_of(&json_at(store))
}

/// The whole report about another address.
fn json_at(store: &str) -> serde_json::Value {
    let mut command = plain_command(&["doctor", NAME, "--json"]);
    command.env("TENURE_STORE", store);
    let said = CommandOutput::of(command);
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

/// The finding of this code in a report.
#[track_caller]
fn finding<'a>(json: &'a serde_json::Value, code: &str) -> &'a serde_json::Value {
    let found = json["findings"].as_array().unwrap();
    let wanted = found.iter().find(|finding| finding["code"] == code);
    wanted.unwrap_or_else(|| panic!("{code} is not in {json}"))
}

fn codes_of(json: &serde_json::Value) -> Vec<String> {
    let found = json["findings"].as_array().unwrap();
    found.iter().map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}

/// What is found once `code` is.
#[track_caller]
fn codes_with(stage: &Stage, code: &str) -> Vec<String> {
    testkit::wait_for(&format!("{code} to be found"), testkit::GENEROUS, || {
        let found = codes(stage);
        found.iter().any(|other| other == code).then_some(found)
    })
}

/// All codes, as the command lists them.
fn listed() -> BTreeSet<String> {
    let said = CommandOutput::of(plain_command(&["doctor", "--list", "--json"]));
    assert_eq!(said.code, 0, "{said:?}");
    codes_of(&serde_json::from_str(&said.out).unwrap()).into_iter().collect()
}

#[test]
fn every_finding_is_planted_by_a_test() {
    let planted = [store::CODES, servers::CODES, postgres::CODES, election::CODES].concat();
    let planted = planted.into_iter().map(str::to_owned);
    assert_eq!(planted.collect::<BTreeSet<_>>(), listed());
}

#[test]
fn every_finding_stands_in_the_operators_guide() {
    let guide = include_str!("../../../../../docs/operating.md");
    let in_brackets: String = guide
        .split('[')
        .skip(1)
        .filter_map(|rest| rest.split(']').next())
        .fold(String::new(), |text, words| text + words + ", ");
    for code in listed() {
        assert!(in_brackets.split(", ").any(|word| word == code), "{code} is not in the guide");
    }
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
