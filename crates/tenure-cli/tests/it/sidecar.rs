//! `tenure sidecar` from outside.

use std::io::{Read, Write};
use std::process::Command;

use testkit::{GENEROUS, Process, RedisServer, TempFolder, wait_until};

use crate::stage::{PROMPTLY, plain_command};

fn sidecar(words: &[&str]) -> Command {
    let mut command = plain_command(&["sidecar"]);
    command.args(words);
    command
}

pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn it_takes_part_serves_and_lets_go_when_asked_to_end() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let text = "defaults.fresh_store = true\nelections.report.ttl = '2s'\n";
    let config = folder.write("tenure.toml", text);
    let url = server.url();
    let mut process = Process::spawn(sidecar(&[
        "--config",
        config.to_str().unwrap(),
        "--store",
        &url,
        "--listen",
        "127.0.0.1:0",
    ]));
    let line = process.next_line_with("serving report at http://", GENEROUS);
    let address = line.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
    wait_until("it leads", GENEROUS, || {
        get(&address, "/leader/report").starts_with("HTTP/1.1 200")
    });
    process.terminate();
    assert!(process.wait(GENEROUS).success());
    assert_eq!(server.cli(&["EXISTS", "tenure:report"]), "0", "the lease was given back");
}

/// With this lease, whoever waits for a silent store comes too late.
#[test]
fn a_standby_ends_when_asked_to_though_the_store_does_not_answer() {
    let mut server = RedisServer::start();
    let url = server.url();
    let start = || {
        let words = ["report", "--store", &url, "--listen", "127.0.0.1:0"];
        let mut command = sidecar(&words);
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true").env("TENURE_DEFAULTS__TTL", "2m");
        Process::spawn(command)
    };
    let _leader = start();
    wait_until("a leader", GENEROUS, || server.cli(&["EXISTS", "tenure:report"]) == "1");
    let mut standby = start();
    standby.next_line_with("serving report at http://", GENEROUS);
    wait_until("a standby", GENEROUS, || server.cli(&["HLEN", "{tenure:report}:members"]) == "2");
    server.pause();
    standby.terminate();
    assert!(standby.wait(PROMPTLY).success());
    // From the start on, too: whatever it asked for may still be on its way.
    let mut stranger = start();
    stranger.next_line_with("serving report at http://", GENEROUS);
    stranger.terminate();
    assert!(stranger.wait(PROMPTLY).success());
    server.resume();
}

/// A log that nobody writes helps nobody: who leads, and what an operator asked for, is there.
#[test]
fn it_logs_who_leads() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let url = server.url();
    let words = ["report", "--store", &url, "--listen", "127.0.0.1:0", "--log-format", "json"];
    let mut command = sidecar(&words);
    command.env("TENURE_DEFAULTS__FRESH_STORE", "true").stderr(log);
    let mut process = Process::spawn(command);
    let written = || std::fs::read_to_string(folder.path().join("log")).unwrap();
    wait_until("the leadership to be logged", GENEROUS, || written().contains("acquired"));
    process.terminate();
    process.wait(GENEROUS);
    let written = written();
    let lines = written.lines().map(serde_json::from_str::<serde_json::Value>);
    assert!(lines.into_iter().all(|line| line.is_ok()), "{written}");
    assert!(written.contains("given up"), "{written}");
}

#[test]
fn the_flags_say_what_a_grant_waits_for() {
    let server = RedisServer::start();
    let url = server.url();
    let shown = |words: &[&str]| {
        let mut command = sidecar(&["report", "--store", &url, "--listen", "127.0.0.1:0"]);
        command.args(words).env("TENURE_DEFAULTS__FRESH_STORE", "true");
        let process = Process::spawn(command);
        let line = process.next_line_with("serving report at http://", GENEROUS);
        let address = line.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
        let leads = || get(&address, "/leader/report").starts_with("HTTP/1.1 200");
        // There is no replica, so nobody can be granted anything in mode strict.
        if words.contains(&"strict") {
            assert!(!leads(), "nobody has confirmed it");
        } else {
            wait_until("it leads", GENEROUS, leads);
        }
        get(&address, "/status")
    };
    let strict = shown(&["--mode", "strict", "--replicas", "2"]);
    assert!(strict.contains("mode=strict&replicas=2"), "{strict}");
    let available = shown(&["--mode", "available"]);
    assert!(!available.contains("mode=strict"), "{available}");
}

#[test]
fn it_takes_part_in_every_election_named_and_the_flags_say_who_it_is() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let text = "defaults.fresh_store = true\n[elections.hooked]\n[elections.other]\nttl = '9s'\n";
    let config = folder.write("tenure.toml", text);
    let url = server.url();
    let words = ["--config", config.to_str().unwrap(), "--store", &url, "--listen", "127.0.0.1:0"];
    let mut command = sidecar(&words);
    command.args(["--id", "web-1", "--ttl", "3s"]);
    let process = Process::spawn(command);
    let line = process.next_line_with("serving hooked, other at http://", GENEROUS);
    let address = line.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
    wait_until("it leads both", GENEROUS, || get(&address, "/leader").starts_with("HTTP/1.1 200"));
    assert!(server.cli(&["GET", "tenure:hooked"]).starts_with("web-1_"));
    let status = get(&address, "/status");
    assert_eq!(status.matches("\"ttl_ms\":3000").count(), 4, "two terms, two members: {status}");
}

#[test]
fn what_cannot_work_is_told_in_one_line() {
    let folder = TempFolder::create();
    let empty = folder.write("empty.toml", "");
    let empty = empty.to_str().unwrap();
    let store = ["--store", "redis://127.0.0.1:1"];
    for (words, code, told) in [
        (&["--config", empty][..], 78, "no election is configured"),
        (&["report", "--listen", "0.0.0.0:0"], 78, "callers must identify themselves"),
        (&["report", "--listen", "nowhere"], 78, "is no address"),
        (&["report", "--observe", "report"], 78, "named twice"),
        (&["report", "--replicas", "1"], 64, "--mode"),
        (&["report", "--mode", "strct"], 64, "'strict'"),
        (&["report", "--mode", "strict", "--replicas", "0"], 78, "replicas"),
        (&["report", "--lisen", "127.0.0.1:0"], 64, "'--listen'"),
    ] {
        let output = sidecar(words).args(store).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(told) && text.trim().lines().count() == 1, "{words:?}: {text}");
    }
}
