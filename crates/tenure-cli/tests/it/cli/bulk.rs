//! Commands in bulk.

use std::fmt::Write as _;
use std::process::Stdio;

use testkit::{GENEROUS, Process, wait_until};

use super::{both_stores, cli_on, our_store, run, stderr, stdout};

const COMMANDS: usize = 100_000;
/// Every so many commands one is wrong.
const WRONG_EVERY: usize = 1_000;

#[test]
fn a_hundred_thousand_commands_with_errors_in_between_are_all_answered() {
    let mut lines = String::new();
    let mut resp = String::new();
    for number in 0..COMMANDS {
        let word = if number % WRONG_EVERY == 0 { "NOSUCH" } else { "SET" };
        writeln!(lines, "{word} line:{number} \"value {number}\"").unwrap();
        let (key, value) = (format!("resp:{number}"), format!("value {number}"));
        let (word_len, key_len, value_len) = (word.len(), key.len(), value.len());
        write!(
            resp,
            "*3\r\n${word_len}\r\n{word}\r\n${key_len}\r\n{key}\r\n${value_len}\r\n{value}\r\n"
        )
        .unwrap();
    }
    let wrong = COMMANDS / WRONG_EVERY;
    for server in both_stores() {
        for input in [&lines, &resp] {
            let output = run(cli_on(&server, &["--pipe"]), input.as_bytes());
            assert_eq!(stdout(&output), format!("errors: {wrong}, replies: {COMMANDS}\n"));
            assert_eq!(output.status.code(), Some(1));
            let talk = stderr(&output);
            assert!(talk.contains("command 1: ERR unknown command 'NOSUCH'"), "{talk}");
            assert!(talk.contains("command 1001: ERR unknown command"), "{talk}");
            assert!(talk.contains("further errors are only counted"), "{talk}");
            assert!(talk.contains(&format!("{COMMANDS} commands, {wrong} errors")), "{talk}");
        }
        assert_eq!(server.cli(&["DBSIZE"]), (2 * (COMMANDS - wrong)).to_string());
        assert_eq!(server.cli(&["GET", "line:99999"]), "value 99999");
    }
}

#[test]
fn a_line_that_is_no_command_is_told_and_the_rest_goes_on() {
    for server in both_stores() {
        let output = run(cli_on(&server, &["--pipe"]), b"SET a 1\nSET \"b 2\n\nSET c 3\nINCR c");
        assert_eq!(stdout(&output), "errors: 1, replies: 3\n");
        let talk = stderr(&output);
        assert!(talk.contains("line 2: unbalanced quotes"), "{talk}");
        assert_eq!(server.cli(&["GET", "c"]), "4");
    }
}

#[test]
fn broken_frames_end_the_input_and_what_came_before_is_answered() {
    let server = our_store().start();
    let cut = run(cli_on(&server, &["--pipe"]), b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$5\r\nab");
    assert_eq!(stdout(&cut), "errors: 1, replies: 1\n");
    assert!(stderr(&cut).contains("in the middle of command 2"), "{}", stderr(&cut));
    let torn = run(cli_on(&server, &["--pipe"]), b"*1\r\n$4\r\nPING\r\n*1\r\n:4\r\nPING\r\n");
    assert_eq!(stdout(&torn), "errors: 1, replies: 1\n");
    assert!(stderr(&torn).contains("expected '$', got ':'"), "{}", stderr(&torn));
    assert_eq!(torn.status.code(), Some(1));
}

#[test]
fn input_may_end_inside_a_transaction_or_be_empty() {
    for server in both_stores() {
        let output = run(cli_on(&server, &["--pipe"]), b"MULTI\nSET a 1\n");
        assert_eq!(stdout(&output), "errors: 0, replies: 2\n");
        assert_eq!(output.status.code(), Some(0));
        let output = run(cli_on(&server, &["--pipe"]), b"");
        assert_eq!(stdout(&output), "errors: 0, replies: 0\n");
    }
}

#[test]
fn large_values_and_replies_pass_in_both_directions_at_once() {
    for server in both_stores() {
        let value = "v".repeat(1_000_000);
        let mut input = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n{value}\r\n");
        for _ in 0..30 {
            input += "GET k\r\n";
            write!(input, "*2\r\n$4\r\nECHO\r\n$100000\r\n{}\r\n", &value[..100_000]).unwrap();
        }
        let output = run(cli_on(&server, &["--pipe"]), input.as_bytes());
        assert_eq!(stdout(&output), "errors: 0, replies: 61\n", "{}", stderr(&output));
    }
}

#[test]
fn a_store_that_dies_in_the_middle_is_told() {
    let mut server = our_store().start();
    let mut command = cli_on(&server, &["--pipe"]);
    command.stdin(Stdio::piped());
    let mut feeder = std::process::Command::new("sh");
    feeder.args(["-c", "while echo INCR n; do :; done"]).stdout(Stdio::piped());
    let mut feeder = feeder.spawn().unwrap();
    command.stdin(feeder.stdout.take().unwrap());
    let mut bulk = Process::spawn(command);
    wait_until("some commands", GENEROUS, || server.cli(&["GET", "n"]).len() > 2);
    server.kill();
    assert_eq!(bulk.wait(GENEROUS).code(), Some(69));
    assert!(bulk.next_line(GENEROUS).starts_with("errors: 0, replies: "));
    let _ = feeder.kill();
    let _ = feeder.wait();
}
