//! Mode `strict` with a replica that is not there: what an operator is told.

use std::process::Stdio;

use testkit::{GENEROUS, Process, RedisServer, wait_for, wait_until};

use crate::stage::{CommandOutput, NAME, plain_command};

struct Pair {
    master: RedisServer,
    replica: RedisServer,
}

impl Pair {
    fn start() -> Self {
        let master = RedisServer::builder().args(["--repl-diskless-sync-delay", "0"]).start();
        let port = master.port().to_string();
        let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start();
        wait_until("the replica is in step", GENEROUS, || {
            replica.cli(&["INFO", "replication"]).contains("master_link_status:up")
        });
        Pair { master, replica }
    }

    fn tenure(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(words))
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let mut command = plain_command(words);
        command.env("TENURE_STORE", format!("{}/0?mode=strict&replicas=1", self.master.url()));
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true");
        command
    }
}

#[test]
fn an_operator_is_told_that_replicas_do_not_confirm() {
    let mut pair = Pair::start();
    let words = ["run", NAME, "--id", "web-1", "--ttl", "3s", "--", "sleep", "1000"];
    let mut command = pair.command(&words);
    command.stderr(Stdio::null());
    let _candidate = Process::spawn(command);
    wait_until("web-1 to lead", GENEROUS, || pair.tenure(&["who", NAME]).out.starts_with("web-1_"));

    pair.replica.pause();
    let who = wait_for("the truth", GENEROUS, || {
        Some(pair.tenure(&["who", NAME])).filter(|who| who.err.contains("replicas"))
    });
    assert_eq!((who.code, who.out.as_str()), (1, ""), "{who:?}");
    assert!(who.err.contains("web-1") && who.err.contains("INFO replication"), "{who:?}");
    let status = pair.tenure(&["status", NAME]).out;
    assert!(status.contains("leader    none: web-1_"), "{status}");
    assert!(!status.contains("unless renewed"), "{status}");
    let history = pair.tenure(&["history", NAME]).out;
    assert_eq!(history.matches("web-1_").count(), 1, "{history}");

    pair.replica.resume();
    wait_until("web-1 leads again", GENEROUS, || {
        pair.tenure(&["who", NAME]).out.starts_with("web-1_")
    });
    let history = pair.tenure(&["history", NAME]).out;
    assert_eq!(history.matches("web-1_").count(), 2, "{history}");
}

#[test]
fn how_many_replicas_is_asked_for_in_the_words_that_were_used() {
    let told = |words: &[&str]| CommandOutput::of(plain_command(words)).err;
    let store = "redis://127.0.0.1:1";
    let flag = told(&["who", NAME, "--store", store, "--mode", "strict"]);
    assert!(flag.contains("--replicas N") && !flag.contains("&replicas"), "{flag}");
    assert!(flag.contains("how many replicas the primary has"), "{flag}");
    let address = told(&["who", NAME, "--store", &format!("{store}?mode=strict")]);
    assert!(address.contains("&replicas=N, N = how many replicas the primary has"), "{address}");
    let number = told(&["who", NAME, "--store", &format!("{store}?replicas=2")]);
    assert!(number.contains("?mode=strict&replicas=2"), "{number}");
}
