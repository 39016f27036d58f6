//! The wrapper's end of its guard.

use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tenure_run::{GuardTrouble, NumberedOrder, ORDER_LEN, REPLY_LEN, Reply};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::guard;
use crate::logging;

/// A running guard. Dropping it ends it: the pipe of orders closes, whereupon it kills what it
/// still watches, and leaves.
#[derive(Debug)]
pub(super) struct GuardLink {
    pid: Pid,
    orders: PipeWriter,
    replies: pipe::Receiver,
    /// The part of a reply that has come.
    heard: Vec<u8>,
}

impl GuardLink {
    /// Starts a guard for the programs of the instance `id`. Its first reply is that it is ready.
    pub(super) fn start(id: &str) -> io::Result<Self> {
        let (orders_end, orders) = io::pipe()?;
        let (replies, replies_end) = io::pipe()?;
        // A guard that hangs must not hang the wrapper, too.
        fcntl_setfl(&orders, OFlags::NONBLOCK)?;
        let replies = pipe::Receiver::from_owned_fd(OwnedFd::from(replies))?;
        let mut command = Command::new("/proc/self/exe");
        command.args([guard::SUBCOMMAND, id]).args(logging::is_json().then_some(guard::JSON));
        command.stdin(orders_end).stdout(replies_end);
        command.stderr(Stdio::inherit()).current_dir("/").env_clear();
        let child = command.spawn()?;
        Ok(GuardLink { pid: Pid::from_child(&child), orders, replies, heard: Vec::new() })
    }

    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Whether it took the order. A pipe keeps so few bytes whole.
    pub(super) fn order(&self, order: NumberedOrder) -> bool {
        loop {
            match rustix::io::write(self.orders.as_fd(), &order.to_bytes()) {
                Ok(len) => return len == ORDER_LEN,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// The next thing it says; `None` at its end. May be dropped and asked again.
    pub(super) async fn reply(&mut self) -> Option<Reply> {
        while self.heard.len() < REPLY_LEN {
            let mut bytes = [0; REPLY_LEN];
            let room = REPLY_LEN - self.heard.len();
            match self.replies.read(&mut bytes[..room]).await {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.heard.extend_from_slice(&bytes[..len]),
            }
        }
        let bytes = std::mem::take(&mut self.heard).try_into().ok()?;
        Reply::from_bytes(bytes)
    }

    /// The next thing that it has said already, without waiting for more.
    pub(super) fn said(&mut self) -> Option<Reply> {
        let mut bytes = [0; REPLY_LEN];
        let room = REPLY_LEN - self.heard.len();
        let len = rustix::io::read(self.replies.as_fd(), &mut bytes[..room]).unwrap_or(0);
        self.heard.extend_from_slice(&bytes[..len]);
        let whole = self.heard.as_slice().try_into().ok()?;
        self.heard.clear();
        Reply::from_bytes(whole)
    }

    /// What is wrong with it, as far as the system knows.
    pub(super) fn trouble(&self) -> Option<GuardTrouble> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
        let options = options | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), options) {
            Ok(None) => None,
            Ok(Some(status)) if status.stopped() => Some(GuardTrouble::Stopped),
            _ => Some(GuardTrouble::Ended),
        }
    }

    /// Ends it without its doing anything more. Whoever reaps children reaps it, too.
    pub(super) fn kill(self) {
        // Its number is its own until it is reaped, which only this process can do.
        let _ = kill_process(self.pid, Signal::KILL);
    }
}
