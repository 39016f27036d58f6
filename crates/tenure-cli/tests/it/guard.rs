//! The guard by itself, with the test in the wrapper's place.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use testkit::{GENEROUS, wait_until};

use crate::stage::plain_command;

const WATCH: u64 = 1;
const UNTIL: u64 = 2;
const FORGET: u64 = 3;
/// A moment long after the end of every test.
const NEVER: u64 = i64::MAX as u64;
/// A moment right after the start of the machine.
const LONG_AGO: u64 = 1;

struct Guard {
    process: Child,
    orders: Option<ChildStdin>,
    replies: ChildStdout,
}

impl Guard {
    fn start() -> Self {
        let mut command = plain_command(&["__guard"]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, replies) = (process.stdin.take(), process.stdout.take().unwrap());
        let mut guard = Guard { process, orders, replies };
        assert_eq!(guard.reply(), 'r');
        guard
    }

    fn order(&mut self, kind: u64, value: u64) {
        let bytes = [kind.to_ne_bytes(), value.to_ne_bytes()].concat();
        self.orders.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    fn reply(&mut self) -> char {
        let mut byte = [0];
        self.replies.read_exact(&mut byte).unwrap();
        byte[0].into()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.process.wait().unwrap();
    }
}

/// A process in a group of its own.
struct Group(Child);

impl Group {
    fn start() -> Self {
        Group(Command::new("sleep").arg("600").process_group(0).spawn().unwrap())
    }

    fn number(&self) -> u64 {
        self.0.id().into()
    }

    fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    #[track_caller]
    fn is_killed(&mut self) {
        wait_until("the group to be killed", GENEROUS, || !self.runs());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_group_dies_with_the_pipe_of_its_wrapper() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.order(UNTIL, NEVER);
    guard.order(WATCH, group.number());
    assert_eq!(guard.reply(), 'w');
    assert!(group.runs());
    drop(guard);
    group.is_killed();
}

#[test]
fn a_group_dies_at_its_deadline_though_the_wrapper_is_silent() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.order(UNTIL, NEVER);
    guard.order(WATCH, group.number());
    assert_eq!(guard.reply(), 'w');
    guard.order(UNTIL, LONG_AGO);
    group.is_killed();
    assert_eq!(guard.reply(), 'k');
}

#[test]
fn nothing_begins_after_its_deadline() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.order(UNTIL, LONG_AGO);
    guard.order(WATCH, group.number());
    assert_eq!(guard.reply(), 'l', "a wrapper that was stopped before the fork is too late");
    guard.order(UNTIL, NEVER);
    guard.order(WATCH, group.number());
    assert_eq!(guard.reply(), 'w', "the next term is another matter");
    assert!(group.runs());
}

#[test]
fn a_forgotten_group_is_left_alone() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.order(UNTIL, NEVER);
    guard.order(WATCH, group.number());
    guard.order(FORGET, 0);
    assert_eq!((guard.reply(), guard.reply()), ('w', 'f'));
    drop(guard);
    assert!(group.runs(), "its number may be somebody else's");
}
