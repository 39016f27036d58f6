//! The health check: a command that says whether the child's work goes on.

use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tenure_run::Ending;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior};

use super::supervise::{code_of, ending};
use crate::log_queue;
use crate::output::{plain, warn};

/// Without a success for this many periods the leader steps down: one slow check is no illness.
const PERIODS_WITHOUT_SUCCESS_MAX: u32 = 3;

/// What the shell of a check does first: it waits until its guard knows of it. At the end of the
/// pipe the wrapper is gone, and nothing is run.
const BEHIND_GATE: &str = "read -r _ && exec /bin/sh -c \"$1\" </dev/null";

/// The shortest and the longest time for which sick work holds back.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// A health check as the user wrote it.
#[derive(Clone, Debug)]
pub(crate) struct HealthCheck {
    pub(super) command: String,
    pub(super) every: Duration,
}

impl HealthCheck {
    /// How often the work must beat.
    pub(super) fn require_beat(&self) -> Duration {
        self.every * PERIODS_WITHOUT_SUCCESS_MAX
    }

    /// How long work that was found ill holds back, after so many illnesses in a row before.
    pub(super) fn pause_after(&self, illnesses: u32) -> Duration {
        self.require_beat().saturating_mul(1 << illnesses.min(16)).clamp(PAUSE_MIN, PAUSE_MAX)
    }
}

