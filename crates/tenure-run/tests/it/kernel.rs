//! Processes, their families and their groups, as a kernel keeps them.

use std::collections::BTreeMap;

use tenure_run::{Ending, KillAnswer, ListedStray, MarkedSearch, Pid, Stray};

use crate::random::Random;

/// Numbers are given out in turn up to here, then from the beginning, as a kernel does.
const NUMBER_MAX: i32 = 400;
/// The wrapper's own number; it is the subreaper of all that descend from it.
pub(crate) const WRAPPER: i32 = 2;
const INIT: i32 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Wrapper,
    Guard,
    /// Of the program of this term.
    Program(u64),
    /// A health check during this term, and what it started.
    Check(u64),
    /// A child of the wrapper from before.
    Stranger,
    /// Somebody who has nothing to do with any of this.
    Innocent,
}

#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) kind: Kind,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// No two processes have the same.
    pub(crate) started: u64,
    /// Since when it waits to be reaped, and how it ended.
    pub(crate) zombie: Option<(u64, Ending)>,
    /// SIGKILL is on its way: it does nothing any more.
    pub(crate) is_dying: bool,
    /// It has another user: signals are refused.
    pub(crate) is_foreign: bool,
    /// It hangs inside the kernel: signals have no effect.
    pub(crate) hangs: bool,
    /// It has cleared its environment.
    pub(crate) is_unmarked: bool,
    pub(crate) ignores_stop: bool,
    /// It is killed with its parent.
    pub(crate) dies_with_parent: bool,
}

pub(crate) struct Kernel {
    pub(crate) processes: BTreeMap<i32, Process>,
    next: i32,
    started: u64,
    /// Whoever was killed and must not have been.
    pub(crate) wrongly_killed: Option<(i32, Kind)>,
    /// A child of the wrapper ended.
    pub(crate) child_signal: bool,
}

impl Kernel {
    pub(crate) fn new() -> Self {
        let mut kernel = Kernel {
            processes: BTreeMap::new(),
            next: WRAPPER,
            started: 0,
            wrongly_killed: None,
            child_signal: false,
        };
        kernel.fork(INIT, Kind::Wrapper, true);
        kernel
    }

    pub(crate) fn fork(&mut self, parent: i32, kind: Kind, has_own_group: bool) -> i32 {
        let in_use = |number: i32| {
            self.processes.contains_key(&number)
                || self.processes.values().any(|process| process.group == number)
        };
        let mut number = self.next;
        while in_use(number) {
            number = if number >= NUMBER_MAX { WRAPPER } else { number + 1 };
        }
        self.next = if number >= NUMBER_MAX { WRAPPER } else { number + 1 };
        let like = self.processes.get(&parent);
        let group = like.filter(|_| !has_own_group).map_or(number, |parent| parent.group);
        let inherited = |flag: fn(&Process) -> bool| like.is_some_and(flag);
        self.started += 1;
        let process = Process {
            kind,
            parent,
            group,
            started: self.started,
            zombie: None,
            is_dying: false,
            is_foreign: inherited(|parent| parent.is_foreign),
            hangs: false,
            is_unmarked: inherited(|parent| parent.is_unmarked),
            ignores_stop: inherited(|parent| parent.ignores_stop),
            dies_with_parent: false,
        };
        self.processes.insert(number, process);
        number
    }

    pub(crate) fn runs(&self, pid: i32) -> bool {
        self.processes.get(&pid).is_some_and(|process| process.zombie.is_none())
    }

    /// Whether a signal would still change how it ends.
    pub(crate) fn is_alive(&self, pid: i32) -> bool {
        self.processes.get(&pid).is_some_and(|it| it.zombie.is_none() && !it.is_dying)
    }

    /// Ends a process. Its children become those of the wrapper while that lives.
    pub(crate) fn exit(&mut self, now: u64, pid: i32, ending: Ending) {
        let Some(process) = self.processes.get_mut(&pid).filter(|it| it.zombie.is_none()) else {
            return;
        };
        process.zombie = Some((now, ending));
        let parent = process.parent;
        let heir = if pid != WRAPPER && self.runs(WRAPPER) { WRAPPER } else { INIT };
        let mut orphans = Vec::new();
        for (number, child) in &mut self.processes {
            if child.parent == pid {
                child.parent = heir;
                orphans.push((*number, child.zombie.is_some(), child.dies_with_parent));
            }
        }
        for (orphan, is_zombie, dies) in orphans {
            if is_zombie && heir == INIT {
                self.processes.remove(&orphan);
            } else if dies && !is_zombie {
                self.exit(now, orphan, Ending::Signalled(9));
            }
        }
        match parent {
            WRAPPER if self.runs(WRAPPER) => self.child_signal = true,
            // Everybody else reaps at once.
            _ => drop(self.processes.remove(&pid)),
        }
    }

