//! A local store whose lock says nothing, or something else than it wrote: by a backup that was
//! copied over it, or by hand.

use std::fs::{self, File};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_until};

use crate::local::User;
use crate::local_silent::{stop, stopped};
use crate::stage::{CommandOutput, is_alive, send};

#[test]
fn a_store_whose_lock_is_overwritten_is_found_and_says_again_where_it_is() {
    let user = User::new();
    let _leader = user.lead();
    let pid = user.pid().unwrap();
    let lock = user.state().join("local.lock");
    let said_before = fs::read_to_string(&lock).unwrap();
    let of_another_host =
        said_before.replace("host ", "host other-").replace("machine ", "machine 0");
    let of_another_host = of_another_host.replace("boot ", "boot 0");
    for text in ["", "nonsense", &of_another_host] {
        fs::write(&lock, text).unwrap();
        let who = user.tenure(&["who", "job"]);
        assert_eq!((who.code, who.out.starts_with("ada")), (0, true), "{text:?}: {who:?}");
        fs::write(&lock, text).unwrap();
        assert_eq!(user.tenure(&["cli", "--local", "PING"]).out, "PONG", "{text:?}");
        fs::write(&lock, text).unwrap();
        let status = user.status();
        assert_eq!((&status["running"], &status["pid"]), (&true.into(), &pid.into()), "{status}");
        wait_until("the lock to say where the store is", GENEROUS, || {
            fs::read_to_string(&lock).unwrap() == said_before
        });
    }
    send(pid, Signal::KILL);
    wait_until("the wrapper to start another", GENEROUS, || {
        user.pid().is_some_and(|other| other != pid)
    });
}

/// It dies before it can say again where it is.
#[test]
fn a_store_that_dies_with_an_empty_lock_is_started_again_unless_it_was_told_to_end() {
    let user = User::new();
    let _leader = user.lead();
    let pid = user.pid().unwrap();
    stop(pid);
    fs::write(user.state().join("local.lock"), "").unwrap();
    send(pid, Signal::KILL);
    wait_until("another store", GENEROUS, || user.pid().is_some_and(|other| other != pid));
    let second = user.pid().unwrap();
    stop(second);
    let said = user.tenure(&["local", "stop", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(user.status()["running"], false, "nobody starts what was told to end");
}

#[test]
fn a_store_that_neither_answers_nor_says_where_it_is_is_told_as_running_and_ended_by_force() {
    let (user, pid) = stopped();
    fs::write(user.state().join("local.lock"), "").unwrap();
    let status = user.tenure(&["local", "status"]);
    assert_eq!(status.code, 69, "{status:?}");
    assert!(
        status.out.contains(&format!("runs, process {pid}, and does not answer")),
        "{status:?}"
    );
    let said = user.tenure(&["local", "stop", "--force"]);
    assert_eq!(said.code, 0, "{said:?}");
    wait_until("the store to be gone", GENEROUS, || !is_alive(pid));
    assert_eq!(user.tenure(&["local", "status"]).code, 1);
}

/// A store that is starting has the lock and has said nothing.
#[test]
fn whoever_stops_a_store_that_is_starting_waits_for_it() {
    let user = User::new();
    assert_eq!(user.tenure(&["local", "start"]).code, 0);
    assert_eq!(user.tenure(&["local", "stop"]).code, 0);
    let lock = File::options().write(true).open(user.state().join("local.lock")).unwrap();
    flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    let command = user.command(&["local", "stop"]);
    let stopping = std::thread::spawn(move || CommandOutput::of(command));
    let held_for = Duration::from_millis(1500);
    std::thread::sleep(held_for);
    assert!(!stopping.is_finished(), "it waits: {:?}", stopping.join());
    drop(lock);
    let said = stopping.join().unwrap();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("is starting or ending: waiting for it"), "{said:?}");

    // And two who stop it at once both see it end.
    let _using = Process::spawn(user.command(&["run", "job", "--", "sleep", "600"]));
    wait_until("it to lead", GENEROUS, || user.tenure(&["who", "job"]).code == 0);
    let stop = || {
        let command = user.command(&["local", "stop", "--force"]);
        std::thread::spawn(move || CommandOutput::of(command))
    };
    for said in [stop(), stop()].map(|stopping| stopping.join().unwrap()) {
        assert_eq!(said.code, 0, "{said:?}");
    }
}
