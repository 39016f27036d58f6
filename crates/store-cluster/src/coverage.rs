//! A replica that is not needed moves to a master that has none.

use crate::cluster::Cluster;
use crate::flaw::Flaw;
use crate::message::Flags;
use crate::node::NodeIndex;
use crate::output::Event;

/// A master that lost its replicas may get them back within this time.
const ORPHANED_MIN_MS: u64 = 5_000;

impl Cluster {
    pub(crate) fn handle_migration(&mut self) {
        // While its own master is failed, a replica has something better to do.
        let Some(mine) = self.me().master.filter(|mine| !self.nodes[*mine].is_failed()) else {
            return self.forget_orphans();
        };
        let counts = self.count_fine_replicas();
        let count = |index: NodeIndex| counts[usize::from(index)];
        let orphans = self.note_orphans(&counts);
        let (most, own) = (counts.iter().copied().max().unwrap_or(0), count(mine));
        let is_spare = own >= 2 && own == most && own > self.settings.migration_barrier;
        if !self.settings.allows_migration || !self.is_ok || !is_spare {
            return;
        }
        let Some(target) = orphans else { return };
        let is_richest = |master: NodeIndex| count(master) == most;
        let candidates = self.nodes.iter().filter(|(_, node)| {
            node.is_fine() && node.is_replica() && node.master.is_some_and(is_richest)
        });
        let is_first = candidates.map(|(_, node)| node.id).min() == Some(self.me().id);
        let orphaned_at = self.nodes[target].orphaned_at.unwrap_or(self.ms());
        let is_long = self.ms() - orphaned_at > ORPHANED_MIN_MS;
        if is_first && (is_long || self.breaks(Flaw::MigrateAtOnce)) {
            self.log(Event::Migrating { to: self.nodes[target].id });
            self.follow(target);
        }
    }

    /// Nobody watches who has no replica: what was seen before says nothing later.
    pub(crate) fn forget_orphans(&mut self) {
        self.nodes.iter_mut().for_each(|(_, node)| node.orphaned_at = None);
    }

    /// How many working replicas each node has.
    fn count_fine_replicas(&self) -> Vec<usize> {
        let mut counts = vec![0; usize::from(self.nodes.places())];
        for (_, node) in self.nodes.iter().filter(|(_, node)| node.is_fine()) {
            if let Some(master) = node.master {
                counts[usize::from(master)] += 1;
            }
        }
        counts
    }

    /// Remembers since when masters have no working replica; the first of them.
    fn note_orphans(&mut self, counts: &[usize]) -> Option<NodeIndex> {
        let now = self.ms();
        let mut first = None;
        for (index, node) in self.nodes.iter_mut() {
            let is_orphan = node.is_voter()
                && !node.is_failed()
                && node.flags.has(Flags::MIGRATE_TO)
                && counts[usize::from(index)] == 0;
            match is_orphan {
                true => _ = node.orphaned_at.get_or_insert(now),
                false => node.orphaned_at = None,
            }
            if is_orphan && first.is_none() {
                first = Some(index);
            }
        }
        first
    }
}
