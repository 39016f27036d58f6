//! Child programs, and what becomes of them when the test process is killed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use testkit::{GENEROUS, Process, RedisServer, wait_until};

fn shell(script: &str) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::spawn(command)
}

#[test]
fn lines_arrive_in_order_and_the_exit_status_is_told() {
    let mut process = shell("echo one; echo two; exit 7");
    assert_eq!(process.next_line(GENEROUS), "one");
    assert_eq!(process.next_line_with("tw", GENEROUS), "two");
    assert_eq!(process.try_next_line(GENEROUS), None);
    assert_eq!(process.wait(GENEROUS).code(), Some(7));
    assert!(!process.is_running());
}

#[test]
fn a_paused_process_writes_nothing_until_resumed() {
    let mut process = shell("while :; do echo tick; sleep 0.01; done");
    process.next_line(GENEROUS);
    process.pause();
    while process.try_next_line(Duration::from_millis(50)).is_some() {}
    assert_eq!(process.try_next_line(Duration::from_millis(100)), None);
    process.resume();
    assert_eq!(process.next_line(GENEROUS), "tick");
}

#[test]
fn a_terminated_process_may_clean_up_first() {
    let mut process = shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done");
    process.next_line(GENEROUS);
    process.terminate();
    assert_eq!(process.next_line(GENEROUS), "bye");
    assert_eq!(process.wait(GENEROUS).code(), Some(3));
}

#[test]
fn a_dropped_process_is_gone() {
    let process = shell("echo up; exec sleep 600");
    process.next_line(GENEROUS);
    let entry = format!("/proc/{}", process.pid());
    assert!(Path::new(&entry).exists());
    drop(process);
    assert!(!Path::new(&entry).exists());
}

/// Set for the copy of this test program that is killed by the test below.
const VICTIM: &str = "TESTKIT_VICTIM";

#[test]
fn a_killed_test_process_leaves_no_server_behind() {
    if std::env::var_os(VICTIM).is_some() {
        let server = RedisServer::start();
        println!("\nserver {} {}", server.pid(), server.folder().display());
        std::thread::sleep(Duration::from_secs(600));
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process::a_killed_test_process_leaves_no_server_behind"]);
    command.args(["--nocapture"]).env(VICTIM, "1");
    let mut victim = Process::spawn(command);
    let line = victim.next_line_with("server ", GENEROUS);
    let mut words = line.split_whitespace().rev();
    let (folder, server) = (words.next().unwrap(), words.next().unwrap());
    let entry = format!("/proc/{server}");
    assert!(Path::new(&entry).exists());

    victim.kill();

    wait_until("the orphaned server to end", GENEROUS, || !Path::new(&entry).exists());
    // Nobody was left to do this.
    std::fs::remove_dir_all(folder).unwrap();
}
