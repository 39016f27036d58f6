//! Processes as the machines know them.

use std::fmt;

use tenure_core::Moment;

/// The number of a process, or of a process group. Never 0 or 1: neither is a child of ours, and
/// a signal to "group 1" would go to everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(i32);

impl Pid {
    /// `None` if this cannot be the number of a child.
    pub fn new(number: i64) -> Option<Self> {
        i32::try_from(number).ok().filter(|number| *number > 1).map(Pid)
    }

    /// The number as the system wants it.
    pub fn get(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Until when a program may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// When everything that is left of it is killed.
    pub kill_at: Moment,
    /// When another instance may lead.
    pub ends_at: Moment,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this code.
    Exited(u8),
    /// By this signal.
    Signalled(u8),
}

/// The state of the leader of the program's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// It has not ended.
    Runs,
    /// It has ended, and is not reaped yet.
    Ended(Ending),
}

/// What the system answered to a SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillAnswer {
    /// It was sent. The process ends, unless it hangs inside the kernel.
    Sent,
    /// There is no process of that number, or it has ended and was not reaped yet.
    Gone,
    /// It belongs to another user (EPERM).
    Refused,
}

/// A process of the program that left its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stray {
    /// Its number.
    pub pid: Pid,
    /// When it was started, as the system counts: a later process with the same number has another
    /// value.
    pub started: u64,
}

/// A stray, and the child of the wrapper from which it descends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedStray {
    /// The process.
    pub stray: Stray,
    /// The child of the wrapper that it is, or descends from.
    pub child: Pid,
}

/// A direct child of the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedChild {
    /// Its number.
    pub pid: Pid,
    /// When it was started, as for a [`Stray`]; `None` if unknown.
    pub started: Option<u64>,
    /// It has ended and waits to be reaped.
    pub has_ended: bool,
    /// Whether it is not part of the program: the guard, a health check, a local store.
    pub is_helper: bool,
}
