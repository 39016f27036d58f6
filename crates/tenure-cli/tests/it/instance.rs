//! An instance of a trial: a wrapper, around some program, with some log, somewhere.

use std::fs::File;
use std::io::{PipeReader, Write, pipe};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{GENEROUS, Process, Random, wait_for, wait_until};

use crate::diary::Diary;
use crate::stage::{NAME, Stage, children_of, in_namespace, is_alive, is_guard};

/// What an instance runs. All of them write the diary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Obedient,
    /// Daemonises, and ignores the stop signal.
    Daemon,
    ForksForEver,
    /// Each process of it starts the next and ends.
    Chain,
}

/// Who reads what an instance says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    Kept,
    /// Nobody, and the pipe is full.
    Stalled,
    /// A device that takes nothing.
    Full,
    /// Nobody ever again.
    Closed,
}

const PROGRAMS: [Program; 4] =
    [Program::Obedient, Program::Daemon, Program::ForksForEver, Program::Chain];
const LOGS: [Log; 4] = [Log::Kept, Log::Stalled, Log::Full, Log::Closed];

/// How an instance is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) program: Program,
    pub(crate) log: Log,
    /// As the first process of a pid namespace.
    pub(crate) is_first_process: bool,
    /// From the binary of an older version.
    pub(crate) is_older: bool,
}

impl Plan {
    pub(crate) fn draw(random: &mut Random, has_older: bool) -> Self {
        // An older version makes mistakes of its own with other programs, guards and logs: what is
        // asked here is whether the two get along.
        if has_older && random.in_range(0..2) == 0 {
            let (program, log) = (Program::Obedient, Log::Kept);
            return Plan { program, log, is_first_process: false, is_older: true };
        }
        Plan {
            program: *random.choose(&PROGRAMS),
            log: *random.choose(&LOGS),
            is_first_process: random.in_range(0..4) == 0,
            is_older: false,
        }
    }
}

pub(crate) struct Instance {
    pub(crate) plan: Plan,
    /// The wrapper, or what started it in its namespace.
    outside: Process,
    wrapper: u32,
    said: PathBuf,
    _unread: Option<PipeReader>,
}

impl Instance {
    /// Starts an instance called `id`; `older` is the binary of an older version.
    pub(crate) fn start(stage: &Stage, id: &str, plan: Plan, older: Option<&str>) -> Self {
        let said = stage.folder.path().join(format!("said-{id}"));
        let words = ["run", NAME, "--id", id, "--ttl", "1500ms", "--", "sh", "-c"];
        let script = match plan.program {
            Program::Obedient => Diary::SCRIPT,
            Program::Daemon => Diary::DAEMON,
            Program::ForksForEver => Diary::FORKS_FOR_EVER,
            Program::Chain => Diary::CHAIN,
        };
        let words = [&words[..], &[script]].concat();
        let flags = ["-pf", "--mount-proc", "--kill-child"];
        let inside = match plan.is_first_process {
            true => in_namespace(stage, &flags, &words),
            false => None,
        };
        let is_first_process = inside.is_some();
        let mut command = inside.unwrap_or_else(|| match older.filter(|_| plan.is_older) {
            Some(older) => stage.command_of(older, &words),
            None => stage.command(&words),
        });
        let (stderr, unread) = log(plan.log, &said);
        command.current_dir(stage.folder.path()).stderr(stderr);
        let outside = Process::spawn(command);
        let wrapper = match is_first_process {
            true => wait_for("the wrapper in its namespace", GENEROUS, || {
                children_of(outside.pid()).first().copied()
            }),
            false => outside.pid(),
        };
        let plan = Plan { is_first_process, ..plan };
        Instance { plan, outside, wrapper, said, _unread: unread }
    }

    /// The number of the wrapper.
    pub(crate) fn pid(&self) -> u32 {
        self.wrapper
    }

    pub(crate) fn signal(&self, signal: Signal) {
        strike(self.wrapper, signal);
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    pub(crate) fn terminate(&mut self) {
        self.signal(Signal::TERM);
        self.wait();
    }

    fn wait(&mut self) {
        let (plan, wrapper) = (self.plan, self.wrapper);
        wait_until(&format!("{plan:?}, process {wrapper}, to end"), GENEROUS, || {
            !is_alive(wrapper) || !self.outside.is_running()
        });
        // `unshare` stops when its child does, and says that it was killed, for which it waits.
        self.outside.kill();
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
        strike(self.outside.pid(), Signal::CONT);
    }

    /// When this returns, it no longer runs.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.wrapper);
        wait_until("the wrapper to stop", GENEROUS, || {
            std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
    }

    /// Its guards, of which one may be on its way out.
    pub(crate) fn guards(&self) -> Vec<u32> {
        children_of(self.wrapper).into_iter().filter(|pid| is_guard(*pid)).collect()
    }

    /// How it ended, if it has, and its last words.
    pub(crate) fn ended(&mut self) -> Option<(ExitStatus, String)> {
        if self.outside.is_running() {
            return None;
        }
        let said = std::fs::read_to_string(&self.said).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(5).collect();
        Some((self.outside.wait(GENEROUS), last.join(" | ")))
    }
}

/// Sends a signal to whoever may be gone by now.
pub(crate) fn strike(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

fn log(log: Log, said: &PathBuf) -> (Stdio, Option<PipeReader>) {
    let unread = || {
        let (reader, mut writer) = pipe().unwrap();
        fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
        while writer.write(b"x").is_ok() {}
        fcntl_setfl(&writer, OFlags::empty()).unwrap();
        (reader, writer)
    };
    match log {
        Log::Kept => (File::options().create(true).append(true).open(said).unwrap().into(), None),
        Log::Full => (File::options().write(true).open("/dev/full").unwrap().into(), None),
        Log::Stalled => {
            let (reader, writer) = unread();
            (writer.into(), Some(reader))
        }
        Log::Closed => (pipe().unwrap().1.into(), None),
    }
}

/// Every process on this machine.
pub(crate) fn everybody() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The term under which a process was started.
pub(crate) fn token_of(pid: u32) -> Option<u64> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut lines = environment.split(|byte| *byte == 0);
    let token = lines.find_map(|line| line.strip_prefix(b"TENURE_TOKEN="))?;
    std::str::from_utf8(token).ok()?.parse().ok()
}

/// Whether pid namespaces can be made here.
pub(crate) fn has_namespaces() -> bool {
    let possible = Command::new("unshare").args(["-pf", "--mount-proc", "true"]).status();
    possible.is_ok_and(|status| status.success())
}
