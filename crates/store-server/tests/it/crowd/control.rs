//! Differences that are planted on our side, one per thing that is compared: each must be found,
//! and where it was planted.

use std::time::Duration;

use super::excepted::Usage;
use super::{Crowd, state};

struct Planted {
    what: &'static str,
    /// Said by connections of the crowd to both servers.
    before: &'static [(&'static str, &'static str)],
    /// Said to ours alone, by the main connection or by one of the crowd.
    ours: &'static [(&'static str, &'static str)],
    /// Where it is found.
    found_in: &'static str,
}

const PLANTED: &[Planted] = &[
    Planted { what: "a reply", before: &[], ours: &[("s", "PING planted")], found_in: "s\n" },
    Planted {
        what: "a message",
        before: &[("b", "RESET"), ("b", "SUBSCRIBE planted")],
        ours: &[("main", "PUBLISH planted x")],
        found_in: "b\n",
    },
    Planted {
        what: "an invalidation",
        before: &[
            ("b", "RESET"),
            ("b", "HELLO 3"),
            ("b", "CLIENT TRACKING ON"),
            ("b", "GET planted"),
        ],
        ours: &[("main", "SET planted x")],
        found_in: "b\n",
    },
    Planted {
        what: "a line of MONITOR",
        before: &[("m", "RESET"), ("m", "MONITOR")],
        ours: &[("s", "CLIENT GETNAME")],
        found_in: "m\n",
    },
    Planted {
        what: "the end of a connection",
        before: &[("b", "PING")],
        ours: &[("main", "CLIENT KILL TYPE normal SKIPME yes")],
        found_in: "b\n",
    },
    Planted {
        what: "a count of misses",
        before: &[],
        ours: &[("main", "GET nowhere")],
        found_in: "INFO keyspace_misses",
    },
    Planted {
        what: "a count of one command",
        before: &[],
        ours: &[("main", "TIME now")],
        found_in: "INFO cmdstat_time/rejected_calls",
    },
    Planted {
        what: "a field of a client",
        before: &[],
        ours: &[("main", "CLIENT SETNAME planted")],
        found_in: "CLIENT LIST name",
    },
    Planted {
        what: "a user",
        before: &[],
        ours: &[("main", "ACL SETUSER planted")],
        found_in: "ACL LIST",
    },
    Planted {
        what: "a setting",
        before: &[],
        ours: &[("main", "CONFIG SET maxmemory-samples 7")],
        found_in: "CONFIG GET * maxmemory-samples",
    },
    Planted {
        what: "a key",
        before: &[],
        ours: &[("main", "SET planted x")],
        found_in: "keys of db0",
    },
    Planted {
        what: "an expiry",
        before: &[("s", "SET planted x")],
        ours: &[("main", "PEXPIREAT planted 99999999999999")],
        found_in: "PEXPIRETIME",
    },
];

#[test]
fn a_planted_difference_is_found_where_it_was_planted() {
    for planted in PLANTED {
        let found = plant(planted).unwrap_or_default();
        let Planted { what, found_in, .. } = planted;
        assert!(found.contains(found_in), "{what}: not in {found_in:?} but {found:?}");
    }
}

/// What was found, if anything.
fn plant(planted: &Planted) -> Option<String> {
    let usage = Usage::new();
    let mut crowd = quiet_crowd(&usage);
    for (name, text) in planted.before {
        crowd.say(name, text, &usage).expect("the same on both servers so far");
    }
    for (name, text) in planted.ours {
        let words: Vec<&str> = text.split(' ').collect();
        crowd.ours.connection(name).send(&words);
        if *name == "main" {
            crowd.ours.connection(name).receive().expect("an answer");
        }
    }
    let mut found = Vec::from_iter(crowd.settle(&usage).err());
    if found.is_empty() {
        found.extend(state::compare_facts(&mut crowd.ours, &mut crowd.theirs, &usage).err());
        found.extend(state::compare_keys(&mut crowd.ours, &mut crowd.theirs, &usage).err());
    }
    (!found.is_empty()).then(|| found.join("\n"))
}

/// A crowd on servers that are alike; only its steward has said anything.
fn quiet_crowd(usage: &Usage) -> Crowd {
    let mut crowd = Crowd::start(testkit::seed(), 2);
    crowd.patience = Duration::from_millis(200);
    crowd.say("s", "PING", usage).expect("no difference without a planted one");
    crowd.look(usage).expect("no difference without a planted one");
    crowd
}

#[test]
fn what_is_lost_by_a_restart_is_found() {
    let usage = Usage::new();
    for swaps in [false, true] {
        let mut crowd = quiet_crowd(&usage);
        crowd.say("s", "SET planted x", &usage).expect("the same on both servers");
        for side in crowd.sides() {
            side.shut_down();
        }
        if swaps {
            super::servers::swap_files(&crowd.ours, &crowd.theirs);
        }
        crowd.ours.lose_files();
        for side in crowd.sides() {
            side.start_again();
        }
        crowd.begin_life();
        let found = state::compare_keys(&mut crowd.ours, &mut crowd.theirs, &usage);
        let found = found.expect_err("one of them has lost everything");
        assert!(found.starts_with("keys of db0"), "{found}");
    }
}
