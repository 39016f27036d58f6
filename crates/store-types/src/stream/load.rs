//! A stream from its saved parts, with all of them checked.

use std::sync::Arc;

use super::{Group, Stream, StreamId, node};
use crate::damage::Damaged;
use crate::listpack::Listpack;

/// What a saved stream says beside its nodes and groups. Old formats do not say all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamParts {
    /// How many entries there are.
    pub length: u64,
    /// The highest name ever given.
    pub last_id: StreamId,
    /// The first name, the highest deleted name and the number of entries ever added.
    pub history: Option<(StreamId, StreamId, u64)>,
}

impl Stream {
    /// Appends a whole node.
    ///
    /// # Errors
    /// [`Damaged`] when it is not well formed or does not come after the nodes before it.
    pub fn push_node(&mut self, first: StreamId, pack: Listpack) -> Result<(), Damaged> {
        let span = node::check(&pack, first)?;
        // While loading, the last name is the highest one seen.
        if !self.nodes.is_empty() && span.lowest <= self.last_id
            || self.nodes.last_key_value().is_some_and(|(last, _)| *last >= first)
        {
            return Err(Damaged::new("stream", "nodes are not in order"));
        }
        self.length += span.live;
        self.last_id = span.highest;
        self.insert_node(first, pack);
        Ok(())
    }

    /// Sets what the nodes do not say, once all of them are there.
    ///
    /// # Errors
    /// [`Damaged`] when it contradicts the nodes.
    pub fn finish_nodes(&mut self, parts: StreamParts) -> Result<(), Damaged> {
        if parts.length != self.length || parts.last_id < self.last_id {
            return Err(Damaged::new("stream", "its length or last name contradicts its nodes"));
        }
        self.last_id = parts.last_id;
        let first_id = self.find_first_id();
        let (first_id, max_deleted_id, entries_added) =
            parts.history.unwrap_or((first_id, StreamId::MIN, self.length));
        if entries_added < self.length {
            return Err(Damaged::new("stream", "fewer entries added than there are"));
        }
        self.first_id = first_id;
        self.max_deleted_id = max_deleted_id;
        self.entries_added = entries_added;
        Ok(())
    }
}

impl Group {
    /// Adds a saved pending entry that has no owner yet.
    ///
    /// # Errors
    /// [`Damaged`] when it is there already.
    pub(crate) fn push_pending(
        &mut self,
        id: StreamId,
        delivered_at: i64,
        deliveries: u64,
    ) -> Result<(), Damaged> {
        let pending =
            super::Pending { consumer: Arc::from([].as_slice()), delivered_at, deliveries };
        match self.pending.insert(id, pending) {
            None => Ok(()),
            Some(_) => Err(Damaged::new("stream", "an entry is pending twice")),
        }
    }

    /// Adds a saved consumer with the names of its pending entries.
    ///
    /// # Errors
    /// [`Damaged`] when the consumer is there already, or an entry is not pending or not free.
    pub(crate) fn push_consumer(
        &mut self,
        name: &[u8],
        seen_at: i64,
        ids: &[StreamId],
    ) -> Result<(), Damaged> {
        let damaged = |reason| Err(Damaged::new("stream", reason));
        if !self.touch_consumer(name, seen_at) {
            return damaged("a consumer comes twice");
        }
        for &id in ids {
            let Some(pending) = self.pending.get(&id) else {
                return damaged("a consumer's entry is not pending in its group");
            };
            if self.is_owned(id, &pending.consumer) {
                return damaged("an entry is pending for two consumers");
            }
            let (delivered_at, deliveries) = (pending.delivered_at, pending.deliveries);
            self.assign(id, name, delivered_at, deliveries);
        }
        Ok(())
    }

    fn is_owned(&self, id: StreamId, consumer: &[u8]) -> bool {
        self.consumers.get(consumer).is_some_and(|consumer| consumer.pending.contains(&id))
    }

    /// Checks, once all consumers are there, that every pending entry has an owner.
    ///
    /// # Errors
    /// [`Damaged`] when one has none.
    pub(crate) fn finish(&self) -> Result<(), Damaged> {
        let owned: usize = self.consumers.values().map(|consumer| consumer.pending.len()).sum();
        if owned != self.pending.len() {
            return Err(Damaged::new("stream", "a pending entry has no consumer"));
        }
        Ok(())
    }
}
