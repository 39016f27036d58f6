//! Ending a local store that has its reasons not to, and waiting for one that others start.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use testkit::{GENEROUS, Process, wait_until};

use crate::local::User;
use crate::stage::{CommandOutput, is_alive};

/// A user whose store runs, and its process.
fn started() -> (User, u32) {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start"]).code, 0);
    let pid = user.pid().unwrap();
    (user, pid)
}

fn set(user: &User, name: &str, value: &str) {
    let said = user.tenure(&["cli", "--local", "CONFIG", "SET", name, value]);
    assert_eq!(said.out, "OK", "{said:?}");
}

#[track_caller]
fn is_ended_by_force_alone(user: &User, pid: u32) {
    let refused = user.tenure(&["local", "stop"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(refused.err.contains("--force") && is_alive(pid), "{refused:?}");
    let said = user.tenure(&["local", "stop", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    wait_until("the end of the store", GENEROUS, || !is_alive(pid));
    assert_eq!(user.tenure(&["local", "status"]).code, 1);
}

#[test]
fn a_store_that_runs_a_script_without_end_is_ended_by_force() {
    let (user, pid) = started();
    set(&user, "busy-reply-threshold", "50");
    let script = ["cli", "--local", "EVAL", "while true do end", "0"];
    let _running = Process::spawn(user.command(&script));
    wait_until("the store to be busy", GENEROUS, || {
        let said = user.tenure(&["cli", "--local", "PING"]);
        said.out.contains("BUSY") || said.err.contains("BUSY")
    });
    is_ended_by_force_alone(&user, pid);
}

#[test]
fn a_store_with_a_password_is_ended_by_force() {
    let (user, pid) = started();
    set(&user, "requirepass", "secret");
    is_ended_by_force_alone(&user, pid);
}

#[test]
fn a_store_that_takes_no_more_clients_is_ended_by_force() {
    let (user, pid) = started();
    set(&user, "maxclients", "4");
    let mut clients = Vec::new();
    loop {
        let mut client = UnixStream::connect(user.socket()).unwrap();
        let mut answer = [0; 64];
        let _ = client.write_all(b"PING\r\n");
        let len = client.read(&mut answer).unwrap();
        if !answer[..len].starts_with(b"+PONG") {
            break;
        }
        clients.push(client);
    }
    is_ended_by_force_alone(&user, pid);
}

/// What shows that a store runs is gone, or cannot be removed.
#[test]
fn a_store_that_was_told_to_end_stays_ended_whatever_is_in_its_folder() {
    // Both wait in the same seconds.
    let users = [true, false].map(|is_gone| {
        let user = User::new();
        let leader = user.lead();
        let running = user.state().join("running");
        match is_gone {
            true => fs::remove_dir(&running).unwrap(),
            false => fs::write(running.join("file"), "").unwrap(),
        }
        let said = user.tenure(&["local", "stop", "--force"]);
        assert_eq!(said.code, 0, "{said:?}");
        (is_gone, user, leader)
    });
    // The leader looks every half second whether it is to start another.
    std::thread::sleep(Duration::from_secs(3));
    for (is_gone, user, _leader) in &users {
        assert_eq!(user.status()["running"], false, "{is_gone}");
    }
}

/// The turn of whoever starts or ends the store, taken by somebody who does neither.
fn turn_taken() -> (User, File) {
    let (user, _) = started();
    assert_eq!(user.tenure(&["local", "stop"]).code, 0);
    let turn = File::options().write(true).open(user.state().join("local.turn")).unwrap();
    flock(&turn, FlockOperation::NonBlockingLockExclusive).unwrap();
    (user, turn)
}

#[test]
fn a_wait_timeout_bounds_the_start_of_the_store() {
    let (user, turn) = turn_taken();
    let commands: [&[&str]; 2] = [
        &["run", "job", "--wait-timeout", "2s", "--", "true"],
        &["once", "job", "--tick", "1", "--wait", "--wait-timeout", "2s", "--", "true"],
    ];
    let began_at = Instant::now();
    let all = CommandOutput::of_all(commands.map(|words| user.command(words)));
    // Without the limit it would be half a minute.
    assert!(began_at.elapsed() < Duration::from_secs(20), "{:?}", began_at.elapsed());
    for said in all {
        assert_eq!(said.code, 69, "{said:?}");
        assert!(said.err.contains("waiting for it"), "{said:?}");
    }
    drop(turn);
    let at_once = ["run", "job", "--wait-timeout", "1ms", "--", "true"];
    let said = user.tenure(&at_once);
    assert!(said.code != 69 && user.pid().is_some(), "a start gets the time it takes: {said:?}");
}

#[test]
fn whoever_waits_without_end_waits_for_the_start_as_well() {
    let (user, turn) = turn_taken();
    let words: [&[&str]; 2] = [
        &["run", "job", "--ttl", "1s", "--", "true"],
        &["once", "batch", "--tick", "1", "--wait", "--", "true"],
    ];
    let waiting = words.map(|words| {
        let command = user.command(words);
        std::thread::spawn(move || CommandOutput::of(command))
    });
    // Longer than anybody else waits.
    std::thread::sleep(Duration::from_secs(34));
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "they wait");
    drop(turn);
    for said in waiting.map(|waiting| waiting.join().unwrap()) {
        assert_eq!(said.code, 0, "{said:?}");
    }
}
