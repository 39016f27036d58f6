//! One local store per data folder, from whatever environment: cron, sudo, a login, a unit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, getuid};
use testkit::{GENEROUS, Process, RedisServer, ServerProgram, TempFolder, wait_until};

use crate::local::User;
use crate::stage::{CommandOutput, TENURE, is_alive, plain_command, send};

/// `tenure` in mounts of its own, after a line of shell that changes them. `None` where that is not
/// allowed.
pub(crate) fn among_mounts(setup: &str, words: &[&str]) -> Option<Command> {
    let own_mounts = if getuid().is_root() { "-m" } else { "-rm" };
    let allowed = Command::new("unshare").args([own_mounts, "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        println!("skipped: mounts cannot be changed here");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args([own_mounts, "sh", "-c", &format!("{setup} && exec \"$@\""), "sh", TENURE]);
    command.args(words).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    Some(command)
}

#[test]
fn without_proc_it_says_so() {
    for words in [&["who", "job"][..], &["demo", "--seconds", "1"]] {
        let folder = TempFolder::create();
        let Some(mut command) = among_mounts("mount -t tmpfs none /proc", words) else { return };
        command.env("XDG_STATE_HOME", folder.path());
        let said = CommandOutput::of(command);
        assert_ne!(said.code, 0, "{said:?}");
        assert!(said.err.contains("/proc is not mounted"), "{said:?}");
    }
}

/// An account with a home of its own, and nothing of this process's environment.
struct Account {
    folder: TempFolder,
}

impl Account {
    fn new() -> Self {
        let folder = TempFolder::create();
        fs::create_dir(folder.path().join("home")).unwrap();
        let line = format!("root:x:0:0::{}:/bin/sh\n", folder.path().join("home").display());
        let _ = folder.write("passwd", &line);
        Account { folder }
    }

    fn command(&self, variables: &[(&str, &str)], words: &[&str]) -> Option<Command> {
        let passwd = self.folder.path().join("passwd");
        let setup = format!("mount --bind {} /etc/passwd", passwd.display());
        let mut command = among_mounts(&setup, words)?;
        command.envs(variables.iter().copied());
        Some(command)
    }

    fn tenure(&self, variables: &[(&str, &str)], words: &[&str]) -> Option<CommandOutput> {
        self.command(variables, words).map(CommandOutput::of)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = self.tenure(&[], &["local", "stop", "--force"]);
    }
}

#[test]
fn every_environment_of_an_account_finds_the_same_store() {
    let account = Account::new();
    let elsewhere = TempFolder::create();
    let path = |name: &str| elsewhere.path().join(name).display().to_string();
    let (home, run, temporary) = (path("home"), path("run"), path("tmp"));
    for folder in [&home, &run, &temporary] {
        fs::create_dir(folder).unwrap();
    }
    let environments: [&[(&str, &str)]; 5] = [
        &[],
        &[("HOME", &home)],
        &[("XDG_RUNTIME_DIR", &run)],
        &[("TMPDIR", &temporary)],
        &[("HOME", "relative"), ("XDG_STATE_HOME", "relative"), ("SUDO_USER", "ada")],
    ];
    let words = ["run", "job", "--ttl", "60s", "--", "sleep", "600"];
    let Some(command) = account.command(environments[0], &words) else { return };
    let _leader = Process::spawn(command);
    let leads = || account.tenure(&[], &["who", "job"]).unwrap().code == 0;
    wait_until("somebody to lead", GENEROUS, leads);
    let state = |environment| {
        let said = account.tenure(environment, &["local", "status", "--json"]).unwrap();
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap()
    };
    let first = state(environments[0]);
    let home = fs::canonicalize(account.folder.path().join("home")).unwrap();
    assert!(first["state"].as_str().unwrap().starts_with(home.to_str().unwrap()), "{first}");
    let words = ["run", "job", "--wait-timeout", "1s", "--", "true"];
    let contending = environments.map(|environment| account.command(environment, &words).unwrap());
    let all = CommandOutput::of_all(contending);
    for (environment, said) in environments.into_iter().zip(all) {
        assert_eq!(state(environment)["pid"], first["pid"], "{environment:?}");
        assert_eq!(said.code, 75, "somebody leads, whoever asks: {environment:?}: {said:?}");
    }
}

#[test]
fn whoever_names_no_store_is_told_whom_it_coordinates() {
    let user = User::new();
    for words in [&["who", "job"][..], &["run", "job", "--", "true"], &["members", "job"]] {
        let said = user.tenure(words);
        let told = said.err.lines().filter(|line| line.contains("no store is named")).count();
        assert_eq!(told, 1, "{words:?}: {said:?}");
        assert!(said.err.contains("this machine") && said.err.contains("TENURE_STORE"), "{said:?}");
    }
    let mut command = user.command(&["who", "job"]);
    command.env("SUDO_USER", "ada");
    let said = CommandOutput::of(command);
    assert!(said.err.contains("not the store of ada"), "{said:?}");
}

