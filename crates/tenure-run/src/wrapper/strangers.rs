//! Whoever was there before the program, and what descends from them: nothing of it is killed.

use std::collections::BTreeSet;

use tenure_core::Moment;

use super::{Look, Output, Stage, Wrapper};
use crate::process::{ListedChild, ListedStray, Pid, Stray};

/// What descends from strangers, as the last two lists showed it. One list may miss a process whose
/// parent ends while it is made.
#[derive(Debug, Default)]
pub(super) struct Descendants {
    last: BTreeSet<Stray>,
    before: BTreeSet<Stray>,
}

impl Descendants {
    fn contains(&self, stray: Stray) -> bool {
        self.last.contains(&stray) || self.before.contains(&stray)
    }

    fn is_empty(&self) -> bool {
        self.last.is_empty() && self.before.is_empty()
    }

    fn replace(&mut self, listed: BTreeSet<Stray>) {
        self.before = std::mem::replace(&mut self.last, listed);
    }
}

impl Wrapper {
    /// Asks who is there. Before the program is, also who descends from them: first, because
    /// whoever changes hands meanwhile is among the children afterwards.
    pub(super) fn look_at_children(&mut self) {
        if self.program.as_ref().is_some_and(|program| program.stage == Stage::Waiting) {
            self.outputs.push_back(Output::ListStrays(None));
        }
        self.looks.push_back(Look::Reap);
        self.outputs.push_back(Output::ListChildren);
    }

    /// Whoever lives before the program does is not the program's.
    pub(super) fn note_strangers(&mut self, now: Moment, children: Option<&[ListedChild]>) {
        let (Some(program), Some(listed)) = (&mut self.program, children) else { return };
        if program.stage != Stage::Waiting {
            return;
        }
        program.knows_strangers = program.knows_below_strangers;
        let is_known = program.knows_strangers;
        let living = listed.iter().filter(|child| !child.has_ended && !child.is_helper);
        self.strangers.extend(living.map(|child| child.pid));
        match is_known {
            true => self.advance(now),
            false => self.look_again(now + super::REAP_AFTER),
        }
    }

    /// What descends from a stranger is one as well.
    pub(super) fn note_below_strangers(&mut self, listed: &[ListedStray]) {
        let is_waiting = match &mut self.program {
            Some(program) if program.stage == Stage::Waiting => {
                program.knows_below_strangers = true;
                true
            }
            _ => false,
        };
        let tops = self.stranger_tops(listed);
        // While there is nothing of the program, all of them are.
        let below = listed.iter().filter(|it| is_waiting || tops.contains(&it.child));
        let below = below.map(|it| it.stray).collect();
        self.below_strangers.replace(below);
    }

    /// The children of this process that are strangers, those included that have just become its
    /// children.
    pub(super) fn stranger_tops(&self, listed: &[ListedStray]) -> BTreeSet<Pid> {
        let is_new =
            |it: &&ListedStray| it.stray.pid == it.child && self.below_strangers.contains(it.stray);
        let new = listed.iter().filter(is_new).map(|it| it.child);
        self.strangers.iter().copied().chain(new).collect()
    }

    /// A stranger has ended and left its children to this process. They are known by number and
    /// start: the number alone may be one of the program's by now.
    pub(super) fn adopt_strangers(&mut self, listed: &[ListedChild]) {
        for child in listed.iter().filter(|child| !child.has_ended) {
            if self.is_below_strangers(child) {
                self.strangers.insert(child.pid);
            }
        }
    }

    pub(super) fn is_below_strangers(&self, child: &ListedChild) -> bool {
        let stray = child.started.map(|started| Stray { pid: child.pid, started });
        stray.is_some_and(|stray| self.below_strangers.contains(stray))
    }

    /// Whether a list of children has to tell when each was started, which costs a look at each.
    pub fn needs_starts(&self) -> bool {
        !self.below_strangers.is_empty()
    }
}
