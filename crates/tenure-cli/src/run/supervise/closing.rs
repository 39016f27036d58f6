//! The way out: nobody waits to be reaped while this process waits for the store or for a reader of
//! its last words.

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::timeout;

use super::{OldChecks, Supervisor};
use crate::run::guard_link::GuardLink;
use crate::run::proc::{child_has_ended, from_system};

/// How long a guard that has nothing to watch may take to leave. It is killed afterwards, and may
/// take as long again.
const GUARD_LEAVES_WITHIN: Duration = Duration::from_millis(200);

impl Supervisor {
    /// Ends the guard and reaps every child that has ended. Nothing is run here any more.
    ///
    /// What could not be ended keeps its guard, which tries once more when this process is gone,
    /// and its leader keeps its number.
    pub(crate) async fn close(&mut self) {
        self.perform();
        if !self.machine.is_idle() {
            return;
        }
        // The machine gives up a guard that does not answer.
        while self.machine.is_forgetting() {
            let news = self.next().await;
            self.handle(news);
            self.perform();
        }
        if let Some(guard) = self.guard.take() {
            self.dismiss(guard).await;
        }
        self.old_checks = OldChecks::default();
        reap_ended();
    }

    /// Waits for the guard to leave, which it does at the end of its orders.
    async fn dismiss(&mut self, guard: GuardLink) {
        let pid = guard.pid();
        drop(guard);
        if !self.has_left(pid).await {
            // Its number is its own until it is reaped, which only this process can do.
            let _ = kill_process(pid, Signal::KILL);
            self.has_left(pid).await;
        }
    }

    async fn has_left(&mut self, guard: Pid) -> bool {
        let left = async {
            while from_system(guard).and_then(child_has_ended) == Some(false) {
                self.children.recv().await;
            }
        };
        timeout(GUARD_LEAVES_WITHIN, left).await.is_ok()
    }
}

/// Nobody in this process waits for a child any more.
fn reap_ended() {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while let Ok(Some(_)) = waitid(WaitId::All, options) {}
}
