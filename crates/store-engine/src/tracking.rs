//! Client-side caching: who keeps which keys, and must hear when they change.
//!
//! A session in the plain mode is remembered with each key it read, until the first change. A
//! session in broadcast mode names prefixes and hears of every change under them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use store_resp::{Protocol, ReplyWriter};

use crate::config::OutputLimit;
use crate::effects::Effects;
use crate::keyspace::memory::size_class;
use crate::pubsub::{Frame, tell};
use crate::session::{Session, SessionId, Sessions, session_flag};

/// Where RESP2 sessions that others redirect to listen.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// Keys forgotten after one request when there are too many of them.
const FORGOTTEN_MAX: usize = 1000;

/// When the keys of a command are remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrackingMode {
    /// Always.
    #[default]
    All,
    /// Only after CLIENT CACHING YES.
    OptIn,
    /// Unless after CLIENT CACHING NO.
    OptOut,
    /// Never: prefixes say what is heard of.
    Broadcast,
}

/// How a session tracks keys.
#[derive(Clone, Debug, Default)]
pub struct Tracking {
    /// When keys are remembered.
    pub mode: TrackingMode,
    /// Whether it does not want to hear of its own changes.
    pub no_loop: bool,
    /// Who hears instead.
    pub redirect: Option<SessionId>,
    /// Whether that session is gone.
    pub redirect_is_broken: bool,
    /// What CLIENT CACHING said about the next command.
    pub caching: bool,
    /// In broadcast mode, the prefixes.
    pub prefixes: Vec<Vec<u8>>,
}

impl Tracking {
    /// Bytes of the prefixes, here and in the table.
    pub(crate) fn memory(&self) -> usize {
        /// A vector, and a place in a map with a set of sessions.
        const PER_PREFIX: usize = 256;
        let prefixes = self.prefixes.iter().map(|prefix| 2 * prefix.len() + PER_PREFIX);
        size_of::<Self>() + prefixes.sum::<usize>()
    }
}

/// All tracked keys and prefixes.
#[derive(Debug, Default)]
pub struct TrackingTable {
    keys: BTreeMap<Box<[u8]>, BTreeSet<SessionId>>,
    items: usize,
    /// Bytes of all names of keys.
    key_bytes: usize,
    prefixes: BTreeMap<Vec<u8>, BTreeSet<SessionId>>,
    /// Keys that changed since sessions in broadcast mode were last told, and by whom.
    changed: BTreeMap<Box<[u8]>, Option<SessionId>>,
    /// Changes that those who kept the keys have not heard of. Empty between requests.
    untold: Vec<Change>,
    sessions: usize,
}

/// A change of keys that somebody kept.
#[derive(Debug)]
enum Change {
    Key { key: Box<[u8]>, holders: BTreeSet<SessionId>, cause: Option<SessionId> },
    AllKeys,
}

/// What is to be sent to whom.
struct Notice<'a> {
    sessions: &'a mut Sessions,
    effects: &'a mut Effects,
    limit: OutputLimit,
}

impl TrackingTable {
    /// Sessions that track.
    pub fn session_count(&self) -> usize {
        self.sessions
    }

    /// Keys that somebody is remembered with.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Pairs of a key and a session remembered with it.
    pub fn item_count(&self) -> usize {
        self.items
    }

    /// Prefixes that somebody hears of.
    pub fn prefix_count(&self) -> usize {
        self.prefixes.len()
    }

    /// The session begins to track, or goes on with further prefixes.
    pub(crate) fn enable(&mut self, session: &mut Session, tracking: Tracking) {
        if session.tracking.is_none() {
            self.sessions += 1;
        }
        for prefix in &tracking.prefixes {
            self.prefixes.entry(prefix.clone()).or_default().insert(session.id);
        }
        session.tracking = Some(Box::new(tracking));
        session.flags |= session_flag::TRACKING;
    }

    /// The session tracks no more. Keys it is remembered with are forgotten when they change.
    pub(crate) fn disable(&mut self, session: &mut Session) {
        let Some(tracking) = session.tracking.take() else { return };
        session.flags &= !session_flag::TRACKING;
        self.sessions -= 1;
        for prefix in &tracking.prefixes {
            if let Some(listeners) = self.prefixes.get_mut(prefix) {
                listeners.remove(&session.id);
                if listeners.is_empty() {
                    self.prefixes.remove(prefix);
                }
            }
        }
    }