#[test]
fn a_socket_that_was_removed_is_made_again_by_the_same_store() {
    let user = User::new();
    let _leader = user.lead();
    let pid = user.pid().unwrap();
    fs::remove_file(user.socket()).unwrap();
    let said = user.contend();
    assert_eq!(said.code, 75, "ada leads: {said:?}");
    assert_eq!(user.pid(), Some(pid));
    assert!(user.tenure(&["who", "job"]).out.starts_with("ada"));
}

/// What was granted there is not forgotten with the folder.
#[test]
fn a_data_folder_that_was_removed_leaves_no_second_leader() {
    let user = User::new();
    let _leader = user.lead();
    let pid = user.pid().unwrap();
    // The store may write into it meanwhile.
    wait_until("the folder to be gone", GENEROUS, || {
        let _ = fs::remove_dir_all(user.state());
        !user.state().exists()
    });
    let said = user.contend();
    assert_eq!(said.code, 75, "ada may believe in its lease: {said:?}");
    assert!(!is_alive(pid), "a store without its folder serves nobody");
    assert!(user.pid().is_some_and(|other| other != pid));
}

#[test]
fn a_backup_of_the_local_store_that_is_put_back_leaves_no_second_leader() {
    let user = User::new();
    assert_eq!(user.tenure(&["run", "job", "--ttl", "1s", "--", "true"]).code, 0);
    assert_eq!(user.tenure(&["local", "stop"]).code, 0);
    let backup = user.folder.path().join("backup");
    let copy = |from: &Path, to: &Path| {
        assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
    };
    copy(&user.state(), &backup);
    let _leader = user.lead();
    let pid = user.pid().unwrap();
    send(pid, Signal::KILL);
    fs::remove_dir_all(user.state()).unwrap();
    copy(&backup, &user.state());
    let said = user.contend();
    assert_eq!(said.code, 75, "ada may believe in its lease: {said:?}");
}

#[test]
fn a_lock_of_another_host_is_refused_with_what_to_do() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start"]).code, 0);
    let pid = user.pid().unwrap();
    let lock = user.state().join("local.lock");
    let here = fs::read_to_string(&lock).unwrap();
    assert!(here.contains(&format!("pid {pid}\n")), "{here}");
    assert!(here.contains(&format!("socket {}\n", user.socket().display())), "{here}");
    send(pid, Signal::KILL);
    wait_until("it to be gone", GENEROUS, || !is_alive(pid));
    let elsewhere =
        "tenure-local 1\nstate serves\nhost db-7\nmachine 0\nboot 0\npid 1\nsocket /x\n";
    fs::write(&lock, elsewhere).unwrap();
    for words in [&["who", "job"][..], &["run", "job", "--", "true"], &["local", "start"]] {
        let said = user.tenure(words);
        assert_eq!(said.code, 78, "{said:?}");
        assert_eq!(said.err.lines().count(), 1, "{said:?}");
        let lock = lock.display().to_string();
        for part in ["db-7", "--store", "XDG_STATE_HOME", &lock] {
            assert!(said.err.contains(part), "{part}: {said:?}");
        }
    }
    fs::remove_file(&lock).unwrap();
    assert_eq!(user.tenure(&["who", "job"]).code, 1, "nobody leads, and nobody is in the way");
}

#[test]
fn the_folder_of_another_user_and_a_user_without_an_account_are_refused() {
    if !getuid().is_root() {
        println!("skipped: only root can be somebody else");
        return;
    }
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start"]).code, 0);
    let open = fs::Permissions::from_mode(0o755);
    for folder in [user.folder.path().to_owned(), user.folder.path().join("state")] {
        fs::set_permissions(folder, open.clone()).unwrap();
    }
    let as_nobody = |uid: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--clear-groups", TENURE, "who", "job"]).env_clear();
        command
    };
    let mut foreign = as_nobody("65534");
    foreign.env("XDG_STATE_HOME", user.folder.path().join("state"));
    for (command, part) in [(foreign, "state/tenure"), (as_nobody("54321"), "uid 54321")] {
        let Ok(output) = Command::new("setpriv").arg("--version").output() else { return };
        assert!(output.status.success());
        let said = CommandOutput::of(command);
        // Where the program itself cannot be reached there is nothing to see.
        if said.code == 127 || said.code == 126 {
            println!("skipped: another user cannot run {TENURE}");
            return;
        }
        assert_eq!(said.code, 78, "{said:?}");
        assert!(said.err.contains(part) && said.err.contains("--store"), "{said:?}");
    }
}

