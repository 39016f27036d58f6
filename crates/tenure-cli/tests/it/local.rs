//! The local store: there when it is needed, once, and gone when it is not.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use testkit::{GENEROUS, Process, TempFolder, wait_until};

use crate::stage::{CommandOutput, is_alive, plain_command};

/// A user's folder. The store is ended with the value.
pub(crate) struct User {
    pub(crate) folder: TempFolder,
}

impl User {
    pub(crate) fn new() -> Self {
        User { folder: TempFolder::create() }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = plain_command(words);
        command.env("XDG_STATE_HOME", self.folder.path().join("state"));
        command
    }

    pub(crate) fn tenure(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(words))
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.tenure(&["local", "status", "--json"]).out).unwrap()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.status()["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
    }

    /// The data folder.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state/tenure")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.state().join("store.sock")
    }

    /// A leader that stays, with leases of a minute.
    #[track_caller]
    pub(crate) fn lead(&self) -> Process {
        let words = ["run", "job", "--ttl", "60s", "--id", "ada", "--", "sleep", "600"];
        let leader = Process::spawn(self.command(&words));
        wait_until("ada to lead", GENEROUS, || self.tenure(&["who", "job"]).code == 0);
        leader
    }

    /// How it ends for somebody who contends for some seconds, with leases of a minute.
    pub(crate) fn contend(&self) -> CommandOutput {
        self.tenure(&["run", "job", "--ttl", "60s", "--wait-timeout", "5s", "--", "true"])
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.command(&["local", "stop", "--force"]).output();
    }
}

#[test]
fn a_command_without_a_store_starts_one_for_its_user_alone() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "status"]).code, 1);
    let said = user.tenure(&["run", "job", "--", "sh", "-c", "exit 7"]);
    assert_eq!(said.code, 7, "and it leads without waiting: {said:?}");
    let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(user.socket()), 0o600);
    assert_eq!(mode(user.socket().parent().unwrap().to_owned()), 0o700);
    assert_eq!(user.status()["running"], true);
    let history = user.tenure(&["history", "job", "--json"]);
    assert!(history.out.contains("released"), "{history:?}");
}

#[test]
fn twenty_commands_at_once_end_up_with_one_store() {
    let user = User::new();
    let started: Vec<_> = (0..20)
        .map(|number| {
            let command = user.command(&["run", &format!("job-{number}"), "--", "true"]);
            std::thread::spawn(move || CommandOutput::of(command))
        })
        .collect();
    for command in started {
        let said = command.join().unwrap();
        assert_eq!(said.code, 0, "{said:?}");
    }
    for number in 0..20 {
        let history = user.tenure(&["history", &format!("job-{number}"), "--json"]);
        assert!(history.out.contains("released"), "one store knows them all: {history:?}");
    }
}

#[test]
fn it_leaves_when_nobody_uses_it_and_not_before() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start", "--idle", "3s"]).code, 0);
    let pid = u32::try_from(user.status()["pid"].as_u64().unwrap()).unwrap();
    let mut using = Process::spawn(user.command(&["run", "job", "--", "sleep", "600"]));
    wait_until("the command to lead", GENEROUS, || user.tenure(&["who", "job"]).code == 0);
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert!(is_alive(pid), "somebody uses it");
    using.terminate();
    using.wait(GENEROUS);
    wait_until("the store to leave", GENEROUS, || !is_alive(pid));
    assert!(!user.socket().exists());
    assert_eq!(user.tenure(&["run", "job", "--ttl", "1s", "--", "true"]).code, 0, "another starts");
}

#[test]
fn a_start_says_that_one_that_runs_keeps_its_own_idle_time() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start"]).err, "");
    assert_eq!(user.tenure(&["local", "start"]).err, "", "nothing else was asked for");
    let said = user.tenure(&["local", "start", "--idle", "8h"]);
    assert_eq!(said.code, 0);
    assert!(said.err.contains("--idle changes nothing"), "{said:?}");
}

#[test]
fn whoever_came_a_moment_ago_is_not_left_alone() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start", "--idle", "2s"]).code, 0);
    let pid = user.pid().unwrap();
    // As a command does that looks whether the store is there, and will need it in a moment.
    for _ in 0..40 {
        drop(UnixStream::connect(user.socket()).expect("the store is there"));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(is_alive(pid), "it counts from the last visit");
    wait_until("the store to leave", GENEROUS, || !is_alive(pid));
}

#[test]
fn whoever_missed_that_the_store_left_starts_another() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start", "--idle", "1s"]).code, 0);
    let pid = user.pid().unwrap();
    let mut using =
        Process::spawn(user.command(&["run", "job", "--ttl", "2s", "--", "sleep", "600"]));
    wait_until("the command to lead", GENEROUS, || user.tenure(&["who", "job"]).code == 0);
    // Stopped and without a connection, it is nobody whom the store can see.
    using.pause();
    let clients = user.tenure(&["cli", "--local", "CLIENT", "LIST"]).out;
    let is_of_command = |line: &&str| {
        ["evalsha", "eval ", "subscribe"].iter().any(|c| line.contains(&format!("cmd={c}")))
    };
    for client in clients.lines().filter(is_of_command) {
        let id = client.split([' ', '=']).nth(1).expect("id=N");
        user.tenure(&["cli", "--local", "CLIENT", "KILL", "ID", id]);
    }
    wait_until("the store to leave", GENEROUS, || !is_alive(pid));
    using.resume();
    wait_until("it to lead again", GENEROUS, || {
        // Without starting a store.
        user.socket().exists() && user.tenure(&["who", "job"]).code == 0
    });
}

