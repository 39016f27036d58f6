//! From a program to nothing of it.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::Moment;

use super::{Demand, Output, Program, RunOutcome, Stage, StartError, Wrapper, WrapperMessage};
use crate::process::{KillAnswer, ListedChild, Pid};

/// Between two looks at what is left: short at first, because most programs are gone at once.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(1);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(20);
/// How many lists in a row must show nobody. One may miss a child that changes hands meanwhile.
const EMPTY_LISTS: u32 = 2;
/// What was killed and has not ended after this long hangs inside the kernel.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// How many looks confirm that all who are left belong to somebody else.
const REFUSALS_MIN: u32 = 3;
/// Of so many processes that are left, each end is looked at when it is told. Of more, only now and
/// then: a list of thousands takes as long as many of them take to end.
const LEFT_LOOKED_AT_ONCE: usize = 32;
/// Between two looks at what cannot be ended.
const STUCK_PAUSE: Duration = Duration::from_millis(100);

/// How far the end of a program has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    since: Moment,
    /// When the last look began.
    looked_at: Moment,
    pub(super) look_at: Moment,
    pause: Duration,
    empty_lists: u32,
    lists: u32,
    /// Who was left at the last look.
    left: Vec<Pid>,
}

/// What is known about a list of children beside what it shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListAge {
    /// The leader had ended before it was made.
    pub(super) leader_had_ended: bool,
    /// It shows a child that has ended since the list before.
    pub(super) has_changed: bool,
}

impl Wrapper {
    /// What cannot be killed by its number.
    pub fn handle_kill_answer(&mut self, _now: Moment, pid: Pid, answer: KillAnswer) {
        let Some(program) = &mut self.program else { return };
        match answer {
            KillAnswer::Refused => {
                program.refused.insert(pid);
            }
            KillAnswer::Sent | KillAnswer::Gone => {
                program.refused.remove(&pid);
            }
        }
    }

    /// Ends the program though it would go on, and says `message` if it ran.
    pub(super) fn kill(&mut self, now: Moment, message: Option<WrapperMessage>) {
        match self.program.as_ref().map(|program| &program.stage) {
            Some(Stage::Opening | Stage::Running) => self.look_before(Demand::Kill(message)),
            _ => self.cut_short(now),
        }
    }

    /// The same without a look at what it does.
    pub(super) fn cut_short(&mut self, now: Moment) {
        let Some(program) = &mut self.program else { return };
        if !matches!(program.stage, Stage::Ending(_) | Stage::Stuck { .. }) {
            program.is_cut_short = true;
            self.end(now);
        }
    }

    /// Kills whatever is left.
    pub(super) fn end(&mut self, now: Moment) {
        let Some(program) = &mut self.program else { return };
        if matches!(program.stage, Stage::Ending(_) | Stage::Stuck { .. }) {
            return;
        }
        let is_at_gate = matches!(program.stage, Stage::Forked | Stage::AtGate);
        let was_waiting = program.stage == Stage::Waiting || program.is_unborn();
        program.unguarded_since = None;
        program.stage = Stage::Ending(Progress {
            since: now,
            looked_at: now,
            look_at: now,
            pause: LOOK_PAUSE_MIN,
            empty_lists: 0,
            lists: 0,
            left: Vec::new(),
        });
        if was_waiting {
            return self.finish(now);
        }
        if is_at_gate {
            self.outputs.push_back(Output::CloseGate);
        }
        self.look_for_end(now);
    }

    /// Kills the group, and looks first at the leader and then, once more, at all children.
    pub(super) fn look_for_end(&mut self, now: Moment) {
        let Some(Program { group: Some(group), stage, .. }) = &mut self.program else { return };
        let group = *group;
        if let Stage::Ending(progress) = stage {
            progress.looked_at = now;
        }
        self.outputs.push_back(Output::KillGroup(group));
        self.outputs.push_back(Output::LookAtLeader(group));
    }

    /// The children that are the program's and have not ended.
    pub(super) fn left_of_program(&self, listed: &[ListedChild]) -> Vec<Pid> {
        listed.iter().filter(|child| self.is_of_program(child)).map(|child| child.pid).collect()
    }

    fn is_of_program(&self, child: &ListedChild) -> bool {
        !child.has_ended && !child.is_helper && !self.strangers.contains(&child.pid)
    }

    /// Whether a child is to be killed as soon as it is listed. The list of children tells all the
    /// same who is left; but to list thousands takes long, and this one may be killed meanwhile.
    pub fn is_to_be_killed(&self, child: &ListedChild) -> bool {
        let is_ending = self
            .program
            .as_ref()
            .is_some_and(|program| matches!(program.stage, Stage::Ending(_) | Stage::Stuck { .. }));
        is_ending && self.is_of_program(child) && !self.is_below_strangers(child)
    }

