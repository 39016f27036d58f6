//! Who listens to which channels, and frames that reach sessions without being asked for.

pub(crate) mod commands;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use store_resp::slot::slot_of;
use store_resp::{Output, Protocol, ReplyWriter, SHARED_MIN};
use store_types::glob;

use crate::config::OutputLimit;
use crate::effects::{Effects, ServerRequest};
use crate::session::{Session, SessionId, Sessions, session_flag};

/// Channels and patterns that one session may listen to: beyond this it can only mean harm.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 1 << 20;

/// What a session can listen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicKind {
    /// A channel by its name.
    Channel,
    /// All channels that match a pattern.
    Pattern,
    /// A channel that a cluster would keep on one shard.
    Shard,
}

impl TopicKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Channel, Self::Pattern, Self::Shard];
}

/// What one session listens to, by kind.
#[derive(Debug, Default)]
pub struct Subscriptions {
    topics: [BTreeSet<Box<[u8]>>; 3],
    /// Bytes of their names, and something for each.
    bytes: usize,
}

impl Subscriptions {
    /// The topics of a kind, sorted.
    pub fn of(&self, kind: TopicKind) -> &BTreeSet<Box<[u8]>> {
        &self.topics[kind as usize]
    }

    /// Bytes of their names, here and in the table of all topics, and something for each.
    pub(crate) fn memory(&self) -> usize {
        self.bytes
    }

    fn memory_of(topic: &[u8]) -> usize {
        const PER_TOPIC: usize = 64;
        2 * topic.len() + PER_TOPIC
    }

    /// How many there are of all kinds.
    pub fn count(&self) -> usize {
        self.topics.iter().map(BTreeSet::len).sum()
    }
}

type Topics = BTreeMap<Box<[u8]>, BTreeSet<SessionId>>;

/// Everything that anybody listens to.
#[derive(Debug, Default)]
pub struct PubSub {
    topics: [Topics; 3],
    /// Shard channels by slot.
    shard_channels: BTreeMap<u16, BTreeSet<Box<[u8]>>>,
}

impl PubSub {
    /// The session begins to listen. False when it does already.
    pub(crate) fn subscribe(
        &mut self,
        session: &mut Session,
        kind: TopicKind,
        topic: &[u8],
    ) -> bool {
        let subscriptions = session.subscriptions.get_or_insert_default();
        let is_new = subscriptions.topics[kind as usize].insert(topic.into());
        if is_new {
            subscriptions.bytes += Subscriptions::memory_of(topic);
            self.topics[kind as usize].entry(topic.into()).or_default().insert(session.id);
            if kind == TopicKind::Shard {
                self.shard_channels.entry(slot_of(topic)).or_default().insert(topic.into());
            }
        }
        session.flags |= session_flag::SUBSCRIBED;
        is_new
    }

    /// The session stops listening. False when it did not listen.
    pub(crate) fn unsubscribe(
        &mut self,
        session: &mut Session,
        kind: TopicKind,
        topic: &[u8],
    ) -> bool {
        let Some(subscriptions) = &mut session.subscriptions else { return false };
        let removed = subscriptions.topics[kind as usize].remove(topic);
        if removed {
            subscriptions.bytes -= Subscriptions::memory_of(topic);
            self.forget(session.id, kind, topic);
        }
        if subscriptions.count() == 0 {
            session.subscriptions = None;
            session.flags &= !session_flag::SUBSCRIBED;
        }
        removed
    }

    /// The session stops listening to anything, without a word.
    pub(crate) fn unsubscribe_all(&mut self, session: &mut Session) {
        let Some(subscriptions) = session.subscriptions.take() else { return };
        session.flags &= !session_flag::SUBSCRIBED;
        for kind in TopicKind::ALL {
            for topic in subscriptions.of(kind) {
                self.forget(session.id, kind, topic);
            }
        }
    }

    fn forget(&mut self, id: SessionId, kind: TopicKind, topic: &[u8]) {
        let topics = &mut self.topics[kind as usize];
        if let Some(listeners) = topics.get_mut(topic) {
            listeners.remove(&id);
            if listeners.is_empty() {
                topics.remove(topic);
                self.forget_slot_of(kind, topic);
            }
        }
    }

    fn forget_slot_of(&mut self, kind: TopicKind, topic: &[u8]) {
        let slot = slot_of(topic);
        if kind == TopicKind::Shard
            && let Some(channels) = self.shard_channels.get_mut(&slot)
        {
            channels.remove(topic);
            if channels.is_empty() {
                self.shard_channels.remove(&slot);
            }
        }
    }

