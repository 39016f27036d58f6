//! The wrapper's side of its guard.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::guard::{self, Order, reply};
use crate::exit::{self, Failure};

/// How long a guard may take to start. It does nothing else, so this only ends a hang.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take to forget a group. Until then nothing is given back.
const FORGET_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest wait of a child for its guard, between fork and exec.
pub(super) const WATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A running guard. Dropping it ends it: the pipe of orders closes, whereupon it kills what it
/// still watches, and leaves.
#[derive(Debug)]
pub(super) struct GuardLink {
    pid: Pid,
    orders: PipeWriter,
    replies: PipeReader,
    /// The group was killed because its deadline had passed.
    killed: bool,
    reaped: bool,
}

impl GuardLink {
    /// Starts a guard and waits until it is ready.
    pub(super) fn start() -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let why = format!("the guard process does not start: {error}: is /proc mounted?");
            Failure::new(exit::CANNOT_EXECUTE, why)
        };
        let mut link = Self::spawn().map_err(failed)?;
        match link.expect(reply::READY, START_TIMEOUT) {
            true => Ok(link),
            false => Err(failed(io::Error::other("it ended at once"))),
        }
    }

    fn spawn() -> io::Result<Self> {
        let (orders_end, orders) = io::pipe()?;
        let (replies, replies_end) = io::pipe()?;
        // A guard that hangs must not hang the wrapper, too.
        fcntl_setfl(&orders, OFlags::NONBLOCK)?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(guard::SUBCOMMAND).stdin(orders_end).stdout(replies_end);
        command.stderr(Stdio::inherit()).current_dir("/").env_clear();
        let child = command.spawn()?;
        Ok(GuardLink {
            pid: Pid::from_child(&child),
            orders,
            replies,
            killed: false,
            reaped: false,
        })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// The ends of the pipes that the child uses before its program runs.
    pub(super) fn ends(&self) -> io::Result<(PipeWriter, PipeReader)> {
        Ok((self.orders.try_clone()?, self.replies.try_clone()?))
    }

    /// Moves the deadline; `false` when the guard does not take orders any more.
    pub(super) fn until(&mut self, nanos: u64) -> bool {
        self.order(Order::Until(nanos))
    }

    /// Tells it that the group is gone, before its number can be anybody else's. One that does not
    /// answer is ended for that reason.
    pub(super) fn forget(&mut self) {
        if !(self.order(Order::Forget) && self.expect(reply::FORGOTTEN, FORGET_TIMEOUT)) {
            self.kill();
        }
        // What became of this group is nothing to the next one.
        self.killed = false;
    }

    /// Whether it is still there. One that has ended is reaped.
    pub(super) fn is_alive(&mut self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        self.reaped = self.reaped || !matches!(waitid(WaitId::Pid(self.pid), options), Ok(None));
        !self.reaped
    }

    fn kill(&mut self) {
        if self.is_alive() {
            // Its number is its own until it is reaped, which only this process can do.
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED);
            self.reaped = true;
        }
    }

    /// Whether it has killed the group since the last time this was asked.
    pub(super) fn has_killed(&mut self) -> bool {
        while let Some(byte) = self.next_reply(Duration::ZERO) {
            self.killed |= byte == reply::KILLED;
        }
        std::mem::take(&mut self.killed)
    }

    fn order(&mut self, order: Order) -> bool {
        self.orders.write_all(&order.to_bytes()).is_ok()
    }

    fn expect(&mut self, wanted: u8, timeout: Duration) -> bool {
        loop {
            match self.next_reply(timeout) {
                Some(byte) if byte == wanted => return true,
                Some(byte) => self.killed |= byte == reply::KILLED,
                None => return false,
            }
        }
    }

    fn next_reply(&mut self, timeout: Duration) -> Option<u8> {
        await_reply(&self.replies, timeout)
    }
}

/// One byte from the guard; `None` when none comes in time, or none can come any more. Allocates
/// nothing: the child calls it between fork and exec.
pub(super) fn await_reply(replies: &PipeReader, timeout: Duration) -> Option<u8> {
    let timeout =
        Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let mut fds = [PollFd::new(replies, PollFlags::IN)];
    if poll(&mut fds, Some(&timeout)).ok()? == 0 {
        return None;
    }
    let mut byte = [0];
    match rustix::io::read(replies.as_fd(), &mut byte) {
        Ok(1) => Some(byte[0]),
        _ => None,
    }
}
