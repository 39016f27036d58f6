//! The program file is replaced while wrappers run: what they start and know goes on.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_for, wait_until};

use crate::local::User;
use crate::stage::{
    Kind, NAME, Stage, TENURE, is_alive, number_in, plain_command_of, send, wait_until_gone,
};

/// An installed program.
fn installed(user: &User) -> PathBuf {
    let program = user.folder.path().join("tenure");
    fs::copy(TENURE, &program).unwrap();
    program
}

/// Puts another file in its place, as package managers do.
fn upgrade(program: &PathBuf) {
    let next = program.with_extension("next");
    fs::copy(TENURE, &next).unwrap();
    fs::rename(next, program).unwrap();
}

/// A wrapper from the installed file, on the stage's store, around a script.
fn wrap(stage: &Stage, user: &User, program: &PathBuf, script: &str) -> Process {
    let words = ["run", NAME, "--ttl", "1500ms", "--", "sh", "-c", script];
    let mut command = stage.command_of(program.to_str().unwrap(), &words);
    command.env("XDG_STATE_HOME", user.folder.path().join("state")).env("PROGRAM", program);
    command.current_dir(stage.folder.path());
    Process::spawn(command)
}

/// The program waits for its file, then starts the local store as any command would.
const STARTS_STORE: &str = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done
    env -u TENURE_STORE $PROGRAM local start > started; echo $$ > ready; exec sleep 600";

/// Starts the local store from inside the program, and returns it.
fn store_of_program(stage: &Stage, user: &User) -> u32 {
    let _ = stage.folder.write("go", "");
    number_in(stage.folder.path(), "ready");
    wait_for("the local store", GENEROUS, || user.pid())
}

#[test]
fn a_local_store_of_the_next_version_survives_the_program_that_started_it() {
    let (stage, user) = (Stage::on(Kind::Own), User::new());
    let program = installed(&user);
    let _wrapper = wrap(&stage, &user, &program, STARTS_STORE);
    let child = number_in(stage.folder.path(), "pid");
    upgrade(&program);
    let store = store_of_program(&stage, &user);
    stage.tenure(&["resign", NAME]);
    wait_until_gone(child);
    // The next program runs: nothing of the last one is left by now.
    wait_until("the next program", GENEROUS, || number_in(stage.folder.path(), "pid") != child);
    assert!(is_alive(store), "it serves others, too");
}

#[test]
fn a_guard_leaves_the_local_store_alone_that_its_program_started() {
    let (stage, user) = (Stage::on(Kind::Own), User::new());
    let program = installed(&user);
    let mut wrapper = wrap(&stage, &user, &program, STARTS_STORE);
    let child = number_in(stage.folder.path(), "pid");
    let store = store_of_program(&stage, &user);
    let guard = crate::stage::guard_of(&wrapper);
    // Long enough for the guard to have heard of whatever left the group.
    std::thread::sleep(std::time::Duration::from_secs(3));
    wrapper.kill();
    wait_until_gone(child);
    wait_until_gone(guard);
    assert!(is_alive(store), "it serves others, too");
}

#[test]
fn a_local_store_that_crashed_is_started_again_though_the_program_was_replaced() {
    let user = User::new();
    let program = installed(&user);
    let words = ["run", NAME, "--ttl", "60s", "--", "sleep", "600"];
    let mut command = plain_command_of(program.to_str().unwrap(), &words);
    command.env("XDG_STATE_HOME", user.folder.path().join("state"));
    let _leader = Process::spawn(command);
    wait_until("somebody to lead", GENEROUS, || user.tenure(&["who", NAME]).code == 0);
    let store = user.pid().unwrap();
    fs::remove_file(&program).unwrap();
    send(store, Signal::KILL);
    wait_until("another store", GENEROUS, || user.pid().is_some_and(|pid| pid != store));
}
