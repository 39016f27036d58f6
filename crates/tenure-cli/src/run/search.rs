//! The search for the processes of a program by their mark.
//!
//! To read an environment takes as long as its owner keeps its memory locked, which it does while
//! it forks and executes; and one that waits for a processor meanwhile does so for long, whatever
//! the priority of whoever reads. So a few threads read, and nobody waits for one of them for
//! long: a process that holds itself up does nothing else meanwhile, and the next one is killed at
//! once.
//!
//! ```text
//! lists ─► whoever may be of the program ─► queue ─► threads: environment, SIGKILL ─► found
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_run::{MarkedSearch, Pid};

use super::mark::Mark;
use super::proc::{MarkedKill, Processes, Shown, Watched, newest_first};
use crate::clock::boot_now;

/// So many environments may be locked at a time before others have to wait.
const THREADS_MAX: usize = 16;
/// The stack of a thread that reads: a piece of an environment, and little else.
const STACK_SIZE: usize = 128 * 1024;
/// How long a search waits for environments that are locked. They are read on during the next.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// A killing by the mark. Dropping it ends its threads, as soon as they have read what they read.
pub(super) struct Search {
    processes: Processes,
    queue: Arc<Queue>,
    found: Receiver<(Shown, MarkedKill)>,
    /// For threads that are started later.
    finds: Sender<(Shown, MarkedKill)>,
    threads: usize,
    /// Whoever is read, or waits for it.
    open: BTreeSet<Shown>,
}

struct Queue {
    mark: Mark,
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    processes: VecDeque<Shown>,
    is_over: bool,
}

impl Search {
    pub(super) fn of(processes: Processes, mark: Mark) -> Self {
        let queue = Queue { mark, waiting: Mutex::default(), changed: Condvar::new() };
        let (finds, found) = channel();
        let queue = Arc::new(queue);
        Search { processes, queue, found, finds, threads: 0, open: BTreeSet::new() }
    }

    /// Kills every process whose environment has the mark, and counts them and those of which it
    /// cannot be told just now; those that belong to somebody else go to `refused`.
    ///
    /// What descends from the wrapper comes first, if that is there: most of a program is there.
    /// Nobody is looked at closely who was there before the `leader`.
    pub(super) fn kill_marked(
        &mut self,
        leader: Option<Watched>,
        has_wrapper: bool,
        mut refused: impl FnMut(Pid),
    ) -> MarkedSearch {
        let until = boot_now() + WAIT_MAX;
        // Whoever has only waited until now is listed again, behind those that are newer.
        for shown in self.queue.lock().processes.drain(..) {
            self.open.remove(&shown);
        }
        let mut found = MarkedSearch::default();
        let mut take = |kill| match kill {
            MarkedKill::Killed => found.killed += 1,
            MarkedKill::Unclear => found.unclear += 1,
            MarkedKill::Refused(pid) => pid.into_iter().for_each(&mut refused),
            MarkedKill::Nothing => {}
        };
        let near = if has_wrapper { self.processes.below_parent() } else { Vec::new() };
        let mut handed: BTreeSet<Shown> = near.iter().copied().collect();
        near.into_iter().for_each(|shown| self.look_at(shown, leader, &mut take));
        for shown in newest_first() {
            if handed.insert(shown) {
                self.look_at(shown, leader, &mut take);
            }
        }
        while !self.open.is_empty() {
            let Ok((shown, kill)) = self.found.recv_timeout(boot_now().until(until)) else { break };
            self.open.remove(&shown);
            take(kill);
        }
        found.unclear += self.open.len();
        found
    }

    fn look_at(&mut self, shown: Shown, leader: Option<Watched>, mut take: impl FnMut(MarkedKill)) {
        match self.processes.may_be_of(shown, leader) {
            None => take(MarkedKill::Unclear),
            Some(true) if !self.open.contains(&shown) => {
                if self.has_thread() {
                    self.open.insert(shown);
                    self.queue.lock().processes.push_back(shown);
                    self.queue.changed.notify_one();
                } else {
                    take(self.processes.kill_if_marked(shown, &self.queue.mark));
                }
            }
            Some(_) => {}
        }
    }

