//! A node of a cluster inside the engine: the gate asks it where requests belong, and CLUSTER
//! speaks to it.
//!
//! ```text
//! request ─► gate ─► route: here, or MOVED, ASK, TRYAGAIN, CROSSSLOT, CLUSTERDOWN
//! CLUSTER ─► the machine ─► Output ─► the driver: bus, nodes.conf, role
//! ```
//! The engine owns the machine because a request must find what the request before it changed. The
//! driver feeds it with time, packets and connections, and does what it asks for.

mod channels;
pub(crate) mod commands;
pub(crate) mod debug;
pub(crate) mod route;
mod show;
mod waiting;

pub use debug::KilledLinks;
use store_cluster::wire::KIND_NAMES;
use store_cluster::{Cluster, LinkId, NodeId, Now, Publication, Role, SlotSet};
use store_resp::slot::SLOT_COUNT;

use crate::engine::Engine;
use crate::pubsub::commands::{deliver, deliver_to_shard};
use crate::state::server_gate;

/// How many packets of each kind went one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts([u64; KIND_NAMES.len()]);

impl MessageCounts {
    /// Counts a packet of this kind; one of a later version counts for none.
    pub fn add(&mut self, kind: u16) {
        if let Some(count) = self.0.get_mut(usize::from(kind)) {
            *count += 1;
        }
    }

    /// Names of kinds with how many there were.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KIND_NAMES.iter().copied().zip(self.0).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A connection of the bus, as CLUSTER LINKS shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusLink {
    /// Which.
    pub link: LinkId,
    /// The node at the other end, if it is known.
    pub node: Option<NodeId>,
    /// When it was opened, unix milliseconds.
    pub opened_at_ms: u64,
    /// Whether bytes wait to be sent.
    pub is_waiting: bool,
    /// Bytes set aside for what waits.
    pub allocated: usize,
    /// Bytes that wait.
    pub used: usize,
}

/// A node of a cluster, and what the driver tells of it.
#[derive(Debug)]
pub struct ClusterState {
    /// What decides.
    pub machine: Cluster,
    /// The clocks at the beginning of the turn.
    pub now: Now,
    /// Packets that were sent.
    pub sent: MessageCounts,
    /// Packets that came.
    pub received: MessageCounts,
    /// Connections of the bus.
    pub(crate) links: Vec<BusLink>,
    /// Bytes that they hold: asked for with every write.
    pub(crate) links_memory: usize,
    /// How many of them were closed because what waited was over the limit.
    pub links_overrun: u64,
    /// Whether nodes.conf cannot be written: nothing may change that must not be forgotten.
    pub is_unsaved: bool,
    /// Packets of this kind are dropped as they come.
    pub dropped_kind: Option<u16>,
    /// For the driver to close.
    pub killed_links: Vec<KilledLinks>,
}

impl ClusterState {
    /// Tells which connections of the bus there are.
    pub fn set_links(&mut self, links: Vec<BusLink>) {
        self.links_memory = links.iter().map(|link| link.allocated).sum();
        self.links = links;
    }

    /// Around a machine.
    pub fn new(machine: Cluster, now: Now) -> Self {
        Self {
            machine,
            now,
            sent: MessageCounts::default(),
            received: MessageCounts::default(),
            links: Vec::new(),
            links_memory: 0,
            links_overrun: 0,
            is_unsaved: false,
            dropped_kind: None,
            killed_links: Vec::new(),
        }
    }
}

impl Engine {
    /// From now on this server is a node of a cluster.
    pub fn join_cluster(&mut self, state: ClusterState) {
        self.state.cluster = Some(Box::new(state));
        self.state.gates |= server_gate::CLUSTER;
    }

    /// The node of a cluster that this server is.
    pub fn cluster_mut(&mut self) -> Option<&mut ClusterState> {
        self.state.cluster.as_deref_mut()
    }

    /// The same, to look at.
    pub fn cluster(&self) -> Option<&ClusterState> {
        self.state.cluster.as_deref()
    }

    /// Slots that have keys.
    pub fn slots_in_use(&self) -> SlotSet {
        SlotSet::of((0..SLOT_COUNT).filter(|slot| self.keyspace.slot_len(*slot) > 0))
    }

    /// The first database besides 0 that has keys. A node of a cluster has only that one.
    pub fn other_database_in_use(&self) -> Option<usize> {
        (1..self.keyspace.database_count()).find(|db| self.keyspace.counts(*db).0 > 0)
    }

    /// Keys of slots that belong to another node go. Replicas and files are told. Returns how many
    /// they are.
    pub fn drop_slots(&mut self, now_us: u64, slots: &SlotSet) -> usize {
        let count = slots.iter().map(|slot| self.keyspace.slot_len(slot)).sum();
        slots.iter().for_each(|slot| self.empty_slot(now_us, slot));
        count
    }

    /// A message that another node sent for whoever listens here.
    pub fn publish_from_bus(&mut self, publication: &Publication) {
        let (channel, text) = (&publication.channel, &publication.message);
        match publication.is_sharded {
            true => deliver_to_shard(&mut self.state, channel, text, None, &mut |_| {}),
            false => deliver(&mut self.state, channel, text, &mut |_| {}),
        };
    }

    /// What the machine wants the data to do.
    pub fn cluster_role(&self) -> Option<&Role> {
        self.state.cluster.as_ref().map(|cluster| cluster.machine.role())
    }
}
