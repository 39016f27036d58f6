//! Whose data a replica has: that of the primary's history, or of another one.
//!
//! A primary that restarts with what its disk had begins a new history, and offsets of two
//! histories say nothing about each other. A replica that has not synchronised since may have a
//! greater offset than one that has everything.

use std::collections::VecDeque;

use store_replica::Moment;

use crate::core::Core;
use crate::group::Group;
use crate::info::{Report, ReportedRole};
use crate::instance::Instance;

/// Histories that a group remembers, at most: each is one restart of the primary, and what it needs
/// is those of the time that a replica's report lags behind.
const REMEMBERED_MAX: usize = 16;

/// The history of a group, as its primary told it last.
#[derive(Clone, Debug)]
pub(crate) struct History {
    id: String,
    /// The one that it goes on from, and the first byte that is not of both.
    second: Option<(String, u64)>,
    /// When the primary was asked.
    asked_at: Moment,
    /// Those that it has left, the oldest first.
    left: VecDeque<String>,
    /// Those that replicas got from it and that it has not told, the oldest first, with when they
    /// were asked: it may have begun one after it told, and died.
    untold: VecDeque<(String, Moment)>,
}

impl History {
    /// What a server tells of its own; `None` for a replica, and for who tells nothing.
    pub(crate) fn of_primary(report: &Report, asked_at: Moment) -> Option<Self> {
        let is_primary = report.role == Some(ReportedRole::Primary);
        let id = report.history.clone().filter(|_| is_primary)?;
        let second = report.second_history.clone().map(|second| (second, report.second_offset));
        Some(Self { id, second, asked_at, left: VecDeque::new(), untold: VecDeque::new() })
    }

    /// The primary was asked again: whatever it had before it has left.
    fn follow(&mut self, before: Self) {
        self.left = before.left;
        remember(&mut self.left, before.id);
        for (id, asked_at) in before.untold {
            match asked_at > self.asked_at && id != self.id {
                // Its answer was the quicker one.
                true => self.untold.push_back((id, asked_at)),
                false => remember(&mut self.left, id),
            }
        }
        self.left.retain(|left| *left != self.id);
    }

    /// The primary has had a history, and has a newer one.
    fn leave(&mut self, id: String) {
        self.untold.retain(|(untold, _)| *untold != id);
        remember(&mut self.left, id);
    }

    /// A replica got a history from the primary that it may have begun after it told.
    fn doubt(&mut self, id: &str, asked_at: Moment) {
        self.untold.retain(|(untold, _)| untold != id);
        self.untold.push_back((id.to_owned(), asked_at));
        if self.untold.len() > REMEMBERED_MAX {
            self.untold.pop_front();
        }
    }

    /// Whether a replica says that its data is of another history. One that says nothing is not
    /// held for that.
    fn is_foreign(&self, replica: &Report) -> bool {
        let Some(id) = &replica.history else { return false };
        let is_replica = replica.role == Some(ReportedRole::Replica);
        let is_start = |(second, end): &(String, u64)| second == id && replica.offset < *end;
        // One that was promoted a moment ago has named its history anew.
        let is_own = *id == self.id || replica.second_history.as_ref() == Some(&self.id);
        // Only replicas tell how much they have.
        let has_start = is_replica && self.second.as_ref().is_some_and(is_start);
        !is_own && !has_start && !self.untold.iter().any(|(untold, _)| untold == id)
    }
}

fn remember(ids: &mut VecDeque<String>, id: String) {
    ids.retain(|known| *known != id);
    ids.push_back(id);
    if ids.len() > REMEMBERED_MAX {
        ids.pop_front();
    }
}

impl Group {
    /// Whether a replica has the data of another history than the primary's.
    pub(crate) fn is_foreign(&self, replica: &Instance) -> bool {
        self.history.as_ref().is_some_and(|history| history.is_foreign(&replica.known.report))
    }

    /// What the primary says counts from now on.
    pub(crate) fn learn_history(&mut self, asked_at: Moment, report: &Report) {
        let before = self.history.take();
        self.history = History::of_primary(report, asked_at);
        if let (Some(history), Some(before)) = (&mut self.history, before) {
            history.follow(before);
        }
    }

    /// A replica got another history from the primary than it had. Where that is neither the one
    /// that the primary told last nor one that it has left, the primary may have begun it since,
    /// and died before it told: which of the two is newer is not known then.
    pub(crate) fn doubt_history(
        &mut self,
        core: &Core,
        asked_at: Moment,
        before: &Report,
        report: &Report,
    ) {
        let Some(history) = &mut self.history else { return };
        let follows = report.primary.as_ref();
        let is_synchronised = report.is_link_up
            && follows.is_some_and(|primary| core.is_same(primary, &self.primary.address));
        let (Some(had), Some(has)) = (&before.history, &report.history) else { return };
        if !is_synchronised || had == has {
            return;
        }
        if *has == history.id {
            history.leave(had.clone());
        } else if asked_at > history.asked_at
            && history.is_foreign(report)
            && !history.left.contains(has)
        {
            history.doubt(has, asked_at);
        }
    }
}