    /// Whether somebody reads beside this thread. Where the system gives no threads, this one does.
    fn has_thread(&mut self) -> bool {
        if self.threads < THREADS_MAX && self.threads <= self.open.len() {
            let (processes, queue, finds) =
                (self.processes, Arc::clone(&self.queue), self.finds.clone());
            let thread = std::thread::Builder::new().stack_size(STACK_SIZE);
            let started = thread.spawn(move || queue.serve(processes, &finds));
            self.threads += usize::from(started.is_ok());
        }
        self.threads > 0
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.is_over = true;
        waiting.processes.clear();
        drop(waiting);
        self.queue.changed.notify_all();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nobody panics while holding it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, processes: Processes, finds: &Sender<(Shown, MarkedKill)>) {
        while let Some(shown) = self.next() {
            if finds.send((shown, processes.kill_if_marked(shown, &self.mark))).is_err() {
                return;
            }
        }
    }

    /// The next process to look at; `None` when the search is over.
    fn next(&self) -> Option<Shown> {
        let is_idle = |it: &mut Waiting| it.processes.is_empty() && !it.is_over;
        let waiting = self.changed.wait_while(self.lock(), is_idle);
        waiting.unwrap_or_else(PoisonError::into_inner).processes.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::super::mark::MARK;
    use super::super::proc::child_has_ended;
    use super::*;

    /// A mark of this test alone: the same test may run elsewhere on this machine, and would kill.
    fn mark_of(test: &str) -> String {
        format!("searched_for_{test}_{}", std::process::id())
    }

    /// A process with the mark, whose environment is there.
    fn marked(id: &str) -> (std::process::Child, Pid) {
        let child = std::process::Command::new("sleep").arg("600").env(MARK, id).spawn().unwrap();
        let pid = Pid::new(child.id().into()).unwrap();
        let file = format!("/proc/{pid}/environ");
        while !String::from_utf8_lossy(&std::fs::read(&file).unwrap()).contains(id) {
            std::thread::yield_now();
        }
        (child, pid)
    }

    #[test]
    fn a_search_passes_over_whoever_was_there_before_the_leader() {
        let mark = mark_of("before");
        let (mut child, pid) = marked(&mark);
        let processes = Processes::open().unwrap();
        let mut search = Search::of(processes, Mark::of(mark.into()));
        let leader = processes.watch(pid).unwrap();
        let later = Processes::later(leader);
        assert_eq!(search.kill_marked(Some(later), false, |_| {}).killed, 0);
        assert_eq!(child_has_ended(pid), Some(false));
        let killed = |search: &mut Search| search.kill_marked(Some(leader), false, |_| {}).killed;
        // On a busy machine it may be read only during the next search.
        while killed(&mut search) == 0 {}
        child.wait().unwrap();
    }

    /// Threads that wait for locked environments are no reason for others to be left alone.
    #[test]
    fn a_search_goes_on_where_environments_stay_locked() {
        let mark = mark_of("locked");
        let (mut child, pid) = marked(&mark);
        let processes = Processes::open().unwrap();
        let mut search = Search::of(processes, Mark::of(mark.into()));
        let leader = processes.watch(pid);
        // It lives on, and began after the one that is to be killed.
        let (mut other, other_pid) = marked(&mark_of("nobody"));
        search.open.insert(Shown::of(&other));
        while search.kill_marked(leader, false, |_| {}).killed == 0 {}
        child.wait().unwrap();
        let found = search.kill_marked(leader, false, |_| {});
        assert!(found.unclear > 0, "one is still being read: {found:?}");
        assert_eq!(child_has_ended(other_pid), Some(false));
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
