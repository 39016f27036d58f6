//! The program's process: forked first, held at a gate, executed when its guard knows it.
//!
//! ```text
//! wrapper ── one byte: go on ──► gate    (its end: the wrapper is gone, execute nothing)
//!        ◄── one byte: executing; then nothing, or the error number ── news
//! ```
//! The standard library waits for the execution inside `spawn`, and reaps what failed at once.
//! Here the wrapper goes on deciding meanwhile, and the process stays a zombie until its number
//! may be anybody's again.

use std::ffi::{CStr, CString};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::ptr;

use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setpgid};
use tenure_run::Pid;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::proc::{from_system, to_system};
use super::program::{Program, is_script};
use super::terminal::Terminal;

/// What the child says before it executes the program.
const EXECUTING: u8 = b'x';
/// The exit code of a child that executed nothing; nobody sees it.
const NOT_EXECUTED: i32 = 127;

/// A forked process.
#[derive(Debug)]
pub(super) struct Forked {
    pub(super) leader: Pid,
    gate: Option<PipeWriter>,
    news: Option<pipe::Receiver>,
    heard: Vec<u8>,
}

/// What became of the execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Execution {
    Succeeded,
    Failed(i32),
    /// The process ended at the gate.
    Never,
}

impl Forked {
    pub(super) fn open_gate(&mut self) {
        if let Some(mut gate) = self.gate.take() {
            // A process that is gone is noticed by its end.
            let _ = gate.write_all(b"g");
        }
    }

    pub(super) fn close_gate(&mut self) {
        self.gate = None;
    }

    /// Resolves once it is known whether the program was executed. May be dropped and asked again.
    pub(super) async fn executed(&mut self) -> Execution {
        let Some(news) = &mut self.news else { return std::future::pending().await };
        loop {
            let mut bytes = [0; 8];
            match news.read(&mut bytes).await {
                Ok(0) | Err(_) => break,
                Ok(len) => self.heard.extend_from_slice(&bytes[..len]),
            }
        }
        self.news = None;
        self.execution()
    }

    /// The same once the process has ended, when everything was said; `None` if it is known.
    pub(super) fn settle(&mut self) -> Option<Execution> {
        let news = self.news.take()?;
        let mut bytes = [0; 8];
        while let Ok(len @ 1..) = rustix::io::read(news.as_fd(), &mut bytes) {
            self.heard.extend_from_slice(&bytes[..len]);
        }
        Some(self.execution())
    }

    fn execution(&self) -> Execution {
        match self.heard.split_first() {
            Some((&EXECUTING, [])) => Execution::Succeeded,
            Some((&EXECUTING, error)) => {
                Execution::Failed(error.try_into().map_or(libc::EIO, i32::from_ne_bytes))
            }
            _ => Execution::Never,
        }
    }
}

/// Who runs scripts that name no interpreter.
const SHELL: &CStr = c"/bin/sh";

/// Everything the child needs, made before it is there: after a fork it may not allocate.
struct Prepared {
    /// What is executed: looked up before, because that allocates, too.
    file: CString,
    words: Vec<CString>,
    environment: Vec<CString>,
    parent: rustix::process::Pid,
    gate: PipeReader,
    news: PipeWriter,
    /// Ends that are the parent's: held open in the child, its own gate would never end.
    not_ours: [i32; 2],
    terminal: Option<Terminal>,
}

/// What is passed on to the program, as the system wants it: each ends with a null.
struct Pointers {
    arguments: Vec<*const libc::c_char>,
    variables: Vec<*const libc::c_char>,
    /// The words for the shell, if the file is a script that it would run.
    script: Option<Vec<*const libc::c_char>>,
}

impl Pointers {
    fn to(prepared: &Prepared, is_script: bool) -> Self {
        let list = |words: &[&CStr]| -> Vec<*const libc::c_char> {
            words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
        };
        let words: Vec<&CStr> = prepared.words.iter().map(CString::as_c_str).collect();
        let variables: Vec<&CStr> = prepared.environment.iter().map(CString::as_c_str).collect();
        let after_name = words.get(1..).unwrap_or_default();
        let script = [&[SHELL, prepared.file.as_c_str()], after_name].concat();
        Pointers {
            arguments: list(&words),
            variables: list(&variables),
            script: is_script.then(|| list(&script)),
        }
    }
}

