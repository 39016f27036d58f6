//! The child and everything it starts: one process group, known to the guard before it runs.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, kill_process_group, setpgid, waitid,
};
use rustix::thread::disable_transparent_huge_pages;

use super::guard::{Order, reply};
use super::guard_link::{GuardLink, WATCH_TIMEOUT, await_reply};
use super::program::Program;
use super::terminal::Terminal;
use crate::exit::{self, Failure};
use crate::local;
use crate::output::talk;

/// How long the end of killed processes is waited for. Only a process that hangs inside the kernel
/// takes longer; nothing more can be done about it.
const REAP_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks at what is left of a killed group.
const REAP_PAUSE: Duration = Duration::from_millis(1);

/// A running child, the leader of its group. Whatever is left of it is killed and reaped on drop.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    /// The terminal that the group has in its hands.
    terminal: Option<Terminal>,
    ended: bool,
}

/// How the child's leader stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leader {
    Runs,
    /// Stopped by a signal, as by Ctrl-Z.
    Stopped,
    Ended(Ending),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(u8),
    Signalled(u8),
}

impl Ending {
    /// The exit code that passes it on, as shells do.
    pub(crate) fn code(self) -> u8 {
        match self {
            Ending::Exited(code) => code,
            Ending::Signalled(signal) => exit::of_signal(signal),
        }
    }
}

impl Group {
    /// Starts the program. Before it runs, the guard knows its group, and the terminal is its own.
    pub(super) fn spawn(
        program: &Program,
        environment: &[(&str, String)],
        guard: &GuardLink,
    ) -> Result<Self, Failure> {
        let terminal = Terminal::in_our_hands();
        let mut command = program.command();
        command.envs(environment.iter().map(|(name, value)| (*name, value)));
        let (orders, replies) = guard.ends().map_err(|error| program.failure(&error))?;
        prepare(&mut command, orders, replies, terminal.clone());
        let child = command.spawn().map_err(|error| program.failure(&error))?;
        Ok(Group { leader: Pid::from_child(&child), terminal, ended: false })
    }

    pub(super) fn signal(&self, signal: Signal) {
        // A group that is gone has nobody to signal; its leader is still ours, so the number is.
        let _ = kill_process_group(self.leader, signal);
    }

    /// How the leader stands. It is not reaped here: until it is, its number is nobody else's.
    pub(super) fn leader(&self) -> Leader {
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
        let options = options | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.leader), options) {
            Ok(None) => Leader::Runs,
            Ok(Some(status)) if status.stopped() => Leader::Stopped,
            Ok(Some(status)) => Leader::Ended(ending(&status)),
            // Nobody but us reaps it; and if somebody does, it has ended.
            Err(_) => Leader::Ended(Ending::Signalled(9)),
        }
    }

    /// Gives the terminal back to us and keeps the group waiting, until [`go_on`](Self::go_on).
    pub(super) fn stand_aside(&self) {
        // Takes note of the stop, so that it is not reported again.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::Pid(self.leader), options);
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
    }

    pub(super) fn go_on(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.hand_to(self.leader);
        }
        self.signal(Signal::CONT);
    }

    pub(super) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// Kills whatever is left, reaps all of it and tells the guard. `kept` are children that do
    /// not belong to it.
    pub(super) fn end(&mut self, guard: &mut GuardLink, kept: &[Pid]) {
        let mut known = vec![guard.pid(), self.leader];
        known.extend(kept);
        self.kill_all(&known);
        guard.forget();
        self.reap();
    }

    /// Kills the group and whatever left it and lost its parent: as the subreaper, we are the
    /// parent then.
    fn kill_all(&self, known: &[Pid]) {
        let looks = REAP_TIMEOUT.as_millis() / REAP_PAUSE.as_millis();
        for _ in 0..looks {
            self.signal(Signal::KILL);
            let mut strays = children();
            // The local store serves others, too. If it crashed, it was started again from here.
            strays.retain(|child| !known.contains(child) && !local::is_store(*child));
            for stray in &strays {
                let _ = kill_process(*stray, Signal::KILL);
                let _ = waitid(WaitId::Pid(*stray), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
            }
            if strays.is_empty() && matches!(self.leader(), Leader::Ended(_)) {
                return;
            }
            std::thread::sleep(REAP_PAUSE);
        }
        talk("processes of the child hang inside the kernel and could not be killed");
    }

    fn reap(&mut self) {
        let _ = waitid(WaitId::Pid(self.leader), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        if let Some(terminal) = self.terminal.take() {
            terminal.take_back();
        }
        self.ended = true;
    }
}

impl Drop for Group {
    /// The way out when the library drops the work of a term that was cut off, and in a panic. The
    /// guard goes on watching the group's number, until the next order or the end of its pipe, so
    /// the leader is left as it is: a zombie keeps its number.
    fn drop(&mut self) {
        if !self.ended {
            self.signal(Signal::KILL);
            if let Some(terminal) = self.terminal.take() {
                terminal.take_back();
            }
        }
    }
}

pub(super) fn ending(status: &rustix::process::WaitIdStatus) -> Ending {
    match status.terminating_signal() {
        Some(signal) => Ending::Signalled(signal as u8),
        None => Ending::Exited(status.exit_status().unwrap_or(1) as u8),
    }
}

/// The children of this process, of whatever thread.
fn children() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let text = lists.collect::<Vec<_>>().join(" ");
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// What the child does between fork and exec.
#[expect(unsafe_code, reason = "the standard library has no other way into the new process")]
fn prepare(
    command: &mut Command,
    orders: PipeWriter,
    replies: PipeReader,
    terminal: Option<Terminal>,
) {
    let in_child = move || {
        // Ours to save memory, not the program's.
        let _ = disable_transparent_huge_pages(false);
        setpgid(None, None)?;
        let group = getpid();
        let order = Order::Watch(group).to_bytes();
        rustix::io::write(orders.as_fd(), &order)?;
        loop {
            match await_reply(&replies, WATCH_TIMEOUT) {
                Some(reply::WATCHING) => break,
                Some(reply::TOO_LATE) => return Err(io::Error::from(io::ErrorKind::TimedOut)),
                Some(_) => {}
                None => return Err(io::Error::from(io::ErrorKind::TimedOut)),
            }
        }
        if let Some(terminal) = &terminal {
            terminal.hand_to(group);
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec, where only async-signal-safe calls are
    // allowed. It makes system calls on descriptors opened before, and allocates nothing.
    unsafe { command.pre_exec(in_child) };
}
