//! A log that cannot be written: leading goes on.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write, pipe};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_until};

use crate::diary::Diary;
use crate::stage::{Kind, NAME, Stage, guard_of, number_in, plain_command, send, wait_until_gone};

pub(crate) fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// A pipe that nobody reads and that takes no further byte.
pub(crate) fn stalled() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer)
}

fn wrap(stage: &Stage, id: &str, script: &str, stderr: impl Into<Stdio>) -> Process {
    let words = ["run", NAME, "--id", id, "--ttl", "1500ms", "--verbose", "--", "sh", "-c", script];
    let mut command = stage.command(&words);
    command.current_dir(stage.folder.path()).stderr(stderr);
    Process::spawn(command)
}

#[test]
fn a_full_stderr_keeps_nobody_from_leading() {
    let stage = Stage::on(Kind::Own);
    let mut wrapper = wrap(&stage, "ada", "echo ran; exit 7", full());
    assert_eq!(wrapper.next_line(GENEROUS), "ran");
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(7));
    assert!(!stage.key_exists(), "the term is given back");
}

#[test]
fn a_closed_stderr_keeps_nobody_from_leading() {
    let stage = Stage::on(Kind::Own);
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut wrapper = wrap(&stage, "ada", "echo ran; exit 7", writer);
    assert_eq!(wrapper.next_line(GENEROUS), "ran");
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(7));
    assert!(!stage.key_exists(), "the term is given back");
}

#[test]
fn a_lease_is_renewed_though_nobody_reads_the_log() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    // Three leases long.
    let mut wrapper = wrap(&stage, "ada", "sleep 5; exit 7", writer);
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(7));
    assert!(!stage.key_exists(), "the term is given back");
}

/// Without one that succeeds for three periods, the term would end.
#[test]
fn a_health_check_that_talks_costs_no_leadership_though_nobody_reads_the_log() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    let check = ["--health-cmd", "echo chatter >&2", "--health-every", "1s"];
    let words = ["run", NAME, "--ttl", "1500ms"];
    let program = ["--", "sh", "-c", "sleep 5; exit 7"];
    let mut command = stage.command(&[&words[..], &check, &program].concat());
    command.stderr(writer);
    let mut wrapper = Process::spawn(command);
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(7), "in its first term");
}

/// What a check says is in the log, where somebody reads it.
#[test]
fn what_a_health_check_says_is_told() {
    is_told("echo it is ill >&2; false");
}

#[test]
fn what_a_health_check_says_on_stdout_is_told() {
    is_told("echo it is ill; false");
}

#[test]
fn what_a_health_check_says_without_an_end_of_line_is_a_line_of_its_own() {
    is_told("printf 'it is ill' >&2; false");
}

#[track_caller]
fn is_told(check: &str) {
    let stage = Stage::on(Kind::Own);
    let log = stage.folder.path().join("log");
    let check = ["--health-cmd", check, "--health-every", "200ms"];
    let program = ["--", "sleep", "600"];
    let mut command = stage.command(&[&["run", NAME][..], &check, &program].concat());
    command.stderr(File::create(&log).unwrap());
    let _wrapper = Process::spawn(command);
    wait_until("the check to be heard", GENEROUS, || {
        let text = std::fs::read_to_string(&log).unwrap();
        let said = text.find("it is ill\n");
        said.is_some_and(|said| text[said..].contains("health check failed with 1"))
    });
}

/// Whoever reads the log as JSON would lose just those lines that say what has gone wrong.
#[test]
fn every_line_of_a_json_log_is_json() {
    let stage = Stage::on(Kind::Own);
    let log = stage.folder.path().join("log");
    let json = ["run", NAME, "--ttl", "2s", "--log-format", "json"];
    let check = ["--health-cmd", "false", "--health-every", "200ms"];
    let program = ["--", "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"];
    let mut command = stage.command(&[&json[..], &check, &program].concat());
    command.stderr(File::create(&log).unwrap());
    let mut wrapper = Process::spawn(command);
    let says = |text: &str| {
        wait_until(text, GENEROUS, || std::fs::read_to_string(&log).unwrap().contains(text));
    };
    says("health check failed with 1");
    says("the program did not stop within");
    says("the health check failed: not contending");
    wait_until("another term", GENEROUS, || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.rfind("health check failed with 1") > text.rfind("not contending")
    });
    send(wrapper.pid(), Signal::STOP);
    says("the wrapper did not act");
    wrapper.kill();

    let missing = stage.tenure(&[&json[..], &["--", "/nosuch"]].concat());
    assert!(missing.err.contains("there is no such program"), "{missing:?}");
    let text = std::fs::read_to_string(&log).unwrap() + &missing.err;
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
        assert!(line["message"].is_string(), "{line}");
    }
}

