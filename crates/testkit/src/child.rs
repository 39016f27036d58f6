//! A child process that cannot outlive the test that started it.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::wait::{GENEROUS, wait_for};

/// A child process, killed and reaped on drop; on Linux also killed by the system when this
/// process ends in any way, SIGKILL included.
#[derive(Debug)]
pub(crate) struct GuardedChild {
    child: Child,
    pid: Pid,
}

impl GuardedChild {
    pub(crate) fn spawn(command: Command) -> io::Result<Self> {
        let child = spawn_on_lasting_thread(command)?;
        let pid = Pid::from_child(&child);
        Ok(Self { child, pid })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn inner(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Stops the process as SIGSTOP does. When this returns, it no longer runs.
    pub(crate) fn pause(&mut self) {
        self.signal(Signal::STOP);
        // The signal alone only asks: the process may run on for a moment on another core.
        // NOWAIT leaves an exit to be collected by `Child`.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        if let Err(error) = rustix::process::waitid(WaitId::Pid(self.pid), options) {
            panic!("cannot wait for process {} to stop: {error}", self.pid());
        }
    }

    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the process has ended: its number may belong to another process by now.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let pid = self.pid();
        if let Some(status) = self.try_wait() {
            panic!("process {pid} has ended ({status}) and cannot get {signal:?}");
        }
        if let Err(error) = rustix::process::kill_process(self.pid, signal) {
            panic!("cannot send {signal:?} to process {pid}: {error}");
        }
    }

    pub(crate) fn try_wait(&mut self) -> Option<ExitStatus> {
        let pid = self.pid();
        self.child.try_wait().unwrap_or_else(|error| panic!("cannot wait for {pid}: {error}"))
    }

    pub(crate) fn wait(&mut self, bound: Duration) -> ExitStatus {
        let what = format!("process {} to end", self.pid());
        wait_for(&what, bound, || self.try_wait())
    }

    /// Ends the process as SIGKILL does, stopped or not. When this returns, it is gone. Harmless
    /// when it has ended before.
    pub(crate) fn kill(&mut self) {
        // An error means that it has ended, which is what is asked for.
        let _ = self.child.kill();
        self.wait(GENEROUS);
    }
}

impl Drop for GuardedChild {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Order = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts `command` from a thread that lives as long as this process.
///
/// The system watches the *thread* that started a child, and a test's thread ends with the test. A
/// server shared by several tests would die with the first of them.
fn spawn_on_lasting_thread(command: Command) -> io::Result<Child> {
    static ORDERS: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Order>();
        thread::Builder::new()
            .name("testkit-spawner".into())
            .spawn(move || {
                for (mut command, answer) in receiver {
                    end_with_parent(&mut command);
                    // Nobody waits any more when the asking test has panicked; the child is
                    // dropped then, and dies with this process.
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("a test process may start a thread");
        sender
    });
    let (answer, outcome) = mpsc::channel();
    orders.send((command, answer)).expect("the spawner lives as long as the process");
    outcome.recv().expect("the spawner answers every order")
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the standard library offers no safe way to set the signal")]
fn end_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt;

    let parent = rustix::process::getpid();
    let in_child = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the line above.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::other("the test process has ended"))
        }
    };
    // SAFETY: the closure runs between fork and exec. It makes two system calls and, only where
    // the child gives up anyway, allocates an error.
    unsafe { command.pre_exec(in_child) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_command: &mut Command) {}
