//! Processes as `/proc` shows them, in the numbers that this process may use.
//!
//! Inside a pid namespace `/proc` may still be the one from outside, and then its numbers are not
//! ours: a signal by such a number would hit somebody else. Each process says there what it is
//! called in every namespace (`NSpid`); ours is the entry at the depth of our own last one.

use std::cell::Cell;
use std::cmp::Reverse;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group,
    pidfd_open, pidfd_send_signal, test_kill_process, waitid,
};
use tenure_run::{KillAnswer, ListedStray, Pid, Stray};

use super::mark::{Mark, Searched};
use crate::local;

/// The most descendants that are looked at below one process: a program that forks for ever must
/// not keep this one busy for ever.
const DESCENDANTS_MAX: usize = 10_000;
/// The most threads whose children are looked at for one list of strays: the wrapper has other
/// things to do.
const THREADS_LISTED_MAX: usize = 2_000;
/// The longest environment that is read. The system allows three quarters of this, and a program
/// may have moved the bounds of its own.
const ENVIRONMENT_LEN_MAX: u64 = 8 << 20;

/// The bit of a kernel thread among the flags of a process.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// How the numbers of `/proc` become ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Processes {
    /// Where in `NSpid` our numbers stand; `None` where those of `/proc` are ours.
    depth: Option<usize>,
}

/// A process by its number in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shown(u32);

impl Shown {
    #[cfg(test)]
    pub(super) fn of(child: &std::process::Child) -> Self {
        Shown(child.id())
    }

    fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    /// Its children, of whatever thread; `None` where they cannot be listed.
    fn children(self) -> Option<Vec<Shown>> {
        let mut unbounded = usize::MAX;
        self.children_within(&mut unbounded)
    }

    /// The same of a process that has only its first thread, as most have: one file to read.
    fn children_of_first(self) -> Option<Vec<Shown>> {
        let list = std::fs::read_to_string(self.file(&format!("task/{}/children", self.0))).ok()?;
        Some(list.split_whitespace().filter_map(|pid| pid.parse().ok().map(Shown)).collect())
    }

    /// The same, of no more threads than are left.
    fn children_within(self, threads_left: &mut usize) -> Option<Vec<Shown>> {
        let threads = std::fs::read_dir(self.file("task")).ok()?;
        let mut text = String::new();
        for thread in threads.flatten() {
            *threads_left = threads_left.checked_sub(1)?;
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
        self.stat().map(|stat| stat.parent)
    }

    fn stat(self) -> Option<Stat> {
        Stat::read(&self.file("stat"))
    }
}

/// What `/proc` says of a process, in its numbers.
struct Stat {
    has_ended: bool,
    threads: u64,
    parent: Shown,
    group: Shown,
    /// In ticks since the system was started.
    started: u64,
    is_kernel_thread: bool,
    /// How long its environment is; `None` in the middle of an execution, and where this user may
    /// not know.
    environment_len: Option<u64>,
}

/// What became of a process that was looked at for its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkedKill {
    Killed,
    /// It belongs to somebody else, and has this number here.
    Refused(Option<Pid>),
    /// Whether it has the mark could not be told.
    Unclear,
    /// It has no mark, or was gone.
    Nothing,
}

/// The leader of a program, as long as nobody has reaped it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    shown: Shown,
    /// When it was started. Nothing of its program was before.
    started: u64,
}