#[test]
fn a_store_that_is_used_is_not_stopped_unless_forced() {
    let user = User::new();
    let _using = Process::spawn(user.command(&["run", "job", "--", "sleep", "600"]));
    wait_until("the command to lead", GENEROUS, || user.tenure(&["who", "job"]).code == 0);
    let refused = user.tenure(&["local", "stop"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("--force"), "{refused:?}");
    assert_eq!(user.tenure(&["local", "stop", "--force"]).code, 0);
    assert_eq!(user.status()["running"], false);
}

#[test]
fn a_folder_that_others_may_open_is_refused() {
    let user = User::new();
    let folder = user.state();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = user.tenure(&["who", "job"]);
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("chmod"), "{said:?}");
}

#[test]
fn tokens_and_history_survive_a_restart_and_nothing_waits() {
    let user = User::new();
    assert_eq!(user.tenure(&["run", "job", "--", "true"]).code, 0);
    assert_eq!(user.status()["persists"], true);
    assert_eq!(user.tenure(&["local", "stop"]).code, 0);
    // Quarantine would last as long as a lease: an hour.
    let patience = ["--ttl", "1h", "--wait-timeout", "20s", "--", "true"];
    for name in ["job", "new-job"] {
        let said = user.tenure(&[&["run", name], &patience[..]].concat());
        assert_eq!(said.code, 0, "{name}: {said:?}");
    }
    let history = user.tenure(&["history", "job", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&history.out).unwrap();
    let terms = json["terms"].as_array().unwrap();
    assert_eq!(terms.len(), 2, "{json}");
    assert!(terms[0]["token"].as_u64() > terms[1]["token"].as_u64(), "{json}");
}

#[test]
fn after_a_crash_of_the_store_old_leases_are_waited_out() {
    let user = User::new();
    assert_eq!(user.tenure(&["run", "job", "--", "true"]).code, 0);
    let pid = u32::try_from(user.status()["pid"].as_u64().unwrap()).unwrap();
    crate::stage::send(pid, rustix::process::Signal::KILL);
    wait_until("the store to be gone", GENEROUS, || !is_alive(pid));
    let said =
        user.tenure(&["run", "new-job", "--ttl", "1h", "--wait-timeout", "2s", "--", "true"]);
    assert_eq!(said.code, 75, "{said:?}");
    assert_eq!(user.tenure(&["who", "new-job"]).code, 1);
}

#[test]
fn a_store_that_crashed_is_started_again_by_whoever_uses_it() {
    let user = User::new();
    let folder = user.folder.path();
    let script = "echo $TENURE_TOKEN >> terms; exec sleep 600";
    let mut command = user.command(&["run", "job", "--ttl", "2s", "--", "sh", "-c", script]);
    let mut wrapper = Process::spawn({
        command.current_dir(folder);
        command
    });
    let terms = || std::fs::read_to_string(folder.join("terms")).unwrap_or_default();
    wait_until("the command to lead", GENEROUS, || !terms().is_empty());
    let pid = || user.pid();
    let first = pid().unwrap();
    crate::stage::send(first, rustix::process::Signal::KILL);
    wait_until("another store", GENEROUS, || pid().is_some_and(|pid| pid != first));
    wait_until("the command to lead on it", GENEROUS, || user.tenure(&["who", "job"]).code == 0);

    // It is the store of others, too: the wrapper leaves it alone when it kills what it started.
    let second = pid().unwrap();
    wrapper.terminate();
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(143));
    assert_eq!(pid(), Some(second));
}

#[test]
fn a_sidecar_without_a_store_uses_the_local_one() {
    let user = User::new();
    let mut sidecar = Process::spawn(user.command(&["sidecar", "job", "--listen", "127.0.0.1:0"]));
    let line = sidecar.next_line_with("serving job at http://", GENEROUS);
    assert_eq!(user.status()["running"], true, "{line}");
    wait_until("it to lead", GENEROUS, || user.tenure(&["who", "job"]).code == 0);
    sidecar.terminate();
    assert!(sidecar.wait(GENEROUS).success());
}

#[test]
fn a_mode_that_the_local_store_does_not_have_is_refused() {
    let said = User::new().tenure(&["run", "job", "--mode", "strict", "--", "true"]);
    assert_eq!(said.code, 64, "{said:?}");
    assert!(said.err.contains("--store"), "{said:?}");
}

/// The sidecar, its instances and the store all end; the terms of before are still told.
#[test]
fn history_survives_a_restart_of_everything() {
    let user = User::new();
    let terms = || {
        let sidecar = user.command(&["sidecar", "--observe", "job", "--listen", "127.0.0.1:0"]);
        let mut sidecar = Process::spawn(sidecar);
        let line = sidecar.next_line_with("serving job at http://", GENEROUS);
        let address = line.trim_end_matches('/').rsplit('/').next().unwrap().to_owned();
        let mut terms = Vec::new();
        wait_until("two terms to be told", GENEROUS, || {
            let answer = crate::sidecar::get(&address, "/history/job");
            let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
            let json: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
            terms = json["terms"].as_array().cloned().unwrap_or_default();
            terms.len() == 2
        });
        sidecar.terminate();
        assert!(sidecar.wait(GENEROUS).success());
        terms
    };
    for _ in 0..2 {
        assert_eq!(user.tenure(&["run", "job", "--", "true"]).code, 0);
    }
    let before = terms();
    assert_eq!(user.tenure(&["local", "stop"]).code, 0);
    assert_eq!(user.status()["running"], false);
    assert_eq!(terms(), before);
}
