//! `tenure sidecar` from outside.

use std::io::{Read, Write};
use std::process::Command;

use testkit::{GENEROUS, Process, RedisServer, TempFolder, wait_until};

use crate::stage::{PROMPTLY, plain_command};

pub(crate) fn sidecar(words: &[&str]) -> Command {
    let mut command = plain_command(&["sidecar"]);
    command.args(words);
    command
}

pub(crate) fn get(address: &str, path: &str) -> String {
    get_with(address, path, "Accept: */*")
}

/// The same with a header.
pub(crate) fn get_with(address: &str, path: &str, header: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{header}");
    write!(stream, "{head}\r\nConnection: close\r\n\r\n").unwrap();
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
    assert!(written.contains("leader: released"), "{written}");
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
    wait_until("two terms and two members with the ttl of the flag", GENEROUS, || {
        get(&address, "/status").matches("\"ttl_ms\":3000").count() == 4
    });
}

#[test]
fn what_cannot_work_is_told_in_one_line() {
    const ANY: &str = "127.0.0.1:0";
    let folder = TempFolder::create();
    let empty = folder.write("empty.toml", "");
    let empty = empty.to_str().unwrap();
    let store = ["--store", "redis://127.0.0.1:1"];
    for (words, code, told) in [
        (&["--config", empty, "--listen", ANY][..], 78, "no election is configured"),
        (&["report", "--listen", "0.0.0.0:0"], 78, "callers must identify themselves"),
        (&["report", "--listen", "nowhere"], 78, "is not an address"),
        (&["report", "--observe", "report", "--listen", ANY], 78, "named twice"),
        (&["report", "--replicas", "1"], 64, "--mode"),
        (&["report", "--mode", "strct"], 64, "'strict'"),
        (&["report", "--mode", "strict", "--replicas", "0", "--listen", ANY], 78, "replicas"),
        (&["report", "--lisen", "127.0.0.1:0"], 64, "'--listen'"),
    ] {
        let output = sidecar(words).args(store).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(told) && text.trim().lines().count() == 1, "{words:?}: {text}");
    }
}

/// It would hold a lease for a moment, or lengthen a quarantine.
#[test]
fn a_sidecar_that_cannot_serve_takes_no_part() {
    let server = RedisServer::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let url = server.url();
    let is_untouched = || !server.cli(&["INFO", "commandstats"]).contains("cmdstat_eval");
    for listen in [taken.as_str(), "0.0.0.0:0"] {
        let words = ["report", "--store", &url, "--listen", listen];
        let output = sidecar(&words).env("TENURE_DEFAULTS__FRESH_STORE", "true").output().unwrap();
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        assert!(is_untouched(), "{listen}: the store was asked nothing");
    }
    let words = ["run", "report", "--store", &url, "--http", &taken, "--", "true"];
    let output = crate::stage::plain_command(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(is_untouched(), "run: the store was asked nothing");
}

/// A sidecar of `report` that leads, with these settings in its file.
pub(crate) fn leading(
    server: &RedisServer,
    folder: &TempFolder,
    settings: &str,
) -> (Process, String) {
    let text = format!("defaults.fresh_store = true\nelections.report.ttl = '5s'\n{settings}");
    let config = folder.write("tenure.toml", &text);
    let url = server.url();
    let words = ["--config", config.to_str().unwrap(), "--store", &url, "--listen", "127.0.0.1:0"];
    let mut command = sidecar(&words);
    command.current_dir(folder.path());
    command.stderr(std::fs::File::create(folder.path().join("stderr")).unwrap());
    let process = Process::spawn(command);
    let line = process.next_line_with("report at http", GENEROUS);
    let address = line.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
    wait_until("it leads", GENEROUS, || server.cli(&["EXISTS", "tenure:report"]) == "1");
    // The store knows it a moment before the sidecar does.
    wait_until("it knows", GENEROUS, || written(folder, "stderr").contains("leader: acquired"));
    (process, address)
}

pub(crate) fn written(folder: &TempFolder, file: &str) -> String {
    std::fs::read_to_string(folder.path().join(file)).unwrap_or_default()
}

#[test]
fn hooks_on_loss_end_before_the_process_does() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let hooks = "defaults.hooks.on_gain = 'echo up >> log'\n\
                 defaults.hooks.on_loss = 'echo started >> log; sleep 1; echo finished >> log'\n";
    let (mut process, _) = leading(&server, &folder, hooks);
    wait_until("the gain was told", GENEROUS, || written(&folder, "log") == "up\n");
    process.terminate();
    assert!(process.wait(GENEROUS).success());
    assert_eq!(written(&folder, "log"), "up\nstarted\nfinished\n");
}

