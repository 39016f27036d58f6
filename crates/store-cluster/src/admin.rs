//! What operators ask for. A refusal changes nothing.

use std::sync::Arc;

use store_resp::slot::SLOT_COUNT;

use crate::cluster::{Cluster, Save};
use crate::election::Election;
use crate::epoch::EPOCH_MAX;
use crate::flaw::Flaw;
use crate::id::NodeId;
use crate::message::{Address, Flags};
use crate::node::NodeIndex;
use crate::output::Event;
use crate::settings::{Now, Settings};
use crate::slots::SlotSet;

/// How long a node that was forgotten is not learned again.
const FORGOTTEN_MS: u64 = 60_000;

/// Why a request was refused, in the words that Redis uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// No such node.
    #[error("Unknown node {0}")]
    UnknownNode(NodeId),
    /// FORGET of oneself.
    #[error("I tried hard but I can't forget myself...")]
    ForgetMyself,
    /// FORGET of this node's master.
    #[error("Can't forget my master!")]
    ForgetMaster,
    /// ADDSLOTS of a slot that has an owner.
    #[error("Slot {0} is already busy")]
    SlotBusy(u16),
    /// DELSLOTS of a slot that has none.
    #[error("Slot {0} is already unassigned")]
    SlotUnassigned(u16),
    /// SETSLOT MIGRATING of somebody else's slot.
    #[error("I'm not the owner of hash slot {0}")]
    NotOwner(u16),
    /// SETSLOT IMPORTING of an own slot.
    #[error("I'm already the owner of hash slot {0}")]
    AlreadyOwner(u16),
    /// SETSLOT with a node that is no master.
    #[error("Target node is not a master")]
    NotMaster,
    /// SETSLOT MIGRATING to, or IMPORTING from, oneself.
    #[error("Target node is myself")]
    Myself,
    /// SETSLOT IMPORTING while keys that do not count are here.
    #[error(
        "Slot {0} has keys of an earlier time here. They are removed when this node hears its \
         owner: try again then"
    )]
    OutdatedKeys(u16),
    /// SETSLOT on a replica.
    #[error("Please use SETSLOT only with masters.")]
    OnlyMasters,
    /// SETSLOT NODE while there are keys.
    #[error(
        "Can't assign hashslot {0} to a different node while I still hold keys for this hash slot."
    )]
    SlotHasKeys(u16),
    /// REPLICATE of oneself.
    #[error("Can't replicate myself")]
    ReplicateMyself,
    /// REPLICATE of a replica.
    #[error("I can only replicate a master, not a replica.")]
    ReplicateReplica,
    /// REPLICATE of a master that has slots or keys.
    #[error("To set a master the node must be empty and without assigned slots.")]
    NotEmpty,
    /// FAILOVER on a master.
    #[error("You should send CLUSTER FAILOVER to a replica")]
    FailoverOfMaster,
    /// FAILOVER without a known master.
    #[error("I'm a replica but my master is unknown to me")]
    MasterUnknown,
    /// FAILOVER with a master that does not work.
    #[error("Master is down or failed, please use CLUSTER FAILOVER FORCE")]
    MasterDown,
    /// SET-CONFIG-EPOCH when others are known.
    #[error("The user can assign a config epoch only when the node does not know any other node.")]
    NodesKnown,
    /// SET-CONFIG-EPOCH when there is one.
    #[error("Node config epoch is already non-zero")]
    EpochSet,
    /// SET-CONFIG-EPOCH of one that no other node would believe.
    #[error("Invalid config epoch specified: {0}")]
    BadEpoch(u64),
    /// SETSLOT or FAILOVER while nodes.conf cannot be written.
    #[error("nodes.conf cannot be written: nothing was changed")]
    Unsaved,
    /// MEET of an address that cannot be one, or with a full table.
    #[error("Invalid node address specified: {0}:{1}")]
    BadAddress(String, u16),
}

