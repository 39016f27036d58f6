//! Processes whose first thread has ended while others go on: the system calls them zombies.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_until};

use crate::stage::{
    Kind, NAME, Stage, TENURE, children_of, is_alive, number_in, send, wait_until_gone,
};

/// Starts its words, if there are any, in a session of their own, and lives on without its first
/// thread.
const SOURCE: &str = r#"
    #include <pthread.h>
    #include <unistd.h>
    static char **words;
    static void *work(void *nothing) {
        if (words[1] && fork() == 0) {
            setsid();
            execvp(words[1], words + 1);
            _exit(127);
        }
        for (;;) pause();
    }
    int main(int count, char **given) {
        pthread_t thread;
        words = given;
        pthread_create(&thread, 0, work, 0);
        pthread_exit(0);
    }
"#;

/// A stage with the program `headless` in its folder.
fn stage() -> Stage {
    let stage = Stage::on(Kind::Own);
    let folder = stage.folder.path();
    fs::write(folder.join("headless.c"), SOURCE).unwrap();
    let built = Command::new("cc")
        .args(["-pthread", "-o", "headless", "headless.c"])
        .current_dir(folder)
        .status();
    assert!(built.unwrap().success(), "needs the compiler that links this test, too");
    stage
}

#[track_caller]
fn wait_until_headless(pid: u32) {
    wait_until("its first thread to end", GENEROUS, || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains("(headless) Z ")
    });
    assert!(is_alive(pid), "its other thread goes on");
}

#[test]
fn a_daemon_without_its_first_thread_dies_with_its_wrapper() {
    let stage = stage();
    let mut wrapper = stage.wrap("ada", &[], "setsid ./headless & echo $! > daemon; sleep 600");
    let daemon = number_in(stage.folder.path(), "daemon");
    wait_until_headless(daemon);
    wrapper.kill();
    wait_until_gone(daemon);
}

/// Nothing but its parents tells whose process this is.
#[test]
fn what_a_program_without_its_first_thread_started_dies_with_its_wrapper() {
    let stage = stage();
    let folder = stage.folder.path();
    let script = "echo $$ > leader; exec ./headless env -i sh -c 'echo $$ > stray; exec sleep 600'";
    let mut wrapper = stage.wrap("ada", &[], script);
    let (leader, stray) = (number_in(folder, "leader"), number_in(folder, "stray"));
    wait_until_headless(leader);
    stage.let_renew();
    wrapper.kill();
    wait_until_gone(stray);
    wait_until_gone(leader);
}

/// Kills what a test may leave behind.
struct Kills(u32);

impl Drop for Kills {
    fn drop(&mut self) {
        if is_alive(self.0) {
            send(self.0, Signal::KILL);
        }
    }
}

#[test]
fn a_stranger_without_its_first_thread_is_left_alone() {
    let stage = stage();
    let folder = stage.folder.path();
    let await_file = |file: &str| format!("until test -s {file}; do sleep 0.02; done");
    let helper = format!(
        "setsid ./headless sh -c \"echo \\$\\$ > below; exec sleep 600\" & echo $! > foreign; {}",
        await_file("go")
    );
    let script = format!(
        "sh -c '{helper}' & {}; exec {TENURE} run {NAME} --ttl 1500ms -- sh -c 'echo $$ > pid; {}; exit 3'",
        await_file("below"),
        await_file("end")
    );
    let mut wrapper = Process::spawn(in_shell(&stage, folder, &script));
    number_in(folder, "pid");
    let (foreign, below) = (number_in(folder, "foreign"), number_in(folder, "below"));
    let _kills = (Kills(foreign), Kills(below));
    wait_until_headless(foreign);
    fs::write(folder.join("go"), "1").unwrap();
    wait_until("the helper to end", GENEROUS, || children_of(wrapper.pid()).contains(&foreign));
    std::thread::sleep(std::time::Duration::from_secs(2));
    fs::write(folder.join("end"), "1").unwrap();
    assert_eq!(wrapper.wait(GENEROUS).code(), Some(3));
    assert!(is_alive(foreign), "it is not the program's");
    assert!(is_alive(below), "what it started is not the program's");
}

fn in_shell(stage: &Stage, folder: &Path, script: &str) -> Command {
    let plain = stage.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder);
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}
