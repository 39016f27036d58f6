//! `who`, `status`, `members`, `history`, `watch`: what there is to see.

use std::time::Duration;

use testkit::proxy::{Proxy, Rule};
use testkit::{GENEROUS, Process, wait_for, wait_until};

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

    fn a_store_that_has_lost_its_past_is_not_simply_free(stage: crate::stage::Stage) {
        let _leader = stage.wrap("ada", &["--ttl", "60s"], "sleep 600");
        stage.wait_for_leader("ada");
        let _ = stage.store.cli(&["FLUSHALL"]);
        for command in ["who", "status"] {
            let said = stage.tenure(&[command, NAME]);
            let text = format!("{}{}", said.out, said.err);
            let lacks_past = text.contains("it is free") && text.contains("no earlier term");
            assert!(lacks_past && text.contains("until its lease ends"), "{text}");
        }
        assert_eq!(stage.tenure(&["once", "other", "--", "true"]).code, 0);
        let other = stage.tenure(&["who", "other"]);
        assert!(!other.err.contains("no earlier term"), "{other:?}");
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
        assert!(text.contains(", leads for "), "{text}");
        let led = [&status, &stage.json(&["who", NAME])].map(|json| json["leads_for_ms"].as_u64());
        assert!(led.iter().all(|ms| ms.is_some_and(|ms| ms < 600_000)), "{status}");

        first.terminate();
        first.wait(GENEROUS);
        stage.wait_for_leader("bob");
        let history = stage.json(&["history", NAME]);
        let [now, before] = &history["terms"].as_array().unwrap()[..] else { panic!("{history}") };
        assert!(now["id"].as_str().unwrap().starts_with("bob_") && now["ended_at"].is_null());
        assert!(before["reason"] == "released" && before["detail"].is_null(), "{history}");
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
        let view = testkit::wait_for("a view with everything", GENEROUS, || {
            let view = terminal.sees("q or Ctrl-C");
            let parts = ["leader    ", "ada", "bob", "standby", "TTL"];
            let view = view.rsplit("\x1b[H").next().unwrap().to_owned();
            parts.iter().all(|part| view.contains(part)).then_some(view)
        });
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
    // It puts the view away first: one who continues it before it has stopped does nothing.
    wait_until("it has stopped", GENEROUS, || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", terminal.pid())).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    send(terminal.pid(), rustix::process::Signal::CONT);
    terminal.sees(ENTERED);
    terminal.sees("q or Ctrl-C");
    terminal.press("q");
    assert_eq!(terminal.ends(), Some(0));
}

/// Names that act on a terminal, turn the direction of writing, or hold what is not seen.
#[test]
fn what_others_wrote_cannot_deceive() {
    let stage = Stage::on(Kind::Redis);
    let foreign = "web-1\u{202e}\u{2060}\u{61c}\u{ad}\u{e0041}x\u{1b}[2J";
    stage.store.cli(&["SET", "tenure:job", foreign, "PX", "600000"]);
    for command in ["who", "status", "members", "history"] {
        for words in [&[command, NAME][..], &[command, NAME, "--json"]] {
            let said = stage.tenure(words);
            let all = format!("{}{}", said.out, said.err);
            let raw = all.chars().find(|c| *c != '\n' && (c.is_control() || !c.is_ascii()));
            assert_eq!(raw, None, "{words:?}: {all:?}");
        }
    }
    let members = "{tenure:job}:members";
    let record = "{\"priority\":0,\"ready\":true,\"ttl_ms\":10000,\"version\":\"1\u{202e}\"}";
    stage.store.cli(&["HSET", members, "ada_1_x", record]);
    let said = stage.tenure(&["status", NAME, "--json"]).out;
    assert!(said.is_ascii(), "{said:?}");
    let watching = Process::spawn(stage.command(&["watch", NAME]));
    let line = watching.next_line_with("web-1", GENEROUS);
    assert!(line.is_ascii(), "{line:?}");
}

/// The lines of the latest whole view.
fn latest_view(terminal: &Terminal) -> Vec<String> {
    let view = terminal.sees("q or Ctrl-C: leave");
    let view = view.rsplit("\x1b[H").next().unwrap().to_owned();
    let colourless = |line: &str| {
        let mut parts = line.split('\x1b');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            text + part.split_once(['m', 'K']).map_or("", |(_, shown)| shown)
        })
    };
    // The terminal adds a return of its own to each line's end.
    view.split("\r\n").map(|line| colourless(line).trim_end_matches('\r').to_owned()).collect()
}

#[test]
fn a_narrow_watch_keeps_its_columns_and_says_when_nobody_can_tell_who_leads() {
    let mut stage = Stage::on(Kind::Redis);
    let name = "ada-on-a-host-with-a-long-name";
    let _ada = stage.wrap(name, &["--ttl", "3s"], "sleep 600");
    stage.wait_for_leader(name);
    let terminal = Terminal::with_columns(60, stage.command(&["watch", NAME]));
    let whole = |terminal: &Terminal, parts: &[&str]| {
        let view = latest_view(terminal);
        let longest = view.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(longest <= 60, "{view:#?}");
        let text = view.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        parts.iter().all(|part| text.contains(part))
    };
    wait_until("all columns on 60", GENEROUS, || {
        whole(&terminal, &["leader    ada-on", "role leader", "ttl 3s", "heard", ", leads"])
    });
    stage.store.pause();
    // The whole error, with the next step at its end, though it is longer than the screen is wide.
    wait_until("the lease is over", GENEROUS, || {
        whole(
            &terminal,
            &[
                "leader    unknown since",
                "last seen: ada-on",
                "NO ANSWER",
                "or name another with --store",
            ],
        )
    });
    assert!(!whole(&terminal, &[", leads"]), "an old truth");
    stage.store.resume();
    wait_until("it is known again", GENEROUS, || whole(&terminal, &["unless renewed"]));
}