/// How CLUSTER FAILOVER goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverMode {
    /// With the master's help: nothing is lost.
    Plain,
    /// Without the master, by votes.
    Force,
    /// Without anybody.
    Takeover,
}

/// What CLUSTER SETSLOT does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotChange {
    /// It is on its way to this node.
    Migrating(NodeId),
    /// It comes from this node.
    Importing(NodeId),
    /// It stays where it is.
    Stable,
    /// It belongs to this node.
    Node(NodeId),
}

impl Cluster {
    /// CLUSTER MEET. An address that is already being met is no error.
    pub fn meet(&mut self, now: Now, address: Address) -> Result<(), AdminError> {
        self.now = now;
        if address.ip.parse::<std::net::IpAddr>().is_err() || address.bus_port == 0 {
            return Err(AdminError::BadAddress(address.ip.to_string(), address.port));
        }
        self.start_handshake(address, Flags::MASTER.with(Flags::MEET));
        self.finish();
        Ok(())
    }

    /// CLUSTER FORGET.
    pub fn forget(&mut self, now: Now, id: NodeId) -> Result<(), AdminError> {
        self.now = now;
        let index = self.nodes.find(id).ok_or(AdminError::UnknownNode(id))?;
        if index == self.me {
            return Err(AdminError::ForgetMyself);
        }
        if self.me().master == Some(index) {
            return Err(AdminError::ForgetMaster);
        }
        self.forgotten.insert(id, self.ms() + FORGOTTEN_MS);
        self.remove_node(index);
        self.finish();
        Ok(())
    }

    /// CLUSTER ADDSLOTS.
    pub fn add_slots(&mut self, now: Now, slots: &SlotSet) -> Result<(), AdminError> {
        self.now = now;
        if let Some(slot) = slots.iter().find(|slot| self.owner(*slot).is_some()) {
            return Err(AdminError::SlotBusy(slot));
        }
        let me = self.me;
        self.importing.retain(|slot, _| !slots.contains(*slot));
        self.set_owners(slots, Some(me));
        self.save(Save::First);
        self.update_state();
        self.finish();
        Ok(())
    }

    /// CLUSTER DELSLOTS.
    pub fn delete_slots(&mut self, now: Now, slots: &SlotSet) -> Result<(), AdminError> {
        self.now = now;
        if let Some(slot) = slots.iter().find(|slot| self.owner(*slot).is_none()) {
            return Err(AdminError::SlotUnassigned(slot));
        }
        self.set_owners(slots, None);
        self.save(Save::First);
        self.update_state();
        self.finish();
        Ok(())
    }

    /// CLUSTER SETSLOT. `has_keys`: whether there are keys of the slot on this node.
    pub fn set_slot(
        &mut self,
        now: Now,
        slot: u16,
        change: SlotChange,
        has_keys: bool,
    ) -> Result<(), AdminError> {
        self.now = now;
        if !self.me().is_master() {
            return Err(AdminError::OnlyMasters);
        }
        if !self.can_promise() {
            return Err(AdminError::Unsaved);
        }
        match change {
            SlotChange::Migrating(to) => {
                let to = self.slot_partner(to)?;
                if self.owner(slot) != Some(self.me) {
                    return Err(AdminError::NotOwner(slot));
                }
                self.give(slot, to);
            }
            SlotChange::Importing(from) => {
                let from = self.slot_partner(from)?;
                if self.owner(slot) == Some(self.me) {
                    return Err(AdminError::AlreadyOwner(slot));
                }
                let is_owner = self.owner(slot) == Some(from) && !self.nodes[from].is_failed();
                if is_owner && self.outdated.contains(&slot) {
                    return Err(AdminError::OutdatedKeys(slot));
                }
                self.import(slot, from);
            }
            SlotChange::Stable => {
                self.migrating.remove(&slot);
                self.importing.remove(&slot);
            }
            SlotChange::Node(id) => self.assign_slot(slot, id, has_keys)?,
        }
        self.save(Save::First);
        self.update_state();
        self.finish();
        Ok(())
    }

