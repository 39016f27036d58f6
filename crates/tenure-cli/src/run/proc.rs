//! Processes as `/proc` shows them, in the numbers that this process may use.
//!
//! Inside a pid namespace `/proc` may still be the one from outside, and then its numbers are not
//! ours: a signal by such a number would hit somebody else. Each process says there what it is
//! called in every namespace (`NSpid`); ours is the entry at the depth of our own last one.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    waitid,
};
use tenure_run::{KillAnswer, Pid};

/// The most descendants that are looked at below one process: a program that forks for ever must
/// not keep this one busy for ever.
const DESCENDANTS_MAX: usize = 10_000;
/// The longest environment that is read, the system's own default limit.
const ENVIRONMENT_LEN_MAX: u64 = 2 << 20;

/// How the numbers of `/proc` become ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processes {
    /// Where in `NSpid` our numbers stand; `None` where those of `/proc` are ours.
    depth: Option<usize>,
}

/// A process by its number in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shown(u32);

impl Shown {
    fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    /// Its children, of whatever thread; `None` where they cannot be listed.
    fn children(self) -> Option<Vec<Shown>> {
        let threads = std::fs::read_dir(self.file("task")).ok()?;
        let mut text = String::new();
        for thread in threads.flatten() {
            // A thread that has just ended has handed its children to another.
            match std::fs::read_to_string(thread.path().join("children")) {
                Ok(list) => text += &(list + " "),
                Err(_) if thread.path().exists() => return None,
                Err(_) => {}
            }
        }
        Some(text.split_whitespace().filter_map(|pid| pid.parse().ok().map(Shown)).collect())
    }

    fn parent(self) -> Option<Shown> {
        let stat = std::fs::read_to_string(self.file("stat")).ok()?;
        // The name stands in brackets and may hold anything.
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.split(' ').nth(1)?.parse().ok().map(Shown)
    }
}

impl Processes {
    /// Looks at `/proc`. Fails where it does not show this process.
    pub(super) fn open() -> Result<Self, String> {
        let failed = |what: &str| {
            format!("{what}: mount /proc for this pid namespace (unshare --mount-proc)")
        };
        let shown = std::fs::read_link("/proc/self").ok();
        let shown = shown.and_then(|link| link.to_str()?.parse::<i32>().ok());
        let shown = shown.ok_or_else(|| failed("/proc does not show this process"))?;
        let own = getpid().as_raw_nonzero().get();
        let names = names_of(Shown(shown as u32));
        let depth = match (shown == own, &names) {
            (true, _) => None,
            (false, Some(names)) if names.last() == Some(&i64::from(own)) => Some(names.len() - 1),
            (false, _) => return Err(failed("/proc is that of another pid namespace")),
        };
        let processes = Processes { depth };
        match processes.children() {
            Some(_) => Ok(processes),
            None => Err("the kernel does not list children (/proc/self/task/*/children)".into()),
        }
    }

    /// The children of this process, and whether each has ended; `None` where nobody knows.
    pub(super) fn children(self) -> Option<Vec<(Pid, bool)>> {
        let own = std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
        let mut children = Vec::new();
        for shown in Shown(own).children()? {
            let Some(pid) = self.number(shown) else { continue };
            if let Some(has_ended) = child_has_ended(pid) {
                children.push((pid, has_ended));
            }
        }
        Some(children)
    }

    /// Kills what descends from a child that cannot be killed itself.
    pub(super) fn kill_below(self, child: Pid) {
        let Some(list) = Shown(std::process::id()).children().or_else(|| {
            let own = std::fs::read_link("/proc/self").ok()?;
            Shown(own.to_str()?.parse().ok()?).children()
        }) else {
            return;
        };
        let found = list.into_iter().find(|shown| self.number(*shown) == Some(child));
        let Some(top) = found else { return };
        let mut parents = vec![top];
        let mut left = DESCENDANTS_MAX;
        while let Some(parent) = parents.pop() {
            for shown in parent.children().unwrap_or_default() {
                left = left.saturating_sub(1);
                if left == 0 {
                    return;
                }
                self.kill_verified(shown, |shown| shown.parent() == Some(parent));
                parents.push(shown);
            }
        }
    }

    /// Kills every process whose environment has the line `mark`, and counts them; those that
    /// belong to somebody else go to `refused`.
    pub(super) fn kill_marked(self, mark: &[u8], mut refused: impl FnMut(Pid)) -> usize {
        let Ok(entries) = std::fs::read_dir("/proc") else { return 0 };
        let numbers =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut found = 0;
        for shown in numbers.map(Shown) {
            match self.kill_verified(shown, |shown| has_mark(shown, mark)) {
                Some(KillAnswer::Sent) => found += 1,
                Some(KillAnswer::Refused) => refused_number(self.number(shown), &mut refused),
                _ => {}
            }
        }
        found
    }

    /// Kills the process that is `shown`, if `is_meant` still says so once the number cannot be
    /// anybody else's any more.
    fn kill_verified(self, shown: Shown, is_meant: impl Fn(Shown) -> bool) -> Option<KillAnswer> {
        let pid = self.number(shown)?;
        let held: OwnedFd = pidfd_open(to_system(pid), PidfdFlags::empty()).ok()?;
        if !is_meant(shown) {
            return None;
        }
        Some(answer_of(pidfd_send_signal(&held, Signal::KILL)))
    }

    fn number(self, shown: Shown) -> Option<Pid> {
        match self.depth {
            None => Pid::new(i64::from(shown.0)),
            Some(depth) => Pid::new(*names_of(shown)?.get(depth)?),
        }
    }
}

fn refused_number(pid: Option<Pid>, refused: &mut impl FnMut(Pid)) {
    if let Some(pid) = pid {
        refused(pid);
    }
}

/// What a process is called in each pid namespace, from that of `/proc` inwards.
fn names_of(shown: Shown) -> Option<Vec<i64>> {
    let status = std::fs::read_to_string(shown.file("status")).ok()?;
    let names = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    names.split_whitespace().map(|name| name.parse().ok()).collect()
}

fn has_mark(shown: Shown, mark: &[u8]) -> bool {
    use std::io::Read;
    let mut environment = Vec::new();
    let read = std::fs::File::open(shown.file("environ"))
        .and_then(|file| file.take(ENVIRONMENT_LEN_MAX).read_to_end(&mut environment));
    read.is_ok() && environment.split(|byte| *byte == 0).any(|line| line == mark)
}

/// Whether a child has ended; `None` for somebody who is not our child.
pub(super) fn child_has_ended(pid: Pid) -> Option<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(to_system(pid)), options) {
        Ok(status) => Some(status.is_some()),
        Err(_) => None,
    }
}

/// Kills a child. Whoever is not our child is left alone: its number is not ours to use.
pub(super) fn kill_child(pid: Pid) -> KillAnswer {
    match child_has_ended(pid) {
        Some(false) => answer_of(kill_process(to_system(pid), Signal::KILL)),
        _ => KillAnswer::Gone,
    }
}

pub(super) fn answer_of(answer: rustix::io::Result<()>) -> KillAnswer {
    match answer {
        Ok(()) => KillAnswer::Sent,
        Err(rustix::io::Errno::PERM) => KillAnswer::Refused,
        Err(_) => KillAnswer::Gone,
    }
}

pub(super) fn to_system(pid: Pid) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(pid.get()).expect("it is above 1")
}

pub(super) fn from_system(pid: rustix::process::Pid) -> Option<Pid> {
    Pid::new(i64::from(pid.as_raw_nonzero().get()))
}
