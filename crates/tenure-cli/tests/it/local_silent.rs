//! A local store that runs and does not answer, or was started with too few descriptors.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_until};

use crate::instance::has_namespaces;
use crate::local::User;
use crate::stage::{CommandOutput, PROMPTLY, TENURE, children_of, is_alive, send, started_by};

/// A user whose store is stopped, and the process of that store.
pub(crate) fn stopped() -> (User, u32) {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start"]).code, 0);
    let pid = user.pid().unwrap();
    stop(pid);
    (user, pid)
}

/// When this returns, no thread of it runs: until then it may answer.
pub(crate) fn stop(pid: u32) {
    send(pid, Signal::STOP);
    let is_stopped = |thread: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    wait_until("the store to stop", GENEROUS, || {
        std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten().all(is_stopped)
    });
}

#[test]
fn a_silent_store_is_named_and_waited_for_no_longer_than_asked() {
    let (user, pid) = stopped();
    let began_at = Instant::now();
    let words = ["run", "job", "--wait-timeout", "3s", "--", "true"];
    let said = user.tenure(&words);
    // Without the limit it would be half a minute.
    assert!(began_at.elapsed() < Duration::from_secs(20), "{:?}", began_at.elapsed());
    assert_eq!(said.code, 69, "{said:?}");
    let named = format!("the local store, process {pid}, does not answer");
    assert!(said.err.lines().next().unwrap().contains(&named), "{said:?}");
    assert!(said.err.contains("local stop --force"), "{said:?}");
    send(pid, Signal::CONT);
    assert_eq!(user.pid(), Some(pid), "no other was started");
}

/// Until a command has told that it waits for the store.
fn wait_until_it_waits(log: &std::path::Path) {
    wait_until("it to wait for the store", GENEROUS, || {
        std::fs::read_to_string(log).unwrap().contains("waiting for it")
    });
}

#[test]
fn a_store_that_answers_again_is_used() {
    let (user, pid) = stopped();
    let mut command = user.command(&["run", "job", "--", "sh", "-c", "exit 7"]);
    let log = user.folder.path().join("log");
    command.stderr(std::fs::File::create(&log).unwrap());
    let mut running = Process::spawn(command);
    wait_until_it_waits(&log);
    send(pid, Signal::CONT);
    assert_eq!(running.wait(GENEROUS).code(), Some(7), "{:?}", std::fs::read_to_string(&log));
    assert_eq!(user.pid(), Some(pid), "no other was started");
}

/// What was spent on the store is not given again for the wait that follows.
#[test]
fn a_wait_timeout_counts_from_the_start_of_the_command() {
    let user = User::new();
    let ready = user.folder.path().join("ready");
    let script = format!("echo 1 > {}; sleep 600", ready.display());
    let held = |words: &[&str]| {
        let holder = Process::spawn(user.command(&[words, &["--", "sh", "-c", &script]].concat()));
        wait_until("a program", GENEROUS, || ready.exists());
        std::fs::remove_file(&ready).unwrap();
        holder
    };
    let _leader = held(&["run", "job", "--ttl", "60s"]);
    let _runner = held(&["once", "batch", "--tick", "1", "--ttl", "60s"]);
    let pid = user.pid().unwrap();
    stop(pid);
    let limit = ["--wait-timeout", "15s", "--", "true"];
    let waiting: [&[&str]; 2] = [&["run", "job"], &["once", "batch", "--tick", "1", "--wait"]];
    let waiting = waiting.map(|words| {
        let command = user.command(&[words, &limit[..]].concat());
        std::thread::spawn(move || {
            let began_at = Instant::now();
            (CommandOutput::of(command), began_at.elapsed())
        })
    });
    std::thread::sleep(Duration::from_secs(12));
    send(pid, Signal::CONT);
    for (said, took) in waiting.map(|waiting| waiting.join().unwrap()) {
        assert_eq!(said.code, 75, "{said:?}");
        // Counted anew it would be 27 s.
        assert!(took < Duration::from_secs(24), "{took:?}: {said:?}");
    }
}

#[test]
fn the_status_of_a_silent_store_says_that_it_runs() {
    let (user, pid) = stopped();
    let command = user.command(&["local", "status"]);
    let told = std::thread::spawn(move || CommandOutput::of(command));
    let json = user.status();
    let said = told.join().unwrap();
    assert_eq!(said.code, 69, "{said:?}");
    let told = format!("runs, process {pid}, and does not answer");
    assert!(said.out.contains(&told), "{said:?}");
    assert_eq!((&json["running"], &json["answers"]), (&true.into(), &false.into()), "{json}");
}

