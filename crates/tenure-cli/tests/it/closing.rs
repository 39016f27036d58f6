//! The way out: nobody waits to be reaped while a wrapper waits for the store or for its log.

use rustix::process::Signal;
use testkit::{GENEROUS, Process, wait_until};

use crate::diary::Diary;
use crate::stage::{Kind, NAME, Stage, children_of, guard_of, is_alive, number_in, send};
use crate::stderr::stalled;

/// Waits until the wrapper has no child, neither alive nor ended, while it is still there.
#[track_caller]
fn wait_until_childless(wrapper: &Process) {
    wait_until("the wrapper to be there without a child", GENEROUS, || {
        assert!(is_alive(wrapper.pid()), "it ended with children that it had not reaped");
        children_of(wrapper.pid()).is_empty() && is_alive(wrapper.pid())
    });
}

#[test]
fn everybody_is_reaped_before_last_words_that_nobody_reads() {
    for script in [Diary::SCRIPT, Diary::DAEMON, Diary::FORKS_FOR_EVER, Diary::CHAIN] {
        let stage = Stage::on(Kind::Own);
        let (_reader, writer) = stalled();
        let words = ["run", NAME, "--ttl", "1500ms", "--verbose", "--", "sh", "-c", script];
        let mut command = stage.command(&words);
        command.current_dir(stage.folder.path()).stderr(writer);
        let mut wrapper = Process::spawn(command);
        stage.next_term(0);
        wrapper.terminate();
        wait_until_childless(&wrapper);
    }
}

#[test]
fn everybody_is_reaped_while_the_store_does_not_hear_of_the_leave() {
    let mut stage = Stage::on(Kind::Own);
    let mut wrapper = stage.wrap("ada", &["--ttl", "10s"], Diary::SCRIPT);
    stage.next_term(0);
    stage.store.pause();
    wrapper.terminate();
    wait_until_childless(&wrapper);
    stage.store.resume();
}

/// A guard that was stopped forgets nobody, and does not end by itself.
#[test]
fn a_stopped_guard_keeps_nobody_from_being_reaped_on_the_way_out() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    let words =
        ["run", NAME, "--ttl", "10s", "--verbose", "--", "sh", "-c", "echo $$ > pid; sleep 600"];
    let mut command = stage.command(&words);
    command.current_dir(stage.folder.path()).stderr(writer);
    let mut wrapper = Process::spawn(command);
    number_in(stage.folder.path(), "pid");
    let guard = guard_of(&wrapper);
    wrapper.terminate();
    send(guard, Signal::STOP);
    wait_until_childless(&wrapper);
}

#[test]
fn everybody_is_reaped_before_the_last_words_of_once() {
    let stage = Stage::on(Kind::Own);
    let (_reader, writer) = stalled();
    let words = ["once", "batch", "--tick", "1", "--verbose", "--", "sh", "-c"];
    let mut command = stage.command(&words);
    command.arg("(setsid true &); true").current_dir(stage.folder.path()).stderr(writer);
    let wrapper = Process::spawn(command);
    guard_of(&wrapper);
    wait_until_childless(&wrapper);
}

#[test]
fn a_guard_that_dies_while_once_waits_is_reaped_and_replaced() {
    let stage = Stage::on(Kind::Own);
    let words = ["once", "batch", "--tick", "1", "--ttl", "10s"];
    let mut command =
        stage.command(&[&words[..], &["--", "sh", "-c", "echo 1 > ran; sleep 600"]].concat());
    command.current_dir(stage.folder.path());
    let _runs = Process::spawn(command);
    number_in(stage.folder.path(), "ran");
    let waits = Process::spawn(stage.command(&[&words[..], &["--wait", "--", "true"]].concat()));
    let guard = guard_of(&waits);
    send(guard, Signal::KILL);
    wait_until("another guard and no zombie", GENEROUS, || {
        let children = children_of(waits.pid());
        !children.contains(&guard) && children.len() == 1
    });
}