#[test]
fn hooks_on_loss_end_before_a_process_that_exits_on_loss_does() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let settings = "elections.report.on_loss = 'exit'\ndefaults.hooks.on_gain = 'echo up >> log'\n\
                    defaults.hooks.on_loss = 'echo started >> log; sleep 1; echo finished >> log'\n";
    let (mut process, _) = leading(&server, &folder, settings);
    wait_until("the gain was told", GENEROUS, || written(&folder, "log") == "up\n");
    server.cli(&["DEL", "tenure:report"]);
    assert_eq!(process.wait(GENEROUS).code(), Some(1));
    let log = written(&folder, "log");
    assert!(log.starts_with("up\nstarted\nfinished\n"), "{log}");
}

/// A file may say so for programs that beat.
#[test]
fn a_leader_that_cannot_beat_is_not_asked_to() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let (_process, _) = leading(&server, &folder, "defaults.require_beat = '500ms'\n");
    let token = || server.cli(&["HGET", "{tenure:report}:meta", "token"]);
    let before = token();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!((token(), server.cli(&["EXISTS", "tenure:report"])), (before, "1".to_owned()));
    assert!(written(&folder, "stderr").contains("report: require_beat is ignored"));
}

const ENDLESS_HOOK: &str = "defaults.hooks.on_gain = 'echo up >> log'\n\
                            defaults.hooks.on_loss = 'echo $$ > pid; exec sleep 600'\n";

/// What could not be ended in time does not outlive the process.
#[test]
fn a_hook_without_an_end_does_not_keep_the_process() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let (mut process, _) = leading(&server, &folder, ENDLESS_HOOK);
    wait_until("the gain was told", GENEROUS, || written(&folder, "log") == "up\n");
    process.terminate();
    assert!(process.wait(2 * GENEROUS).success());
    assert_no_hook_is_left(&folder);
}

/// The same for a process that ends by itself, which drops nothing on its way out.
#[test]
fn a_hook_without_an_end_does_not_outlive_an_exit_on_loss() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let settings = format!("elections.report.on_loss = 'exit'\n{ENDLESS_HOOK}");
    let (mut process, _) = leading(&server, &folder, &settings);
    wait_until("the gain was told", GENEROUS, || written(&folder, "log") == "up\n");
    server.cli(&["DEL", "tenure:report"]);
    assert_eq!(process.wait(2 * GENEROUS).code(), Some(1));
    assert_no_hook_is_left(&folder);
}

/// Already gone when the process is: nobody waits for it here.
fn assert_no_hook_is_left(folder: &TempFolder) {
    let pid: u32 = written(folder, "pid").trim().parse().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_over = status.is_empty() || status.contains("State:\tZ");
    assert!(is_over, "the hook lives on: {status}");
}

