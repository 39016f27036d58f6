//! `tenure list`: which elections a store has; and what is said of a name that it does not have.

use std::process::Command;

use serde_json::Value;
use testkit::{ClusterGroup, GENEROUS, Process, RedisServer, SentinelGroup, wait_for, wait_until};

use crate::cli::terminal::Terminal;
use crate::stage::{CommandOutput, Kind, Stage, on_every_store, plain_command};

/// `tenure` on the store at `url`.
fn command(url: &str, words: &[&str]) -> Command {
    let mut command = plain_command(words);
    command.env("TENURE_STORE", url).env("TENURE_DEFAULTS__FRESH_STORE", "true");
    command
}

fn tenure(url: &str, words: &[&str]) -> CommandOutput {
    CommandOutput::of(command(url, words))
}

fn listed(url: &str) -> Value {
    let said = tenure(url, &["list", "--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    serde_json::from_str(&said.out).unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    let elections = list["elections"].as_array().unwrap();
    elections.iter().map(|election| election["name"].as_str().unwrap()).collect()
}

#[track_caller]
fn of<'a>(list: &'a Value, name: &str) -> &'a Value {
    let elections = list["elections"].as_array().unwrap();
    elections.iter().find(|election| election["name"] == name).unwrap_or_else(|| panic!("{list}"))
}

/// Somebody who leads `name` until it is dropped.
fn leader(url: &str, name: &str) -> Process {
    let words = ["run", name, "--id", "ada", "--ttl", "30s", "--", "sleep", "600"];
    let leader = Process::spawn(command(url, &words));
    wait_until("ada to lead", GENEROUS, || tenure(url, &["who", name]).out.starts_with("ada_"));
    leader
}

