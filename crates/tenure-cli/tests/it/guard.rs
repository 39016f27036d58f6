//! The guard by itself, with the test in the wrapper's place.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use testkit::{GENEROUS, wait_until};

use crate::stage::plain_command;

const WATCH: u64 = 1;
const UNTIL: u64 = 2;
const FORGET: u64 = 3;
/// The id by which a guard finds what left its group.
const MARK: &str = "guard-test_0";
/// A moment long after the end of every test.
const NEVER: u64 = i64::MAX as u64;
/// A moment right after the start of the machine.
const LONG_AGO: u64 = 1;

/// What a guard answers: kind, and number of the order.
const READY: (u64, u64) = (1, 0);
const KILLED: (u64, u64) = (4, 0);

fn took(number: u64) -> (u64, u64) {
    (2, number)
}

fn too_late(number: u64) -> (u64, u64) {
    (3, number)
}

struct Guard {
    process: Child,
    orders: Option<ChildStdin>,
    replies: ChildStdout,
    orders_sent: u64,
}

impl Guard {
    fn start() -> Self {
        let mut command = plain_command(&["__guard", MARK]);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, replies) = (process.stdin.take(), process.stdout.take().unwrap());
        let mut guard = Guard { process, orders, replies, orders_sent: 0 };
        assert_eq!(guard.reply(), READY);
        guard
    }

    fn order(&mut self, kind: u64, value: u64) {
        self.orders_sent += 1;
        // Of a deadline, also the end of the lease.
        let bytes = [kind, self.orders_sent, value, value].map(u64::to_ne_bytes).concat();
        self.orders.as_mut().unwrap().write_all(&bytes).unwrap();
    }

    fn reply(&mut self) -> (u64, u64) {
        let mut number = || {
            let mut bytes = [0; 8];
            self.replies.read_exact(&mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        };
        (number(), number())
    }

    /// Makes it watch a group until a moment far away.
    fn watch(&mut self, group: &Group) {
        self.order(UNTIL, NEVER);
        self.order(WATCH, group.number());
        assert_eq!((self.reply(), self.reply()), (took(1), took(2)));
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
    guard.watch(&group);
    assert!(group.runs());
    drop(guard);
    group.is_killed();
}

#[test]
fn a_group_dies_at_its_deadline_though_the_wrapper_is_silent() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.watch(&group);
    guard.order(UNTIL, LONG_AGO);
    group.is_killed();
    assert_eq!((guard.reply(), guard.reply()), (took(3), KILLED));
}

#[test]
fn nothing_begins_after_its_deadline() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.order(UNTIL, LONG_AGO);
    guard.order(WATCH, group.number());
    let late = "a wrapper that was stopped before the fork is too late";
    assert_eq!((guard.reply(), guard.reply()), (took(1), too_late(2)), "{late}");
    guard.order(UNTIL, NEVER);
    guard.order(WATCH, group.number());
    assert_eq!((guard.reply(), guard.reply()), (took(3), took(4)), "the next is another matter");
    assert!(group.runs());
}

#[test]
fn a_forgotten_group_is_left_alone() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.watch(&group);
    guard.order(FORGET, 0);
    assert_eq!(guard.reply(), took(3));
    drop(guard);
    assert!(group.runs(), "its number may be somebody else's");
}

#[test]
fn what_left_the_group_is_found_by_its_mark() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.watch(&group);
    let stray = |id: &str| {
        let mut command = Command::new("setsid");
        Group(command.args(["sleep", "600"]).env("TENURE_ID", id).spawn().unwrap())
    };
    let (mut stray, mut stranger) = (stray(MARK), stray("guard-test_1"));
    drop(guard);
    group.is_killed();
    stray.is_killed();
    assert!(stranger.runs(), "another wrapper's");
}

#[test]
fn nonsense_is_the_end_of_orders_and_nobody_else_is_hit() {
    let (mut guard, mut group) = (Guard::start(), Group::start());
    guard.watch(&group);
    guard.order(WATCH, 1);
    group.is_killed();
}