/// Forks the program's process, as the leader of a group of its own.
pub(super) fn fork(
    program: &Program,
    environment: &[(&'static str, String)],
    terminal: Option<Terminal>,
) -> io::Result<Forked> {
    let (gate_end, gate) = io::pipe()?;
    let (news, news_end) = io::pipe()?;
    let file = program.file();
    let prepared = Prepared {
        file: c_string(file.as_os_str().as_bytes())?,
        words: program.words().map(|word| c_string(word.as_bytes())).collect::<io::Result<_>>()?,
        environment: merged(environment)?,
        parent: getpid(),
        gate: gate_end,
        news: news_end,
        not_ours: [gate.as_raw_fd(), news.as_raw_fd()],
        terminal,
    };
    let pointers = Pointers::to(&prepared, is_script(&file));
    let leader = fork_and_run(&prepared, &pointers)?;
    // The child does it as well; whoever comes first, the group is there before it is signalled.
    let _ = setpgid(Some(to_system(leader)), Some(to_system(leader)));
    let news = pipe::Receiver::from_owned_fd(OwnedFd::from(news))?;
    Ok(Forked { leader, gate: Some(gate), news: Some(news), heard: Vec::new() })
}

#[expect(unsafe_code, reason = "the standard library forks only together with the execution")]
fn fork_and_run(prepared: &Prepared, pointers: &Pointers) -> io::Result<Pid> {
    // Signals wait until the child has no handlers of ours any more.
    let mut before = SigSet::empty();
    let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before));
    // SAFETY: the child does nothing but `in_child`, which makes system calls on memory and
    // descriptors that were made before, allocates nothing, takes no lock and never returns.
    let forked = unsafe { libc::fork() };
    let error = io::Error::last_os_error();
    if forked == 0 {
        in_child(prepared, pointers);
    }
    let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    match forked {
        -1 => Err(error),
        number => Pid::new(i64::from(number)).ok_or_else(|| io::Error::other("no child is that")),
    }
}

/// What the child does between fork and execution.
#[expect(unsafe_code, reason = "the system's own calls, where nothing else may be called")]
fn in_child(prepared: &Prepared, pointers: &Pointers) -> ! {
    // SAFETY: as said in `fork_and_run`; the pointers end with a null each.
    unsafe {
        for end in prepared.not_ours {
            libc::close(end);
        }
        if !may_execute(prepared) {
            libc::_exit(NOT_EXECUTED);
        }
        if let (Some(terminal), Some(group)) = (&prepared.terminal, from_system(getpid())) {
            terminal.hand_to(to_system(group));
        }
        // Ours to save memory, not the program's.
        let _ = rustix::thread::disable_transparent_huge_pages(false);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
        let variables = pointers.variables.as_ptr();
        libc::execve(prepared.file.as_ptr(), pointers.arguments.as_ptr(), variables);
        let error = *libc::__errno_location();
        // Only a script: a shell would take what is built for another machine for one, too.
        if let (libc::ENOEXEC, Some(script)) = (error, &pointers.script) {
            libc::execve(SHELL.as_ptr(), script.as_ptr(), variables);
        }
        let _ = rustix::io::write(prepared.news.as_fd(), &error.to_ne_bytes());
        libc::_exit(NOT_EXECUTED)
    }
}

/// Waits at the gate, in a group of its own, and dies with the wrapper.
fn may_execute(prepared: &Prepared) -> bool {
    let placed = setpgid(None, None);
    // The second net, for the leader alone: where the guard cannot act either.
    let netted = set_parent_process_death_signal(Some(Signal::KILL));
    if placed.is_err() || netted.is_err() || getppid() != Some(prepared.parent) {
        return false;
    }
    let mut byte = [0];
    loop {
        match rustix::io::read(prepared.gate.as_fd(), &mut byte) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(1) => break,
            _ => return false,
        }
    }
    rustix::io::write(prepared.news.as_fd(), &[EXECUTING]) == Ok(1)
}

/// The environment of this process with `added` in place of what has the same name. Ours comes
/// first: whoever searches many processes for the mark finds it at once.
fn merged(added: &[(&'static str, String)]) -> io::Result<Vec<CString>> {
    let line = |name: &[u8], value: &[u8]| c_string(&[name, b"=", value].concat());
    let kept = std::env::vars_os().filter(|(name, _)| added.iter().all(|(new, _)| name != new));
    let kept = kept.map(|(name, value)| line(name.as_bytes(), &value.into_vec()));
    let added = added.iter().map(|(name, value)| line(name.as_bytes(), value.as_bytes()));
    added.chain(kept).collect()
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
