//! One command at a time: options, exit codes, secrets.

use testkit::{GENEROUS, Process, RedisServer, wait_until};

use super::{both_stores, cli_on, our_store, run, stderr, stdout, tenure_cli};

#[test]
fn the_exit_code_tells_how_it_went() {
    let server = our_store().start();
    assert_eq!(run(cli_on(&server, &["PING"]), b"").status.code(), Some(0));
    assert_eq!(run(cli_on(&server, &["NOSUCH"]), b"").status.code(), Some(1));
    let nobody = run(tenure_cli(&["-p", "1", "PING"]), b"");
    assert_eq!(nobody.status.code(), Some(69));
    assert!(stderr(&nobody).contains("Could not connect to the store at 127.0.0.1:1"));
    let nonsense = run(tenure_cli(&["-u", "ftp://x", "PING"]), b"");
    assert_eq!(nonsense.status.code(), Some(64));
    assert!(stderr(&nonsense).contains("unknown scheme"), "{}", stderr(&nonsense));
}

/// What `tenure cli WORDS` prints when the first bytes that it receives are `answer`.
fn run_on_a_port_that_answers(answer: &'static [u8], words: &[&str]) -> std::process::Output {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::Write::write_all(&mut stream, answer).unwrap();
        // Until the client has seen enough.
        let _ = std::io::Read::read_to_end(&mut stream, &mut Vec::new());
    });
    let output = run(tenure_cli(&[&["-p", &port], words].concat()), b"");
    server.join().unwrap();
    output
}

#[test]
fn a_port_that_speaks_something_else_is_told() {
    let output = run_on_a_port_that_answers(b"HTTP/1.1 400 Bad Request\r\n\r\n", &["PING"]);
    assert_eq!(output.status.code(), Some(69));
    assert!(stderr(&output).contains("not RESP"), "{}", stderr(&output));
}

#[test]
fn a_server_that_refuses_a_login_cannot_write_to_the_terminal() {
    let refusal = "-ERR \u{1b}]0;title\u{7} \u{202e}no\r\n";
    let output = run_on_a_port_that_answers(refusal.as_bytes(), &["-n", "3", "PING"]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains("SELECT failed: ERR"), "{told:?}");
    assert!(!told.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{told:?}");
}

#[test]
fn a_store_is_found_by_port_socket_address_and_environment() {
    let server = our_store().with_unix_socket().start();
    server.cli(&["-n", "3", "SET", "where", "three"]);
    let socket = server.unix_socket().display().to_string();
    let address = format!("{}/3", server.url());
    let unix = format!("unix://{socket}?db=3");
    for words in [&["-s", &socket, "-n", "3"][..], &["-u", &address], &["-u", &unix]] {
        let output = run(tenure_cli(&[words, &["GET", "where"]].concat()), b"");
        assert_eq!(stdout(&output), "three\n", "{words:?}: {}", stderr(&output));
    }
    let mut command = tenure_cli(&["GET", "where"]);
    command.env("TENURE_STORE", &address);
    assert_eq!(stdout(&run(command, b"")), "three\n");
}

#[test]
fn passwords_come_by_the_environment_and_are_never_shown() {
    const CANARY: &str = "canary-7c1f";
    let server = our_store().password(CANARY).start();
    let asked = |name: &str, value: &str| {
        let mut command = cli_on(&server, &["PING"]);
        command.env(name, value);
        run(command, b"")
    };
    assert_eq!(stdout(&asked("REDISCLI_AUTH", CANARY)), "PONG\n");
    let wrong = asked("REDISCLI_AUTH", "canary-wrong");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("AUTH failed: WRONGPASS"), "{}", stderr(&wrong));
    assert!(!stderr(&wrong).contains("canary"), "{}", stderr(&wrong));

    let mut by_address = tenure_cli(&["-3", "PING"]);
    by_address.env("TENURE_STORE", server.url());
    assert_eq!(stdout(&run(by_address, b"")), "PONG\n");
    let by_word = run(cli_on(&server, &["-a", CANARY, "PING"]), b"");
    assert_eq!(stdout(&by_word), "PONG\n");
    assert!(stderr(&by_word).contains("process list"), "{}", stderr(&by_word));
    assert!(!stderr(&by_word).contains(CANARY));
}

