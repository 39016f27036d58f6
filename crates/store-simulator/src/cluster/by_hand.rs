//! CLUSTER FAILOVER, which loses nothing: whoever wins has all that its master acknowledged, and
//! the master takes no more.

use super::judge::Rule;
use super::world::World;
use crate::network::Host as HostIndex;

/// A replica that an operator told to take over, with its master's help.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByHand {
    /// Whose place it takes, and which life of that; known once it asks for votes.
    master: Option<(HostIndex, u32)>,
}

impl World {
    /// An operator's order was taken.
    pub(crate) fn note_failover(&mut self, host: HostIndex, is_plain: bool) {
        self.judge.by_hand[host] = is_plain.then_some(ByHand { master: None });
    }

    /// It asks for votes.
    pub(crate) fn note_standing_by_hand(&mut self, host: HostIndex) {
        let master = self.hosts[host].follows().and_then(|id| self.by_id.get(&id).copied());
        let life = master.map(|master| (master, self.hosts[master].life));
        if let Some(by_hand) = &mut self.judge.by_hand[host] {
            by_hand.master = life;
        }
    }

    /// K8: it won.
    pub(crate) fn judge_win_by_hand(&mut self, host: HostIndex) {
        let now = self.queue.now();
        let by_hand = self.judge.by_hand[host].take();
        let Some((master, life)) = by_hand.and_then(|by_hand| by_hand.master) else { return };
        let (old, new) = (&self.hosts[master], &self.hosts[host]);
        if !old.is_up || !old.core.me().is_voter() {
            return;
        }
        let (had, has) = (old.data.offset, new.data.offset);
        let has_nothing = new.data.in_step_at.is_none();
        // One that crashed takes no writes for a while, and whoever reaches it knows of it by then.
        let has_crashed = old.life != life;
        let is_cut = self.links.is_cut(master, host, now) || self.links.is_cut(host, master, now);
        let is_paused = old.is_paused_for_failover || has_crashed;
        if (had > has || has_nothing || !is_paused) && !(has_crashed && is_cut) {
            self.judge.broken(Rule::K8, now, || {
                format!(
                    "{host} took over by hand with {has} of {had} bytes of {master}; it was never \
                     in step: {has_nothing}; clients are paused: {is_paused}"
                )
            });
        }
    }
}
