//! `who`, `status`, `members`, `history`, `watch`: what there is to see.

use testkit::{GENEROUS, Process};

use crate::cli::terminal::Terminal;
use crate::stage::{Kind, NAME, Stage, on_every_store, send};

on_every_store! {
    fn who_says_the_id_or_that_nobody_leads(stage: crate::stage::Stage) {
        let nobody = stage.tenure(&["who", NAME]);
        assert_eq!((nobody.code, nobody.out.as_str()), (1, ""), "{nobody:?}");
        assert!(nobody.err.contains("nobody leads job"), "{nobody:?}");
        assert_eq!(stage.json(&["who", NAME])["vacancy"], "free");

        let _leader = stage.wrap("ada", &[], "sleep 600");
        stage.wait_for_leader("ada");
        let who = stage.tenure(&["who", NAME]);
        assert_eq!(who.code, 0);
        assert_eq!(who.out.lines().count(), 1);
        let json = stage.json(&["who", NAME]);
        assert_eq!(json["leader"], who.out);
        assert!(json["token"].as_u64().unwrap() > 0);
        assert!(json["remaining_ms"].as_u64().unwrap() <= 1_500);
        assert_eq!(json["foreign"], false);
    }

    fn status_members_and_history_show_what_is_there(stage: crate::stage::Stage) {
        let mut first = stage.wrap("ada", &["--priority", "-3", "--ttl", "10s"], "sleep 600");
        stage.wait_for_leader("ada");
        let _second = stage.wrap("bob", &["--priority", "5", "--ttl", "10s"], "sleep 600");
        stage.wait_for_members(2);

        let status = stage.json(&["status", NAME]);
        assert_eq!(status["key"], "tenure:job");
        assert!(!status["store"].as_str().unwrap().is_empty());
        let member = |name: &str| {
            let members = status["members"].as_array().unwrap();
            members.iter().find(|member| member["instance"] == name).cloned().unwrap()
        };
        assert_eq!((&member("ada")["role"], &member("bob")["role"]), (&"leader".into(), &"standby".into()));
        assert_eq!((&member("ada")["priority"], &member("bob")["priority"]), (&(-3).into(), &5.into()));
        assert_eq!(member("bob")["ttl_ms"], 10_000);
        let text = stage.tenure(&["status", NAME]).out;
        assert!(text.contains("leader    ada_") && text.contains("standby"), "{text}");

        first.terminate();
        first.wait(GENEROUS);
        stage.wait_for_leader("bob");
        let history = stage.json(&["history", NAME]);
        let [now, before] = &history["terms"].as_array().unwrap()[..] else { panic!("{history}") };
        assert!(now["id"].as_str().unwrap().starts_with("bob_") && now["ended_at"].is_null());
        assert_eq!(before["reason"], "released");
        assert!(now["gap_ms"].is_u64(), "{history}");
        assert!(now["token"].as_u64() > before["token"].as_u64());
    }

    fn watch_writes_a_line_per_change_into_a_pipe(stage: crate::stage::Stage) {
        let watching = Process::spawn(stage.command(&["watch", NAME]));
        watching.next_line_with("nobody leads (free), 0 members", GENEROUS);
        let _leader = stage.wrap("ada", &[], "sleep 600");
        watching.next_line_with("ada_", GENEROUS);
        assert_eq!(stage.tenure(&["pause", NAME]).code, 0);
        assert_eq!(stage.tenure(&["resign", NAME]).code, 0);
        let mut said = vec![String::new()];
        while said.last().is_some_and(|line| line != "nobody leads (paused), 1 member") {
            let line = watching.next_line(GENEROUS);
            let (_, news) = line.split_once("  ").expect("a time, then the news");
            assert_ne!(said.last().unwrap(), news, "a line per change");
            said.push(news.to_owned());
        }
    }
}

const ENTERED: &str = "\x1b[?1049h";
const LEFT: &str = "\x1b[?1049l";

#[test]
fn watch_fills_the_terminal_and_leaves_it_as_it_was() {
    let stage = Stage::on(Kind::Own);
    let mut ada = stage.wrap("ada", &[], "sleep 600");
    stage.wait_for_leader("ada");
    let _bob = stage.wrap("bob", &[], "sleep 600");
    stage.wait_for_members(2);
    for (key, code) in [("q", 0), ("\x03", 0)] {
        let mut terminal = Terminal::start(stage.command(&["watch", NAME]));
        terminal.sees(ENTERED);
        let view = terminal.sees("q or Ctrl-C");
        for text in ["leader    ", "ada", "bob", "standby", "TTL"] {
            assert!(view.contains(text), "{text} is not in the view: {view:?}");
        }
        assert_eq!(view.matches("\r\n").count(), Terminal::ROWS - 1, "it fits the screen");
        terminal.press(key);
        terminal.sees(LEFT);
        assert_eq!(terminal.ends(), Some(code), "after {key:?}");
    }

    let mut terminal = Terminal::start(stage.command(&["watch", NAME]));
    terminal.sees("leader    ada_");
    ada.terminate();
    terminal.sees("leader    bob_");
    terminal.sees("released");
    terminal.press("q");
    terminal.sees(LEFT);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn watch_says_when_the_store_does_not_answer_and_goes_on_when_it_does() {
    let mut stage = Stage::on(Kind::Redis);
    let _ada = stage.wrap("ada", &["--ttl", "60s"], "sleep 600");
    stage.wait_for_leader("ada");
    let terminal = Terminal::start(stage.command(&["watch", NAME]));
    terminal.sees("leader    ada_");
    stage.store.pause();
    terminal.sees("NO ANSWER");
    stage.store.resume();
    terminal.sees("leader    ada_");
}

/// As a shell would: the view is put away while it is stopped, and comes back.
#[test]
fn ctrl_z_puts_the_view_away() {
    let stage = Stage::on(Kind::Own);
    let mut terminal = Terminal::start(stage.command(&["watch", NAME]));
    terminal.sees(ENTERED);
    terminal.sees("q or Ctrl-C");
    terminal.press("\x1a");
    terminal.sees(LEFT);
    send(terminal.pid(), rustix::process::Signal::CONT);
    terminal.sees(ENTERED);
    terminal.sees("q or Ctrl-C");
    terminal.press("q");
    assert_eq!(terminal.ends(), Some(0));
}