    /// Forgets all keys if nobody tracks any more.
    pub(crate) fn forget_unwanted(&mut self) {
        if self.sessions == 0 {
            self.forget_keys();
        }
    }

    fn forget_keys(&mut self) {
        self.keys = BTreeMap::new();
        (self.items, self.key_bytes) = (0, 0);
    }

    /// Bytes of the tracked keys and of who is remembered with them.
    pub(crate) fn memory(&self) -> usize {
        /// A place in a map, and the first node of a set.
        const PER_KEY: usize = 40 + 200;
        const PER_ITEM: usize = 24;
        self.key_bytes + self.keys.len() * PER_KEY + self.items * PER_ITEM
    }

    /// Remembers that the session keeps a key.
    pub(crate) fn remember(&mut self, id: SessionId, key: &[u8]) {
        if let Some(holders) = self.keys.get_mut(key) {
            self.items += usize::from(holders.insert(id));
            return;
        }
        self.keys.insert(key.into(), BTreeSet::from([id]));
        self.items += 1;
        self.key_bytes += size_class(key.len());
    }

    fn forget_key(&mut self, key: &[u8]) -> BTreeSet<SessionId> {
        let Some(holders) = self.keys.remove(key) else { return BTreeSet::new() };
        self.items -= holders.len();
        self.key_bytes -= size_class(key.len());
        holders
    }

    /// Forgets who keeps one of `keys`, which changed; `None` stands for every key. Those who kept
    /// them are told by [`tell_changes`](Self::tell_changes). `cause` is the session that changed
    /// them.
    ///
    /// Who reads a key after this is remembered with it anew, though nobody was told yet: within
    /// a transaction or script, reads may follow changes.
    pub(crate) fn note_changes(&mut self, keys: Vec<Option<Box<[u8]>>>, cause: Option<SessionId>) {
        for key in keys {
            let Some(key) = key else {
                self.forget_keys();
                self.untold.push(Change::AllKeys);
                continue;
            };
            let holders = self.forget_key(&key);
            if !self.prefixes.is_empty() {
                // Whoever changed a key last is the cause.
                self.changed.insert(key.clone(), cause);
            }
            if !holders.is_empty() {
                self.untold.push(Change::Key { key, holders, cause });
            }
        }
    }

    /// Whether [`tell_changes`](Self::tell_changes) has something to tell.
    #[inline]
    pub(crate) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Tells those who kept keys that changed, in the order of the changes.
    pub(crate) fn tell_changes(
        &mut self,
        sessions: &mut Sessions,
        effects: &mut Effects,
        limit: OutputLimit,
    ) {
        let mut notice = Notice { sessions, effects, limit };
        for change in std::mem::take(&mut self.untold) {
            match change {
                Change::Key { key, holders, cause } => {
                    holders.into_iter().for_each(|id| notice.tell_of_key(id, &key, cause));
                }
                Change::AllKeys => notice.tell_of_flush(),
            }
        }
    }

    /// Writes what the session that runs has to hear before its reply, if it hears for itself.
    pub(crate) fn tell_running(&mut self, session: &Session, reply: &mut ReplyWriter) {
        let redirects = session.tracking.as_ref().is_none_or(|held| held.redirect.is_some());
        let is_mute = session.has(session_flag::REPLY_OFF | session_flag::REPLY_SKIP);
        if redirects || is_mute || session.protocol != Protocol::Resp3 {
            return;
        }
        for change in &mut self.untold {
            if let Change::Key { key, holders, .. } = change
                && holders.remove(&session.id)
            {
                reply.push(2);
                reply.bulk(b"invalidate");
                reply.array(1);
                reply.bulk(key);
            }
        }
    }

    /// Whether [`broadcast`](Self::broadcast) has something to tell.
    #[inline]
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Tells sessions in broadcast mode of all keys that changed since the last time: one
    /// message per prefix, however many keys there are.
    pub(crate) fn broadcast(
        &mut self,
        sessions: &mut Sessions,
        effects: &mut Effects,
        limit: OutputLimit,
    ) {
        let changed = std::mem::take(&mut self.changed);
        let mut notice = Notice { sessions, effects, limit };
        for (prefix, listeners) in &self.prefixes {
            let of_prefix: Vec<(&[u8], Option<SessionId>)> = changed
                .range::<[u8], _>((Bound::Included(prefix.as_slice()), Bound::Unbounded))
                .map(|(key, cause)| (&**key, *cause))
                .take_while(|(key, _)| key.starts_with(prefix))
                .collect();
            for id in listeners {
                notice.tell_of_prefix(*id, &of_prefix);
            }
        }
    }

