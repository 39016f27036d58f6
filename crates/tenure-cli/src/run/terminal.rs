//! The terminal: whoever is in its foreground reads from it and gets its Ctrl-C.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};
use rustix::process::{Pid, kill_process_group};
use rustix::termios::{isatty, tcgetpgrp, tcsetpgrp};

/// The terminal behind stdin, which controls this program.
#[derive(Clone, Debug)]
pub(super) struct Terminal {
    device: Arc<OwnedFd>,
    ours: Pid,
}

impl Terminal {
    pub(super) fn of_stdin() -> Option<Self> {
        let stdin = std::io::stdin();
        if !isatty(&stdin) {
            return None;
        }
        // A group whose leader is outside of this pid namespace has no number here.
        let ours = Pid::from_raw(nix::unistd::getpgrp().as_raw())?;
        // It fails where the terminal controls somebody else.
        tcgetpgrp(&stdin).ok()?;
        let device = rustix::io::fcntl_dupfd_cloexec(&stdin, 3).ok()?;
        Some(Terminal { device: Arc::new(device), ours })
    }

    /// Whether this process is in its foreground.
    pub(super) fn is_ours(&self) -> bool {
        tcgetpgrp(&*self.device) == Ok(self.ours)
    }

    /// Puts `group` into the foreground. Safe between fork and exec.
    pub(super) fn hand_to(&self, group: Pid) {
        // Somebody in the background who does this is stopped by SIGTTOU, unless it is blocked.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let mut before = SigSet::empty();
        let _ = pthread_sigmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut before));
        // A terminal that has gone away needs nobody in its foreground.
        let _ = tcsetpgrp(&*self.device, group);
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    }

    pub(super) fn take_back(&self) {
        self.hand_to(self.ours);
    }

    /// Stops this process, as Ctrl-Z does: with all that the shell has started together with it (a
    /// pipeline, a script), for it waits until each of them has stopped.
    pub(super) fn stop_job(&self) {
        // Not SIGSTOP: where no shell is there to let it go on, this one does nothing.
        let _ = kill_process_group(self.ours, rustix::process::Signal::TSTP);
    }
}
