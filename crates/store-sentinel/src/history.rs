//! Whose data a replica has: that of the primary's history, or of another one.
//!
//! A primary that restarts with what its disk had begins a new history, and offsets of two
//! histories say nothing about each other. A replica that has not synchronised since may have a
//! greater offset than one that has everything.

use store_replica::Moment;

use crate::core::Core;
use crate::group::Group;
use crate::info::{Report, ReportedRole};
use crate::instance::Instance;

/// The history of a group, as its primary told it last.
#[derive(Clone, Debug)]
pub(crate) struct History {
    id: String,
    /// The one that it goes on from, and the first byte that is not of both.
    second: Option<(String, u64)>,
    /// When the primary was asked.
    asked_at: Moment,
}

impl History {
    /// What a server tells of its own; `None` for a replica, and for who tells nothing.
    pub(crate) fn of_primary(report: &Report, asked_at: Moment) -> Option<Self> {
        let is_primary = report.role == Some(ReportedRole::Primary);
        let id = report.history.clone().filter(|_| is_primary)?;
        let second = report.second_history.clone().map(|second| (second, report.second_offset));
        Some(Self { id, second, asked_at })
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
        !is_own && !has_start
    }
}

impl Group {
    /// Whether a replica has the data of another history than the primary's.
    pub(crate) fn is_foreign(&self, replica: &Instance) -> bool {
        self.history.as_ref().is_some_and(|history| history.is_foreign(&replica.known.report))
    }

    /// What the primary says counts from now on.
    pub(crate) fn learn_history(&mut self, asked_at: Moment, report: &Report) {
        self.history = History::of_primary(report, asked_at);
    }

    /// A replica got another history from the primary since the primary told of its own: it has
    /// begun a new one, and died before it told. Nothing is known then.
    pub(crate) fn doubt_history(
        &mut self,
        core: &Core,
        asked_at: Moment,
        before: &Report,
        report: &Report,
    ) {
        let Some(history) = &self.history else { return };
        let follows = report.primary.as_ref();
        let is_synchronised = report.is_link_up
            && follows.is_some_and(|primary| core.is_same(primary, &self.primary.address));
        let is_changed = before.history.is_some() && before.history != report.history;
        if is_synchronised
            && is_changed
            && asked_at > history.asked_at
            && history.is_foreign(report)
        {
            self.history = None;
        }
    }
}
