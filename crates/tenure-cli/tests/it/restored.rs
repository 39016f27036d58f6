//! A backup of our own store is put back, on the real process.

use std::path::Path;
use std::process::Command;

use testkit::{GENEROUS, Process, RedisServer, ServerProgram, TempFolder, wait_until};

use crate::stage::{CommandOutput, TENURE, plain_command};

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
fn try_to_lead(folder: &Path) -> CommandOutput {
    let words = ["run", "job", "--ttl", "60s", "--wait-timeout", "5s", "--", "true"];
    CommandOutput::of(tenure(folder, &words))
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
    assert_eq!(CommandOutput::of(tenure(path, &first)).code, 0, "a term that is over");
    store.terminate();
    assert!(store.wait(GENEROUS).success());
    copy(&data, &path.join("backup"));

    let mut store = serve(path);
    let words = ["run", "job", "--ttl", "60s", "--id", "ada", "--", "sleep", "600"];
    let _ada = Process::spawn(tenure(path, &words));
    wait_until("ada to lead", GENEROUS, || {
        CommandOutput::of(tenure(path, &["who", "job"])).code == 0
    });
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
    assert_eq!(CommandOutput::of(tenure(path, &first)).code, 0);
    for _ in 0..2 {
        store.terminate();
        assert!(store.wait(GENEROUS).success());
        store = serve(path);
        // Otherwise it would be as long as the lease.
        let words = ["run", "job", "--ttl", "1h", "--wait-timeout", "60s", "--", "true"];
        let said = CommandOutput::of(tenure(path, &words));
        assert_eq!(said.code, 0, "{said:?}");
    }
}

/// What stands in the data folder when the server ends is not what it wrote.
mod files_that_were_replaced {
    use super::*;

    /// Starts a store, writes, has `change` do its work, ends it, and says whether the next start
    /// took it for a clean end.
    fn is_continued(settings: &[&str], change: fn(&Path, &RedisServer)) -> bool {
        let program = ServerProgram::new(TENURE).arg("serve");
        let mut server = RedisServer::builder().program(program).args(settings).start();
        server.cli(&["SET", "token", "41"]);
        let before = incarnation(&server);
        let folder = server.folder().to_owned();
        change(&folder, &server);
        server.terminate();
        server.restart();
        incarnation(&server) == before
    }

    fn incarnation(server: &RedisServer) -> String {
        let told = server.cli(&["INFO", "server"]);
        let line = told.lines().find(|line| line.starts_with("tenure_incarnation:"));
        line.expect("our own store says so").to_owned()
    }

    const APPENDING: [&str; 6] = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
    /// Whoever wants to keep something saves it.
    const SAVING: [&str; 4] = ["--save", "3600 1", "--shutdown-on-sigterm", "nosave"];

    #[test]
    fn the_control_is_continued() {
        assert!(is_continued(&APPENDING, |_, _| {}));
        assert!(is_continued(&SAVING, |_, server| _ = server.cli(&["SAVE"])));
        assert!(is_continued(&APPENDING, |_, server| {
            server.cli(&["BGREWRITEAOF"]);
            wait_until("the rewrite", GENEROUS, || {
                server.cli(&["INFO", "persistence"]).contains("aof_rewrites:1")
            });
            server.cli(&["SET", "token", "42"]);
        }));
    }

    /// The server notices, and leaves it alone: it may be the only copy. Nothing more is written,
    /// and what was granted since the copy was made is not forgotten: the next start is another
    /// life.
    #[test]
    fn an_append_only_folder_put_back_under_the_server() {
        let program = ServerProgram::new(TENURE).arg("serve");
        let mut server = RedisServer::builder().program(program).args(APPENDING).start();
        let before = incarnation(&server);
        let folder = server.folder().join("appendonlydir");
        server.cli(&["SET", "kept", "1"]);
        copy(&folder, &server.folder().join("backup"));
        server.cli(&["SET", "lease", "ada"]);
        std::fs::rename(&folder, server.folder().join("moved")).unwrap();
        std::fs::rename(server.folder().join("backup"), &folder).unwrap();
        wait_until("writes to be refused, and a rewrite as well", GENEROUS, || {
            let said = server.cli(&["SET", "more", "1"]);
            let facts = server.cli(&["INFO", "persistence"]);
            said.contains("MISCONF") && facts.contains("aof_last_bgrewrite_status:err")
        });
        server.kill();
        server.restart();
        assert_eq!(server.cli(&["GET", "kept"]), "1", "the copy is as it was");
        assert_eq!(server.cli(&["EXISTS", "lease"]), "0");
        assert_ne!(incarnation(&server), before);
    }