/// A child of this process.
pub(super) struct Child {
    pub(super) pid: Pid,
    pub(super) has_ended: bool,
    /// When it was started, if that was asked for and it has not ended.
    pub(super) started: Option<u64>,
    /// Its folder in `/proc`.
    pub(super) folder: PathBuf,
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
        match Shown(shown as u32).children() {
            Some(_) => Ok(processes),
            None => Err("the kernel does not list children (/proc/self/task/*/children)".into()),
        }
    }

    /// The children of this process, and whether each has ended; `None` where nobody knows. When
    /// each was started is read only if `starts` are wanted: there may be thousands.
    pub(super) fn children(self, starts: bool) -> Option<Vec<Child>> {
        let mut children = Vec::new();
        for shown in own()?.children()? {
            let Some(pid) = self.number(shown) else { continue };
            if let Some(has_ended) = child_has_ended(pid) {
                // It is a child that nobody has reaped: the number is its own.
                let is_wanted = starts && !has_ended;
                let started = is_wanted.then(|| shown.stat()).flatten().map(|stat| stat.started);
                children.push(Child { pid, has_ended, started, folder: shown.file("") });
            }
        }
        Some(children)
    }

    /// What descends from this process, runs and is not in `group`; nothing of those that
    /// `is_passed_over` says. `None` where nobody knows, and of programs with too many threads;
    /// without a group, then only a part.
    pub(super) fn strays(
        self,
        group: Option<Pid>,
        is_passed_over: impl Fn(Stray, &Path) -> bool,
    ) -> Option<Vec<ListedStray>> {
        let own = own()?;
        let children: Vec<(Shown, Pid)> = self.numbered(own.children()?).collect();
        let leader = match group {
            Some(group) => Some(children.iter().find(|(_, pid)| *pid == group)?.0),
            None => None,
        };
        let mut threads_left = THREADS_LISTED_MAX;
        let mut strays = Vec::new();
        let mut open: Vec<_> =
            children.iter().map(|(shown, pid)| (*shown, *pid, *pid, own)).collect();
        while let Some((shown, pid, child, parent)) = open.pop() {
            // Each has a thread or more: not even begun, where there are too many.
            if open.len() >= threads_left {
                return leader.is_none().then_some(strays);
            }
            let Some(stat) = shown.stat().filter(|stat| !stat.has_ended) else { continue };
            let stray = Stray { pid, started: stat.started };
            if is_passed_over(stray, &shown.file("")) {
                continue;
            }
            // It may have changed hands, or be another process of that number: it is its own.
            let child = if stat.parent == parent { child } else { pid };
            if Some(stat.group) != leader {
                strays.push(ListedStray { stray, child });
            }
            let below = match stat.threads {
                1 => {
                    threads_left -= 1;
                    shown.children_of_first()
                }
                _ => shown.children_within(&mut threads_left),
            };
            if threads_left == 0 {
                return leader.is_none().then_some(strays);
            }
            let below = self.numbered(below.unwrap_or_default());
            open.extend(below.map(|(below, pid)| (below, pid, child, shown)));
        }
        Some(strays)
    }

    fn numbered(self, shown: Vec<Shown>) -> impl Iterator<Item = (Shown, Pid)> {
        shown.into_iter().filter_map(move |shown| Some((shown, self.number(shown)?)))
    }

    /// Kills what descends from a child that cannot be killed itself.
    pub(super) fn kill_below(self, child: Pid) {
        self.shown_child(child).into_iter().for_each(|top| self.kill_descendants(top));
    }

    /// What descends from a child and runs.
    pub(super) fn below(self, child: Pid) -> Vec<Stray> {
        let mut below = Vec::new();
        let mut parents: Vec<Shown> = self.shown_child(child).into_iter().collect();
        while let Some(parent) = parents.pop() {
            for (shown, pid) in self.numbered(parent.children().unwrap_or_default()) {
                if below.len() >= DESCENDANTS_MAX {
                    return below;
                }
                if let Some(stat) = shown.stat().filter(|stat| !stat.has_ended) {
                    below.push(Stray { pid, started: stat.started });
                    parents.push(shown);
                }
            }
        }
        below
    }

    /// A child that runs, as the guard knows it; `None` if it has ended, or is not shown. Fails if
    /// that cannot be read just now.
    pub(super) fn stray(self, child: rustix::process::Pid) -> io::Result<Option<Stray>> {
        let Some(pid) = from_system(child) else { return Ok(None) };
        let shown = match self.depth {
            None => self.shown_child(pid),
            Some(_) => {
                let children = own().and_then(Shown::children);
                let children = children.ok_or_else(|| io::Error::other("/proc cannot be read"))?;
                self.numbered(children).find(|(_, number)| *number == pid).map(|(shown, _)| shown)
            }
        };
        let Some(shown) = shown else { return Ok(None) };
        let stat = Stat::try_read(&shown.file("stat"))?.filter(|stat| !stat.has_ended);
        Ok(stat.map(|stat| Stray { pid, started: stat.started }))
    }

    fn shown_child(self, child: Pid) -> Option<Shown> {
        match self.depth {
            // Nobody has reaped it, so the number is its own.
            None => child_has_ended(child).and(self.shown(child)),
            Some(_) => {
                own()?.children()?.into_iter().find(|shown| self.number(*shown) == Some(child))
            }
        }
    }

    fn shown(self, pid: Pid) -> Option<Shown> {
        match self.depth {
            None => u32::try_from(pid.get()).ok().map(Shown),
            Some(_) => everybody().find(|shown| self.number(*shown) == Some(pid)),
        }
    }

    /// Whether this process runs.
    pub(super) fn lives(self, stray: Stray) -> bool {
        let stat = self.shown(stray.pid).and_then(Shown::stat);
        stat.is_some_and(|stat| stat.started == stray.started && !stat.has_ended)
    }

    /// Who leads this group, which nobody has reaped.
    pub(super) fn watch(self, group: Pid) -> Option<Watched> {
        let shown = self.shown(group)?;
        Some(Watched { shown, started: shown.stat()?.started })
    }

    /// As if the leader had been started later.
    #[cfg(test)]
    pub(super) fn later(leader: Watched) -> Watched {
        Watched { started: leader.started + 1, ..leader }
    }

    /// What descends from the parent of this process, without this process.
    pub(super) fn below_parent(self) -> Vec<Shown> {
        let Some(own) = own() else { return Vec::new() };
        let mut below: Vec<Shown> = Vec::new();
        let mut parents: Vec<Shown> = own.parent().into_iter().collect();
        while let Some(parent) = parents.pop() {
            let children = parent.children().unwrap_or_default();
            let children: Vec<Shown> = children.into_iter().filter(|it| *it != own).collect();
            if below.len() + children.len() > DESCENDANTS_MAX {
                return below;
            }
            below.extend(&children);
            parents.extend(children);
        }
        below
    }

    /// Kills a group, and says what became of those in it that had not ended. A leader that nobody
    /// has reaped takes every signal, so the system's own answer would not tell. Looking around
    /// takes long where there are thousands of processes, so it comes after the signal: of a
    /// leader that had ended, those count that are still there, and it is no lie that the program
    /// itself was not killed.
    pub(super) fn kill_group(self, group: Pid, leader: Option<Watched>) -> KillAnswer {
        let leader = leader.and_then(|it| Some((it.shown, it.shown.stat()?)));
        let answer = answer_of(kill_process_group(to_system(group), Signal::KILL));
        let Some((leader, Stat { has_ended: true, .. })) = leader else {
            let is_refused = test_kill_process(to_system(group)) == Err(Errno::PERM);
            return if is_refused { KillAnswer::Refused } else { answer };
        };
        let is_member =
            |shown: Shown| shown.stat().is_some_and(|stat| stat.group == leader && !stat.has_ended);
        let members = everybody().filter(|shown| is_member(*shown));
        let answers: Vec<_> =
            members.filter_map(|shown| self.kill_verified(shown, is_member)).collect();
        let ranked = [KillAnswer::Sent, KillAnswer::Refused];
        ranked.into_iter().find(|rank| answers.contains(rank)).unwrap_or(KillAnswer::Gone)
    }

    /// Kills a stray and what descends from it; `None` if it has ended, or the number is somebody
    /// else's by now.
    pub(super) fn kill_stray(self, stray: Stray) -> Option<KillAnswer> {
        let shown = self.shown(stray.pid)?;
        let is_meant = |shown: Shown| {
            shown.stat().is_some_and(|stat| stat.started == stray.started && !stat.has_ended)
                // It may have become one since the wrapper saw it.
                && !local::is_store(&shown.file(""))
        };
        if is_meant(shown) {
            self.kill_descendants(shown);
        }
        self.kill_verified(shown, is_meant)
    }

    fn kill_descendants(self, top: Shown) {
        let mut parents = vec![top];
        let mut left = DESCENDANTS_MAX;
        while let Some(parent) = parents.pop() {
            for shown in parent.children().unwrap_or_default() {
                left = left.saturating_sub(1);
                if left == 0 {
                    return;
                }
                let is_meant = |shown: Shown| {
                    shown.parent() == Some(parent) && !local::is_store(&shown.file(""))
                };
                self.kill_verified(shown, is_meant);
                parents.push(shown);
            }
        }
    }

    /// Whether a process may be one of the program of this leader, by what is known without its
    /// memory: it runs, and was not there before the leader. `None` if it is gone: what it may have
    /// started is in no list.
    pub(super) fn may_be_of(self, shown: Shown, leader: Option<Watched>) -> Option<bool> {
        let since = leader.map_or(0, |leader| leader.started);
        let stat = shown.stat()?;
        Some(!stat.is_kernel_thread && !stat.has_ended && stat.started >= since)
    }

    /// Kills a process if its environment has the mark. That takes as long as the process keeps its
    /// memory locked.
    pub(super) fn kill_if_marked(self, shown: Shown, mark: &Mark) -> MarkedKill {
        let marked = Cell::new(Marked::No);
        let is_meant = |shown| {
            marked.set(Marked::of(shown, mark));
            marked.get() == Marked::Yes
        };
        match self.kill_verified(shown, is_meant) {
            Some(KillAnswer::Sent) => MarkedKill::Killed,
            Some(KillAnswer::Refused) => MarkedKill::Refused(self.number(shown)),
            None if marked.get() == Marked::Unclear => MarkedKill::Unclear,
            _ => MarkedKill::Nothing,
        }
    }

    /// Kills the process that is `shown`, if `is_meant` still says so once the number cannot be
    /// anybody else's any more.
    fn kill_verified(self, shown: Shown, is_meant: impl Fn(Shown) -> bool) -> Option<KillAnswer> {
        let pid = self.number(shown)?;
        let held = pidfd_open(to_system(pid), PidfdFlags::empty());
        // Asked for whoever is gone, too: the answer says so.
        if !is_meant(shown) {
            return None;
        }
        let held: OwnedFd = held.ok()?;
        Some(answer_of(pidfd_send_signal(&held, Signal::KILL)))
    }

    fn number(self, shown: Shown) -> Option<Pid> {
        match self.depth {
            None => Pid::new(i64::from(shown.0)),
            Some(depth) => Pid::new(*names_of(shown)?.get(depth)?),
        }
    }
}