    fn slot_partner(&self, id: NodeId) -> Result<NodeIndex, AdminError> {
        let index = self.nodes.find(id).ok_or(AdminError::UnknownNode(id))?;
        if index == self.me {
            return Err(AdminError::Myself);
        }
        if self.nodes[index].is_master() { Ok(index) } else { Err(AdminError::NotMaster) }
    }

    fn assign_slot(&mut self, slot: u16, id: NodeId, has_keys: bool) -> Result<(), AdminError> {
        let taker = self.nodes.find(id).ok_or(AdminError::UnknownNode(id))?;
        if !self.nodes[taker].is_master() {
            return Err(AdminError::NotMaster);
        }
        let old_owner = self.owner(slot);
        let was_mine = old_owner == Some(self.me);
        if was_mine && taker != self.me && has_keys {
            return Err(AdminError::SlotHasKeys(slot));
        }
        if !has_keys {
            self.migrating.remove(&slot);
        }
        self.set_owner(slot, Some(taker));
        if was_mine && taker != self.me {
            self.released.insert(slot);
        }
        let is_last = was_mine && taker != self.me && self.me().slot_count == 0;
        if is_last && self.settings.allows_migration && !self.breaks(Flaw::StayMaster) {
            self.log(Event::LastSlotLost { taker: id });
            self.follow(taker);
        }
        // Whoever imported it needs a claim that is newer than the old owner's.
        if taker == self.me
            && let Some(giver) = self.importing.remove(&slot)
        {
            if old_owner == Some(giver) {
                self.note_taken(slot, giver);
            }
            self.take_greatest_epoch();
            self.tell_all();
        }
        Ok(())
    }

    /// CLUSTER REPLICATE. `is_empty`: whether this node has no keys.
    pub fn replicate(&mut self, now: Now, id: NodeId, is_empty: bool) -> Result<(), AdminError> {
        self.now = now;
        let master = self.nodes.find(id).ok_or(AdminError::UnknownNode(id))?;
        if master == self.me {
            return Err(AdminError::ReplicateMyself);
        }
        if !self.nodes[master].is_master() {
            return Err(AdminError::ReplicateReplica);
        }
        if self.me().is_master() && (self.me().slot_count > 0 || !is_empty) {
            return Err(AdminError::NotEmpty);
        }
        self.follow(master);
        self.update_state();
        // Named again, the master is tried again, if the data leaves it alone.
        self.tell_role_again();
        self.finish();
        Ok(())
    }

    /// CLUSTER FAILOVER.
    pub fn fail_over(&mut self, now: Now, mode: FailoverMode) -> Result<(), AdminError> {
        self.now = now;
        if self.me().is_master() {
            return Err(AdminError::FailoverOfMaster);
        }
        if !self.can_promise() {
            return Err(AdminError::Unsaved);
        }
        let master = self.me().master.ok_or(AdminError::MasterUnknown)?;
        let node = &self.nodes[master];
        let is_reached = node.link.is_some_and(|link| link.is_up) && !node.is_failed();
        match mode {
            FailoverMode::Plain if !is_reached => return Err(AdminError::MasterDown),
            FailoverMode::Plain => self.start_manual(false),
            FailoverMode::Force => self.start_manual(true),
            FailoverMode::Takeover => self.take_over(),
        }
        self.finish();
        Ok(())
    }

    fn take_over(&mut self) {
        if self.breaks(Flaw::TakeoverKeepsEpoch) {
            let master = self.me().master.expect("it was checked");
            self.me_mut().config_epoch = self.nodes[master].config_epoch;
        } else {
            self.take_greatest_epoch();
        }
        self.replace_master();
    }

    /// CLUSTER FLUSHSLOTS: this node has none of its slots any more.
    pub fn flush_slots(&mut self, now: Now) {
        self.now = now;
        let me = self.me;
        self.drop_slots_of(me);
        self.save(Save::First);
        self.update_state();
        self.finish();
    }

