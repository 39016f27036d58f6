//! Guards that are stopped or killed, at the start and in the middle of a term.

use std::fs;

use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_for, wait_until};

use crate::stage::{
    Kind, NAME, Stage, children_of, guard_of, is_guard, on_every_store, send, wait_until_gone,
};

/// A new guard is there before it knows the program; within this time it does, or is replaced.
/// Nobody promises anything for wrapper and guard that are killed within it.
const UNTIL_IT_IS_KNOWN: std::time::Duration = std::time::Duration::from_secs(4);

/// Waits until the wrapper has another guard than `old`.
#[track_caller]
fn next_guard(wrapper: &Process, old: u32) -> u32 {
    wait_for("another guard", GENEROUS, || {
        children_of(wrapper.pid()).into_iter().find(|pid| *pid != old && is_guard(*pid))
    })
}

on_every_store! {
    fn a_guard_that_is_killed_is_replaced_and_the_program_goes_on(stage: crate::stage::Stage) {
        let mut wrapper = stage.wrap_writer("ada", &[]);
        let token = stage.next_term(0);
        let pids = stage.diary().writers(token);
        let guard = guard_of(&wrapper);

        send(guard, Signal::KILL);
        next_guard(&wrapper, guard);

        let seen = stage.diary().lines.len();
        wait_until("the program to go on", GENEROUS, || stage.diary().lines.len() > seen);
        assert_eq!(stage.diary().last_token(), Some(token), "it is the same term");
        std::thread::sleep(UNTIL_IT_IS_KNOWN);
        wrapper.kill();
        pids.into_iter().for_each(wait_until_gone);
    }

    // Nothing but the guard ends the process that the program started.
    fn a_guard_that_is_stopped_is_replaced_before_it_is_missed(stage: crate::stage::Stage) {
        let mut wrapper = stage.wrap_writer("ada", &[]);
        let token = stage.next_term(0);
        let pids = stage.diary().writers(token);
        let guard = guard_of(&wrapper);

        send(guard, Signal::STOP);
        next_guard(&wrapper, guard);
        wait_until_gone(guard);
        std::thread::sleep(UNTIL_IT_IS_KNOWN);

        wrapper.kill();
        pids.into_iter().for_each(wait_until_gone);
    }
}

#[test]
fn a_guard_that_is_stopped_as_a_term_begins_costs_no_term() {
    let stage = Stage::on(Kind::Own);
    let mut first = stage.wrap("ada", &[], "sleep 600");
    stage.wait_for_leader("ada");
    let mut second = stage.wrap("bob", &[], "echo $$ > pid; sleep 600");
    stage.wait_for_members(2);
    send(guard_of(&second), Signal::STOP);
    first.terminate();
    stage.wait_for_leader("bob");
    wait_until("the program to run", GENEROUS, || stage.folder.path().join("pid").exists());
    assert!(second.is_running());
}

#[test]
fn a_guard_that_is_killed_in_the_first_moments_costs_no_term() {
    let stage = Stage::on(Kind::Own);
    for round in 0..15 {
        let mut wrapper = stage.wrap("ada", &[], "exit 7");
        // At a different moment each time; one that is gone already is as good.
        std::thread::sleep(std::time::Duration::from_millis(round * 4));
        for pid in children_of(wrapper.pid()).into_iter().filter(|pid| is_guard(*pid)) {
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        assert_eq!(wrapper.wait(GENEROUS).code(), Some(7), "round {round}");
    }
}

#[test]
fn health_checks_do_not_disturb_the_guard() {
    let stage = Stage::on(Kind::Own);
    let log = stage.folder.path().join("log");
    let words =
        ["run", NAME, "--health-cmd", "false", "--health-every", "200ms", "--ttl", "1500ms"];
    let mut command = stage.command(&[&words[..], &["--", "sleep", "600"]].concat());
    command.stderr(fs::File::create(&log).unwrap());
    let wrapper = Process::spawn(command);
    let guard = guard_of(&wrapper);
    wait_until("three terms to end", GENEROUS, || {
        fs::read_to_string(&log).unwrap().matches("not contending").count() >= 3
    });
    // On a busy machine a guard may be replaced because it is slow; that is another matter.
    let log = fs::read_to_string(&log).unwrap();
    assert!(!log.contains("the guard process has ended"), "{log}");
    assert!(guard_of(&wrapper) == guard || log.contains("does not answer"), "{log}");
}

#[test]
fn work_that_stays_ill_holds_back_longer_each_time() {
    let stage = Stage::on(Kind::Own);
    let log = stage.folder.path().join("log");
    let words =
        ["run", NAME, "--health-cmd", "false", "--health-every", "200ms", "--ttl", "1500ms"];
    let mut command = stage.command(&[&words[..], &["--", "sleep", "600"]].concat());
    command.stderr(fs::File::create(&log).unwrap());
    let _sick = Process::spawn(command);
    // What it says, not how long it took: a busy machine makes every pause longer.
    let pauses = wait_for("three pauses", GENEROUS, || {
        let log = fs::read_to_string(&log).unwrap();
        let words = log.lines().filter_map(|line| line.split_once("not contending for "));
        let pauses: Vec<String> = words.map(|(_, pause)| pause.to_owned()).collect();
        (pauses.len() >= 3).then_some(pauses)
    });
    assert_eq!(pauses[..3], ["1s", "1.2s", "2.4s"], "{pauses:?}");
}

/// Whether the process has blocked signals, the first thing that a guard does.
fn blocks_signals(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    mask.is_some_and(|mask| mask.trim().trim_start_matches('0').len() > 8)
}

/// Months of guards that are killed now and then take no standby away.
#[test]
fn a_standby_outlives_any_number_of_guards() {
    let stage = Stage::on(Kind::Own);
    let _leader = stage.wrap("ada", &[], "sleep 600");
    stage.wait_for_leader("ada");
    let mut standby = stage.wrap("bob", &[], "sleep 600");
    stage.wait_for_members(2);
    let mut guard = guard_of(&standby);
    for _ in 0..10 {
        // Long enough that it counts as one that stays, from when it serves on.
        wait_until("the guard to serve", GENEROUS, || blocks_signals(guard));
        std::thread::sleep(std::time::Duration::from_millis(1_500));
        send(guard, Signal::KILL);
        guard = next_guard(&standby, guard);
    }
    assert!(standby.is_running());
}