/// This process.
fn own() -> Option<Shown> {
    std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok().map(Shown)
}

/// Every process that is shown.
fn everybody() -> impl Iterator<Item = Shown> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Shown))
}

/// The same, beginning with the process that was started last: what forks and ends all the time is
/// gone before a long list is through.
pub(super) fn newest_first() -> Vec<Shown> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let last = load.split_whitespace().last().and_then(|last| last.parse().ok());
    let last = last.unwrap_or(u32::MAX);
    let mut everybody: Vec<Shown> = everybody().collect();
    // Numbers begin anew after the highest.
    everybody.sort_by_key(|shown| (shown.0 > last, Reverse(shown.0)));
    everybody
}

/// What a process is called in each pid namespace, from that of `/proc` inwards.
fn names_of(shown: Shown) -> Option<Vec<i64>> {
    let status = std::fs::read_to_string(shown.file("status")).ok()?;
    let names = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    names.split_whitespace().map(|name| name.parse().ok()).collect()
}

/// Whether the environment of a process has the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marked {
    Yes,
    No,
    /// It is being executed, so it has no environment for a moment, or it has just ended; or this
    /// thread of it has, and others go on.
    Unclear,
}

impl Marked {
    fn of(shown: Shown, mark: &Mark) -> Self {
        let of_first = Marked::of_thread(&shown.file(""), mark);
        if of_first != Marked::Unclear {
            return of_first;
        }
        // The first thread may have ended while others go on: then these know the environment.
        let threads = std::fs::read_dir(shown.file("task")).into_iter().flatten().flatten();
        let mut known = threads.map(|thread| Marked::of_thread(&thread.path(), mark));
        known.find(|marked| *marked != Marked::Unclear).unwrap_or(Marked::Unclear)
    }

