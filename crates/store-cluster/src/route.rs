//! Where a request belongs, asked in the order of Redis 7.0.

use std::fmt;

use store_resp::slot::slot_of;

use crate::cluster::Cluster;
use crate::message::Address;
use crate::node::NodeIndex;

/// What matters about a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteRequest<'a> {
    /// Its keys, or its shard channels.
    pub keys: &'a [&'a [u8]],
    /// Whether it may change data.
    pub is_write: bool,
    /// Whether the session said ASKING just before, or the command says it by itself.
    pub is_asking: bool,
    /// Whether the session reads from replicas.
    pub is_read_only_session: bool,
    /// MIGRATE: it works in open slots.
    pub is_migrate: bool,
    /// SSUBSCRIBE, SUNSUBSCRIBE or SPUBLISH.
    pub is_shard_channel: bool,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is executed.
    Here,
    /// It is refused.
    Refused(Refusal),
}

/// Why a request is not executed here. Displayed as the error that clients read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody has the slot.
    SlotNotServed,
    /// Keys of two slots.
    CrossSlot,
    /// The cluster serves nobody.
    Down,
    /// The cluster serves reads alone.
    DownForWrites,
    /// The slot is being moved, and the key is at the other side.
    Ask {
        /// Which.
        slot: u16,
        /// Whom to ask.
        node: NodeIndex,
        /// Where that is.
        address: Address,
    },
    /// Some of the keys have been moved.
    TryAgain,
    /// The slot is somewhere else.
    Moved {
        /// Which.
        slot: u16,
        /// Whose it is.
        node: NodeIndex,
        /// Where that is.
        address: Address,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::SlotNotServed => f.write_str("CLUSTERDOWN Hash slot not served"),
            Refusal::CrossSlot => {
                f.write_str("CROSSSLOT Keys in request don't hash to the same slot")
            }
            Refusal::Down => f.write_str("CLUSTERDOWN The cluster is down"),
            Refusal::DownForWrites => {
                f.write_str("CLUSTERDOWN The cluster is down and only accepts read commands")
            }
            Refusal::TryAgain => {
                f.write_str("TRYAGAIN Multiple keys request during rehashing of slot")
            }
            Refusal::Ask { slot, address, .. } => {
                write!(f, "ASK {slot} {}:{}", address.ip, address.port)
            }
            Refusal::Moved { slot, address, .. } => {
                write!(f, "MOVED {slot} {}:{}", address.ip, address.port)
            }
        }
    }
}

impl Cluster {
    /// Where a request belongs. `is_here` tells whether a key exists on this node; it must neither
    /// expire nor touch it.
    pub fn route(&self, request: RouteRequest<'_>, is_here: impl Fn(&[u8]) -> bool) -> Verdict {
        match self.refuse(request, is_here) {
            Some(refusal) => Verdict::Refused(refusal),
            None => Verdict::Here,
        }
    }

    /// Whether a slot is served here and by nobody else: no key of it can be on its way.
    #[inline]
    pub fn is_plainly_here(&self, slot: u16) -> bool {
        self.is_ok
            && self.owner(slot) == Some(self.me)
            && self.migrating.is_empty()
            && self.importing.is_empty()
            && !self.is_disputed(slot)
    }

    /// Why a session may not wait for keys of `slot` here any longer. `reads_replica`: whether it
    /// may read from a replica, and only reads.
    pub fn refuse_waiting(&self, slot: u16, reads_replica: bool) -> Option<Refusal> {
        if !self.is_ok {
            return Some(Refusal::Down);
        }
        let Some(owner) = self.owner(slot) else { return Some(Refusal::SlotNotServed) };
        let is_own_shard = self.me().master == Some(owner) && reads_replica;
        if owner == self.me || is_own_shard || self.importing.contains_key(&slot) {
            return None;
        }
        Some(Refusal::Moved { slot, node: owner, address: self.address_of(owner) })
    }

    fn refuse(
        &self,
        request: RouteRequest<'_>,
        is_here: impl Fn(&[u8]) -> bool,
    ) -> Option<Refusal> {
        let (first, others) = request.keys.split_first()?;
        let slot = slot_of(first);
        let Some(owner) = self.owner(slot) else { return Some(Refusal::SlotNotServed) };
        if others.iter().any(|key| slot_of(key) != slot) {
            return Some(Refusal::CrossSlot);
        }
        if !self.is_ok
            && let Some(refusal) = self.refuse_when_down(request)
        {
            return Some(refusal);
        }
        let migrating_to = self.migrating.get(&slot).filter(|_| owner == self.me).copied();
        let is_importing = self.importing.contains_key(&slot);
        if (migrating_to.is_some() || is_importing) && request.is_migrate {
            return None;
        }
        // Channels are never moved key by key.
        let is_open = (migrating_to.is_some() || is_importing) && !request.is_shard_channel;
        let present = match is_open {
            true => request.keys.iter().filter(|key| is_here(key)).count(),
            false => request.keys.len(),
        };
        let missing = request.keys.len() - present;
        if let Some(to) = migrating_to.filter(|_| missing > 0) {
            return Some(match present > 0 {
                true => Refusal::TryAgain,
                false => Refusal::Ask { slot, node: to, address: self.address_of(to) },
            });
        }
        if is_importing && request.is_asking {
            // One that is named twice is one key, and not half of what is asked for.
            let is_partial = missing > 0 && others.iter().any(|key| key != first);
            return is_partial.then_some(Refusal::TryAgain);
        }
        self.refuse_elsewhere(request, slot, owner)
    }

    fn refuse_when_down(&self, request: RouteRequest<'_>) -> Option<Refusal> {
        if request.is_shard_channel {
            return (!self.settings.allows_shard_channels_when_down).then_some(Refusal::Down);
        }
        if !self.settings.allows_reads_when_down {
            return Some(Refusal::Down);
        }
        request.is_write.then_some(Refusal::DownForWrites)
    }

    fn refuse_elsewhere(
        &self,
        request: RouteRequest<'_>,
        slot: u16,
        owner: NodeIndex,
    ) -> Option<Refusal> {
        if owner == self.me && self.is_disputed(slot) && !request.is_shard_channel {
            return Some(Refusal::TryAgain);
        }
        let reads_here = request.is_read_only_session || request.is_shard_channel;
        let is_own_shard = self.me().master == Some(owner) && reads_here && !request.is_write;
        if owner == self.me || is_own_shard {
            return None;
        }
        Some(Refusal::Moved { slot, node: owner, address: self.address_of(owner) })
    }

    fn address_of(&self, index: NodeIndex) -> Address {
        self.nodes[index].address.clone()
    }
}
