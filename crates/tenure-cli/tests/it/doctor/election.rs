//! What can be wrong with an election.

use super::{codes, codes_with, planted};
use crate::stage::{Kind, NAME, Stage};

planted! {
    "never-started": fn an_election_that_nobody_started() {
        let stage = Stage::on(Kind::Own);
        assert_eq!(stage.tenure(&["doctor", NAME]).code, 1);
        let codes = codes(&stage);
        // Whoever cannot begin because of what is there sees that as well.
        stage.store.cli(&["SET", "{tenure:job}:meta", "x"]);
        let said = stage.tenure(&["doctor", NAME]);
        assert!(said.out.contains("{tenure:job}:meta is a string, not a hash"), "{said:?}");
        codes
    }

    "foreign-key": fn a_key_of_somebody_else() {
        let stage = Stage::on(Kind::Own);
        stage.store.cli(&["LPUSH", "tenure:job", "x"]);
        assert!(codes(&stage).contains(&"foreign-key".to_owned()), "a list");
        stage.store.cli(&["SET", "tenure:job", "somebody", "EX", "100"]);
        codes(&stage)
    }

    "key-without-ttl": fn a_key_without_an_end() {
        let stage = Stage::on(Kind::Own);
        stage.store.cli(&["SET", "tenure:job", "somebody"]);
        codes(&stage)
    }

    "leader-stalled": fn work_that_neither_goes_on_nor_ends() {
        let stage = Stage::on(Kind::Own);
        let flags = ["--health-cmd", "false", "--health-every", "100ms", "--ttl", "60s"];
        let flags = [&flags[..], &["--stop-grace", "25s"]].concat();
        let _sick = stage.wrap("ada", &flags, "trap '' TERM; while :; do sleep 0.1; done");
        codes_with(&stage, "leader-stalled")
    }

    "leader-silent": fn a_leader_that_is_not_heard_of() {
        let stage = Stage::on(Kind::Own);
        let mut ada = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        ada.pause();
        // As if its lease had been written by hand: the key stays, the heartbeats do not.
        stage.store.cli(&["PEXPIRE", "tenure:job", "600000"]);
        codes_with(&stage, "leader-silent")
    }

    "no-candidate": fn candidates_that_have_left() {
        let stage = Stage::on(Kind::Own);
        assert_eq!(stage.tenure(&["run", NAME, "--", "true"]).code, 0);
        // A job has no candidate between its runs, and `tenure run` would be the wrong cure.
        let said = stage.tenure(&["doctor", NAME]);
        assert!(said.out.contains("nothing to do for a job of `tenure once`"), "{said:?}");
        codes(&stage)
    }

    "one-candidate": fn a_candidate_that_is_alone() {
        let stage = Stage::on(Kind::Own);
        let _ada = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        codes(&stage)
    }

    "paused": fn a_pause() {
        let stage = Stage::on(Kind::Own);
        assert_eq!(stage.tenure(&["pause", NAME]).code, 0);
        codes(&stage)
    }

    "quarantine": fn a_store_that_has_forgotten() {
        let mut stage = Stage::on(Kind::Redis);
        stage.store.restart();
        // Leases of an hour may be believed in, as far as this candidate knows.
        let mut command = stage.command(&["run", NAME, "--ttl", "1h", "--", "true"]);
        command.env_remove("TENURE_DEFAULTS__FRESH_STORE");
        let _waiting = testkit::Process::spawn(command);
        codes_with(&stage, "quarantine")
    }

    "none-ready": fn candidates_that_are_ill() {
        let stage = Stage::on(Kind::Own);
        let flags = ["--health-cmd", "false", "--health-every", "500ms"];
        let _sick = stage.wrap("ada", &flags, "sleep 600");
        codes_with(&stage, "none-ready")
    }

    "duplicate-id": fn twins() {
        let stage = Stage::on(Kind::Own);
        let _one = stage.wrap("ada", &[], "sleep 600");
        let _two = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_members(2);
        codes(&stage)
    }

    "different-ttls": fn leases_of_different_length() {
        let stage = Stage::on(Kind::Own);
        let _one = stage.wrap("ada", &[], "sleep 600");
        let _two = stage.wrap("bob", &["--ttl", "5s"], "sleep 600");
        stage.wait_for_members(2);
        codes(&stage)
    }

    "frequent-changes": fn a_leader_that_keeps_changing() {
        let stage = Stage::on(Kind::Own);
        for _ in 0..6 {
            assert_eq!(stage.tenure(&["run", NAME, "--", "true"]).code, 0);
        }
        codes(&stage)
    }

    "store-warning": fn a_record_that_makes_no_sense() {
        let stage = Stage::on(Kind::Own);
        assert_eq!(stage.tenure(&["run", NAME, "--", "true"]).code, 0);
        stage.store.cli(&["HSET", "{tenure:job}:meta", "token", "many"]);
        codes(&stage)
    }
}

#[test]
fn a_pause_is_told_while_somebody_leads() {
    let stage = Stage::on(Kind::Own);
    let _ada = stage.wrap("ada", &[], "sleep 600");
    stage.wait_for_leader("ada");
    let said = stage.tenure(&["pause", NAME, "--for", "10m"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(codes(&stage).contains(&"paused".to_owned()));
}
