//! Ending a hook with all it started.
//!
//! What a hook starts may leave its process group, as `timeout` and `setsid` do, and outlive its
//! parent. So it is looked for in two ways: from the shell downwards, and by a mark in the
//! environment. Whatever is found is stopped first, for what is stopped starts nothing more. Once
//! a look finds nothing new, all of it is killed.

use std::collections::BTreeMap;
use std::sync::Once;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::proc::{Marked, Processes, Shown};
use crate::clock;

/// How long one round of looking and killing may take.
const ROUND_MAX: Duration = Duration::from_secs(2);
/// The pause before the next look at what was killed.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Looks in a row of which it cannot be told whether they saw everything: on a busy machine other
/// programs come and go all the time.
const UNCLEAR_LOOKS_MAX: u32 = 5;

/// A hook that runs, to be killed with all it started.
#[derive(Debug)]
pub(super) struct RunningHook {
    /// Its shell, which nobody has reaped, and which leads its process group.
    shell: Pid,
    mark: String,
    /// `None` where `/proc` cannot be used: then only the process group is killed.
    processes: Option<Processes>,
    /// What was found and has not ended, and when it was started. The shell is the first.
    found: BTreeMap<Shown, u64>,
    /// When the shell was started: nothing of the hook is older.
    started: u64,
}

/// What a look showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    New,
    NothingNew,
    /// Nothing new, but some ended, or became another program, while they were looked at.
    Unclear,
}

impl RunningHook {
    pub(super) fn new(shell: Pid, mark: String) -> Self {
        let processes = Processes::open().map_err(|why| warn_once(&why)).ok();
        let mut found = BTreeMap::new();
        let mut started = 0;
        if let Some(shown) = processes.and_then(|processes| processes.child(shell))
            && let Some(stat) = shown.stat()
        {
            started = stat.started;
            found.insert(shown, started);
        }
        RunningHook { shell, mark, processes, found, started }
    }

    /// Kills all of it, and looks until nothing is left or a while has passed. Returns the numbers
    /// of those that are left: they belong to somebody else, or start others without end. Blocks.
    pub(super) fn kill(&mut self) -> Vec<i32> {
        let until = clock::now() + ROUND_MAX;
        // It may have ended by itself meanwhile.
        let _ = kill_process_group(self.shell, Signal::STOP);
        let mut unclear_looks = 0;
        loop {
            let look = self.look(until);
            let is_over = clock::now() >= until;
            unclear_looks = if look == Look::Unclear { unclear_looks + 1 } else { 0 };
            let is_all = look == Look::NothingNew || unclear_looks >= UNCLEAR_LOOKS_MAX;
            if is_all || is_over {
                self.kill_found();
                self.found.retain(|shown, started| shown.runs_since(*started));
            }
            if is_over || is_all && self.found.is_empty() {
                return self.found.keys().filter_map(|shown| self.number(*shown)).collect();
            }
            if is_all {
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }

    fn kill_found(&self) {
        let _ = kill_process_group(self.shell, Signal::KILL);
        let Some(processes) = self.processes else { return };
        for (shown, started) in &self.found {
            let _ = processes.signal(*shown, Signal::KILL, || shown.runs_since(*started));
        }
    }

    /// Stops what belongs to the hook and was not found before.
    fn look(&mut self, until: Instant) -> Look {
        let Some(processes) = self.processes else { return Look::NothingNew };
        let found_before = self.found.len();
        let mut parents: Vec<Shown> = self.found.keys().copied().collect();
        while let Some(parent) = parents.pop().filter(|_| clock::now() < until) {
            for child in parent.children() {
                let is_below = || child.stat().is_some_and(|stat| stat.parent == parent);
                if self.stop(processes, child, is_below) {
                    parents.push(child);
                }
            }
        }
        let mut is_unclear = false;
        for shown in Shown::everybody() {
            if self.found.contains_key(&shown) || clock::now() >= until {
                continue;
            }
            let (since, mark) = (self.started, self.mark.clone());
            match Marked::of(shown, since, &mark) {
                Marked::No => {}
                Marked::Unclear => is_unclear = true,
                Marked::Yes => {
                    let is_marked = || Marked::of(shown, since, &mark) == Marked::Yes;
                    self.stop(processes, shown, is_marked);
                }
            }
        }
        match self.found.len() > found_before {
            true => Look::New,
            false if is_unclear => Look::Unclear,
            false => Look::NothingNew,
        }
    }

    /// Stops a process if it is meant, and returns whether that is a new one.
    fn stop(&mut self, processes: Processes, shown: Shown, is_meant: impl Fn() -> bool) -> bool {
        let Some(stat) = shown.stat().filter(|stat| !stat.has_ended) else { return false };
        if self.found.contains_key(&shown) {
            return false;
        }
        let is_it = || shown.runs_since(stat.started) && is_meant();
        let is_new = match processes.signal(shown, Signal::STOP, is_it) {
            Ok(was_meant) => was_meant,
            Err(Errno::SRCH) => false,
            // It belongs to somebody else, or cannot be reached just now.
            Err(_) => is_it(),
        };
        if is_new {
            self.found.insert(shown, stat.started);
        }
        is_new
    }

    fn number(&self, shown: Shown) -> Option<i32> {
        self.processes?.number(shown).map(|pid| pid.as_raw_nonzero().get())
    }
}

fn warn_once(why: &str) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(target: "tenure",
            "{why}: what a hook starts outside its process group is not found when it is killed");
    });
}
