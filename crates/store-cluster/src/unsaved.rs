//! nodes.conf cannot be written: what would rely on it is neither done nor said.
//!
//! A node that cannot keep a vote might give it twice, and one that cannot keep that it took over
//! would come back as the replica that it was, and give up what it served since. So it gives no
//! votes, stands for no election, wins none and takes no epoch. Should the claim itself be what
//! could not be kept, it serves nothing and tells nobody. A master whose claim is in the file goes
//! on with that.

use crate::cluster::Cluster;
use crate::message::{Body, Message};
use crate::settings::Now;

/// The claim of a node, as its file has it: the epoch of a master, `None` for a replica.
pub type SavedClaim = Option<u64>;

impl Cluster {
    /// nodes.conf cannot be written. What it has is of an earlier time.
    pub fn handle_file_lost(&mut self, now: Now, saved: SavedClaim) {
        self.now = now;
        self.unsaved = Some(saved);
        self.update_state();
        self.finish();
    }

    /// nodes.conf is written again.
    pub fn handle_file_written(&mut self, now: Now) {
        self.now = now;
        if self.unsaved.take().is_some() {
            self.update_state();
            self.finish();
        }
    }

    /// Whether a packet may leave: one that waited for the file in vain may not.
    pub fn may_say(&self, message: &Message) -> bool {
        let Some(saved) = self.unsaved else { return true };
        let is_promise = matches!(message.body, Body::AuthRequest | Body::AuthAck);
        let header = &message.header;
        let is_saved = saved.is_some_and(|epoch| header.config_epoch <= epoch);
        !is_promise && (header.master.is_some() || is_saved)
    }

    /// What this node's text of nodes.conf claims.
    pub fn claim(&self) -> SavedClaim {
        self.me().is_master().then(|| self.me().config_epoch)
    }

    /// Whether something may be done that must not be forgotten.
    pub(crate) fn can_promise(&self) -> bool {
        self.unsaved.is_none()
    }

    /// Whether this node took over and the file does not know.
    pub(crate) fn is_claim_unsaved(&self) -> bool {
        self.unsaved == Some(None) && self.me().is_master()
    }

    /// The epoch that others may be told.
    pub(crate) fn told_epoch(&self, epoch: u64) -> u64 {
        match self.unsaved {
            Some(Some(saved)) if self.me().is_master() => epoch.min(saved),
            _ => epoch,
        }
    }
}