    /// Forgets keys beyond `keys_max`, telling their holders, who must not go on keeping what
    /// they would not hear of.
    pub(crate) fn shrink(
        &mut self,
        keys_max: usize,
        sessions: &mut Sessions,
        effects: &mut Effects,
        limit: OutputLimit,
    ) {
        if keys_max == 0 || self.keys.len() <= keys_max {
            return;
        }
        let count = (self.keys.len() - keys_max).min(FORGOTTEN_MAX);
        let keys: Vec<Box<[u8]>> = self.keys.keys().take(count).cloned().collect();
        let mut notice = Notice { sessions, effects, limit };
        for key in keys {
            for id in self.forget_key(&key) {
                notice.tell_of_key(id, &key, None);
            }
        }
    }
}

impl Notice<'_> {
    fn tell_of_prefix(&mut self, id: SessionId, changed: &[(&[u8], Option<SessionId>)]) {
        let tracking = self.sessions.get(id).and_then(|session| session.tracking.as_ref());
        let Some(tracking) = tracking else { return };
        let is_own = |cause: Option<SessionId>| tracking.no_loop && cause == Some(id);
        let keys: Vec<&[u8]> =
            changed.iter().filter(|(_, cause)| !is_own(*cause)).map(|(key, _)| *key).collect();
        if !keys.is_empty() {
            self.send(id, |writer| {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.bulk(key));
            });
        }
    }

    fn tell_of_key(&mut self, id: SessionId, key: &[u8], cause: Option<SessionId>) {
        let tracking = self.sessions.get(id).and_then(|session| session.tracking.as_ref());
        let Some(tracking) = tracking else { return };
        let is_own = tracking.no_loop && cause == Some(id);
        if tracking.mode == TrackingMode::Broadcast || is_own {
            return;
        }
        self.send(id, |writer| {
            writer.array(1);
            writer.bulk(key);
        });
    }

    fn tell_of_flush(&mut self) {
        let tracks = |session: &&Session| session.has(session_flag::TRACKING);
        let ids: Vec<SessionId> =
            self.sessions.iter().filter(tracks).map(|session| session.id).collect();
        for id in ids {
            self.send(id, ReplyWriter::null);
        }
    }

    /// Sends to the session or to where it redirects.
    fn send(&mut self, id: SessionId, write_keys: impl Fn(&mut ReplyWriter)) {
        let Some(session) = self.sessions.get(id) else { return };
        let redirect = session.tracking.as_ref().and_then(|tracking| tracking.redirect);
        let Some(to) = redirect else {
            if session.protocol == Protocol::Resp3 {
                self.push(id, &write_keys);
            }
            return;
        };
        let Some(receiver) = self.sessions.get(to) else { return self.send_broken(id, to) };
        match receiver.protocol {
            Protocol::Resp3 => self.push(to, &write_keys),
            Protocol::Resp2 if receiver.has(session_flag::SUBSCRIBED) => {
                let frame = Frame::written(|writer| {
                    writer.push(3);
                    writer.bulk(b"message");
                    writer.bulk(CHANNEL);
                    write_keys(writer);
                });
                tell(self.sessions, self.effects, self.limit, to, |output, protocol| {
                    frame.write_to(output, protocol);
                });
            }
            Protocol::Resp2 => {}
        }
    }

    fn push(&mut self, id: SessionId, write_keys: &dyn Fn(&mut ReplyWriter)) {
        tell(self.sessions, self.effects, self.limit, id, |output, protocol| {
            let mut writer = ReplyWriter::onto_output(std::mem::take(output), protocol);
            writer.push(2);
            writer.bulk(b"invalidate");
            write_keys(&mut writer);
            *output = writer.into_output();
        });
    }

    /// The session that was to hear is gone.
    fn send_broken(&mut self, id: SessionId, gone: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        if let Some(tracking) = &mut session.tracking {
            tracking.redirect_is_broken = true;
        }
        if session.protocol == Protocol::Resp3 {
            let frame = Frame::written(|writer| {
                writer.push(2);
                writer.bulk(b"tracking-redir-broken");
                writer.integer(gone.number as i64);
            });
            tell(self.sessions, self.effects, self.limit, id, |output, protocol| {
                frame.write_to(output, protocol);
            });
        }
    }
}
