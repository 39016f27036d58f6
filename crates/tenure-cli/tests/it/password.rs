//! A password that changes while instances take part: people are at it, so nobody gives up.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use testkit::{GENEROUS, Process, RedisServer, ServerProgram, TempFolder, wait_until};

use crate::stage::{NAME, Stage};

/// A store that wants the password `one`.
fn stage() -> Stage {
    let builder = RedisServer::builder().program(ServerProgram::new("redis-server"));
    Stage { store: builder.password("one").start(), folder: TempFolder::create() }
}

/// Gives the store another password, and ends all connections.
fn change_password(stage: &Stage, from: &str, to: &str) {
    let cli = |password: &str, words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &stage.store.port().to_string(), "-a", password, "--no-auth-warning"]);
        let said = command.args(words).output().unwrap();
        assert!(said.status.success(), "{said:?}");
    };
    cli(from, &["config", "set", "requirepass", to]);
    cli(to, &["client", "kill", "type", "normal"]);
    cli(to, &["client", "kill", "type", "pubsub"]);
}

/// `tenure`, whose log goes into the file `log`.
fn spawn(stage: &Stage, log: &str, words: &[&str]) -> Process {
    let mut command = stage.command(words);
    let log = File::create(stage.folder.path().join(log)).unwrap();
    command.current_dir(stage.folder.path()).stderr(log);
    Process::spawn(command)
}

fn log(stage: &Stage, log: &str) -> String {
    std::fs::read_to_string(stage.folder.path().join(log)).unwrap()
}

fn is_refused(stage: &Stage, file: &str) -> bool {
    log(stage, file).contains("the login is refused")
}

#[test]
fn standbys_wait_when_the_password_changes_after_their_login_worked() {
    let stage = stage();
    let ids = ["r1", "r2", "r3"];
    let mut wrappers = ids.map(|id| {
        spawn(&stage, id, &["run", NAME, "--id", id, "--ttl", "1500ms", "--", "sleep", "600"])
    });
    stage.wait_for_members(3);
    wait_until("a leader", GENEROUS, || stage.tenure(&["who", NAME]).code == 0);
    change_password(&stage, "one", "two");
    wait_until("the refusals", GENEROUS, || ids.iter().all(|id| is_refused(&stage, id)));
    // Longer than it took to give up.
    std::thread::sleep(Duration::from_secs(3));
    change_password(&stage, "two", "one");
    wait_until("a leader again", GENEROUS, || stage.tenure(&["who", NAME]).code == 0);
    for (wrapper, id) in wrappers.iter_mut().zip(ids) {
        assert!(wrapper.is_running(), "{}", log(&stage, id));
    }
    stage.wait_for_members(3);
}

#[test]
fn whoever_waits_for_a_tick_does_so_when_the_password_changes() {
    let stage = stage();
    let once = |file: &str, script: &str, flags: &[&str]| {
        let words = ["once", NAME, "--tick", "a", "--ttl", "60s"];
        let words = [&words[..], flags, &["--", "sh", "-c", script]].concat();
        spawn(&stage, file, &words)
    };
    let script = "touch begun; while ! [ -e end ]; do sleep 0.1; done";
    let mut runner = once("runner", script, &[]);
    wait_until("the run", GENEROUS, || stage.folder.path().join("begun").exists());
    let mut waiter = once("waiter", "touch again", &["--wait"]);
    wait_until("the wait", GENEROUS, || log(&stage, "waiter").contains("waits"));
    change_password(&stage, "one", "two");
    wait_until("the refusal", GENEROUS, || is_refused(&stage, "waiter"));
    assert!(waiter.is_running(), "{}", log(&stage, "waiter"));
    change_password(&stage, "two", "one");
    let _ = stage.folder.write("end", "");
    assert_eq!(runner.wait(GENEROUS).code(), Some(0), "{}", log(&stage, "runner"));
    assert_eq!(waiter.wait(GENEROUS).code(), Some(0), "{}", log(&stage, "waiter"));
    assert!(!stage.folder.path().join("again").exists());
}

#[test]
fn a_password_that_never_worked_is_told_at_once() {
    let stage = stage();
    let wrong = stage.store.url().replace(":one@", ":two@");
    for flags in [&["run", NAME][..], &["once", NAME, "--tick", "a", "--wait"]] {
        let words = [flags, &["--store", &wrong, "--", "true"]].concat();
        let said = stage.tenure(&words);
        assert_eq!(said.code, 78, "{said:?}");
    }
}