#[test]
fn a_hook_that_talks_comes_to_its_end_though_nobody_reads_the_log() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    let told = stage.folder.path().join("told");
    let mut command = stage.command(&["sidecar", NAME, "--listen", "127.0.0.1:0"]);
    let hook = format!("echo chatter; echo chatter >&2; echo > {}", told.display());
    command.env("TENURE_DEFAULTS__HOOKS__ON_GAIN", hook).stderr(writer);
    let _sidecar = Process::spawn(command);
    // Blocked, it would never come so far.
    wait_until("the hook to end", GENEROUS, || told.exists());
}

/// With a guard, it would end the program in time; without one, nobody but the wrapper does.
#[test]
fn a_program_is_stopped_before_anything_is_said_about_it() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    let first = wrap(&stage, "ada", Diary::SCRIPT, writer);
    let token = stage.next_term(0);
    let pids = stage.diary().writers(token);
    let _second = stage.wrap_writer("bob", &[]);
    stage.wait_for_members(2);

    send(guard_of(&first), Signal::KILL);
    stage.tenure(&["hand-over", NAME, "--to", "bob"]);

    stage.next_term(token);
    pids.into_iter().for_each(wait_until_gone);
    assert_eq!(stage.diary().check(), Ok(()));
}

#[test]
fn a_sidecar_serves_though_its_log_is_full() {
    let stage = Stage::on(Kind::Own);
    let words = ["sidecar", NAME, "--listen", "127.0.0.1:0", "--verbose", "--ttl", "1500ms"];
    let mut command = stage.command(&words);
    command.stderr(full());
    let mut sidecar = Process::spawn(command);
    sidecar.next_line_with("serving", GENEROUS);
    wait_until("the sidecar to lead", GENEROUS, || stage.key_exists());
    stage.store.cli(&["DEL", "tenure:job"]);
    wait_until("the sidecar to lead again", GENEROUS, || stage.key_exists());
    assert!(sidecar.is_running());
}

#[test]
fn a_store_serves_though_its_log_is_full() {
    let folder = testkit::TempFolder::create();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let mut command = plain_command(&["serve", "--port", &port]);
    command.current_dir(folder.path()).stdout(full()).stderr(full());
    let mut store = command.spawn().unwrap();
    let answers = || {
        let asked = Command::new("redis-cli").args(["-p", &port, "PING"]).output().unwrap();
        asked.stdout.starts_with(b"PONG")
    };
    wait_until("the store to answer", GENEROUS, answers);
    store.kill().unwrap();
    store.wait().unwrap();
}

#[test]
fn a_command_that_cannot_say_what_is_wrong_still_exits_with_its_code() {
    for words in [&["cli", "--nonsense"][..], &["run"], &["check-aof", "/nowhere"]] {
        let mut command = plain_command(words);
        let ended = command.stdout(full()).stderr(full()).status().unwrap();
        let code = ended.code().expect("it ends by itself");
        assert!(code != 0 && code != 101, "{words:?} exits with {code}");
    }
}

#[test]
fn a_short_command_ends_though_nobody_reads_what_it_says() {
    let nowhere = "redis://127.0.0.1:1";
    for words in [&["who", NAME][..], &["resign", NAME], &["clear", NAME], &["nonsense"]] {
        let (_reader, writer) = stalled();
        let mut command = plain_command(words);
        command.env("TENURE_STORE", nowhere).stderr(writer);
        let ended = Process::spawn(command).wait(GENEROUS);
        assert_ne!(ended.code().expect("it ends by itself"), 0, "{words:?}");
    }
}

/// The number of the program is there though its wrapper cannot say anything.
#[test]
fn a_wrapper_that_nobody_hears_is_terminated_as_any_other() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    let mut wrapper = wrap(&stage, "ada", "echo $$ > pid; exec sleep 600", writer);
    let child = number_in(stage.folder.path(), "pid");
    wrapper.terminate();
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(143));
    wait_until_gone(child);
    assert!(!stage.key_exists(), "the term is given back");
}
