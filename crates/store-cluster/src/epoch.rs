//! Which epochs are believed, and which one comes next.
//!
//! Whoever knows a greater epoch is believed by everybody, for ever. One that is so great that none
//! can follow comes from something broken, and is refused together with its packet.

use crate::cluster::Cluster;
use crate::message::{Body, Message};
use crate::output::Event;

/// The greatest epoch that is believed whoever claims it.
pub(crate) const EPOCH_MAX: u64 = u64::MAX / 4;

/// The greatest epoch in nodes.conf: nodes that were told `EPOCH_MAX` have counted on from there,
/// and must start again with what they wrote themselves.
pub(crate) const IN_FILE_MAX: u64 = EPOCH_MAX + (1 << 31);

/// How far beyond `EPOCH_MAX` another node may be ahead.
const AHEAD_MAX: u64 = 1 << 16;

/// CLUSTER INFO and CLUSTER SHARDS tell epochs as signed numbers.
const LAST: u64 = i64::MAX as u64;

impl Cluster {
    /// Begins the next epoch; `None` when all are used, which the operator is told.
    pub(crate) fn begin_epoch(&mut self) -> Option<u64> {
        let next = self.current_epoch.checked_add(1).filter(|epoch| *epoch <= LAST);
        match next {
            Some(epoch) => self.current_epoch = epoch,
            None => self.tell_of_epoch(Event::NoEpochLeft),
        }
        next
    }

    /// Whether the epochs of a packet leave room for later ones. If not, the operator is told, and
    /// not with every packet: the sender repeats it with every ping.
    pub(crate) fn believes(&mut self, message: &Message, peer: &str) -> bool {
        let header = &message.header;
        let updated = match &message.body {
            Body::Update(update) => update.config_epoch,
            _ => 0,
        };
        let epoch = header.current_epoch.max(header.config_epoch).max(updated);
        let near_max = self.current_epoch.saturating_add(AHEAD_MAX).min(LAST);
        if epoch <= EPOCH_MAX.max(near_max) {
            return true;
        }
        let (id, peer) = (header.sender, peer.to_owned());
        self.tell_of_epoch(Event::EpochRefused { id, peer, epoch });
        false
    }

    fn tell_of_epoch(&mut self, event: Event) {
        const TOLD_EVERY_MS: u64 = 60_000;
        let now = self.ms();
        if self.told_of_epoch_at.is_none_or(|at| now.saturating_sub(at) >= TOLD_EVERY_MS) {
            self.told_of_epoch_at = Some(now);
            self.log(event);
        }
    }
}
