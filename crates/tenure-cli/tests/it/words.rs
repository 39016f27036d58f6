//! What is said is what is so, and the next step is one that helps.

use testkit::{TempFolder, wait_until};

use crate::stage::{CommandOutput, Kind, NAME, Stage, plain_command};

#[test]
fn a_server_that_takes_connections_and_is_silent_is_no_silent_host() {
    let mut stage = Stage::on(Kind::Redis);
    stage.store.pause();
    let said = stage.tenure(&["who", NAME]);
    assert!(said.err.contains("connected, but no answer within"), "{said:?}");
    assert!(said.err.contains("busy or stopped"), "{said:?}");
    assert!(!said.err.contains("firewall"), "{said:?}");
    stage.store.resume();
}

#[test]
fn elections_that_are_switched_off_are_told_once_and_not_called_granted() {
    let off = |words: &[&str]| {
        let mut command = plain_command(words);
        command.env("TENURE_STORE", "redis://127.0.0.1:1").env("TENURE_ENABLED", "false");
        CommandOutput::of(command)
    };
    let said = off(&["run", NAME, "--", "true"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(said.err.matches("elections are switched off").count(), 1, "{said:?}");
    assert!(said.err.contains("WARN") && said.err.contains("no store is asked"), "{said:?}");
    assert!(said.err.contains("disabled") && !said.err.contains("granted"), "{said:?}");

    // "Nobody leads" would be untrue: everybody does.
    for words in [["who", NAME], ["status", NAME], ["doctor", NAME]] {
        let said = off(&words);
        assert_eq!(said.code, 78, "{said:?}");
        assert!(said.err.contains("elections are switched off"), "{said:?}");
    }

    let said = off(&["config", "check"]);
    assert!(said.out.contains("elections are switched off"), "{said:?}");
    let folder = TempFolder::create();
    let file = folder.write("tenure.toml", "defaults.enabled = false\n");
    let said =
        CommandOutput::of(plain_command(&["config", "check", "--config", file.to_str().unwrap()]));
    assert!(said.out.contains("elections are switched off"), "{said:?}");
    assert!(!said.out.contains("the local store is used"), "{said:?}");
}

/// Whatever `tenure sidecar` refuses, `config check` refuses in the same words, and says where.
#[test]
fn the_check_refuses_what_the_sidecar_refuses() {
    let folder = TempFolder::create();
    for (text, named) in [
        ("[sidecar]\nlisten = \"0.0.0.0:1\"\n", "not loopback"),
        ("[sidecar]\ntoken = \"short\"\n", "sidecar.token has 5 characters"),
        ("[sidecar]\nlisten = \"here\"\n", "not an address"),
        ("[sidecar]\ntls.cert_file = \"none.pem\"\n", "belong together"),
        ("[elections.\"\"]\n", "elections.\"\""),
    ] {
        let file = folder.write("tenure.toml", text);
        let file = file.to_str().unwrap();
        let checked = CommandOutput::of(plain_command(&["config", "check", "--config", file]));
        assert_eq!(checked.code, 78, "{text}: {checked:?}");
        assert!(checked.err.contains(named), "{text}: {checked:?}");
        assert!(checked.err.contains("tenure.toml:"), "the place of {text}: {checked:?}");
        let words = ["sidecar", NAME, "--store", "redis://127.0.0.1:1", "--config", file];
        let served = CommandOutput::of(plain_command(&words));
        assert_eq!(served.code, 78, "{text}: {served:?}");
        assert!(served.err.contains(named), "{text}: {served:?}");
    }
}

/// What nobody set counts, too.
#[test]
fn the_check_shows_the_times_that_follow_from_a_ttl() {
    let folder = TempFolder::create();
    let text = "[elections.mailer]\nttl = '60s'\nstop_grace = '5s'\n[elections.report]\n";
    let file = folder.write("tenure.toml", text);
    let words = ["config", "check", "--config", file.to_str().unwrap()];
    let said = CommandOutput::of(plain_command(&words));
    let row = |key: &str| {
        let found = said.out.lines().find(|line| line.split_whitespace().next() == Some(key));
        found.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
    };
    let shown = |key: &str| row(key).unwrap_or_else(|| panic!("{key} is not in {}", said.out));
    assert_eq!(shown("defaults.renew_every"), "3s333ms a third of ttl");
    assert_eq!(shown("defaults.stop_grace"), "3s 30 % of ttl");
    assert_eq!(shown("elections.mailer.renew_every"), "20s a third of ttl");
    assert!(
        shown("elections.mailer.stop_grace").starts_with("5s ")
            && row("elections.report.renew_every").is_none()
    );
    let json = CommandOutput::of(plain_command(&[&words[..], &["--json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let first = &json["derived"][0];
    assert_eq!(
        (&first["key"], &first["rule"]),
        (&"defaults.renew_every".into(), &"a third of ttl".into())
    );
}

#[test]
fn a_hand_over_to_nobody_names_the_members_and_a_pause_is_told_in_short() {
    let stage = Stage::on(Kind::Redis);
    let said = stage.tenure(&["resign", NAME]);
    assert_eq!(said.err.matches("nobody").count(), 2, "{said:?}");
    let ada = stage.wrap("ada", &[], "exec sleep 600");
    stage.wait_for_leader("ada");
    stage.wait_for_members(1);
    let said = stage.tenure(&["hand-over", NAME, "--to", "vm"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("\"vm\" is not a member; those are ada_"), "{said:?}");
    drop(ada);

    wait_until("nobody leads", testkit::GENEROUS, || stage.tenure(&["who", NAME]).code == 1);
    stage.tenure(&["pause", NAME, "--for", "90s"]);
    let said = stage.tenure(&["who", NAME]);
    assert!(said.err.contains("paused it, 1m"), "{said:?}");
    assert!(!said.err.contains('.'), "no fraction of nanoseconds: {said:?}");
}
