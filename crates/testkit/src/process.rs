//! A program of the test's own as a child process.

use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::child::GuardedChild;
use crate::lines::Lines;

/// A running child program whose standard output is read line by line.
///
/// Its standard error goes to the test's own. It ends when the value is dropped; programs that it
/// started in turn do not.
///
/// ```
/// use std::process::Command;
/// use testkit::{GENEROUS, Process};
///
/// let mut command = Command::new("sh");
/// command.args(["-c", "echo ready; exec sleep 600"]);
/// let mut process = Process::spawn(command);
/// assert_eq!(process.next_line(GENEROUS), "ready");
/// process.kill();
/// ```
#[derive(Debug)]
pub struct Process {
    name: String,
    child: GuardedChild,
    lines: Lines,
}

impl Process {
    /// Starts the program. What the command says of standard output is overridden.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdout(Stdio::piped());
        let mut child = GuardedChild::spawn(command)
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let stdout = child.inner().stdout.take().expect("standard output is a pipe");
        Self { name, child, lines: Lines::collect(stdout) }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Removes and returns the oldest line of standard output that was not taken yet.
    ///
    /// # Panics
    /// When none comes within `bound` or the program ends its output.
    #[track_caller]
    pub fn next_line(&self, bound: Duration) -> String {
        self.try_next_line(bound).unwrap_or_else(|| {
            panic!("{} (process {}) wrote no line within {bound:?}", self.name, self.pid())
        })
    }

    /// As [`next_line`](Self::next_line), but `None` where that panics.
    pub fn try_next_line(&self, bound: Duration) -> Option<String> {
        self.lines.take_next(bound)
    }

    /// Takes lines until one holds `text`, and returns that one.
    ///
    /// # Panics
    /// When none comes within `bound`; the message shows the lines that came.
    #[track_caller]
    pub fn next_line_with(&self, text: &str, bound: Duration) -> String {
        let deadline = std::time::Instant::now() + bound;
        let mut others = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.lines.take_next(left) {
                Some(line) if line.contains(text) => return line,
                Some(line) => others.push(line),
                None => panic!(
                    "{} (process {}) wrote no line with {text:?} within {bound:?}, only {others:#?}",
                    self.name,
                    self.pid()
                ),
            }
        }
    }

    /// The lines of standard output that were not taken yet.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.lines.snapshot()
    }

    /// Stops the process as SIGSTOP does. When this returns, it no longer runs.
    ///
    /// # Panics
    /// When it has ended.
    pub fn pause(&mut self) {
        self.child.pause();
    }

    /// Lets a stopped process run on, as SIGCONT does.
    ///
    /// # Panics
    /// When it has ended.
    pub fn resume(&mut self) {
        self.child.resume();
    }

    /// Asks it to end, as SIGTERM does. It may take its time: see [`wait`](Self::wait).
    ///
    /// # Panics
    /// When it has ended.
    pub fn terminate(&mut self) {
        self.child.signal(rustix::process::Signal::TERM);
    }

    /// Interrupts it, as Ctrl-C does.
    ///
    /// # Panics
    /// When it has ended.
    pub fn interrupt(&mut self) {
        self.child.signal(rustix::process::Signal::INT);
    }

    /// Ends it as SIGKILL does, stopped or not. When this returns, it is gone. Harmless when it has
    /// ended before.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Whether it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_none()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended within `bound`.
    #[track_caller]
    pub fn wait(&mut self, bound: Duration) -> ExitStatus {
        self.child.wait(bound)
    }
}
