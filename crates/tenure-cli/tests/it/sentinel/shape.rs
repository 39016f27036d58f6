//! The same words to one of our sentinels and to a real one beside it: answers of one shape.

use testkit::{GENEROUS, SentinelGroup, wait_until};

use super::{own, real};

/// The names of fields: every other line, per instance from `name` on.
fn names(text: &str) -> Vec<String> {
    text.lines().step_by(2).map(str::to_owned).collect()
}

/// The value of a field in what is told about the first instance.
fn value(text: &str, name: &str) -> String {
    let mut lines = text.lines();
    lines.find(|line| *line == name);
    lines.next().unwrap_or_default().to_owned()
}

#[test]
fn answers_have_the_fields_of_a_real_sentinel() {
    let group = SentinelGroup::start_mixed(&real(2), &[own(2), real(1)].concat());
    let (ours, theirs) = (&group.sentinels[0], &group.sentinels[2]);
    let ask = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        (ours.cli(&words), theirs.cli(&words))
    };
    let fields = ["MASTERS", "MASTER main", "REPLICAS main", "SLAVES main", "SENTINELS main"];
    for words in fields {
        let words = format!("SENTINEL {words}");
        // Whoever asks at the moment of a vote or a ping sees a field more.
        wait_until(&words, GENEROUS, || {
            let (ours, theirs) = ask(&words);
            names(&ours) == names(&theirs)
        });
    }
    let told = ["name", "ip", "port", "runid", "flags", "down-after-milliseconds", "quorum"];
    let more = ["num-slaves", "num-other-sentinels", "failover-timeout", "parallel-syncs"];
    let (mine, other) = ask("SENTINEL MASTER main");
    for name in told.into_iter().chain(more).chain(["role-reported", "config-epoch"]) {
        assert_eq!(value(&mine, name), value(&other, name), "{name}");
    }
    let replica = ["name", "flags", "master-link-status", "master-host", "slave-priority"];
    let (mine, other) = ask("SENTINEL REPLICAS main");
    for name in replica.into_iter().chain(["master-port", "replica-announced", "runid"]) {
        assert_eq!(value(&mine, name), value(&other, name), "{name}");
    }
}

/// Words with one right answer.
const EQUAL: &[&str] = &[
    "PING",
    "ROLE",
    "SENTINEL GET-MASTER-ADDR-BY-NAME main",
    "SENTINEL GET-MASTER-ADDR-BY-NAME nobody",
    "SENTINEL MASTER nobody",
    "SENTINEL REPLICAS nobody",
    "SENTINEL SENTINELS nobody",
    "SENTINEL CKQUORUM main",
    "SENTINEL CKQUORUM nobody",
    "SENTINEL FAILOVER nobody",
    "SENTINEL REMOVE nobody",
    "SENTINEL RESET no*",
    "SENTINEL PENDING-SCRIPTS",
    "SENTINEL FLUSHCONFIG",
    "SENTINEL INFO-CACHE nobody",
    "SENTINEL DEBUG",
    "SENTINEL DEBUG frobnicate 1",
    "SENTINEL DEBUG info-period 0",
    "SENTINEL DEBUG info-period",
    "SENTINEL CONFIG GET *",
    "SENTINEL CONFIG GET announce-*",
    "SENTINEL CONFIG GET nothing",
    "SENTINEL CONFIG SET resolve-hostnames perhaps",
    "SENTINEL CONFIG SET announce-port x",
    "SENTINEL CONFIG SET nothing x",
    "SENTINEL SIMULATE-FAILURE HELP",
    "SENTINEL SIMULATE-FAILURE nonsense",
    "SENTINEL MONITOR main 127.0.0.1 1 1",
    "SENTINEL MONITOR other 127.0.0.1 x 1",
    "SENTINEL MONITOR other 127.0.0.1 1 x",
    "SENTINEL MONITOR other 127.0.0.1 1 0",
    "SENTINEL MONITOR other 127.0.0.1 70000 1",
    "SENTINEL MONITOR other no.such.host 1 1",
    "SENTINEL SET nobody quorum 1",
    "SENTINEL SET main quorum 0",
    "SENTINEL SET main frobnicate 1",
    "SENTINEL SET main down-after-milliseconds x",
    "SENTINEL SET main notification-script /bin/true",
    "SENTINEL SET main parallel-syncs 4",
    "SENTINEL SET main rename-command CONFIG guessme",
    "SENTINEL SET main rename-command CONFIG CONFIG",
    "SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 1 0 *",
    "SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 x 0 *",
    "SENTINEL MASTER",
    "SENTINEL FROBNICATE",
    "SENTINEL",
    "PUBLISH somewhere hello",
    "GET key",
    "CONFIG GET port",
    "MULTI",
    "COMMAND COUNT",
    "COMMAND GETKEYS GET key",
    "CLIENT GETNAME",
    "ACL WHOAMI",
    "ACL LIST",
    "AUTH secret",
];

#[test]
fn answers_without_figures_are_equal_to_those_of_a_real_sentinel() {
    let group = SentinelGroup::start_mixed(&real(2), &[own(2), real(1)].concat());
    let (ours, theirs) = (&group.sentinels[0], &group.sentinels[2]);
    let mut different = Vec::new();
    for words in EQUAL {
        let words: Vec<&str> = words.split(' ').collect();
        let (mine, other) = (ours.cli(&words), theirs.cli(&words));
        if mine != other {
            different.push(format!("{}:\n  ours:   {mine}\n  theirs: {other}", words.join(" ")));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));

    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(ours.cli(&["COMMAND", "LIST"])), sorted(theirs.cli(&["COMMAND", "LIST"])));
    let sections = |text: String| {
        let lines = text.lines().filter(|line| line.starts_with('#'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(sections(ours.cli(&["INFO"])), sections(theirs.cli(&["INFO"])));
    let info = |text: String| {
        let names = text.lines().map(|line| line.split(':').next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let words = ["INFO", "sentinel"];
    assert_eq!(info(ours.cli(&words)), info(theirs.cli(&words)));
    let hello = |text: String| text.lines().filter(|line| line.parse::<u64>().is_err()).count();
    assert_eq!(hello(ours.cli(&["HELLO"])), hello(theirs.cli(&["HELLO"])));
}