#[test]
fn the_last_argument_may_come_from_standard_input() {
    for server in both_stores() {
        let value = [&b"line\n\0\xff"[..], &[b'x'; 200_000]].concat();
        assert_eq!(stdout(&run(cli_on(&server, &["-x", "SET", "big"]), &value)), "OK\n");
        let back = run(cli_on(&server, &["--raw", "GET", "big"]), b"");
        assert_eq!(back.stdout, [&value[..], b"\n"].concat());
    }
}

#[test]
fn commands_are_repeated_and_scripts_run() {
    for server in both_stores() {
        let output = run(cli_on(&server, &["-r", "3", "-i", "0.01", "INCR", "n"]), b"");
        assert_eq!(stdout(&output), "1\n2\n3\n");
        let file = server.folder().join("script.lua");
        std::fs::write(&file, "return {KEYS[1], ARGV[1], #KEYS}").unwrap();
        let file = file.display().to_string();
        let output = run(cli_on(&server, &["--eval", &file, "k", ",", "a"]), b"");
        assert_eq!(stdout(&output), "k\na\n1\n");
    }
}

#[test]
fn keys_are_listed_by_pattern_and_type() {
    for server in both_stores() {
        let mut input = String::new();
        for number in 0..300 {
            input += &format!("SET user:{number} x\n");
            if number % 100 == 0 {
                input += &format!("SADD user:set:{number} x\n");
            }
        }
        run(cli_on(&server, &["--pipe"]), input.as_bytes());
        let words = ["--scan", "--pattern", "user:*", "--count", "50"];
        let all = stdout(&run(cli_on(&server, &words), b""));
        assert_eq!(all.lines().count(), 303);
        let sets = stdout(&run(cli_on(&server, &[&words[..], &["--type", "set"]].concat()), b""));
        assert_eq!(sets.lines().count(), 3);
    }
}

#[test]
fn round_trips_and_figures_are_measured() {
    for server in both_stores() {
        let output = run(cli_on(&server, &["--latency", "-r", "5", "-i", "0.001"]), b"");
        let text = stdout(&output);
        let figures: Vec<f64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [least, greatest, mean, count] = figures[..] else { panic!("{text}") };
        assert!(0.0 < least && least <= mean && mean <= greatest && count == 5.0, "{text}");

        server.cli(&["SET", "k", "v"]);
        let output = run(cli_on(&server, &["--stat", "-r", "2", "-i", "0.01"]), b"");
        let text = stdout(&output);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[2].starts_with("1 "), "{text}");
    }
}

#[test]
fn messages_are_printed_until_the_program_is_ended() {
    for server in both_stores() {
        for protocol in ["-2", "-3"] {
            let mut listener = Process::spawn(cli_on(&server, &[protocol, "SUBSCRIBE", "news"]));
            wait_until("a subscriber", GENEROUS, || {
                server.cli(&["PUBSUB", "NUMSUB", "news"]) == "news\n1"
            });
            server.cli(&["PUBLISH", "news", "hello"]);
            assert_eq!(listener.next_line_with("hello", GENEROUS), "hello");
            listener.kill();
        }
    }
}

#[test]
fn a_store_that_ends_is_told() {
    let mut server = RedisServer::start();
    let mut waiting = Process::spawn(cli_on(&server, &["BLPOP", "nothing", "0"]));
    wait_until("a blocked client", GENEROUS, || {
        server.cli(&["CLIENT", "LIST"]).contains("cmd=blpop")
    });
    server.kill();
    assert_eq!(waiting.wait(GENEROUS).code(), Some(69));
    let server = our_store().start();
    assert_eq!(run(cli_on(&server, &["SHUTDOWN", "NOSAVE"]), b"").status.code(), Some(0));
}

#[test]
fn json_is_one_value_to_a_line() {
    let server = our_store().start();
    server.cli(&["HSET", "h", "a", "1", "b", "two"]);
    let output = run(cli_on(&server, &["--json", "HGETALL", "h"]), b"");
    assert_eq!(stdout(&output), "{\"a\":\"1\",\"b\":\"two\"}\n");
    let output = run(cli_on(&server, &["--json", "NOSUCH"]), b"");
    assert!(stdout(&output).starts_with("{\"error\":\"ERR unknown command"));
    assert_eq!(output.status.code(), Some(1));
}