    /// As far as this thread knows, or the first thread of the process of this folder.
    fn of_thread(folder: &Path, mark: &Mark) -> Self {
        let searched = std::fs::File::open(folder.join("environ"))
            .and_then(|file| mark.search(file.take(ENVIRONMENT_LEN_MAX)));
        match searched {
            Ok(Searched::Found) => Marked::Yes,
            // Gone since it was listed: what it may have started is not in the list.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Marked::Unclear,
            // Somebody else's.
            Err(error) if Errno::from_io_error(&error) != Some(Errno::SRCH) => Marked::No,
            Ok(Searched::NotFound) => Marked::No,
            // Without memory of its own, which the system tells in either way.
            Ok(Searched::Empty) | Err(_) => match Stat::read(&folder.join("stat")) {
                Some(stat) if stat.is_being_executed() => Marked::Unclear,
                _ => Marked::No,
            },
        }
    }
}

impl Stat {
    /// Of a process, or of one of its threads.
    fn read(file: &Path) -> Option<Self> {
        Self::try_read(file).ok().flatten()
    }

    /// The same; fails if it is there and cannot be read, as without a free descriptor.
    fn try_read(file: &Path) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(file) {
            Ok(stat) => Ok(Self::parse(&stat)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn parse(stat: &str) -> Option<Self> {
        // The name stands in brackets and may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        let is_thread_gone = ["Z", "X"].contains(fields.first()?);
        let threads = fields.get(17)?.parse().ok()?;
        Some(Stat {
            // A process lives as long as any thread of it does, and the state is that of one.
            has_ended: is_thread_gone && threads <= 1,
            threads,
            parent: Shown(fields.get(1)?.parse().ok()?),
            group: Shown(fields.get(2)?.parse().ok()?),
            started: fields.get(19)?.parse().ok()?,
            is_kernel_thread: fields.get(6)?.parse::<u64>().ok()? & KERNEL_THREAD != 0,
            environment_len: environment_len(fields.get(47..49)?),
        })
    }

    /// Of a process or thread whose environment was just read as empty: it is being executed, or
    /// is a thread that has ended before others.
    fn is_being_executed(&self) -> bool {
        let is_empty = self.environment_len == Some(0);
        !self.has_ended && !self.is_kernel_thread && !is_empty
    }
}

/// Whether whom a file was about is gone. It may be noticed while it is read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

/// From where its environment begins and ends.
fn environment_len(fields: &[&str]) -> Option<u64> {
    let [start, end] = fields else { return None };
    let (start, end) = (start.parse::<u64>().ok()?, end.trim().parse::<u64>().ok()?);
    (end != 0).then(|| end.saturating_sub(start))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The wrapper may have no free descriptor for a moment.
    #[test]
    fn a_process_that_cannot_be_looked_at_is_not_taken_for_one_that_is_gone() {
        assert!(matches!(Stat::try_read(Path::new("/proc/self/nothing")), Ok(None)));
        assert!(matches!(Stat::try_read(Path::new("/proc/self/stat")), Ok(Some(_))));
        assert!(Stat::try_read(Path::new("/proc/self")).is_err(), "it is there");
    }
}
