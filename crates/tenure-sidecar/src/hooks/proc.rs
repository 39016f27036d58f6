//! Processes as `/proc` shows them, in the numbers that this process may use.
//!
//! In a pid namespace `/proc` may be that of the system outside, and its numbers are not ours. Each
//! process has a number per namespace there (`NSpid`); ours stands where our own does.

use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// The variable with the marks of all programs and hooks around a process, divided by spaces. See
/// `tenure run`, which hands it on.
pub(super) const MARKS: &str = "OUTER_TENURE_IDS";
/// The longest environment that is read, the system's own default limit.
const ENVIRONMENT_LEN_MAX: u64 = 2 << 20;

/// How the numbers of `/proc` become ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processes {
    /// Where in `NSpid` our numbers stand; `None` where those of `/proc` are ours.
    depth: Option<usize>,
}

/// A process by its number in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shown(i32);

/// What `/proc` says of a process, in its numbers.
pub(super) struct Stat {
    pub(super) has_ended: bool,
    pub(super) parent: Shown,
    /// In ticks since the system was started.
    pub(super) started: u64,
    /// Whether it can have an environment: a program, not a thread of the system.
    has_memory: bool,
}

impl Processes {
    /// Fails where `/proc` does not show this process.
    pub(super) fn open() -> Result<Self, String> {
        let own = getpid().as_raw_nonzero().get();
        let shown = own_shown().ok_or("/proc does not show this process")?;
        if shown.0 == own {
            return Ok(Processes { depth: None });
        }
        let numbers = shown.numbers().unwrap_or_default();
        match numbers.split_last() {
            Some((last, outer)) if *last == own => Ok(Processes { depth: Some(outer.len()) }),
            _ => Err("/proc is that of another pid namespace".to_owned()),
        }
    }

    /// A child of this process.
    pub(super) fn child(self, pid: Pid) -> Option<Shown> {
        match self.depth {
            None => Some(Shown(pid.as_raw_nonzero().get())),
            Some(_) => {
                let children = own_shown()?.children();
                children.into_iter().find(|shown| self.number(*shown) == Some(pid))
            }
        }
    }

    pub(super) fn number(self, shown: Shown) -> Option<Pid> {
        match self.depth {
            None => Pid::from_raw(shown.0),
            Some(depth) => Pid::from_raw(*shown.numbers()?.get(depth)?),
        }
    }

    /// Sends a signal to a process, if it still is the one that is meant once its number cannot
    /// become another's any more. Returns whether it is.
    pub(super) fn signal(
        self,
        shown: Shown,
        signal: Signal,
        is_meant: impl Fn() -> bool,
    ) -> Result<bool, Errno> {
        let number = self.number(shown).ok_or(Errno::SRCH)?;
        let held = pidfd_open(number, PidfdFlags::empty())?;
        if !is_held(&held, shown) || !is_meant() {
            return Ok(false);
        }
        pidfd_send_signal(held, signal).map(|()| true)
    }
}

/// Whether what is held is what `/proc` shows: in a namespace beside ours the same number is
/// somebody else.
fn is_held(held: &OwnedFd, shown: Shown) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", held.as_raw_fd()));
    let info = info.unwrap_or_default();
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    number.is_some_and(|number| number.trim().parse() == Ok(shown.0))
}

fn own_shown() -> Option<Shown> {
    std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok().map(Shown)
}

impl Shown {
    /// Every process that is shown.
    pub(super) fn everybody() -> impl Iterator<Item = Shown> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Shown))
    }

    /// Its children, of whatever thread.
    pub(super) fn children(self) -> Vec<Shown> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.0));
        let lists = threads.into_iter().flatten().flatten();
        let lists = lists.map(|thread| std::fs::read_to_string(thread.path().join("children")));
        let text = lists.flatten().collect::<Vec<_>>().join(" ");
        text.split_whitespace().filter_map(|pid| pid.parse().ok().map(Shown)).collect()
    }

    pub(super) fn stat(self) -> Option<Stat> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        // The name stands in brackets and may hold anything.
        let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
        let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let is_first_thread_gone = ["Z", "X"].contains(fields.first()?);
        Some(Stat {
            // A process lives as long as any thread of it does.
            has_ended: is_first_thread_gone && number(17)? <= 1,
            parent: Shown(fields.get(1)?.parse().ok()?),
            started: number(19)?,
            has_memory: number(20)? > 0,
        })
    }

    /// Whether it runs, and is the process that was started then.
    pub(super) fn runs_since(self, started: u64) -> bool {
        self.stat().is_some_and(|stat| !stat.has_ended && stat.started == started)
    }

    /// What it is called in each pid namespace, from that of `/proc` inwards.
    fn numbers(self) -> Option<Vec<i32>> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_whitespace().map(|number| number.parse().ok()).collect()
    }
}

/// Whether the environment of a process has a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marked {
    Yes,
    No,
    /// It has ended since it was listed, and may have started another; or it is just becoming
    /// another program, and has no environment for a moment.
    Unclear,
}

impl Marked {
    /// Of a process that was not started before `since`.
    pub(super) fn of(shown: Shown, since: u64, mark: &str) -> Self {
        let Some(stat) = shown.stat() else { return Marked::Unclear };
        if stat.has_ended || stat.started < since {
            return Marked::No;
        }
        let mut environment = Vec::new();
        let read = std::fs::File::open(format!("/proc/{}/environ", shown.0))
            .and_then(|file| file.take(ENVIRONMENT_LEN_MAX).read_to_end(&mut environment));
        match read {
            Ok(1..) if has_mark(&environment, mark) => Marked::Yes,
            Ok(1..) => Marked::No,
            Ok(0) if stat.has_memory => Marked::Unclear,
            Ok(0) => Marked::No,
            Err(error) if is_gone(&error) => Marked::Unclear,
            // Somebody else's.
            Err(_) => Marked::No,
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

fn has_mark(environment: &[u8], mark: &str) -> bool {
    let marks = environment.split(|byte| *byte == 0).find_map(|line| {
        let line = line.strip_prefix(MARKS.as_bytes())?;
        line.strip_prefix(b"=")
    });
    let mut marks = marks.into_iter().flat_map(|marks| marks.split(|byte| *byte == b' '));
    marks.any(|one| one == mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_found_whole_and_in_its_variable_alone() {
        for shown in ["OUTER_TENURE_IDS=hook_1", "A=1\0OUTER_TENURE_IDS=ada_1 hook_1 bob_2\0B=2"] {
            assert!(has_mark(shown.as_bytes(), "hook_1"), "{shown}");
        }
        for shown in ["", "OUTER_TENURE_IDS=hook_12", "OUTER_TENURE_IDSX=hook_1", "X=hook_1"] {
            assert!(!has_mark(shown.as_bytes(), "hook_1"), "{shown}");
        }
    }
}
