//! `hand-over`, `resign`, `pause`, `resume`, `clear`: what an operator may do.

use testkit::{GENEROUS, wait_until};

use crate::stage::{NAME, on_every_store};

on_every_store! {
    fn a_hand_over_moves_the_child(stage: crate::stage::Stage) {
        let _ada = stage.wrap_writer("ada", &[]);
        stage.wait_for_leader("ada");
        let _bob = stage.wrap_writer("bob", &[]);
        stage.wait_for_members(2);
        let said = stage.tenure(&["hand-over", NAME, "--to", "bob"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.out.contains("bob_"), "{said:?}");
        stage.wait_for_leader("bob");
        assert_eq!(stage.diary().check(), Ok(()));
    }

    fn a_hand_over_to_a_stranger_is_refused_with_a_reason(stage: crate::stage::Stage) {
        let _ada = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        let said = stage.tenure(&["hand-over", NAME, "--to", "zoe"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains("refused") && said.err.contains("zoe"), "{said:?}");
        stage.wait_for_leader("ada");
    }

    fn a_request_that_is_not_waited_for_stands(stage: crate::stage::Stage) {
        let script = "trap 'sleep 4; exit 0' TERM; touch begun; while :; do sleep 0.1; done";
        let _ada = stage.wrap("ada", &["--ttl", "30s"], script);
        wait_until("the program", GENEROUS, || stage.folder.path().join("begun").exists());
        let _bob = stage.wrap("bob", &["--ttl", "30s"], "sleep 600");
        stage.wait_for_members(2);
        let said = stage.tenure(&["hand-over", NAME, "--to", "bob", "--timeout", "1s", "--json"]);
        assert_eq!(said.code, 75, "{said:?}");
        assert!(said.out.contains("not-answered") && said.out.contains("request stands"), "{said:?}");
        assert!(!said.out.contains("--force") && !said.err.contains("--force"), "{said:?}");
        stage.wait_for_leader("bob");
    }

    fn a_leader_that_is_asked_resigns(stage: crate::stage::Stage) {
        let nobody = stage.tenure(&["resign", NAME]);
        assert_eq!(nobody.code, 1, "{nobody:?}");
        assert!(nobody.err.contains("nobody leads: there is nobody to ask"), "{nobody:?}");
        let _ada = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        let _bob = stage.wrap("bob", &[], "sleep 600");
        stage.wait_for_members(2);
        let json = stage.json(&["resign", NAME]);
        assert_eq!(json["outcome"], "done", "{json}");
        assert!(json["leader"].is_string(), "it says who leads next: {json}");
        stage.wait_for_leader("bob");
        let history = stage.json(&["history", NAME]);
        let ended = &history["terms"][1];
        let detail = ended["detail"].as_str().unwrap_or_default();
        assert!(ended["reason"] == "released" && detail.starts_with("asked by "), "{history}");
    }

    fn a_paused_election_grants_no_term(stage: crate::stage::Stage) {
        assert_eq!(stage.tenure(&["pause", NAME, "--for", "1h"]).code, 0);
        let said = stage.tenure(&["run", NAME, "--wait-timeout", "3s", "--", "true"]);
        assert_eq!(said.code, 75, "{said:?}");
        assert!(said.err.contains("an operator paused it"), "{said:?}");
        assert_eq!(stage.json(&["who", NAME])["vacancy"], "paused");
        assert_eq!(stage.tenure(&["resume", NAME]).code, 0);
        let again = stage.tenure(&["resume", NAME]);
        assert_eq!(again.code, 1, "{again:?}");
        assert!(again.err.contains("is not paused"), "{again:?}");
        let long = stage.tenure(&["pause", NAME, "--for", "8d"]);
        assert!(long.code == 78 && long.err.contains("8d") && long.err.contains("7d"), "{long:?}");
        assert_eq!(stage.tenure(&["run", NAME, "--", "true"]).code, 0);
    }

    fn whoever_asks_a_leader_to_resign_hears_of_a_pause(stage: crate::stage::Stage) {
        let _ada = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        assert_eq!(stage.tenure(&["pause", NAME, "--for", "1h"]).code, 0);
        let said = stage.tenure(&["resign", NAME]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.err.contains("nobody can take over: an operator paused it"), "{said:?}");
    }

    fn a_pause_of_a_name_that_nobody_uses_is_doubted(stage: crate::stage::Stage) {
        let doubted = stage.tenure(&["pause", "nightyl"]);
        assert_eq!(doubted.code, 0, "{doubted:?}");
        assert!(doubted.err.contains("is the name right?"), "{doubted:?}");
        assert_eq!(stage.tenure(&["run", NAME, "--", "true"]).code, 0);
        let known = stage.tenure(&["pause", NAME]);
        assert!(known.code == 0 && !known.err.contains("is the name right?"), "{known:?}");
    }

    fn what_an_operator_does_is_told_as_json_where_asked(stage: crate::stage::Stage) {
        let paused = stage.json(&["pause", NAME, "--for", "1m"]);
        assert_eq!(paused["paused_for_ms"], 60_000, "{paused}");
        assert!(stage.json(&["resume", NAME])["paused_for_ms"].is_null());
        let refused = stage.tenure(&["resume", NAME, "--json"]);
        let error: serde_json::Value = serde_json::from_str(refused.err.trim()).unwrap();
        assert_eq!(error["code"], 1, "{refused:?}");
        assert!(error["error"].as_str().unwrap().contains("is not paused"), "{refused:?}");
        let usage = stage.tenure(&["resume", NAME, "--json", "--nonsense"]);
        let error: serde_json::Value = serde_json::from_str(usage.err.trim()).unwrap();
        assert_eq!(error["code"], 64, "{usage:?}");
        stage.store.cli(&["SET", &format!("tenure:{NAME}"), "stranger"]);
        let words = ["clear", NAME, "--reason", "drill", "--yes", "--force"];
        assert_eq!(stage.json(&words)["reason"], "drill");
    }

    fn what_never_was_is_neither_cleared_nor_resumed(stage: crate::stage::Stage) {
        let clear = ["clear", "nobody", "--reason", "drill", "--yes", "--force"];
        for words in [&clear[..], &["resume", "nobody"]] {
            let said = stage.tenure(words);
            assert_eq!(said.code, 1, "{said:?}");
            assert!(said.err.contains("nobody") && said.err.contains("nothing to"), "{said:?}");
        }
        assert_eq!(stage.store.cli(&["DBSIZE"]), "0", "nothing was written");
    }

    fn a_key_of_somebody_else_is_cleared_and_history_says_why(stage: crate::stage::Stage) {
        stage.store.cli(&["SET", &format!("tenure:{NAME}"), "stranger"]);
        let words = ["clear", NAME, "--reason", "drill", "--yes", "--force"];
        let said = stage.tenure(&words[..words.len() - 1]);
        assert_eq!(said.code, 1, "{said:?}");
        let is_told = said.err.contains("not known") && said.err.contains("--force");
        assert!(is_told && !said.err.contains("heartbeat recently"), "{said:?}");
        let said = stage.tenure(&words);
        assert_eq!(said.code, 0, "{said:?}");
        let history = stage.tenure(&["history", NAME]).out;
        assert!(history.contains("drill"), "{history}");
        let again = stage.tenure(&words);
        assert_eq!(again.code, 1, "{again:?}");
    }

    fn clearing_asks_refuses_and_can_be_forced(stage: crate::stage::Stage) {
        let _ada = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        let clear = ["clear", NAME, "--reason", "drill"];
        let unasked = stage.tenure(&clear);
        assert_eq!(unasked.code, 64, "{unasked:?}");
        assert!(unasked.err.contains("--yes"), "{unasked:?}");
        let refused = stage.tenure(&[&clear[..], &["--yes"]].concat());
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains("heartbeat recently"), "{refused:?}");
        let forced = stage.tenure(&[&clear[..], &["--yes", "--force"]].concat());
        assert_eq!(forced.code, 0, "{forced:?}");
        let history = stage.json(&["history", NAME]);
        let cleared = history["terms"].as_array().unwrap().iter().any(|term| {
            let detail = term["detail"].as_str().unwrap();
            // Why, and who did it.
            term["reason"] == "cleared" && detail.starts_with("drill (by ") && detail.contains('@')
        });
        assert!(cleared, "{history}");
        let status = stage.tenure(&["status", NAME]).out;
        // By user and host, as far as the name of an instance can hold them.
        let by = status.split_once("cleared by ").unwrap().1.split_once('_').unwrap().0;
        assert!(by.contains(':') && status.contains(": drill"), "{status}");
        assert!(!status.contains("loss of data"), "{status}");
    }
}
