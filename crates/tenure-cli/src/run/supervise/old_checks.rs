//! Health checks that were ended: what is left of them, and for how long.

use rustix::process::{
    Pid as SystemPid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid,
};
use tenure_run::{KillAnswer, Pid, Stray};

use crate::run::proc::{Processes, from_system, kill_child};

/// Checks whose end is not waited for: one that became another user, or hangs inside the kernel,
/// may not end for long.
#[derive(Debug, Default)]
pub(super) struct OldChecks {
    /// Killed, and not reaped. Until they are, which is done here, their numbers are nobody else's.
    killed: Vec<SystemPid>,
    /// What they started as another user, which could not be killed.
    refused: Vec<Stray>,
}

impl OldChecks {
    /// Kills a check and what it started, wherever that went.
    pub(super) fn end(&mut self, check: SystemPid, processes: Processes) {
        self.killed.push(check);
        let Some(number) = from_system(check) else { return };
        // Listed first: what is killed leaves its children to this process, as the program does.
        let below = processes.below(number);
        let _ = kill_process_group(check, Signal::KILL);
        kill_child(number);
        for stray in below {
            if processes.kill_stray(stray) == Some(KillAnswer::Refused) {
                self.refused.push(stray);
            }
        }
        // And what it started meanwhile, unless it is gone.
        processes.kill_below(number);
    }

    /// Reaps those that have ended.
    pub(super) fn forget_ended(&mut self, processes: Processes) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        self.killed.retain(|pid| matches!(waitid(WaitId::Pid(*pid), options), Ok(None)));
        self.refused.retain(|stray| processes.lives(*stray));
    }

    /// Whether a child is one of them.
    pub(super) fn are(&self, pid: SystemPid) -> bool {
        self.killed.contains(&pid)
    }

    /// Whether one of them left this child behind, which cannot be killed.
    pub(super) fn left(&self, pid: Pid, started: Option<u64>) -> bool {
        started.is_some_and(|started| self.refused.contains(&Stray { pid, started }))
    }

    /// Whether they left anything behind that cannot be killed.
    pub(super) fn have_left_any(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Any process of theirs.
    pub(super) fn first(&self) -> Option<i32> {
        let killed = self.killed.first().map(|pid| pid.as_raw_nonzero().get());
        killed.or_else(|| self.refused.first().map(|stray| stray.pid.get()))
    }
}
