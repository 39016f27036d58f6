//! What `tenure` inherits from whoever starts it: blocked signals and limits.

use std::os::unix::net::UnixStream;
use std::process::Command;

use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_until};

use crate::stage::{CommandOutput, Kind, NAME, Stage, number_in, plain_command, send, started_by};

/// As a parent starts it that waits for signals by `sigwait` and forgets to unblock them.
fn with_blocked(signals: &str, plain: &Command) -> Command {
    started_by("env", &[&format!("--block-signal={signals}")], plain)
}

/// The mask that a process was started with, or has by now.
fn blocked_signals(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    mask.unwrap_or_default().trim().trim_start_matches('0').to_owned()
}

#[test]
fn a_program_ends_though_the_news_of_it_were_blocked() {
    let stage = Stage::on(Kind::Own);
    let run = stage.command(&["run", NAME, "--ttl", "3s", "--", "sh", "-c", "exit 9"]);
    let mut wrapper = Process::spawn(with_blocked("CHLD", &run));
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(9));
    assert!(!stage.key_exists(), "the term is given back");
}

#[test]
fn a_tick_is_recorded_though_the_news_of_its_end_were_blocked() {
    let stage = Stage::on(Kind::Own);
    let once = stage.command(&["once", NAME, "--tick", "a", "--ttl", "3s", "--", "true"]);
    let mut first = Process::spawn(with_blocked("CHLD", &once));
    assert_eq!(first.wait(GENEROUS).code(), Some(0));
    let said = CommandOutput::of(once);
    assert!(said.err.contains("skipped: it was run before"), "{said:?}");
}

/// The program of a wrapper hears its stop signal, too.
#[test]
fn everybody_ends_though_the_request_was_blocked() {
    let stage = Stage::on(Kind::Own);
    let script = "echo $$ > pid; exec sleep 600";
    let mut run = stage.command(&["run", NAME, "--ttl", "9s", "--", "sh", "-c", script]);
    run.current_dir(stage.folder.path());
    let mut blocked = with_blocked("TERM,INT,HUP,USR1", &run);
    blocked.current_dir(stage.folder.path());
    let mut wrapper = Process::spawn(blocked);
    let program = number_in(stage.folder.path(), "pid");
    assert_eq!(blocked_signals(program), "");
    send(wrapper.pid(), Signal::TERM);
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(143), "and the program was not killed");

    let sidecar = stage.command(&["sidecar", "other", "--listen", "127.0.0.1:0"]);
    let mut sidecar = Process::spawn(with_blocked("TERM,INT", &sidecar));
    let takes_part = || stage.json(&["members", "other"])["members"][0].is_object();
    wait_until("the sidecar to take part", GENEROUS, takes_part);
    send(sidecar.pid(), Signal::TERM);
    assert_eq!(sidecar.wait(GENEROUS).code(), Some(0));

    let socket = stage.folder.path().join("socket");
    let folder = stage.folder.path().to_str().unwrap();
    let words = ["serve", "--port", "0", "--unixsocket", socket.to_str().unwrap(), "--dir", folder];
    let mut server = Process::spawn(with_blocked("TERM,INT", &plain_command(&words)));
    wait_until("the store to listen", GENEROUS, || UnixStream::connect(&socket).is_ok());
    send(server.pid(), Signal::TERM);
    assert_eq!(server.wait(GENEROUS).code(), Some(0));
}

/// The signal that comes with a write beyond the limit would end the wrapper.
#[test]
fn a_log_at_the_limit_of_file_sizes_costs_no_leadership() {
    let stage = Stage::on(Kind::Own);
    let log = stage.folder.path().join("log");
    std::fs::write(&log, [b'x'; 4096]).unwrap();
    let script = "grep SigIgn /proc/self/status; exit 9";
    let run = stage.command(&["run", NAME, "--ttl", "3s", "--", "sh", "-c", script]);
    let limit = ["-c", "ulimit -f 1; exec \"$0\" \"$@\""];
    let mut limited = started_by("sh", &limit, &run);
    limited.stderr(std::fs::OpenOptions::new().append(true).open(&log).unwrap());
    let ended = limited.output().unwrap();
    assert_eq!(ended.status.code(), Some(9), "{ended:?}");
    assert_eq!(std::fs::metadata(&log).unwrap().len(), 4096, "nothing could be written");
    let ignored = String::from_utf8(ended.stdout).unwrap();
    let ignored = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_eq!(ignored & 1 << (Signal::XFSZ.as_raw() - 1), 0, "the program is ended by it");
}