#[test]
fn where_hooks_come_first_the_lease_is_given_back_after_them() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let key = format!("redis-cli -p {} EXISTS tenure:report >> log", server.port());
    let hooks = format!(
        "defaults.hooks.on_loss_first = true\ndefaults.hooks.on_loss = 'echo down >> log; sleep 0.3; {key}'\n\
         defaults.hooks.on_gain = 'echo up >> log'\n"
    );
    let (mut process, address) = leading(&server, &folder, &hooks);
    wait_until("the gain was told", GENEROUS, || written(&folder, "log") == "up\n");
    let asked = format!(
        "POST /resign/report HTTP/1.1\r\nHost: {address}\r\n\
                         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.write_all(asked.as_bytes()).unwrap();
    wait_until("it resigned and leads again", GENEROUS, || {
        written(&folder, "log") == "up\ndown\n1\nup\n"
    });
    process.terminate();
    assert!(process.wait(GENEROUS).success());
    assert_eq!(written(&folder, "log"), "up\ndown\n1\nup\ndown\n1\n", "told once, before");
    assert_eq!(server.cli(&["EXISTS", "tenure:report"]), "0");
}

#[test]
fn a_hang_up_reads_certificates_again_and_keeps_the_lease() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let certificates = testkit::Certificates::issue();
    std::fs::copy(certificates.file("localhost.pem"), folder.path().join("cert.pem")).unwrap();
    std::fs::copy(certificates.file("localhost.key"), folder.path().join("key.pem")).unwrap();
    let settings = "defaults.hooks.on_loss = 'echo down >> log'\n\
                    [sidecar.tls]\ncert_file = 'cert.pem'\nkey_file = 'key.pem'\n";
    let (mut process, _) = leading(&server, &folder, settings);
    crate::stage::send(process.pid(), rustix::process::Signal::HUP);
    wait_until("it says so", GENEROUS, || {
        written(&folder, "stderr").contains("SIGHUP: certificates were read again")
    });
    // What cannot be used is told, and what was there before goes on.
    let _ = folder.write("cert.pem", "nonsense");
    crate::stage::send(process.pid(), rustix::process::Signal::HUP);
    wait_until("it says so", GENEROUS, || written(&folder, "stderr").contains("cert.pem"));
    assert_eq!(server.cli(&["EXISTS", "tenure:report"]), "1", "the lease is held");
    process.terminate();
    assert!(process.wait(GENEROUS).success());
    assert_eq!(written(&folder, "log"), "down\n");
}

#[test]
fn a_hang_up_without_certificates_is_answered_in_words() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let (mut process, _) = leading(&server, &folder, "");
    crate::stage::send(process.pid(), rustix::process::Signal::HUP);
    wait_until("it says so", GENEROUS, || written(&folder, "stderr").contains("SIGHUP"));
    assert!(process.is_running());
}

/// A terminal that is closed: the program ends in order.
#[test]
fn a_closed_terminal_ends_it_in_order() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let text = "defaults.fresh_store = true\nelections.report.ttl = '60s'\n\
                defaults.hooks.on_gain = 'echo up >> log'\n\
                defaults.hooks.on_loss = 'sleep 0.2; echo down >> log'\n";
    let config = folder.write("tenure.toml", text);
    let url = server.url();
    let words = ["--config", config.to_str().unwrap(), "--store", &url, "--listen", "127.0.0.1:0"];
    let mut command = sidecar(&words);
    command.current_dir(folder.path());
    let mut terminal = crate::cli::terminal::Terminal::start(command);
    terminal.sees("serving report");
    wait_until("the gain was told", GENEROUS, || written(&folder, "log") == "up\n");
    crate::stage::send(terminal.pid(), rustix::process::Signal::HUP);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(written(&folder, "log"), "up\ndown\n");
    assert_eq!(server.cli(&["EXISTS", "tenure:report"]), "0", "the lease was given back");
}

/// By then it may lead already.
#[test]
fn a_taken_port_costs_no_lease() {
    let server = RedisServer::start();
    let folder = TempFolder::create();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = "defaults.fresh_store = true\nelections.report.ttl = '60s'\n";
    let config = folder.write("tenure.toml", text);
    let url = server.url();
    for _ in 0..5 {
        let words = ["--config", config.to_str().unwrap(), "--store", &url, "--listen", &address];
        let output = sidecar(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        assert_eq!(server.cli(&["EXISTS", "tenure:report"]), "0", "the lease was given back");
    }
}
