//! A store, wrappers around it, and what they leave behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::{GENEROUS, Process, RedisServer, ServerProgram, TempFolder, wait_for, wait_until};

use crate::diary::Diary;
use crate::instance::has_namespaces;

/// The program under test.
pub(crate) const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
/// The election that the tests are about.
pub(crate) const NAME: &str = "job";

/// Which store a test runs on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Redis,
    Own,
}

/// Runs each test on redis-server and on our own store.
macro_rules! on_every_store {
    ($(fn $name:ident($stage:ident: $($kind:tt)*) $body:block)*) => {
        $(mod $name {
            #[allow(unused_imports, reason = "not every test needs everything")]
            use super::*;
            fn check($stage: $($kind)*) $body
            #[test]
            fn on_redis() {
                check($crate::stage::Stage::on($crate::stage::Kind::Redis));
            }
            #[test]
            fn on_our_own_store() {
                check($crate::stage::Stage::on($crate::stage::Kind::Own));
            }
        })*
    };
}
pub(crate) use on_every_store;

/// A store and a folder.
pub(crate) struct Stage {
    pub(crate) store: RedisServer,
    pub(crate) folder: TempFolder,
}

impl Stage {
    pub(crate) fn on(kind: Kind) -> Self {
        let builder = RedisServer::builder();
        let builder = match kind {
            Kind::Redis => builder.program(ServerProgram::new("redis-server")),
            Kind::Own => builder.program(ServerProgram::new(TENURE).arg("serve")),
        };
        Stage { store: builder.start(), folder: TempFolder::create() }
    }

    /// `tenure` with these words, on this stage's store.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_of(TENURE, words)
    }

    /// The same of another version.
    pub(crate) fn command_of(&self, program: &str, words: &[&str]) -> Command {
        let mut command = plain_command_of(program, words);
        command.env("TENURE_STORE", self.store.url());
        // Nobody led on this store before the test.
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true");
        command
    }

    /// Runs it to its end.
    pub(crate) fn tenure(&self, words: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(words))
    }

    /// Runs several of them in the same seconds, to their ends.
    pub(crate) fn at_once<const N: usize, const M: usize>(
        &self,
        commands: &[[&str; M]; N],
    ) -> [CommandOutput; N] {
        CommandOutput::of_all(commands.map(|words| self.command(&words)))
    }

    /// A wrapper called `id` around a shell script. The lease is short, but long enough for a
    /// machine on which much else runs.
    pub(crate) fn wrap(&self, id: &str, flags: &[&str], script: &str) -> Process {
        let mut words = vec!["run", NAME, "--id", id];
        if !flags.contains(&"--ttl") {
            words.extend(["--ttl", "1500ms"]);
        }
        words.extend(flags);
        words.extend(["--", "sh", "-c", script]);
        let mut command = self.command(&words);
        command.current_dir(self.folder.path());
        Process::spawn(command)
    }

    /// A wrapper whose program, and a process that it starts, write the diary.
    pub(crate) fn wrap_writer(&self, id: &str, flags: &[&str]) -> Process {
        self.wrap(id, flags, Diary::SCRIPT)
    }

    pub(crate) fn diary(&self) -> Diary {
        Diary::read(&self.folder.path().join(Diary::FILE))
    }

    /// Waits until somebody writes under a newer term than `after`, and returns that term.
    #[track_caller]
    pub(crate) fn next_term(&self, after: u64) -> u64 {
        wait_for("a child of a newer term", GENEROUS, || {
            self.diary().last_token().filter(|token| *token > after)
        })
    }

    /// What `tenure … --json` says.
    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> serde_json::Value {
        let mut words = words.to_vec();
        words.push("--json");
        let said = self.tenure(&words);
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }

    /// Waits until `id` leads.
    #[track_caller]
    pub(crate) fn wait_for_leader(&self, id: &str) {
        wait_until(&format!("{id} to lead"), GENEROUS, || {
            self.tenure(&["who", NAME]).out.starts_with(&format!("{id}_"))
        });
    }

    /// Waits until `count` members take part.
    #[track_caller]
    pub(crate) fn wait_for_members(&self, count: usize) {
        wait_until(&format!("{count} members"), GENEROUS, || {
            self.json(&["members", NAME])["members"].as_array().unwrap().len() == count
        });
    }

    /// Waits for several renewals, after each of which the guard is told what left the program's
    /// group.
    pub(crate) fn let_renew(&self) {
        let meta = format!("{{tenure:{NAME}}}:meta");
        let renewed = || self.store.cli(&["HGET", &meta, "expires_at"]);
        for _ in 0..3 {
            let before = renewed();
            wait_until("a renewal", GENEROUS, || renewed() != before);
        }
        std::thread::sleep(Duration::from_secs(1));
    }

    pub(crate) fn key_exists(&self) -> bool {
        self.store.cli(&["EXISTS", &format!("tenure:{NAME}")]) == "1"
    }
}