    #[test]
    fn an_increment_overwritten_in_its_place() {
        assert!(!is_continued(&APPENDING, |data, server| {
            let folder = std::fs::read_dir(data.join("appendonlydir")).unwrap();
            let increment = folder.map(|entry| entry.unwrap().path());
            let increment =
                increment.into_iter().find(|path| path.to_string_lossy().contains(".incr."));
            let increment = increment.unwrap();
            let before = std::fs::read(&increment).unwrap();
            server.cli(&["SET", "lease", "ada"]);
            std::fs::write(&increment, before).unwrap();
        }));
    }

    #[test]
    fn a_snapshot_replaced_or_removed_before_an_end_without_saving() {
        assert!(!is_continued(&SAVING, |data, server| {
            server.cli(&["SAVE"]);
            std::fs::copy(data.join("dump.rdb"), data.join("backup")).unwrap();
            server.cli(&["SET", "token", "42"]);
            server.cli(&["SAVE"]);
            std::fs::rename(data.join("backup"), data.join("dump.rdb")).unwrap();
        }));
        assert!(!is_continued(&SAVING, |data, server| {
            server.cli(&["SAVE"]);
            std::fs::remove_file(data.join("dump.rdb")).unwrap();
        }));
    }
}

/// A life between the clean end and the copy put back that left no trace outside of the folder: a
/// container has its own /dev/shm. The proof of the clean end still lies there.
#[test]
fn a_copy_of_a_clean_end_is_known_by_its_files() {
    let folder = TempFolder::create();
    let (path, data) = (folder.path(), folder.path().join("data"));
    std::fs::create_dir(&data).unwrap();
    let mut store = serve(path);
    let first = ["run", "job", "--ttl", "1s", "--", "true"];
    assert_eq!(CommandOutput::of(tenure(path, &first)).code, 0, "a term that is over");
    store.terminate();
    assert!(store.wait(GENEROUS).success());
    copy(&data, &path.join("backup"));
    std::fs::remove_dir_all(&data).unwrap();
    copy(&path.join("backup"), &data);

    let _store = serve(path);
    let said = try_to_lead(path);
    assert_eq!(said.code, 75, "somebody may have led meanwhile: {said:?}");
}

/// A start that listens nowhere, on a folder in which others were told of leases.
#[test]
fn listening_nowhere_for_a_moment_forgets_no_lease() {
    let folder = TempFolder::create();
    let (path, data) = (folder.path(), folder.path().join("data"));
    std::fs::create_dir(&data).unwrap();
    let mut store = serve(path);
    let first = ["run", "job", "--ttl", "1s", "--", "true"];
    assert_eq!(CommandOutput::of(tenure(path, &first)).code, 0, "a term that is over");
    let words = ["run", "job", "--ttl", "60s", "--id", "ada", "--", "sleep", "600"];
    let _ada = Process::spawn(tenure(path, &words));
    wait_until("ada to lead", GENEROUS, || {
        CommandOutput::of(tenure(path, &["who", "job"])).code == 0
    });
    store.kill();
    std::fs::remove_dir_all(data.join("appendonlydir")).unwrap();

    let mut command = Command::new(TENURE);
    command.args(["serve", "--port", "0", "--appendonly", "yes", "--save", "", "--dir"]).arg(&data);
    let mut unheard = Process::spawn(command);
    let _ = unheard.next_line_with("Server initialized", GENEROUS);
    wait_until("its mark", GENEROUS, || {
        let mark = std::fs::read_to_string(data.join("tenure.life")).unwrap_or_default();
        mark.contains("state running") && data.join("appendonlydir").exists()
    });
    unheard.terminate();
    assert!(unheard.wait(GENEROUS).success());

    let _store = serve(path);
    let said = try_to_lead(path);
    assert_eq!(said.code, 75, "ada may still believe in its lease: {said:?}");
}