    /// The shard channels of the slots that are chosen.
    pub(crate) fn shard_channels_where(&self, chooses: impl Fn(u16) -> bool) -> Vec<Box<[u8]>> {
        let chosen = self.shard_channels.iter().filter(|(slot, _)| chooses(**slot));
        chosen.flat_map(|(_, channels)| channels.iter().cloned()).collect()
    }

    /// Who listens to a topic.
    pub(crate) fn listening(&self, kind: TopicKind, topic: &[u8]) -> Vec<SessionId> {
        let listeners = self.topics[kind as usize].get(topic);
        listeners.into_iter().flatten().copied().collect()
    }

    /// Whether nobody listens to anything.
    pub fn is_empty(&self) -> bool {
        self.topics.iter().all(BTreeMap::is_empty)
    }

    /// The topics of a kind that somebody listens to.
    pub fn topics(&self, kind: TopicKind) -> impl ExactSizeIterator<Item = &[u8]> {
        self.topics[kind as usize].keys().map(|topic| &**topic)
    }

    /// How many listen to a topic.
    pub fn listeners(&self, kind: TopicKind, topic: &[u8]) -> usize {
        self.topics[kind as usize].get(topic).map_or(0, BTreeSet::len)
    }

    /// Calls `deliver` with every session that listens to `channel` and its frame: plain
    /// listeners first, then those whose patterns match. Returns how many there were.
    pub(crate) fn publish(
        &self,
        channel: &[u8],
        text: &[u8],
        mut deliver: impl FnMut(SessionId, &Frame),
    ) -> usize {
        let mut count = 0;
        if let Some(listeners) = self.topics[TopicKind::Channel as usize].get(channel) {
            let frame = Frame::of(&[b"message", channel, text]);
            listeners.iter().for_each(|id| deliver(*id, &frame));
            count += listeners.len();
        }
        for (pattern, listeners) in &self.topics[TopicKind::Pattern as usize] {
            if glob::matches(pattern, channel, glob::Case::Sensitive) {
                let frame = Frame::of(&[b"pmessage", pattern, channel, text]);
                listeners.iter().for_each(|id| deliver(*id, &frame));
                count += listeners.len();
            }
        }
        count
    }

    /// The same for listeners of shard channels.
    pub(crate) fn publish_to_shard(
        &self,
        channel: &[u8],
        text: &[u8],
        mut deliver: impl FnMut(SessionId, &Frame),
    ) -> usize {
        let Some(listeners) = self.topics[TopicKind::Shard as usize].get(channel) else { return 0 };
        let frame = Frame::of(&[b"smessage", channel, text]);
        listeners.iter().for_each(|id| deliver(*id, &frame));
        listeners.len()
    }
}

/// One message, the same for all who get it but for its first byte. A long one is shared by all
/// of them.
#[derive(Clone, Debug)]
pub(crate) struct Frame(Arc<Vec<u8>>);

impl Frame {
    /// A message of these words.
    pub(crate) fn of(words: &[&[u8]]) -> Self {
        Self::written(|writer| {
            writer.push(words.len());
            words.iter().for_each(|word| writer.bulk(word));
        })
    }

    /// A message written by hand; it must begin with `push`.
    pub(crate) fn written(write: impl FnOnce(&mut ReplyWriter)) -> Self {
        let mut writer = ReplyWriter::new(Protocol::Resp2);
        write(&mut writer);
        Self(Arc::new(writer.into_bytes()))
    }

    /// The bytes for a session of this protocol.
    pub(crate) fn write_to(&self, output: &mut Output, protocol: Protocol) {
        output.extend_from_slice(if protocol == Protocol::Resp3 { b">" } else { b"*" });
        match self.0.len() >= SHARED_MIN {
            true => output.push_shared(Arc::clone(&self.0), 1..self.0.len()),
            false => output.extend_from_slice(&self.0[1..]),
        }
    }
}

/// Appends to the output of a session other than the one that runs. A session that does not
/// read is closed at its limit, so that nobody's silence eats the memory.
pub(crate) fn tell(
    sessions: &mut Sessions,
    effects: &mut Effects,
    limit: OutputLimit,
    id: SessionId,
    write: impl FnOnce(&mut Output, Protocol),
) {
    let Some(session) = sessions.get_mut(id) else { return };
    if session.has(session_flag::CLOSING) {
        return;
    }
    if !session.has(session_flag::TOLD) {
        // Even if it has output already: what it holds has grown.
        session.flags |= session_flag::TOLD;
        effects.written_sessions.push(id);
    }
    write(&mut session.output, session.protocol);
    if limit.hard > 0 && session.output.unread() > limit.hard {
        session.flags |= session_flag::CLOSING;
        session.output.clear();
        effects.requests.push(ServerRequest::Close(id));
    }
}