/// `tenure` with these words, without anything from the environment that it would read.
pub(crate) fn plain_command(words: &[&str]) -> Command {
    plain_command_of(TENURE, words)
}

pub(crate) fn plain_command_of(program: &str, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    command.args(words).stdin(Stdio::null());
    command
}

/// A pid namespace of its own for a command, if that can be had here.
pub(crate) fn in_namespace(stage: &Stage, flags: &[&str], words: &[&str]) -> Option<Command> {
    if !has_namespaces() {
        eprintln!("skipped: no pid namespace can be made here");
        return None;
    }
    let mut command = started_by("unshare", flags, &stage.command(words));
    command.current_dir(stage.folder.path());
    Some(command)
}

/// A command that another program executes in its own place, after these words.
pub(crate) fn started_by(program: &str, words: &[&str], plain: &Command) -> Command {
    let mut command = Command::new(program);
    command.args(words).arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null());
    command
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    pub(crate) fn of(mut command: Command) -> Self {
        Self::read(command.output().unwrap())
    }

    pub(crate) fn read(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
        let code = output.status.code().expect("the command ends by itself");
        CommandOutput { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Of several that run at the same time.
    pub(crate) fn of_all<const N: usize>(commands: [Command; N]) -> [Self; N] {
        let running = commands.map(|command| std::thread::spawn(move || Self::of(command)));
        running.map(|running| running.join().unwrap())
    }
}

/// Tells a story for each of these cases, in the same seconds.
pub(crate) fn at_once<T: Send, const N: usize>(cases: [T; N], story: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| story(case));
        }
    });
}

/// Whether the process runs, rather than being gone or waiting to be reaped.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map_or(Vec::new(), |(_, rest)| rest.split(' ').collect());
    match fields.first() {
        None => false,
        // Of its first thread: while there are others, it runs.
        Some(&("Z" | "X")) => fields.get(17).is_some_and(|threads| !["0", "1"].contains(threads)),
        Some(_) => true,
    }
}

/// Whether the process runs in that folder, as programs of a test do.
pub(crate) fn works_in(pid: u32, folder: &Path) -> bool {
    is_alive(pid) && std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder)
}

#[track_caller]
pub(crate) fn wait_until_gone(pid: u32) {
    wait_until(&format!("process {pid} to be gone"), GENEROUS, || !is_alive(pid));
}

/// The guard beside a wrapper.
#[track_caller]
pub(crate) fn guard_of(wrapper: &Process) -> u32 {
    wait_for("the wrapper's guard", GENEROUS, || {
        children_of(wrapper.pid()).into_iter().find(|pid| is_guard(*pid))
    })
}

pub(crate) fn is_guard(pid: u32) -> bool {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).contains("__guard")
}

pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads
        .flatten()
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let text = lists.collect::<Vec<_>>().join(" ");
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// The number that a script wrote into a file, once it has.
#[track_caller]
pub(crate) fn number_in(folder: &Path, file: &str) -> u32 {
    let path: PathBuf = folder.join(file);
    wait_for(&format!("a number in {file}"), GENEROUS, || {
        std::fs::read_to_string(&path).ok()?.trim().parse().ok()
    })
}

/// A bound for what must happen at once, on a machine that is busy.
pub(crate) const PROMPTLY: Duration = Duration::from_secs(10);
