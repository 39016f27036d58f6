//! Every tool answers, whatever another program wrote beside the leader's key.

use testkit::GENEROUS;

use crate::stage::{NAME, Stage, on_every_store};

const KEY: &str = "tenure:job";
const META: &str = "{tenure:job}:meta";
const BEATS: &str = "{tenure:job}:beats";
const MEMBERS: &str = "{tenure:job}:members";
const HISTORY: &str = "{tenure:job}:history";

/// What somebody wrote, one after the other; the tools look after each of them.
fn words(long: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["HSET", META, "paused_until", "9007199254740991"],
        vec!["HSET", META, "quarantine_until", "9007199254740991", "max_ttl", "-1"],
        vec!["HSET", META, "wish", "hand-over", "wish_to", long, "wish_by", long],
        vec!["HSET", META, "quarantine_why", long, "claim", long, "before", long],
        vec!["ZADD", BEATS, "-5", "minus", "inf", "future", "-inf", "past", "1", long],
        vec!["HSET", MEMBERS, "minus", long, long, long],
        vec!["XADD", HISTORY, "*", "what", long],
        vec!["XADD", HISTORY, "*", "what", "granted", "at", "-1", "id", "x", "token", "y"],
        vec!["HSET", META, "token", "9007199254740991", "holder", "mallory"],
        vec!["HSET", META, "v", "2"],
        vec!["DEL", META],
        vec!["SET", META, "a string"],
        vec!["SET", BEATS, "a string"],
        vec!["SET", MEMBERS, "a string"],
    ]
}

/// All look at the same time: what is there does not change meanwhile.
fn look(stage: &Stage, words: &[&str]) {
    let after = &words[..words.len().min(4)];
    let [who, status, members, history, doctor] =
        stage.at_once(&["who", "status", "members", "history", "doctor"].map(|tool| [tool, NAME]));
    for said in [&who, &status, &members, &history] {
        assert_eq!(said.code, 0, "after {after:?}: {said:?}");
    }
    assert!(who.out.starts_with("ada_"), "after {after:?}: {who:?}");
    // It may well find something to say, but it looks to the end.
    assert!(matches!(doctor.code, 0 | 1 | 78), "after {after:?}: {doctor:?}");
}

on_every_store! {
    fn whatever_stands_beside_the_key_a_leader_leads_on_and_tools_answer(stage: Stage) {
        let long = "x".repeat(100_000);
        let _leader = stage.wrap("ada", &["--ttl", "5s"], "sleep 1000");
        stage.wait_for_leader("ada");
        let token = stage.store.cli(&["HGET", META, "token"]);
        let mut watch = testkit::Process::spawn(stage.command(&["watch", NAME, "--json"]));
        watch.next_line_with("ada_", GENEROUS);
        for words in words(&long) {
            stage.store.cli(&words);
            look(&stage, &words);
        }
        assert!(watch.is_running(), "{:?}", watch.lines());
        stage.store.cli(&["DEL", META, BEATS, MEMBERS]);
        testkit::wait_until("the same term in the record", GENEROUS, || {
            stage.store.cli(&["HGET", META, "token"]) == token
        });
    }

    fn what_nobody_can_lead_by_is_cleared(stage: Stage) {
        stage.store.cli(&["SET", KEY, "mallory", "EX", "9999999999"]);
        stage.store.cli(&["HSET", META, "paused_until", "9007199254740991"]);
        for words in [&["who", NAME][..], &["status", NAME], &["resume", NAME]] {
            let said = stage.tenure(words);
            assert_eq!(said.code, 0, "{words:?}: {said:?}");
        }
        let said = stage.tenure(&["clear", NAME, "--force", "--yes", "--reason", "not ours"]);
        assert_eq!(said.code, 0, "{said:?}");
        let _leader = stage.wrap("ada", &[], "sleep 1000");
        stage.wait_for_leader("ada");
    }
}
