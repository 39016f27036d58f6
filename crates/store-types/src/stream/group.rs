//! Consumer groups: who was given which entry, and what was acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Stream, StreamId};

/// A group of consumers that share the entries of a stream.
#[derive(Clone, Debug, Default)]
pub struct Group {
    last_id: StreamId,
    entries_read: Option<u64>,
    pub(super) pending: BTreeMap<StreamId, Pending>,
    pub(super) consumers: BTreeMap<Arc<[u8]>, Consumer>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The name of the consumer that has it.
    pub consumer: Arc<[u8]>,
    /// When it was delivered last, in Unix milliseconds.
    pub delivered_at: i64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// A member of a group.
#[derive(Clone, Debug, Default)]
pub struct Consumer {
    seen_at: i64,
    pub(super) pending: BTreeSet<StreamId>,
}

impl Consumer {
    /// When the consumer last asked for anything, in Unix milliseconds.
    pub fn seen_at(&self) -> i64 {
        self.seen_at
    }

    /// The names of the entries it has not acknowledged.
    pub fn pending(&self) -> &BTreeSet<StreamId> {
        &self.pending
    }
}

impl Group {
    /// A group that has read up to `last_id`.
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> Self {
        Self { last_id, entries_read, ..Self::default() }
    }

    /// The last name delivered to anyone.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// How many entries of the stream's history lie at or before the last name, if that is known.
    pub fn entries_read(&self) -> Option<u64> {
        self.entries_read
    }

    /// Moves the group: XGROUP SETID.
    pub fn set_id(&mut self, last_id: StreamId, entries_read: Option<u64>) {
        self.last_id = last_id;
        self.entries_read = entries_read;
    }

    /// All entries delivered and not acknowledged, by name.
    pub fn pending(&self) -> &BTreeMap<StreamId, Pending> {
        &self.pending
    }

    /// The consumers by name.
    pub fn consumers(&self) -> impl ExactSizeIterator<Item = (&[u8], &Consumer)> {
        self.consumers.iter().map(|(name, consumer)| (&**name, consumer))
    }

    /// One consumer.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(name)
    }

    /// Notes that a consumer was seen, creating it if need be; `true` when it is new.
    pub fn touch_consumer(&mut self, name: &[u8], seen_at: i64) -> bool {
        if let Some(consumer) = self.consumers.get_mut(name) {
            consumer.seen_at = seen_at;
            return false;
        }
        let consumer = Consumer { seen_at, ..Consumer::default() };
        self.consumers.insert(Arc::from(name), consumer).is_none()
    }

    /// Creates a consumer; `false` when it was there, which leaves its time alone.
    pub fn create_consumer(&mut self, name: &[u8], seen_at: i64) -> bool {
        !self.consumers.contains_key(name) && self.touch_consumer(name, seen_at)
    }

    /// Removes a consumer and forgets what it had pending; returns how many entries that were.
    pub fn remove_consumer(&mut self, name: &[u8]) -> Option<usize> {
        let consumer = self.consumers.remove(name)?;
        for id in &consumer.pending {
            self.pending.remove(id);
        }
        Some(consumer.pending.len())
    }

    /// Gives an entry to a consumer, whoever had it: first delivery, redelivery or claim. `false`
    /// when there is no such consumer.
    pub fn assign(
        &mut self,
        id: StreamId,
        consumer: &[u8],
        delivered_at: i64,
        deliveries: u64,
    ) -> bool {
        let Some((name, _)) = self.consumers.get_key_value(consumer) else { return false };
        let pending = Pending { consumer: name.clone(), delivered_at, deliveries };
        let before = self.pending.insert(id, pending);
        if let Some(before) = before
            && *before.consumer != *consumer
            && let Some(owner) = self.consumers.get_mut(&before.consumer)
        {
            owner.pending.remove(&id);
        }
        if let Some(owner) = self.consumers.get_mut(consumer) {
            owner.pending.insert(id);
        }
        true
    }

    /// Forgets a pending entry, acknowledged or gone; `false` when it was not pending.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        let Some(pending) = self.pending.remove(&id) else { return false };
        if let Some(owner) = self.consumers.get_mut(&pending.consumer) {
            owner.pending.remove(&id);
        }
        true
    }

    /// Allocated bytes, by the number of pending entries and consumers.
    pub(super) fn heap_bytes(&self) -> usize {
        const PENDING: usize = size_of::<(StreamId, Pending)>() + size_of::<StreamId>();
        const CONSUMER: usize = size_of::<(Arc<[u8]>, Consumer)>() + 32;
        size_of::<Self>() + self.pending.len() * PENDING + self.consumers.len() * CONSUMER
    }
}

impl Stream {
    /// The groups by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&[u8], &Group)> {
        self.groups.iter().map(|(name, group)| (&**name, &**group))
    }

    /// One group.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name).map(|group| &**group)
    }

    /// One group, to change it.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.groups.get_mut(name).map(Arc::make_mut)
    }

    /// Adds a group; `false` when there is one of this name.
    pub fn create_group(&mut self, name: &[u8], group: Group) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        self.groups.insert(Arc::from(name), Arc::new(group)).is_none()
    }

    /// Removes a group; `false` when there is none of this name.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        self.groups.remove(name).is_some()
    }

    /// Moves a group forward to an entry just delivered, and keeps its count of entries read.
    /// Entries at or below the group's last name change nothing.
    pub fn advance_group(&mut self, name: &[u8], id: StreamId) {
        let Some(group) = self.groups.get(name) else { return };
        if id <= group.last_id {
            return;
        }
        let entries_read = match group.entries_read {
            Some(count) if !self.has_tombstones_from(id) => Some(count + 1),
            known if self.entries_added == 0 => known,
            _ => self.entries_before(id),
        };
        if let Some(group) = self.group_mut(name) {
            group.set_id(id, entries_read);
        }
    }

    /// How many entries a group has yet to read; `None` when deletions make that unknowable.
    /// Negative when XGROUP was told that more were read than there ever were.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        let read = match group.entries_read {
            Some(read) if !self.has_tombstones_from(group.last_id) => read,
            _ => self.entries_before(group.last_id)?,
        };
        Some((self.entries_added as i64).wrapping_sub(read as i64))
    }

    /// How many entries of the stream's history lie at or before `id`, where that can be told
    /// without counting.
    pub fn entries_before(&self, id: StreamId) -> Option<u64> {
        if self.entries_added == 0 {
            return Some(0);
        }
        if (self.length == 0 && id <= self.last_id) || id == self.last_id {
            return Some(self.entries_added);
        }
        if id > self.last_id {
            return None;
        }
        let whole = self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id;
        match id.cmp(&self.first_id) {
            std::cmp::Ordering::Less if whole => Some(self.entries_added - self.length),
            std::cmp::Ordering::Equal if whole => Some(self.entries_added - self.length + 1),
            _ => None,
        }
    }

    /// Whether an entry at or after `id`, and after the first one, was removed by XDEL.
    fn has_tombstones_from(&self, id: StreamId) -> bool {
        let among_entries = self.length > 0
            && self.max_deleted_id != StreamId::MIN
            && self.first_id <= self.max_deleted_id;
        among_entries && id <= self.max_deleted_id
    }
}
