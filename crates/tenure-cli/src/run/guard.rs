//! The guard: a small process that kills the child's group when the wrapper cannot.
//!
//! ```text
//! wrapper ── orders: until(kill_at), forget ──► guard ── SIGKILL ──► the child's whole group
//! child before exec ── order: watch(group) ──►   │  when `kill_at` has passed, or when the pipe
//!        ▲                                       │  of orders ends because the wrapper is gone
//!        └────── reply: watching ────────────────┘
//! ```
//! The wrapper may be killed or stopped at any moment. So the group is known here before the
//! program runs, and its deadline before that: no moment is left in which the program runs and
//! nobody would end it. Deadlines are moments of the clock that counts through suspend.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::output::talk;

/// The word with which the program starts itself as a guard.
pub(crate) const SUBCOMMAND: &str = "__guard";

/// What a guard is told. Each is one write of [`ORDER_LEN`] bytes, which a pipe keeps whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// This process group is the one to kill.
    Watch(Pid),
    /// Kill it at this moment of the boot-time clock, in nanoseconds.
    Until(u64),
    /// The group is gone.
    Forget,
}

pub(super) const ORDER_LEN: usize = 16;

impl Order {
    pub(super) fn to_bytes(self) -> [u8; ORDER_LEN] {
        let (kind, value) = match self {
            Order::Watch(group) => (1, group.as_raw_nonzero().get() as u64),
            Order::Until(moment) => (2, moment),
            Order::Forget => (3, 0),
        };
        let mut bytes = [0; ORDER_LEN];
        bytes[..8].copy_from_slice(&u64::to_ne_bytes(kind));
        bytes[8..].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; ORDER_LEN]) -> Option<Self> {
        let (kind, value) = bytes.split_at(8);
        let number = |half: &[u8]| u64::from_ne_bytes(half.try_into().expect("eight bytes"));
        match (number(kind), number(value)) {
            (1, group) => Some(Order::Watch(Pid::from_raw(i32::try_from(group).ok()?)?)),
            (2, moment) => Some(Order::Until(moment)),
            (3, _) => Some(Order::Forget),
            _ => None,
        }
    }
}

/// What a guard answers: one byte each.
pub(super) mod reply {
    pub(in crate::run) const READY: u8 = b'r';
    pub(in crate::run) const WATCHING: u8 = b'w';
    /// The deadline has passed before there was a group: it must not run.
    pub(in crate::run) const TOO_LATE: u8 = b'l';
    pub(in crate::run) const FORGOTTEN: u8 = b'f';
    /// The deadline passed, so the group was killed.
    pub(in crate::run) const KILLED: u8 = b'k';
}

/// What the program does as a guard.
pub(crate) fn run() -> ExitCode {
    // Only SIGKILL and SIGSTOP get through: whoever ends the wrapper by a signal to everything
    // around it must not end the guard first.
    let _ = SigSet::all().thread_block();
    // A group of its own, away from the terminal. It fails where there is one already.
    let _ = rustix::process::setsid();
    match Guard::start() {
        Ok(mut guard) => {
            guard.serve();
            ExitCode::SUCCESS
        }
        Err(error) => {
            talk(&format!("guard: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// With pages of two megabytes, each handful of allocations would cost one. The program that is run
/// gets them back.
pub(crate) fn stay_small() {
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

struct Guard {
    orders: io::Stdin,
    replies: File,
    timer: OwnedFd,
    watched: Option<Pid>,
    /// The deadline has passed and was not moved since.
    expired: bool,
    /// That the group was killed has been said.
    told: bool,
}

impl Guard {
    fn start() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        // Not the standard library's stdout, which would keep bytes back.
        let replies = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let mut guard = Guard {
            orders: io::stdin(),
            replies,
            timer,
            watched: None,
            expired: false,
            told: false,
        };
        guard.answer(reply::READY);
        Ok(guard)
    }

    fn serve(&mut self) {
        loop {
            let (ordered, due) = match self.wait() {
                Ok(seen) => seen,
                Err(error) => return self.end(&format!("cannot watch any more ({error})")),
            };
            // Orders first: a deadline that has just been moved must not fire.
            if ordered {
                match self.read_order() {
                    Some(order) => self.obey(order),
                    None => return self.end("its wrapper has ended"),
                }
            } else if due {
                self.disarm();
                self.expired = true;
                if self.watched.is_some() {
                    self.kill("its lease ends and the wrapper did not act");
                    self.answer(reply::KILLED);
                }
            }
        }
    }

    /// Whether an order waits, and whether the deadline has passed.
    fn wait(&self) -> io::Result<(bool, bool)> {
        let mut fds =
            [PollFd::new(&self.orders, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        poll(&mut fds, None)?;
        Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty()))
    }

    /// The next order; `None` at the end of the pipe and after nonsense.
    fn read_order(&mut self) -> Option<Order> {
        let mut bytes = [0; ORDER_LEN];
        // Not through the standard library's buffer: `poll` does not know what waits there.
        let mut orders = File::from(self.orders.as_fd().try_clone_to_owned().ok()?);
        orders.read_exact(&mut bytes).ok()?;
        Order::from_bytes(bytes)
    }

    fn obey(&mut self, order: Order) {
        match order {
            // The wrapper may have been stopped between its last look at the clock and the fork.
            Order::Watch(_) if self.expired || self.is_due() => self.answer(reply::TOO_LATE),
            Order::Watch(group) => {
                self.watched = Some(group);
                self.told = false;
                self.answer(reply::WATCHING);
            }
            Order::Until(moment) => self.arm(moment),
            Order::Forget => {
                self.watched = None;
                self.disarm();
                self.answer(reply::FORGOTTEN);
            }
        }
    }

    /// Whether the deadline has passed, though nobody has acted on it yet.
    fn is_due(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.timer, PollFlags::IN)];
        // Not to know is as bad as to be late.
        !matches!(poll(&mut fds, Some(&at_once)), Ok(0))
    }

    fn arm(&mut self, moment: u64) {
        self.expired = false;
        // Zero would mean "never" to the timer, but a term that is over ends at the origin.
        let moment = moment.max(1);
        let value = Timespec {
            tv_sec: (moment / 1_000_000_000) as i64,
            tv_nsec: (moment % 1_000_000_000) as i64,
        };
        if let Err(error) = self.set_timer(value) {
            self.kill(&format!("its deadline cannot be watched ({error})"));
        }
    }

    fn disarm(&mut self) {
        // Failing to disarm can only kill a group that is to be forgotten anyway.
        let _ = self.set_timer(Timespec { tv_sec: 0, tv_nsec: 0 });
    }

    fn set_timer(&self, it_value: Timespec) -> rustix::io::Result<()> {
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Itimerspec { it_interval, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value).map(drop)
    }

    fn kill(&mut self, why: &str) {
        if let Some(group) = self.watched
            && kill_process_group(group, Signal::KILL).is_ok()
            && !std::mem::replace(&mut self.told, true)
        {
            talk(&format!("guard: killed process group {group}: {why}"));
        }
    }

    fn end(&mut self, why: &str) {
        self.kill(why);
    }

    fn answer(&mut self, byte: u8) {
        // A wrapper that does not listen any more is dealt with at the end of the pipe.
        let _ = self.replies.write_all(&[byte]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_pipe() {
        let group = Pid::from_raw(4711).unwrap();
        for order in [Order::Watch(group), Order::Until(u64::MAX), Order::Forget] {
            assert_eq!(Order::from_bytes(order.to_bytes()), Some(order));
        }
        assert_eq!(Order::from_bytes([0xff; ORDER_LEN]), None);
    }
}
