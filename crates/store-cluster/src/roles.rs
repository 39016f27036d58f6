//! Who follows whom.

use crate::cluster::{Cluster, Save};
use crate::flaw::Flaw;
use crate::message::Flags;
use crate::node::NodeIndex;

/// Steps of a walk from master to master: longer chains are followed bit by bit.
const CHAIN_MAX: usize = 16;

impl Cluster {
    /// A node follows nobody.
    pub(crate) fn make_master(&mut self, index: NodeIndex) {
        if self.nodes[index].is_master() {
            return;
        }
        let was_replica = self.nodes[index].master.is_some();
        self.set_master(index, None);
        let is_other = index != self.me;
        let node = &mut self.nodes[index];
        node.clear(Flags::REPLICA);
        node.set(Flags::MASTER);
        if was_replica && is_other {
            node.set(Flags::MIGRATE_TO);
        }
        self.save(Save::Later);
    }

    /// A node follows `master`, or somebody who is not known here.
    pub(crate) fn make_replica(&mut self, index: NodeIndex, master: Option<NodeIndex>) {
        if self.nodes[index].is_master() {
            self.drop_slots_of(index);
            self.forget_giver(index);
            let node = &mut self.nodes[index];
            node.clear(Flags::MASTER.with(Flags::MIGRATE_TO));
            node.set(Flags::REPLICA);
            self.save(Save::Later);
        }
        if self.nodes[index].master != master {
            self.set_master(index, master);
            self.save(Save::Later);
        }
        if let Some(master) = master {
            self.replace_partner(index, master);
        }
    }

    fn set_master(&mut self, index: NodeIndex, master: Option<NodeIndex>) {
        let old = std::mem::replace(&mut self.nodes[index].master, master);
        if let Some(old) = old
            && self.nodes.replicas_of(old).next().is_none()
        {
            self.nodes[old].clear(Flags::MIGRATE_TO);
        }
        if let Some(new) = master {
            self.nodes[new].set(Flags::MIGRATE_TO);
        }
    }

    /// This node follows `master` from now on.
    pub(crate) fn follow(&mut self, master: NodeIndex) {
        assert!(master != self.me, "nobody follows itself");
        self.importing.clear();
        self.migrating.clear();
        self.taken.clear();
        self.forget_releases();
        self.forget_orphans();
        self.end_manual();
        self.election = crate::election::Election::default();
        let me = self.me;
        self.make_replica(me, Some(master));
        self.save(Save::First);
    }

    /// A replica whose master became a replica follows that one's master. Where replicas follow
    /// each other in a circle, the one with the smallest name becomes a master without slots.
    pub(crate) fn follow_no_replica(&mut self) {
        if self.breaks(Flaw::NoGrandmasterRule) {
            return;
        }
        let Some(first) = self.me().master else { return };
        let (mut last, mut smallest) = (first, self.me().id.min(self.nodes[first].id));
        for _ in 0..CHAIN_MAX {
            match self.nodes[last].master {
                Some(next) if next == self.me => {
                    if smallest == self.me().id {
                        let me = self.me;
                        self.make_master(me);
                        self.forget_releases();
                        self.save(Save::First);
                    }
                    return;
                }
                Some(next) => last = next,
                None => break,
            }
            smallest = smallest.min(self.nodes[last].id);
        }
        if last != first && self.nodes[last].is_master() {
            self.follow(last);
        }
    }
}