#[test]
fn a_home_that_cannot_be_written_is_refused_unless_a_store_is_there() {
    let user = User::new();
    fs::create_dir(user.folder.path().join("state")).unwrap();
    let folder = user.folder.path().display().to_string();
    let read_only = format!("mount --bind {folder} {folder} && mount -o remount,bind,ro {folder}");
    let who = || {
        let mut command = among_mounts(&read_only, &["who", "job"])?;
        command.env("XDG_STATE_HOME", format!("{folder}/state"));
        Some(CommandOutput::of(command))
    };
    let Some(said) = who() else { return };
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("Read-only") && said.err.contains("--store"), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{said:?}");
    assert_eq!(user.tenure(&["local", "start"]).code, 0);
    let said = who().unwrap();
    assert_eq!(said.code, 1, "nobody leads, and it could be asked: {said:?}");
}

#[test]
fn a_full_disk_is_told_and_nothing_panics() {
    let folder = TempFolder::create();
    let path = folder.path().display();
    // Nothing is left, or so little that the store gets further before it fails.
    for left in [0, 4096, 8192] {
        let filled = 16384 - left;
        let setup = format!(
            "mount -t tmpfs -o size=16k none {path} && mkdir -m 700 {path}/tenure && \
             head -c {filled} /dev/zero > {path}/x; :"
        );
        let Some(mut command) = among_mounts(&setup, &["run", "job", "--", "true"]) else { return };
        let said = CommandOutput::of({
            command.env("XDG_STATE_HOME", folder.path());
            command
        });
        assert_eq!(said.code, 69, "{said:?}");
        for part in ["No space left on device", "free some space", "--store"] {
            assert!(said.err.contains(part), "{left}: {part}: {said:?}");
        }
        assert!(!said.err.contains("panicked"), "{said:?}");
    }
}

#[test]
fn a_path_that_is_too_long_for_a_socket_is_no_reason_to_have_another_store() {
    let user = User::new();
    let long = user.folder.path().join("x".repeat(120));
    let tenure = |words: &[&str]| {
        let mut command = plain_command(words);
        command.env("XDG_STATE_HOME", &long);
        CommandOutput::of(command)
    };
    assert_eq!(tenure(&["run", "job", "--", "true"]).code, 0);
    let status = tenure(&["local", "status", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    let socket = std::path::PathBuf::from(json["socket"].as_str().unwrap());
    assert!(!socket.starts_with(&long), "{json}");
    fs::remove_file(&socket).unwrap();
    let history = tenure(&["history", "job", "--json"]);
    assert!(history.out.contains("released"), "the same store knows it: {history:?}");
    assert_eq!(tenure(&["local", "stop"]).code, 0);
}

/// `flock FILE tenure once …` is how many keep a job of cron from running twice.
#[test]
fn a_lock_of_whoever_starts_the_store_is_not_kept_by_it() {
    let user = User::new();
    let file = user.folder.path().join("job.lock");
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 9>\"$0\" && flock -n 9 && \"$@\""]).arg(&file);
    shell.args([TENURE, "once", "job", "--", "true"]);
    shell.env("XDG_STATE_HOME", user.folder.path().join("state")).env_remove("TENURE_STORE");
    assert_eq!(CommandOutput::of(shell).code, 0);
    assert!(user.pid().is_some(), "the store is there still");
    let free = Command::new("flock").arg("-n").arg(&file).arg("true").status().unwrap();
    assert!(free.success());
}

/// A home that is mounted later would be another folder, and another store.
#[test]
fn a_home_that_is_not_there_is_not_made() {
    let account = Account::new();
    fs::remove_dir(account.folder.path().join("home")).unwrap();
    let Some(said) = account.tenure(&[], &["run", "job", "--", "true"]) else { return };
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("is not there") && said.err.contains("--store"), "{said:?}");
    assert!(!account.folder.path().join("home").exists());
}

#[test]
fn the_client_finds_the_local_store_and_says_when_there_is_none() {
    let user = User::new();
    let said = user.tenure(&["cli", "--local", "PING"]);
    assert_eq!((said.code, said.err.contains("tenure local start")), (69, true), "{said:?}");
    assert_eq!(user.tenure(&["run", "job", "--", "true"]).code, 0);
    let said = user.tenure(&["cli", "--local", "EXISTS", "{tenure:job}:meta"]);
    assert_eq!(said.out, "1", "{said:?}");
}

