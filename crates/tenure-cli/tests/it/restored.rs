//! A backup of our own store is put back, on the real process.

use std::path::Path;
use std::process::Command;

use testkit::{GENEROUS, Process, TempFolder, wait_until};

use crate::stage::{Said, TENURE, plain_command};

/// A store in `data` of a folder, on a socket beside it.
fn serve(folder: &Path) -> Process {
    let mut command = Command::new(TENURE);
    command.args(["serve", "--port", "0", "--appendonly", "yes", "--save", ""]);
    command.arg("--dir").arg(folder.join("data"));
    command.arg("--unixsocket").arg(folder.join("store.sock"));
    let server = Process::spawn(command);
    let _ = server.next_line_with("Ready to accept connections", GENEROUS);
    server
}

fn tenure(folder: &Path, words: &[&str]) -> Command {
    let mut command = plain_command(words);
    command.env("TENURE_STORE", format!("unix://{}", folder.join("store.sock").display()));
    command
}

/// Somebody who contends for a moment, with leases of a minute. The exit code says how it went.
fn try_to_lead(folder: &Path) -> Said {
    let words = ["run", "job", "--ttl", "60s", "--wait-timeout", "5s", "--", "true"];
    Said::of(tenure(folder, &words))
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(done.success());
}

/// The backup is of after a clean end and knows nothing of the leader that came after it.
#[test]
fn a_leader_that_the_backup_does_not_know_is_waited_out() {
    let folder = TempFolder::create();
    let (path, data) = (folder.path(), folder.path().join("data"));
    std::fs::create_dir(&data).unwrap();
    let mut store = serve(path);
    let first = ["run", "job", "--ttl", "1s", "--", "true"];
    assert_eq!(Said::of(tenure(path, &first)).code, 0, "a term that is over");
    store.terminate();
    assert!(store.wait(GENEROUS).success());
    copy(&data, &path.join("backup"));

    let mut store = serve(path);
    let words = ["run", "job", "--ttl", "60s", "--id", "ada", "--", "sleep", "600"];
    let _ada = Process::spawn(tenure(path, &words));
    wait_until("ada to lead", GENEROUS, || Said::of(tenure(path, &["who", "job"])).code == 0);
    store.kill();
    std::fs::remove_dir_all(&data).unwrap();
    copy(&path.join("backup"), &data);

    let _store = serve(path);
    let said = try_to_lead(path);
    assert_eq!(said.code, 75, "ada may still believe in its lease: {said:?}");
}

/// What waits after a crash or a restored backup does not wait after every restart.
#[test]
fn an_ordinary_restart_makes_nobody_wait() {
    let folder = TempFolder::create();
    let (path, data) = (folder.path(), folder.path().join("data"));
    std::fs::create_dir(&data).unwrap();
    let mut store = serve(path);
    let first = ["run", "job", "--ttl", "1s", "--", "true"];
    assert_eq!(Said::of(tenure(path, &first)).code, 0);
    for _ in 0..2 {
        store.terminate();
        assert!(store.wait(GENEROUS).success());
        store = serve(path);
        // Otherwise it would be as long as the lease.
        let words = ["run", "job", "--ttl", "1h", "--wait-timeout", "60s", "--", "true"];
        let said = Said::of(tenure(path, &words));
        assert_eq!(said.code, 0, "{said:?}");
    }
}