    /// Sends SIGKILL as the wrapper's user; who dies of it is told by [`Self::reaches`].
    pub(crate) fn kill(&mut self, pid: i32) -> KillAnswer {
        let Some(process) = self.processes.get_mut(&pid) else { return KillAnswer::Gone };
        if process.is_foreign {
            return KillAnswer::Refused;
        }
        if !matches!(process.kind, Kind::Program(_) | Kind::Check(_) | Kind::Guard) {
            self.wrongly_killed = Some((pid, process.kind));
        }
        process.is_dying = !process.hangs;
        KillAnswer::Sent
    }

    /// Kills a group, and says what became of those in it that had not ended.
    pub(crate) fn kill_group(&mut self, group: i32) -> KillAnswer {
        let living = self.processes.iter().filter(|(_, it)| it.zombie.is_none());
        let members = living.filter(|(_, it)| it.group == group);
        let members: Vec<i32> = members.map(|(pid, _)| *pid).collect();
        let answers: Vec<KillAnswer> = members.into_iter().map(|pid| self.kill(pid)).collect();
        match (answers.is_empty(), answers.contains(&KillAnswer::Sent)) {
            (true, _) => KillAnswer::Gone,
            (false, true) => KillAnswer::Sent,
            (false, false) => KillAnswer::Refused,
        }
    }

    /// Kills every process with the mark; how many, and who refused.
    pub(crate) fn kill_marked(&mut self) -> (MarkedSearch, Vec<Pid>) {
        let is_marked = |process: &Process| {
            matches!(process.kind, Kind::Program(_) | Kind::Check(_))
                && !process.is_unmarked
                && process.zombie.is_none()
                && !process.is_dying
        };
        let marked = self.processes.iter().filter(|(_, process)| is_marked(process));
        let marked: Vec<i32> = marked.map(|(pid, _)| *pid).collect();
        let (mut killed, mut refused) = (0, Vec::new());
        for pid in marked {
            match self.kill(pid) {
                KillAnswer::Refused => refused.extend(Pid::new(pid.into())),
                _ => killed += usize::from(!self.processes[&pid].hangs),
            }
        }
        (MarkedSearch { killed, unclear: 0 }, refused)
    }

    /// What descends from the wrapper, lives and is not in `group`; nothing of the children that
    /// are passed over.
    pub(crate) fn strays(&self, group: Option<i32>, passed_over: &[i32]) -> Vec<ListedStray> {
        let living = self.processes.iter().filter(|(_, it)| it.zombie.is_none());
        let strays = living.filter(|(number, it)| Some(it.group) != group && **number != WRAPPER);
        let listed = strays.filter_map(|(number, it)| {
            let child = self.child_above(*number).filter(|it| !passed_over.contains(it))?;
            let stray = Stray { pid: Pid::new((*number).into())?, started: it.started };
            Some(ListedStray { stray, child: Pid::new(child.into())? })
        });
        listed.collect()
    }

    /// The child of the wrapper that this process is, or descends from.
    fn child_above(&self, number: i32) -> Option<i32> {
        let parent = self.processes.get(&number)?.parent;
        match parent {
            WRAPPER => Some(number),
            parent => self.child_above(parent),
        }
    }

    /// Kills a stray and what descends from it, unless the number is somebody else's by now.
    pub(crate) fn kill_stray(&mut self, stray: Stray) -> KillAnswer {
        let number = stray.pid.get();
        let process = self.processes.get(&number).filter(|it| it.zombie.is_none());
        if process.is_none_or(|it| it.started != stray.started) {
            return KillAnswer::Gone;
        }
        self.kill_below(number);
        self.kill(number)
    }

    /// Kills what descends from `top`.
    pub(crate) fn kill_below(&mut self, top: i32) {
        let children = self.processes.iter().filter(|(_, it)| it.parent == top);
        let children: Vec<i32> = children.map(|(pid, _)| *pid).collect();
        for child in children {
            self.kill(child);
            self.kill_below(child);
        }
    }

    /// The signals that were sent take effect, each with this chance.
    pub(crate) fn deliver(&mut self, now: u64, random: &mut Random, per_mille: u64) {
        let dying = self.processes.iter().filter(|(_, it)| it.is_dying && it.zombie.is_none());
        let dying: Vec<i32> = dying.map(|(pid, _)| *pid).collect();
        for pid in dying {
            if random.chance(per_mille) {
                self.exit(now, pid, Ending::Signalled(9));
            }
        }
    }

    pub(crate) fn reap(&mut self, pid: i32) {
        if self.processes.get(&pid).is_some_and(|it| it.parent == WRAPPER && it.zombie.is_some()) {
            self.processes.remove(&pid);
        }
    }
}