on_every_store! {
    fn all_elections_of_a_store_are_listed_with_their_state(stage: crate::stage::Stage) {
        let url = stage.store.url();
        let empty = tenure(&url, &["list"]);
        assert_eq!((empty.code, empty.out.lines().count()), (0, 1), "{empty:?}");
        assert!(empty.out.starts_with("no elections at "), "{empty:?}");

        let _ten = leader(&url, "job-10");
        let _two = leader(&url, "job-2");
        assert_eq!(tenure(&url, &["pause", "asleep", "--for", "1h"]).code, 0);
        let once = ["once", "hourly", "--every", "1h", "--", "true"];
        assert_eq!(tenure(&url, &once).code, 0);
        let list = listed(&url);
        assert_eq!(names(&list), ["asleep", "hourly", "job-2", "job-10"], "{list}");
        assert_eq!(list["complete"], true);
        let two = of(&list, "job-2");
        assert_eq!((&two["state"], &two["kind"], &two["members"]),
            (&"led".into(), &"election".into(), &1.into()), "{two}");
        assert!(two["leader"].as_str().unwrap().starts_with("ada_"), "{two}");
        assert!(two["token"].is_u64() && two["remaining_ms"].is_u64(), "{two}");
        assert!(two["leads_for_ms"].is_u64(), "{two}");
        let asleep = of(&list, "asleep");
        assert_eq!((&asleep["state"], &asleep["leader"]), (&"paused".into(), &Value::Null));
        assert!(asleep["paused_for_ms"].as_u64() > Some(3_000_000), "{asleep}");
        let hourly = of(&list, "hourly");
        assert_eq!((&hourly["kind"], &hourly["state"]), (&"job".into(), &"idle".into()));

        let text = tenure(&url, &["list"]).out;
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("NAME") && lines[0].contains("STATE"), "{text}");
        assert!(lines[1].contains("paused for 59m"), "{text}");
        assert!(lines[3].starts_with("job-2 ") && lines[4].starts_with("job-10 "), "{text}");
        assert!(lines[3].contains("led") && lines[3].contains("ada_"), "{text}");
    }

    fn keys_of_others_under_the_prefix_do_not_disturb_the_list(stage: crate::stage::Stage) {
        let url = stage.store.url();
        let _ada = leader(&url, "job");
        let text = |number: u32| format!("tenure:session:{number}");
        for number in 0..50 {
            stage.store.cli(&["SET", &text(number), "x"]);
        }
        stage.store.cli(&["SET", "tenure:report:meta", "x"]);
        stage.store.cli(&["SET", "{tenure:}:meta", "x"]);
        stage.store.cli(&["SET", "{tenure:a b}:meta", "x"]);
        stage.store.cli(&["SET", "{other:job}:meta", "x"]);
        stage.store.cli(&["SET", "tenure:\u{1b}[2J:meta", "x"]);
        assert_eq!(names(&listed(&url)), ["job"]);
        // What an election of this name would use, of another type: it says so, and the rest stays.
        stage.store.cli(&["RPUSH", "{tenure:odd}:meta", "x"]);
        let list = listed(&url);
        assert_eq!(names(&list), ["job", "odd"]);
        assert_eq!(of(&list, "job")["state"], "led");
        let odd = of(&list, "odd");
        assert!(odd["error"].is_string() || odd["warnings"][0].is_string(), "{odd}");
        // Under another prefix there is nothing, although it is part of the other's names.
        let none = tenure(&url, &["list", "--prefix", "enure:"]);
        assert!(none.out.starts_with("no elections"), "{none:?}");
    }

    fn a_name_that_is_nearly_right_gets_the_right_one(stage: crate::stage::Stage) {
        let url = stage.store.url();
        // A store that knows nothing has nothing to suggest.
        let nobody = tenure(&url, &["who", "nightly-reprot"]);
        assert!(nobody.code == 1 && !nobody.err.contains("did you mean"), "{nobody:?}");
        let _ada = leader(&url, "nightly-report");
        let hint = "no election `nightly-reprot`; did you mean `nightly-report`?";
        for (words, code) in [
            (&["who", "nightly-reprot"][..], 1),
            (&["status", "nightly-reprot"], 0),
            (&["members", "nightly-reprot"], 0),
            (&["history", "nightly-reprot"], 0),
            (&["resume", "nightly-reprot"], 1),
            (&["resign", "nightly-reprot"], 1),
            (&["clear", "nightly-reprot", "--reason", "x", "--yes"], 1),
            (&["pause", "nightly-reprot"], 0),
        ] {
            let said = tenure(&url, words);
            assert_eq!(said.code, code, "{words:?}: {said:?}");
            assert!(format!("{}{}", said.out, said.err).contains(hint), "{words:?}: {said:?}");
        }
        // Now it is one: it is paused.
        let paused = tenure(&url, &["who", "nightly-reprot"]);
        assert!(!paused.err.contains("did you mean"), "{paused:?}");
        let json = tenure(&url, &["who", "nightly-repotr", "--json"]);
        let json: Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!((&json["leader"], &json["did_you_mean"]), (&Value::Null, &"nightly-report".into()));
        for other in ["billing", "report"] {
            let said = tenure(&url, &["who", other]);
            assert!(said.code == 1 && !said.err.contains("did you mean"), "{said:?}");
        }
    }
}

#[test]
fn a_cluster_is_asked_on_every_primary() {
    let cluster = ClusterGroup::start().steady();
    let url = cluster.url();
    let names_wanted: Vec<String> = (1..=9).map(|number| format!("job-{number}")).collect();
    for name in &names_wanted {
        let paused = tenure(&url, &["pause", name, "--for", "1h"]);
        assert_eq!(paused.code, 0, "{paused:?}");
    }
    let owners: std::collections::BTreeSet<_> = names_wanted
        .iter()
        .map(|name| cluster.owner_of(cluster.slot_of(&format!("tenure:{name}"))).unwrap())
        .collect();
    assert!(owners.len() > 1, "they are on several servers: {owners:?}");
    let list = listed(&url);
    assert_eq!(names(&list), names_wanted);
    assert_eq!(of(&list, "job-3")["state"], "paused");
}

#[test]
fn behind_sentinels_the_primary_is_asked() {
    let sentinels = SentinelGroup::start(1);
    let url = sentinels.url();
    let _ada = leader(&url, "job");
    assert_eq!(names(&listed(&url)), ["job"]);
}