    /// CLUSTER RESET: this node knows nobody, serves nothing and follows nobody. With another name
    /// (HARD) it is a new node, whose epochs begin anew.
    pub fn reset(&mut self, now: Now, new_id: Option<NodeId>) {
        self.now = now;
        self.end_manual();
        self.election = Election::default();
        let me = self.me;
        self.make_master(me);
        self.importing.clear();
        self.migrating.clear();
        self.forget_releases();
        self.taken.clear();
        self.set_owners(&SlotSet::of(0..SLOT_COUNT), None);
        let others: Vec<_> = self.nodes.iter().map(|(index, _)| index).collect();
        others.into_iter().filter(|index| *index != me).for_each(|index| self.remove_node(index));
        self.forgotten.clear();
        if let Some(id) = new_id {
            (self.current_epoch, self.last_vote_epoch) = (0, 0);
            self.voted_for = None;
            self.me_mut().config_epoch = 0;
            self.nodes.rename(me, id);
        }
        self.save(Save::First);
        self.update_state();
        self.finish();
    }

    /// CLUSTER SAVECONFIG.
    pub fn save_config(&mut self, now: Now) {
        self.now = now;
        self.save(Save::First);
        self.finish();
    }

    /// CLUSTER COUNT-FAILURE-REPORTS: how many masters say that they cannot reach a node.
    pub fn count_failure_reports(&mut self, now: Now, id: NodeId) -> Result<usize, AdminError> {
        self.now = now;
        let index = self.nodes.find(id).ok_or(AdminError::UnknownNode(id))?;
        Ok(self.count_reports(index))
    }

    /// The settings changed.
    pub fn set_settings(&mut self, now: Now, settings: Settings) {
        self.now = now;
        let (new, old) = (&settings.address, &self.settings.address);
        let is_announced_again = new.ip.is_empty() && !old.ip.is_empty();
        let me = &mut self.nodes[self.me];
        // Without an announced address, the one that others see is learned as before.
        let ip = if new.ip.is_empty() { Arc::clone(&me.address.ip) } else { Arc::clone(&new.ip) };
        let address = Address { ip, ..new.clone() };
        let is_changed = me.address != address || me.hostname != settings.hostname;
        me.address = address;
        if is_announced_again {
            me.address.ip = Arc::default();
        }
        me.hostname.clone_from(&settings.hostname);
        self.settings = settings;
        self.mark_own_wish();
        if is_changed {
            self.save(Save::Later);
        }
        self.update_state();
        self.finish();
    }

    /// Where a slot is being moved to.
    pub fn migrating_to(&self, slot: u16) -> Option<NodeIndex> {
        self.migrating.get(&slot).copied()
    }

    /// Where a slot is being moved from.
    pub fn importing_from(&self, slot: u16) -> Option<NodeIndex> {
        self.importing.get(&slot).copied()
    }

    /// Slots that are being moved from or to this node.
    pub fn open_slots(&self) -> Vec<u16> {
        self.migrating.keys().chain(self.importing.keys()).copied().collect()
    }

    /// CLUSTER BUMPEPOCH. Whether the epoch is another one now.
    pub fn bump_epoch(&mut self, now: Now) -> bool {
        self.now = now;
        let is_new = self.take_greatest_epoch();
        self.finish();
        is_new
    }

    /// CLUSTER SET-CONFIG-EPOCH.
    pub fn set_config_epoch(&mut self, now: Now, epoch: u64) -> Result<(), AdminError> {
        self.now = now;
        if self.nodes.len() > 1 {
            return Err(AdminError::NodesKnown);
        }
        if self.me().config_epoch != 0 {
            return Err(AdminError::EpochSet);
        }
        if epoch > EPOCH_MAX {
            return Err(AdminError::BadEpoch(epoch));
        }
        self.me_mut().config_epoch = epoch;
        self.current_epoch = self.current_epoch.max(epoch);
        self.save(Save::First);
        self.finish();
        Ok(())
    }
}
