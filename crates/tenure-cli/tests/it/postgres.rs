//! The program on a store in PostgreSQL.

use serde_json::Value;
use testkit::{GENEROUS, PostgresServer, Process, wait_until};

use crate::stage::{CommandOutput, plain_command};

fn tenure(url: &str, words: &[&str]) -> CommandOutput {
    let mut command = plain_command(words);
    command.env("TENURE_STORE", url).env("TENURE_DEFAULTS__FRESH_STORE", "true");
    CommandOutput::of(command)
}

fn json(url: &str, words: &[&str]) -> Value {
    let said = tenure(url, words);
    serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"))
}

#[test]
fn everything_works_on_a_database_that_was_prepared() {
    let server = PostgresServer::start();
    let url = server.url();
    let before = tenure(&url, &["who", "nightly"]);
    assert_eq!(before.code, 78, "{before:?}");
    assert!(before.err.contains("tenure store init"), "{before:?}");
    assert_eq!(json(&url, &["store", "init", "--json"])["installed"], true);
    assert_eq!(json(&url, &["store", "init", "--json"])["installed"], false);
    let printed = tenure("redis://unused", &["store", "init", "--print"]);
    assert!(printed.out.contains("CREATE SCHEMA") && printed.out.ends_with("COMMIT;"));

    // The login of a program has the least rights.
    server.psql("CREATE ROLE app LOGIN; GRANT tenure_member TO app");
    let url = server.url_of("app");
    let mut command = plain_command(&["run", "nightly", "--id", "ada", "--", "sleep", "600"]);
    command.env("TENURE_STORE", &url).env("TENURE_DEFAULTS__FRESH_STORE", "true");
    let _leader = Process::spawn(command);
    wait_until("ada to lead", GENEROUS, || {
        tenure(&url, &["who", "nightly"]).out.starts_with("ada_")
    });
    let once = ["once", "report", "--tick", "today", "--", "echo", "ran"];
    assert_eq!(tenure(&url, &once).out, "ran");
    assert_eq!(tenure(&url, &once).out, "", "it was run before");

    let list = json(&url, &["list", "--json"]);
    let kinds = list["elections"].as_array().unwrap().iter();
    let kinds: Vec<_> = kinds.map(|one| (one["name"].as_str(), one["kind"].as_str())).collect();
    assert_eq!(kinds, [(Some("nightly"), Some("election")), (Some("report"), Some("job"))]);
    let doctor = json(&url, &["doctor", "nightly", "--json"]);
    let codes = doctor["findings"].as_array().unwrap().iter().map(|found| &found["code"]);
    let codes: Vec<_> = codes.filter_map(Value::as_str).collect();
    // As the server of a test is started, and as one candidate is all there is.
    assert_eq!(codes, ["no-persistence", "one-candidate"], "{doctor}");
    assert!(doctor["servers"][0]["version"].as_str().unwrap().starts_with("postgresql "));
    assert_eq!(tenure(&url, &["history", "nightly"]).code, 0);
    let misspelt = tenure(&url, &["who", "nigthly"]);
    assert!(misspelt.err.contains("did you mean `nightly`?"), "{misspelt:?}");
    assert_eq!(tenure(&url, &["pause", "nightly", "--for", "1m"]).code, 0);
    assert_eq!(tenure(&url, &["resume", "nightly"]).code, 0);
}

#[test]
fn an_address_that_cannot_work_says_what_to_write() {
    for (address, expected) in [
        ("postgres://db.internal/app", "the user is missing"),
        ("postgres://app@db.internal/app?sslmod=require", "did you mean sslmode?"),
    ] {
        let said = tenure(address, &["config", "check"]);
        assert_eq!(said.code, 78, "{said:?}");
        assert!(said.err.contains(expected), "{said:?}");
    }
    let other = tenure("redis://127.0.0.1:1", &["store", "init"]);
    assert!(other.out.contains("needs no preparation"), "{other:?}");
}