#[test]
fn a_quorum_shows_what_a_majority_says_and_which_node_is_missing() {
    let mut nodes: Vec<RedisServer> = (0..3).map(|_| RedisServer::start()).collect();
    let places: Vec<String> =
        nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redis+quorum://{}", places.join(","));
    let _ada = leader(&url, "job");
    assert_eq!(of(&listed(&url), "job")["state"], "led");
    nodes[1].kill();
    let said = tenure(&url, &["list", "--json"]);
    let list: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &list["complete"]), (0, &Value::Bool(false)), "{said:?}");
    assert!(said.err.contains(&places[1]), "{said:?}");
    assert_eq!(of(&list, "job")["state"], "led");
    nodes[2].kill();
    let said = tenure(&url, &["list"]);
    assert_eq!(said.code, 69, "{said:?}");
}

#[test]
fn a_login_that_may_not_scan_is_told_what_it_needs() {
    let server = RedisServer::builder().acl("user default on nopass ~* &* +@all -scan\n").start();
    let said = tenure(&server.url(), &["list"]);
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("+scan"), "{said:?}");
    // The others do without.
    assert_eq!(tenure(&server.url(), &["who", "job"]).code, 1);
}

#[test]
fn several_are_watched_on_one_screen() {
    let stage = Stage::on(Kind::Redis);
    let url = stage.store.url();
    let _two = leader(&url, "job-2");
    let _ten = leader(&url, "job-10");
    assert_eq!(tenure(&url, &["pause", "asleep", "--for", "1h"]).code, 0);
    // Wide: a line each, trouble first, in colour.
    let mut terminal =
        Terminal::with_columns(140, command(&url, &["watch", "job-10", "job-2", "none"]));
    let view = wait_for("all of them", GENEROUS, || {
        let view = terminal.sees("q or Ctrl-C: leave");
        (view.matches("ada_").count() >= 2 && view.contains("vacant")).then_some(view)
    });
    let view = view.rsplit("\x1b[H").next().unwrap();
    assert!(view.contains("3 elections, 1 in trouble"), "{view:?}");
    let at = |text: &str| view.find(text).unwrap_or_else(|| panic!("{text}: {view:?}"));
    assert!(at("\x1b[1;31mnone ") < at("job-2 ") && at("job-2 ") < at("job-10 "), "{view:?}");
    terminal.press("q");
    assert_eq!(terminal.ends(), Some(0));

    // All that there are, on a narrow screen and without colour: nothing is lost or cut off.
    let mut all = command(&url, &["watch"]);
    all.env("NO_COLOR", "1");
    let terminal = Terminal::with_columns(60, all);
    let narrow = |terminal: &Terminal| {
        let view = terminal.sees("q or Ctrl-C: leave");
        view.rsplit("\x1b[H").next().unwrap().replace("\x1b[K", "")
    };
    let view = wait_for("all of them", GENEROUS, || {
        let view = narrow(&terminal);
        (view.matches("leader ada_").count() == 2).then_some(view)
    });
    assert!(!view.contains("\x1b["), "no colour: {view:?}");
    assert!(view.lines().all(|line| line.trim_end().chars().count() <= 60), "{view:?}");
    let text = view.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["asleep paused", "paused for 59m", "job-2 led leader ada_", "lease", "token", "alive 1"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    drop(stage);
    let view = wait_for("the whole error", GENEROUS, || {
        let view = narrow(&terminal);
        view.contains("NO ANSWER").then_some(view)
    });
    let text = view.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("or name another with --store"), "{text}");
}

#[test]
fn several_are_watched_in_a_pipe_and_new_ones_as_they_come() {
    let stage = Stage::on(Kind::Redis);
    let url = stage.store.url();
    let two = Process::spawn(command(&url, &["watch", "job-1", "job-2"]));
    two.next_line_with("job-1: nobody leads (free)", GENEROUS);
    let all = Process::spawn(command(&url, &["watch", "--json"]));
    let _ada = leader(&url, "job-2");
    two.next_line_with("job-2: ada_", GENEROUS);
    // Nothing was there when it began.
    let line = all.next_line_with("\"leader\":\"ada_", GENEROUS);
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["name"], "job-2", "{line}");
    let wrong = tenure(&url, &["watch", "a", "b", "--key", "k"]);
    assert_eq!(wrong.code, 64, "{wrong:?}");
}
