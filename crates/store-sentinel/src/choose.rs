//! Which replica takes over.

use std::cmp::Reverse;
use std::time::Duration;

use store_replica::{Address, Moment};

use crate::core::Core;
use crate::group::Group;
use crate::instance::Instance;

impl Group {
    /// The replica to promote: one that answers, has followed the primary until lately, and is the
    /// best by priority, then by data, then by name. One with the data of another history than the
    /// primary's comes after all others.
    pub(crate) fn choose_replica(&self, now: Moment, core: &Core) -> Option<Address> {
        let good = self.replicas.iter().filter(|(_, replica)| self.is_good(now, core, replica));
        let rank = |(address, replica): &(&Address, &Instance)| {
            let report = &replica.known.report;
            // Who has not told its name comes last.
            let name = report.run_id.as_ref().map(|id| id.to_ascii_lowercase());
            let is_foreign = self.is_foreign(replica);
            let offset = Reverse(report.offset);
            (is_foreign, report.priority, offset, name.is_none(), name, (*address).clone())
        };
        good.min_by_key(rank).map(|(address, _)| address.clone())
    }

    fn is_good(&self, now: Moment, core: &Core, replica: &Instance) -> bool {
        /// Answers older than so many periods say nothing about now.
        const PERIODS_MAX: u32 = 5;
        let timing = &core.timing;
        let slot = core.links.get(replica.commands);
        let age_max = match self.primary.down_since {
            Some(_) => timing.ping_every * PERIODS_MAX,
            None => timing.info_every * 3,
        };
        replica.down_since.is_none()
            && replica.is_connected(core)
            && now.since(slot.available_at) <= timing.ping_every * PERIODS_MAX
            && replica.known.report.priority != 0
            && replica.report_age(now).is_some_and(|age| age <= age_max)
            && replica.link_down_for(now) <= self.link_down_max(now)
    }

    /// For how long a replica may have been without its primary.
    pub fn link_down_max(&self, now: Moment) -> Duration {
        let down_for = self.primary.down_since.map_or(Duration::ZERO, |since| now.since(since));
        down_for + self.settings.down_after * 10
    }
}
