//! What a person sees of a quorum whose nodes are down: which, and what to do.

use std::process::Command;

use testkit::{GENEROUS, Process, RedisServer, wait_until};

use crate::stage::{CommandOutput, NAME, plain_command};

/// Three independent servers.
struct Nodes(Vec<RedisServer>);

impl Nodes {
    fn start() -> Self {
        Nodes((0..3).map(|_| RedisServer::start()).collect())
    }

    fn place(&self, node: usize) -> String {
        format!("127.0.0.1:{}", self.0[node].port())
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = plain_command(words);
        let places: Vec<_> = (0..3).map(|node| self.place(node)).collect();
        command.env("TENURE_STORE", format!("redis+quorum://{}", places.join(",")));
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true");
        command
    }

    fn tenure(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(words))
    }

    /// Somebody who leads until it is dropped.
    fn leader(&self) -> Process {
        let leader =
            Process::spawn(self.command(&["run", NAME, "--id", "ada", "--", "sleep", "600"]));
        wait_until("ada to lead", GENEROUS, || self.tenure(&["who", NAME]).out.starts_with("ada_"));
        leader
    }
}

#[track_caller]
fn assert_names(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "{text:?} should say {word:?}");
    }
}

#[test]
fn with_one_node_down_everything_works_and_says_which_it_is() {
    let mut nodes = Nodes::start();
    let _ada = nodes.leader();
    let whole = nodes.tenure(&["status", NAME]);
    assert!(!whole.out.contains("warning"), "{whole:?}");
    nodes.0[1].kill();
    let down = nodes.place(1);
    let warning = ["node redis://", &down, "is down", "one more would leave no leader", "start"];

    let who = nodes.tenure(&["who", NAME]);
    assert!(who.code == 0 && who.out.starts_with("ada_"), "{who:?}");
    assert_names(&who.err, &warning);
    let status = nodes.tenure(&["status", NAME]);
    assert_eq!(status.code, 0, "{status:?}");
    assert_names(&status.out, &warning);
    let json: serde_json::Value =
        serde_json::from_str(&nodes.tenure(&["status", NAME, "--json"]).out).unwrap();
    assert_names(json["warnings"][0].as_str().unwrap(), &warning);

    let doctor = nodes.tenure(&["doctor", NAME]);
    assert_names(&doctor.out, &["[node-down]", &down, "one more would leave no leader"]);
    assert!(!doctor.out.contains("[store-warning]"), "told twice: {doctor:?}");
    assert_eq!(doctor.code, 0, "elections work: {doctor:?}");

    let ran = nodes.tenure(&["run", "other", "--", "echo", "led"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "led"), "{ran:?}");
    assert_names(&ran.err, &warning);
}

#[test]
fn with_two_nodes_down_every_command_says_which_and_ends_with_69() {
    let mut nodes = Nodes::start();
    let _ada = nodes.leader();
    nodes.0[0].kill();
    nodes.0[2].kill();
    let down = [nodes.place(0), nodes.place(2)];
    let commands: [&[&str]; 7] = [
        &["who", NAME],
        &["status", NAME],
        &["members", NAME],
        &["history", NAME],
        &["resign", NAME],
        &["hand-over", NAME, "--to", "bob"],
        &["run", "other", "--wait-timeout", "2s", "--", "true"],
    ];
    for words in commands {
        let said = nodes.tenure(words);
        assert_eq!(said.code, 69, "{words:?}: {said:?}");
        let told = said.err.split("2 must be: ").nth(1).unwrap_or_default();
        assert_names(told, &[&down[0], &down[1], "Connection refused", "start what is down"]);
        assert!(!told.contains(&nodes.place(1)), "{words:?}: {said:?}");
    }
    let doctor = nodes.tenure(&["doctor", NAME]);
    assert_eq!(doctor.code, 69, "{doctor:?}");
    let lost = "1 of 3 nodes answer and 2 must: nobody can lead [quorum-lost]";
    assert_names(&doctor.out, &[lost, "start 1 or more", &down[0], &down[1]]);
    assert_eq!(doctor.out.matches("[node-down]").count(), 2, "{doctor:?}");
}

#[test]
fn a_node_that_is_silent_holds_nobody_up() {
    let mut nodes = Nodes::start();
    let _ada = nodes.leader();
    nodes.0[1].pause();
    let silent = nodes.place(1);
    let who = nodes.tenure(&["who", NAME]);
    assert!(who.code == 0 && who.out.starts_with("ada_"), "{who:?}");
    assert_names(&who.err, &[&silent, "does not answer", "one more would leave no leader"]);
    let doctor = nodes.tenure(&["doctor", NAME]);
    assert_names(&doctor.out, &[&silent, "no answer in time", "[node-down]"]);
    nodes.0[1].resume();
}

#[test]
fn what_is_no_quorum_is_refused_with_78() {
    let nodes = Nodes::start();
    let (first, second) = (nodes.place(0), nodes.place(1));
    let cases = [
        (format!("redis+quorum://{first}"), "1 node is too few"),
        (format!("redis+quorum://{first},{second},{first}"), "is given twice"),
    ];
    for (address, expected) in cases {
        let mut command = plain_command(&["who", NAME]);
        command.env("TENURE_STORE", &address);
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 78, "{address}: {said:?}");
        assert_names(&said.err, &[expected]);
    }
}
