//! A person at a terminal.

use std::os::unix::fs::PermissionsExt;

use testkit::{GENEROUS, RedisServer, TempFolder, wait_until};

use super::terminal::Terminal;
use super::{both_stores, cli_on, our_store};

/// A session whose history lies in `folder`.
pub(super) fn session(server: &RedisServer, folder: &TempFolder, words: &[&str]) -> Terminal {
    let mut command = cli_on(server, words);
    command.env("XDG_STATE_HOME", folder.path()).env("NO_COLOR", "1");
    Terminal::start(command)
}

pub(super) fn prompt(server: &RedisServer) -> String {
    format!("127.0.0.1:{}> ", server.port())
}

#[test]
fn a_dialogue_shows_replies_database_and_transaction() {
    for server in both_stores() {
        let folder = TempFolder::create();
        let mut terminal = session(&server, &folder, &[]);
        terminal.sees(&prompt(&server));
        terminal.press("set greeting \"hello world\"\r");
        terminal.sees("OK\r\n");
        terminal.press("get greeting\r");
        terminal.sees("\"hello world\"\r\n");
        terminal.press("2 incr n\r");
        terminal.sees("(integer) 1\r\n");
        terminal.sees("(integer) 2\r\n");
        terminal.press("select 5\r");
        terminal.sees(&format!("127.0.0.1:{}[5]> ", server.port()));
        terminal.press("multi\r");
        terminal.sees(&format!("127.0.0.1:{}[5](TX)> ", server.port()));
        terminal.press("incr m\r");
        terminal.sees("QUEUED\r\n");
        terminal.press("exec\r");
        terminal.sees("1) (integer) 1\r\n");
        terminal.sees(&format!("127.0.0.1:{}[5]> ", server.port()));
        terminal.press("get \"unclosed\r");
        terminal.sees("Invalid argument(s)");
        terminal.press("quit\r");
        assert_eq!(terminal.ends(), Some(0));
    }
}

#[test]
fn names_are_completed_and_arguments_hinted() {
    for server in both_stores() {
        let folder = TempFolder::create();
        let mut terminal = session(&server, &folder, &[]);
        terminal.sees(&prompt(&server));
        terminal.press("zscor\t");
        terminal.sees("zscore ");
        terminal.sees("key member");
        terminal.press("\x15config se\t");
        terminal.sees("config set ");
        terminal.sees("parameter value");
        terminal.press("\x15help zadd\r");
        terminal.sees("ZADD key [NX|XX]");
        terminal.sees("group: sorted-set");
        terminal.press("help @hyperlo\t\r");
        terminal.sees("PFCOUNT key [key ...]");
    }
}

#[test]
fn history_survives_the_session_and_holds_no_password() {
    let server = our_store().start();
    let folder = TempFolder::create();
    let mut first = session(&server, &folder, &[]);
    first.sees(&prompt(&server));
    first.press("set kept yes\r");
    first.sees("OK\r\n");
    // Typed ahead: nothing of it may get lost, either.
    first.press("auth hush-1\rconfig set requirepass \"\"\racl setuser ada >hush-2\r");
    first.press("auth \"hush-3\rset also kept\r");
    first.sees("Invalid argument(s)");
    first.sees("OK\r\n");
    first.press("\x04");
    assert_eq!(first.ends(), Some(0));

    let file = folder.path().join("tenure/cli_history");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("set kept yes\nset also kept\n"), "{text}");
    assert!(!text.contains("hush") && !text.contains("requirepass"), "{text}");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "others may read the history: {mode:o}");

    let mut second = session(&server, &folder, &[]);
    second.sees(&prompt(&server));
    // The arrow up brings the last line back.
    second.press("\x1b[A");
    second.sees("set also kept");
}

#[test]
fn messages_are_shown_until_ctrl_c_and_the_dialogue_goes_on() {
    for server in both_stores() {
        for protocol in ["-2", "-3"] {
            let folder = TempFolder::create();
            let mut terminal = session(&server, &folder, &[protocol, "-n", "2"]);
            terminal.sees("[2]> ");
            terminal.press("subscribe news\r");
            terminal.sees("Reading messages");
            server.cli(&["PUBLISH", "news", "it rains"]);
            terminal.sees("3) \"it rains\"\r\n");
            terminal.press("\x03");
            terminal.sees("[2]> ");
            terminal.press("ping\r");
            terminal.sees("PONG\r\n");
            terminal.press("monitor\r");
            terminal.sees("OK\r\n");
            server.cli(&["GET", "watched"]);
            terminal.sees("\"watched\"\r\n");
            terminal.press("\x03");
            terminal.sees("[2]> ");
            terminal.press("blpop nothing 0\r");
            wait_until("a blocked client", GENEROUS, || {
                server.cli(&["CLIENT", "LIST"]).contains("cmd=blpop")
            });
            terminal.press("\x03");
            terminal.sees("[2]> ");
            terminal.press("exit\r");
            assert_eq!(terminal.ends(), Some(0));
        }
    }
}

#[test]
fn a_lost_store_is_told_and_found_again() {
    let mut server = our_store().start();
    let folder = TempFolder::create();
    let mut terminal = session(&server, &folder, &["-n", "4"]);
    terminal.sees("[4]> ");
    server.kill();
    terminal.press("ping\r");
    terminal.sees("the connection was lost");
    terminal.sees("Could not connect");
    terminal.sees("not connected> ");
    server.restart();
    terminal.press("ping\r");
    terminal.sees("PONG\r\n");
    terminal.sees("[4]> ");
    terminal.press("multi\r");
    terminal.sees("(TX)> ");
    server.restart();
    terminal.press("incr a\r");
    terminal.sees("The transaction was discarded.");
    terminal.sees("(integer) 1");
}

#[test]
fn a_login_in_the_dialogue_outlives_a_reconnection() {
    let mut server = our_store().password("open sesame").start();
    let folder = TempFolder::create();
    let mut terminal = session(&server, &folder, &[]);
    terminal.sees(&prompt(&server));
    terminal.press("ping\r");
    terminal.sees("(error) NOAUTH");
    terminal.press("auth \"open sesame\"\r");
    terminal.sees("OK\r\n");
    server.restart();
    terminal.press("ping\r");
    terminal.sees("PONG\r\n");
}