#[test]
fn watch_into_a_pipe_says_when_nobody_can_tell_who_leads() {
    for silence in [|s: &mut Stage| s.store.pause(), |s: &mut Stage| s.store.kill()] {
        let mut stage = Stage::on(Kind::Redis);
        let _ada = stage.wrap("ada", &["--ttl", "3s"], "sleep 600");
        stage.wait_for_leader("ada");
        let text = Process::spawn(stage.command(&["watch", NAME]));
        let json = Process::spawn(stage.command(&["watch", NAME, "--json"]));
        text.next_line_with("ada_", GENEROUS);
        json.next_line_with("ada_", GENEROUS);
        silence(&mut stage);
        text.next_line_with("leader unknown since", GENEROUS);
        let line = json.next_line_with("unknown_since", GENEROUS);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(line["leader"].is_null(), "{line}");
        assert!(line["last_leader"].as_str().unwrap().starts_with("ada_"), "{line}");
    }
}

/// The term that it saw last still runs when it hears from the store again: no change says so.
#[test]
fn watch_into_a_pipe_goes_on_when_the_store_is_heard_again() {
    let stage = Stage::on(Kind::Redis);
    let _ada = stage.wrap("ada", &["--ttl", "2s"], "sleep 600");
    stage.wait_for_leader("ada");
    let proxy = Proxy::in_front_of(&stage.store);
    for flags in [&[][..], &["--json"]] {
        let mut command = stage.command(&[&["watch", NAME][..], flags].concat());
        command.env("TENURE_STORE", stage.store.url_at(proxy.port()));
        let watch = Process::spawn(command);
        watch.next_line_with("ada_", GENEROUS);
        proxy.set_rules(Rule::HalfOpen);
        watch.next_line_with("unknown", GENEROUS);
        proxy.heal();
        let known = if flags.is_empty() { " leads" } else { "\"leader\":\"ada_" };
        watch.next_line_with(known, GENEROUS);
    }
}

/// An answer that was longer on its way than the lease in it.
#[test]
fn an_answer_that_comes_too_late_names_no_leader() {
    let stage = Stage::on(Kind::Redis);
    let proxy = Proxy::in_front_of(&stage.store);
    stage.store.cli(&["SET", "tenure:job", "ada_1", "PX", "600000"]);
    let ask = |words: &[&str]| {
        let mut command = stage.command(words);
        command.env("TENURE_STORE", stage.store.url_at(proxy.port()));
        crate::stage::CommandOutput::of(command)
    };
    assert_eq!(ask(&["who", NAME]).out, "ada_1");
    proxy.set_rules(Rule::Delay(Duration::from_millis(400)));
    let keeper = Keeper::of(&stage);
    wait_until("the lease is short", GENEROUS, || {
        stage.store.cli(&["PTTL", "tenure:job"]).parse::<u64>().is_ok_and(|left| left < 400)
    });
    std::thread::scope(|scope| {
        for command in ["who", "status", "members"] {
            let ask = &ask;
            scope.spawn(move || {
                // On a busy machine the keeper may be late: the lease is over, and that is told.
                let said = wait_for("an answer that was too late", GENEROUS, || {
                    let said = ask(&[command, NAME]);
                    assert!(!said.out.contains("ada"), "{command}: {said:?}");
                    (said.code == 69).then_some(said)
                });
                assert_eq!(said.out, "", "{command}: {said:?}");
                assert!(said.err.contains("unknown since"), "{command}: {said:?}");
            });
        }
    });
    let mut command = stage.command(&["watch", NAME]);
    command.env("TENURE_STORE", stage.store.url_at(proxy.port()));
    let watch = Process::spawn(command);
    wait_until("an answer that was too late", GENEROUS, || {
        let line = watch.next_line(GENEROUS);
        let is_unknown = line.contains("unknown since");
        assert!(is_unknown || !line.contains("ada"), "{line}");
        is_unknown
    });
    drop(keeper);
}

/// Keeps a key with a lease that is always shorter than the way back, until dropped.
struct Keeper {
    _end: std::sync::mpsc::Sender<()>,
}

impl Keeper {
    fn of(stage: &Stage) -> Self {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        // Not by redis-cli: on a busy machine a program takes longer to start than the lease.
        let mut store = std::net::TcpStream::connect(("127.0.0.1", stage.store.port())).unwrap();
        std::thread::spawn(move || {
            use std::io::{Read, Write};
            use std::sync::mpsc::RecvTimeoutError::Timeout;
            while ended.recv_timeout(Duration::from_millis(20)) == Err(Timeout) {
                let set = store.write_all(b"SET tenure:job ada_1 PX 300\r\n");
                if set.and_then(|()| store.read(&mut [0; 64])).is_err() {
                    return; // The test is over.
                }
            }
        });
        Keeper { _end: end }
    }
}