/// A unit that stops takes the store in its group with it; others need it still.
#[test]
fn a_store_that_a_signal_ended_is_started_again_by_whoever_uses_it() {
    let user = User::new();
    let _leader = user.lead();
    let pid = user.pid().unwrap();
    send(pid, Signal::TERM);
    wait_until("another store", GENEROUS, || user.pid().is_some_and(|other| other != pid));
    assert!(user.tenure(&["who", "job"]).out.starts_with("ada"), "its lease went on");
}

/// A store of before the lock lay with the data is used as long as it runs.
#[test]
fn a_store_that_an_earlier_version_started_is_used_and_not_doubled() {
    let user = User::new();
    let state = user.state();
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["started", "running", "unbroken"] {
        fs::write(state.join(name), "").unwrap();
    }
    // As such a store is seen from outside: `… local serve` in the data folder.
    let run = user.folder.path().join("run/tenure");
    fs::create_dir_all(&run).unwrap();
    assert!(Command::new("mkfifo").arg(state.join("local")).status().unwrap().success());
    let mut reader = Command::new("cat");
    reader.args(["local", "serve"]).current_dir(&state);
    let mut earlier = Process::spawn({
        reader.env("XDG_RUNTIME_DIR", user.folder.path().join("run"));
        reader
    });
    let said = user.tenure(&["who", "job"]);
    assert_eq!(said.code, 78, "it does not answer: {said:?}");
    assert!(said.err.contains(&format!("kill {}", earlier.pid())), "{said:?}");

    let socket = run.join("store.sock").display().to_string();
    let program = ServerProgram::new(TENURE).arg("serve");
    let store = RedisServer::builder().program(program).args(["--unixsocket", &socket]).start();
    assert_eq!(user.tenure(&["run", "job", "--", "true"]).code, 0);
    assert_eq!(store.cli(&["EXISTS", "{tenure:job}:meta"]), "1", "it has the term");

    drop(store);
    earlier.kill();
    let said = user.tenure(&["who", "job"]);
    assert_eq!(said.code, 1, "now there is one of this version: {said:?}");
    assert!(user.pid().is_some());
    assert!(state.join("running").is_dir(), "an earlier version fails to start beside it");
    assert!(!state.join("unbroken").exists(), "nor does it vouch for what came after it");
}

/// Such a path cannot be told in a line of text: not in the lock, nor from process to process.
#[test]
fn a_path_that_cannot_be_shown_is_refused_with_what_to_set() {
    use std::os::unix::ffi::OsStrExt;
    let user = User::new();
    for name in [&b"new\nline"[..], b"zero\xe2\x80\x8bwidth", b"byte\xff", b"esc\x1b"] {
        let folder = user.folder.path().join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        for words in [&["run", "job", "--", "true"][..], &["local", "start"], &["local", "status"]]
        {
            let mut command = user.command(words);
            command.env("XDG_STATE_HOME", &folder);
            let said = CommandOutput::of(command);
            assert_eq!(said.code, 78, "{words:?}: {said:?}");
            assert!(
                said.err.contains("XDG_STATE_HOME") && said.err.lines().count() == 1,
                "{said:?}"
            );
        }
    }
    let folder = user.folder.path().join("prénom et nom");
    fs::create_dir(&folder).unwrap();
    for words in [&["run", "job", "--ttl", "1s", "--", "true"][..], &["local", "stop", "--force"]] {
        let mut command = user.command(words);
        command.env("XDG_STATE_HOME", &folder);
        let said = CommandOutput::of(command);
        assert_eq!(said.code, 0, "{said:?}");
    }
}

/// A damaged file: what to do is the end of a long message.
#[test]
fn why_the_local_store_does_not_start_is_told_to_its_end() {
    let user = User::new();
    assert_eq!(user.tenure(&["once", "job", "--tick", "1", "--", "true"]).code, 0);
    assert_eq!(user.tenure(&["local", "stop"]).code, 0);
    let files = user.folder.path().join("state/tenure/appendonlydir");
    let entries = fs::read_dir(files).unwrap().map(|entry| entry.unwrap().path());
    let named = |path: &std::path::PathBuf| path.display().to_string().contains(".incr.");
    let file = entries.filter(named).max().expect("an append-only file");
    let mut text = fs::read(&file).unwrap();
    text.extend_from_slice(b"\nnonsense\n");
    fs::write(&file, text).unwrap();
    let said = user.tenure(&["who", "job"]);
    assert_eq!(said.code, 69, "{said:?}");
    for part in ["restore it from a backup", "check-aof --fix", "store.log"] {
        assert!(said.err.contains(part), "{part}: {said:?}");
    }
}