    /// Whether this was the end. `left` is `None` where nobody knows what is left.
    pub(super) fn judge_end(&mut self, now: Moment, left: Option<Vec<Pid>>, age: ListAge) {
        let is_proof = age.leader_had_ended && !age.has_changed;
        let Some(program) = &mut self.program else { return };
        let is_stuck = matches!(program.stage, Stage::Stuck { .. });
        let nobody_is_left = is_proof && left.as_ref().is_some_and(Vec::is_empty);
        let is_listed = left.is_some();
        let left = left.unwrap_or_default();
        let names: BTreeSet<Pid> = left.iter().copied().collect();
        program.refused.retain(|pid| names.contains(pid));
        let progress = match &mut program.stage {
            Stage::Ending(progress) => progress,
            Stage::Stuck { .. } if nobody_is_left => return self.finish(now),
            Stage::Stuck { look_at, .. } => {
                // What starts others is not given up with those that cannot be ended.
                if age.has_changed || left.iter().any(|pid| !program.refused.contains(pid)) {
                    *look_at = (*look_at).min(now + LOOK_PAUSE_MAX);
                }
                return self.kill_each(&left, &left);
            }
            _ => return,
        };
        progress.lists += 1;
        progress.empty_lists = if nobody_is_left { progress.empty_lists + 1 } else { 0 };
        if progress.empty_lists >= EMPTY_LISTS {
            progress.look_at = now + progress.pause;
            if !self.awaits_last_word(now) {
                self.finish(now);
            }
            return;
        }
        let all_refused = !left.is_empty() && left.iter().all(|pid| program.refused.contains(pid));
        let is_hopeless = all_refused && !age.has_changed && progress.lists >= REFUSALS_MIN
            || now >= progress.since + STUCK_AFTER;
        if is_hopeless && !nobody_is_left && !is_stuck {
            return self.give_up(now, left, is_listed);
        }
        if nobody_is_left {
            progress.look_at = now;
            return self.look_for_end(now);
        }
        // Whoever is killed leaves its children to us: as long as that goes on, look at once again.
        progress.pause = match progress.left == left && !left.is_empty() {
            true => (progress.pause * 2).min(LOOK_PAUSE_MAX),
            false => LOOK_PAUSE_MIN,
        };
        // And never for more than half of the time: who is dying needs the processor, too.
        let took = now.since(progress.looked_at).min(LOOK_PAUSE_MAX);
        progress.look_at = now + progress.pause.max(took);
        let before = std::mem::replace(&mut progress.left, left.clone());
        self.kill_each(&left, &before);
    }

    /// Kills those that are left, and what descends from those that a signal did not end before:
    /// as long as they are there, their children are not ours.
    fn kill_each(&mut self, left: &[Pid], before: &[Pid]) {
        self.outputs.extend(left.iter().map(|pid| Output::Kill(*pid)));
        let before: BTreeSet<Pid> = before.iter().copied().collect();
        let stayed = left.iter().filter(|pid| before.contains(pid));
        self.outputs.extend(stayed.map(|pid| Output::KillBelow(*pid)));
    }

    /// Some cannot be ended. They are named, the term is held, and they are tried again.
    fn give_up(&mut self, now: Moment, left: Vec<Pid>, is_listed: bool) {
        let Some(program) = &mut self.program else { return };
        let (refused, stuck) = left.iter().partition(|pid| program.refused.contains(pid));
        program.stage = Stage::Stuck { pids: left, look_at: now };
        self.is_closed = true;
        self.outputs.push_back(Output::HoldTerm);
        let message = WrapperMessage::NotEnded { refused, stuck, is_listed };
        self.outputs.push_back(Output::Say(message));
        self.hold(now);
    }

    /// Holds the term to its end, and looks whether they are gone after all.
    pub(super) fn hold(&mut self, now: Moment) {
        let Some(program) = &mut self.program else { return };
        if now >= program.deadline.ends_at {
            return self.finish(now);
        }
        match &mut program.stage {
            Stage::Stuck { look_at, .. } if now >= *look_at => *look_at = now + STUCK_PAUSE,
            _ => return,
        }
        self.look_for_end(now);
    }

    /// Nothing is left, or nothing more can be done. The term may be released.
    fn finish(&mut self, now: Moment) {
        let Some(program) = self.program.take() else { return };
        self.outputs.push_back(Output::Over(program.outcome()));
        if let Stage::Stuck { .. } = program.stage {
            return;
        }
        self.strays_told.clear();
        // One that never had a process leaves the program before as unforgotten as it was.
        if program.group.is_some() {
            self.unforgotten = program.group;
            self.make_forget(now);
        }
    }
}

impl Progress {
    /// Whether few were left at the last look.
    pub(super) fn is_short(&self) -> bool {
        self.left.len() <= LEFT_LOOKED_AT_ONCE
    }
}

impl Program {
    /// Whether there never was a process of it.
    fn is_unborn(&self) -> bool {
        self.group.is_none() && matches!(self.not_started, Some(StartError::Fork(_)))
    }

    fn outcome(&self) -> RunOutcome {
        match (&self.stage, self.not_started, self.is_cut_short, self.leader) {
            (Stage::Stuck { pids, .. }, ..) => RunOutcome::NotEnded(pids.clone()),
            (_, Some(error), ..) => RunOutcome::NotStarted(error),
            (_, None, false, Some(ending)) => RunOutcome::ByItself(ending),
            (_, None, true, _) if !self.has_executed => RunOutcome::NeverRan,
            (_, None, _, ending) => RunOutcome::WithItsTerm(ending),
        }
    }
}