#[test]
fn a_silent_store_is_ended_by_force_and_by_nothing_less() {
    let (user, pid) = stopped();
    let refused = user.tenure(&["local", "stop"]);
    assert_eq!(refused.code, 69, "{refused:?}");
    assert!(refused.err.contains("--force") && is_alive(pid), "{refused:?}");
    let said = user.tenure(&["local", "stop", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    wait_until("the store to be gone", GENEROUS, || !is_alive(pid));
    assert_eq!(user.tenure(&["local", "status"]).code, 1);
    assert_eq!(user.tenure(&["run", "job", "--ttl", "1s", "--", "true"]).code, 0, "another starts");
}

/// The lock names a process that has nothing to do with it: an old number that was given again. The
/// store is found by the lock that it holds.
#[test]
fn force_ends_nobody_but_the_store() {
    let (user, pid) = stopped();
    let mut bystander = Command::new("sleep").arg("600").spawn().unwrap();
    let lock = user.state().join("local.lock");
    let text = std::fs::read_to_string(&lock).unwrap();
    let other = text.replace(&format!("pid {pid}\n"), &format!("pid {}\n", bystander.id()));
    assert_ne!(text, other);
    std::fs::write(&lock, other).unwrap();
    let said = user.tenure(&["local", "stop", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    wait_until("the store to be gone", GENEROUS, || !is_alive(pid));
    assert!(bystander.try_wait().unwrap().is_none(), "it lives");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

/// Starts the store from a shell with limits.
fn start_limited(user: &User, limits: &str) -> CommandOutput {
    let mut command = Command::new("sh");
    let script = format!("{limits}; exec \"$@\"");
    command.args(["-c", &script, "sh", TENURE, "local", "start"]);
    command.env("XDG_STATE_HOME", user.folder.path().join("state"));
    CommandOutput::of(command)
}

/// Root may raise the limit; everybody else is told.
#[test]
fn a_store_serves_everybody_whatever_the_first_user_may_open() {
    let user = User::new();
    let said = start_limited(&user, "ulimit -n 16");
    if said.code != 0 {
        assert!(said.err.contains("ulimit -n"), "{said:?}");
        return;
    }
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", user.pid().unwrap())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let soft: u64 = line.split_whitespace().nth(3).unwrap().parse().unwrap();
    assert!(soft >= 1024, "{line}");
}

#[test]
fn a_variable_that_is_ignored_is_named() {
    let folder = testkit::TempFolder::create();
    let mut command = crate::stage::plain_command(&["local", "status"]);
    command.env("XDG_STATE_HOME", "relative").env("HOME", folder.path());
    let said = CommandOutput::of(command);
    assert!(said.err.contains("XDG_STATE_HOME=relative is relative and ignored"), "{said:?}");
}

/// A user whose store could not write what it was told: nothing on its disk may grow.
#[test]
fn a_store_that_cannot_write_is_ended_by_force_alone() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start"]).code, 0);
    let pid = user.pid().unwrap();
    let process = rustix::process::Pid::from_raw(pid.cast_signed());
    let full = rustix::process::Rlimit { current: Some(1), maximum: None };
    let resource = rustix::process::Resource::Fsize;
    rustix::process::prlimit(process, resource, full).unwrap();
    // The first write is the one that fails; from then on all are refused.
    let said = user.tenure(&["once", "batch", "--tick", "1", "--ttl", "1s", "--", "true"]);
    assert_ne!(said.code, 0, "{said:?}");
    let said = user.tenure(&["local", "stop"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("store.log") && said.err.contains("--force"), "{said:?}");
    assert!(is_alive(pid));
    let said = user.tenure(&["local", "stop", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    wait_until("the end of the store", GENEROUS, || !is_alive(pid));
    assert_eq!(user.tenure(&["run", "job", "--ttl", "1s", "--", "true"]).code, 0);
}

#[test]
fn limits_of_whoever_starts_the_store_do_not_bind_it() {
    let user = User::new();
    let limits = "ulimit -S -f 64; ulimit -S -t 300; ulimit -S -v 4000000";
    let said = start_limited(&user, limits);
    assert_eq!(said.code, 0, "{said:?}");
    let found = std::fs::read_to_string(format!("/proc/{}/limits", user.pid().unwrap())).unwrap();
    for name in ["Max file size", "Max cpu time", "Max address space"] {
        let line = found.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line[name.len()..].trim_start().starts_with("unlimited"), "{line}");
    }
}

/// The first process of a namespace ignores what it does not listen to.
#[test]
fn a_signal_ends_the_first_process_while_it_waits_for_the_store() {
    if !has_namespaces() {
        return eprintln!("skipped: no pid namespace can be made here");
    }
    let (user, _) = stopped();
    let commands: [&[&str]; 4] = [
        &["run", "job", "--", "sleep", "600"],
        &["once", "job", "--", "sleep", "600"],
        &["who", "job"],
        &["sidecar", "job", "--listen", "127.0.0.1:0"],
    ];
    // All wait in the same seconds.
    let waiting = commands.map(|words| {
        let plain = user.command(words);
        let mut command = started_by("unshare", &["-pf", "--mount-proc", "--kill-child"], &plain);
        let log = user.folder.path().join(words[0]);
        command.stderr(std::fs::File::create(&log).unwrap());
        (words, log, Process::spawn(command))
    });
    for (words, log, mut outside) in waiting {
        wait_until_it_waits(&log);
        send(children_of(outside.pid())[0], Signal::TERM);
        // By itself it would wait for half a minute.
        assert_eq!(outside.wait(PROMPTLY).code(), Some(143), "{words:?}");
    }
}
