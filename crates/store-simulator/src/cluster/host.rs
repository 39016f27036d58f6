//! A machine with a node, a disk, a clock and some data.

use std::collections::VecDeque;
use std::sync::Arc;

use store_cluster::{Cluster, DataState, LinkId, Message, NodeId, Now, Role, SavedClaim};

use crate::clock::Clock;
use crate::network::Host as HostIndex;
use crate::queue::Real;

/// What waits until something is on disk.
#[derive(Debug)]
pub(crate) enum Held {
    Write(u64),
    Send(LinkId, Arc<Message>),
}

/// The data of a node, as far as a cluster cares.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Data {
    pub(crate) offset: u64,
    /// When it was in step with its master, by the own monotonic clock.
    pub(crate) in_step_at: Option<u64>,
    /// Whom it copies, and when that is done.
    pub(crate) copies: Option<(HostIndex, Real)>,
}

#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) id: NodeId,
    pub(crate) ip: u32,
    pub(crate) ip_text: Arc<str>,
    pub(crate) core: Cluster,
    pub(crate) clock: Clock,
    pub(crate) life: u32,
    pub(crate) is_up: bool,
    /// It never comes back.
    pub(crate) is_gone: bool,
    pub(crate) paused_until: Real,
    /// What is on disk, and the number of that write.
    pub(crate) disk: (u64, (String, SavedClaim)),
    /// Nothing can be written to it until then.
    pub(crate) full_until: Real,
    /// The last write could not be made.
    pub(crate) has_failed: bool,
    pub(crate) writes: VecDeque<(u64, (String, SavedClaim))>,
    pub(crate) writes_made: u64,
    pub(crate) held: VecDeque<Held>,
    /// Connections by the number that the core gave them.
    pub(crate) dialled: Vec<usize>,
    pub(crate) role: Role,
    pub(crate) data: Data,
    pub(crate) is_paused_for_failover: bool,
    /// When the next tick is due.
    pub(crate) wakes_at: Real,
}

impl Host {
    pub(crate) fn now(&self, real: Real) -> Now {
        Now { monotonic_ms: self.clock.monotonic(real), unix_ms: self.clock.wall(real) }
    }

    pub(crate) fn data_state(&self) -> DataState {
        DataState { offset: self.data.offset, in_step_at: self.data.in_step_at }
    }

    pub(crate) fn is_working(&self, now: Real) -> bool {
        self.is_up && self.paused_until <= now
    }

    pub(crate) fn is_serving_master(&self) -> bool {
        self.is_up && self.core.me().is_voter()
    }

    /// It has slots, or would follow somebody.
    pub(crate) fn follows(&self) -> Option<NodeId> {
        let me = self.core.me();
        me.master.map(|master| self.core.nodes()[master].id)
    }
}