/// The checks during one term.
#[derive(Debug)]
pub(super) struct Health {
    check: HealthCheck,
    environment: Vec<(&'static str, String)>,
    ticks: Interval,
    running: Option<Pid>,
    /// A check waits here until its guard knows of it.
    gate: Option<PipeWriter>,
    /// Where goes what checks write; `None` where there can be no pipe.
    said: Option<CheckOutput>,
}

impl Health {
    pub(super) fn start(check: HealthCheck, environment: Vec<(&'static str, String)>) -> Self {
        let mut ticks = tokio::time::interval(check.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick comes at once, before the child can be up.
        ticks.reset();
        let said = CheckOutput::open().inspect_err(|error| {
            warn(&format!("what health checks say is not shown: no pipe for it: {error}"));
        });
        Health { check, environment, ticks, running: None, gate: None, said: said.ok() }
    }

    pub(super) async fn tick(&mut self) {
        self.ticks.tick().await;
    }

    /// A check that takes longer than the period, so it has failed; it is the caller's.
    pub(super) fn take_slow(&mut self) -> Option<Pid> {
        let slow = self.take();
        if slow.is_some() {
            warn(&format!("health check took longer than {:?}", self.check.every));
        }
        slow
    }

    /// Starts a check that waits for [`open_gate`](Self::open_gate). None is under way.
    pub(super) fn begin(&mut self) {
        match self.start_behind_gate() {
            Ok((pid, gate)) => (self.running, self.gate) = (Some(pid), Some(gate)),
            Err(error) => warn(&format!("health check does not start: {error}")),
        }
    }

    fn start_behind_gate(&self) -> io::Result<(Pid, PipeWriter)> {
        let (gate_end, gate) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", BEHIND_GATE, "sh", &self.check.command]).process_group(0);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let said = || self.said.as_ref().and_then(CheckOutput::for_check);
        command.stdin(gate_end);
        command.stdout(said().unwrap_or_else(Stdio::null));
        command.stderr(said().unwrap_or_else(Stdio::null));
        Ok((Pid::from_child(&command.spawn()?), gate))
    }

    /// A check that waits at its gate.
    pub(super) fn waiting(&self) -> Option<Pid> {
        self.running.filter(|_| self.gate.is_some())
    }

    /// The guard was told of the check that waits, if one does: it may run.
    pub(super) fn open_gate(&mut self) {
        if let Some(mut gate) = self.gate.take() {
            // A check that is gone is noticed by its end.
            let _ = gate.write_all(b"\n");
        }
    }

    /// Whether a check has just succeeded.
    pub(super) fn has_succeeded(&mut self) -> bool {
        let Some(pid) = self.running else { return false };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let Ok(Some(status)) = waitid(WaitId::Pid(pid), options) else { return false };
        self.running = None;
        if let Some(said) = &self.said {
            said.pass_on_now();
        }
        let ending = ending(&status);
        if ending != Ending::Exited(0) {
            let (command, code) = (plain(&self.check.command), code_of(ending));
            warn(&format!("health check failed with {code}: {command}"));
        }
        ending == Ending::Exited(0)
    }

    /// The process of a check under way.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.running
    }

    /// A check under way, which is the caller's from here on: to kill and to reap.
    pub(super) fn take(&mut self) -> Option<Pid> {
        self.gate = None;
        self.running.take()
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        if let Some(pid) = self.take() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// How much of what a check says is passed on at once.
const CHUNK_LEN: usize = 4096;
/// How many such pieces, before others have a turn.
const CHUNKS_MAX: usize = 16;

/// What checks write to stdout and stderr, passed on through the queue of the log: a check that has
/// something to say never waits for whoever reads the log, which would cost the leadership.
#[derive(Debug)]
struct CheckOutput {
    writer: io::PipeWriter,
    source: Arc<Source>,
    passing: JoinHandle<()>,
}

impl CheckOutput {
    fn open() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let source = Arc::new(Source { reader, begun: Mutex::default() });
        let passing = tokio::spawn(pass_on(Arc::clone(&source)));
        Ok(CheckOutput { writer, source, passing })
    }

    /// The same end for each check: what one leaves behind holds nothing open but that.
    fn for_check(&self) -> Option<Stdio> {
        self.writer.try_clone().ok().map(Stdio::from)
    }

    /// What was said so far, so that it is told before what came of the check.
    fn pass_on_now(&self) {
        let mut chunk = [0; CHUNK_LEN];
        for _ in 0..CHUNKS_MAX {
            match rustix::io::read(self.source.reader.as_fd(), &mut chunk) {
                Ok(len) if len > 0 => self.source.pass_on(&chunk[..len]),
                _ => break,
            }
        }
        self.source.end_line();
    }
}

impl Drop for CheckOutput {
    fn drop(&mut self) {
        self.pass_on_now();
        self.passing.abort();
    }
}

/// What checks say, in whole lines: the log goes on in a line of its own.
#[derive(Debug)]
struct Source {
    reader: pipe::Receiver,
    /// A line that has no end yet.
    begun: Mutex<Vec<u8>>,
}

impl Source {
    fn pass_on(&self, bytes: &[u8]) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.extend_from_slice(bytes);
        if let Some(end) = begun.iter().rposition(|byte| *byte == b'\n') {
            let lines: Vec<u8> = begun.drain(..=end).collect();
            log_queue::write(&lines);
        }
        let is_too_long = begun.len() > CHUNK_LEN;
        drop(begun);
        if is_too_long {
            self.end_line();
        }
    }

    fn end_line(&self) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if !begun.is_empty() {
            begun.push(b'\n');
            log_queue::write(&std::mem::take(&mut *begun));
        }
    }
}

async fn pass_on(source: Arc<Source>) {
    let mut chunk = vec![0; CHUNK_LEN];
    while source.reader.readable().await.is_ok() {
        for _ in 0..CHUNKS_MAX {
            match source.reader.try_read(&mut chunk) {
                Ok(0) => return,
                Ok(len) => source.pass_on(&chunk[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return,
            }
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    async fn ended(health: &mut Health) -> bool {
        loop {
            let has_succeeded = health.has_succeeded();
            if health.pid().is_none() {
                return has_succeeded;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn begun(mark: &Path) -> Health {
        let command = format!("cat && echo ran > {}", mark.display());
        let check = HealthCheck { command, every: Duration::from_secs(60) };
        let mut health = Health::start(check, Vec::new());
        health.begin();
        assert!(health.waiting().is_some());
        health
    }

    /// A wrapper that is killed right after it started a check has told nobody of it.
    #[tokio::test]
    async fn a_check_does_nothing_before_its_guard_knows_of_it() {
        let folder = testkit::TempFolder::create();
        let mark = folder.path().join("mark");
        let mut health = begun(&mark);
        drop(health.gate.take());
        assert!(!ended(&mut health).await && !mark.exists());

        let mut health = begun(&mark);
        health.open_gate();
        assert!(ended(&mut health).await && mark.exists(), "it runs, and reads nothing");
    }
}
