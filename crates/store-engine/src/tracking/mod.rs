//! Client-side caching: who keeps which keys, and must hear when they change.
//!
//! A session in the plain mode is remembered with each key it read, until the first change. A
//! session in broadcast mode names prefixes and hears of every change under them.

pub(crate) mod commands;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use store_resp::{Protocol, ReplyWriter};

use crate::config::OutputLimit;
use crate::effects::Effects;
use crate::keyspace::changes::KeyEvent;
use crate::keyspace::memory::size_class;
use crate::pubsub::{Frame, tell};
use crate::session::{Session, SessionId, Sessions, session_flag};

/// Where RESP2 sessions that others redirect to listen.
const CHANNEL: &[u8] = b"__redis__:invalidate";
/// Keys forgotten after one request when there are too many of them.
const FORGOTTEN_MAX: usize = 1000;

/// Bytes of keys that wait to be told, for those in broadcast mode and for the session that runs.
/// Beyond that they are told that everything changed.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

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
    /// Bytes of those, here and in the table.
    pub(crate) prefix_bytes: usize,
}

impl Tracking {
    /// What [`prefix_bytes`](Self::prefix_bytes) is to be.
    pub(crate) fn prefix_bytes(prefixes: &[Vec<u8>]) -> usize {
        /// A vector, and a place in a map with a set of sessions.
        const PER_PREFIX: usize = 256;
        prefixes.iter().map(|prefix| 2 * prefix.len() + PER_PREFIX).sum()
    }

    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.prefix_bytes
    }
}

/// All tracked keys and prefixes.
#[derive(Debug, Default)]
pub struct TrackingTable {
    keys: BTreeMap<Box<[u8]>, BTreeSet<SessionId>>,
    items: usize,
    /// Bytes of all names of keys.
    key_bytes: usize,
    prefixes: BTreeMap<Vec<u8>, Prefix>,
    /// Keys that changed since sessions in broadcast mode were last told.
    changed: BTreeMap<Box<[u8]>, LastChange>,
    /// Bytes of those.
    changed_bytes: usize,
    /// So much changed that it was not recorded what.
    too_much_changed: bool,
    /// Changes that were recorded there.
    change_count: u64,
    /// What the session that runs is to hear after its reply. Empty between requests.
    untold: Vec<Untold>,
    /// Bytes of that.
    untold_bytes: usize,
    sessions: usize,
}

/// Who hears of a prefix, and of what.
#[derive(Debug, Default)]
struct Prefix {
    listeners: BTreeSet<SessionId>,
    /// Changes before this one were nobody's business.
    first_change: u64,
}

/// The last change of a key.
#[derive(Clone, Copy, Debug)]
struct LastChange {
    number: u64,
    /// The session that made it.
    cause: Option<SessionId>,
}

/// A change of a key that the running session kept, or of all keys.
#[derive(Debug)]
struct Untold {
    holder: SessionId,
    key: Option<Box<[u8]>>,
    cause: Option<SessionId>,
}

impl Untold {
    fn memory(&self) -> usize {
        size_of::<Self>() + self.key.as_ref().map_or(0, |key| key.len())
    }
}

/// In whose request a key changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeOrigin {
    /// The session that runs.
    pub(crate) running: Option<SessionId>,
    /// The session that changed the key. What ended or was evicted, nobody changed.
    pub(crate) cause: Option<SessionId>,
    /// Whether a script changed it: in broadcast mode nobody is the cause then.
    pub(crate) by_script: bool,
}

/// The session that runs, which is not in the table meanwhile, and how it hears of changes that
/// others redirect to it.
pub(crate) struct RunningSession<'a> {
    pub(crate) id: SessionId,
    pub(crate) protocol: Protocol,
    pub(crate) is_subscribed: bool,
    /// Gets what it is about, and the message.
    pub(crate) hear: &'a mut dyn FnMut(MessageSubject<'_>, Vec<u8>),
}

/// What a message to the running session is about.
pub(crate) enum MessageSubject<'a> {
    Event(&'a KeyEvent),
    /// A key, or all of them.
    Change(Option<&'a [u8]>),
}

/// What is to be sent to whom.
struct Delivery<'a, 'o> {
    sessions: &'a mut Sessions,
    effects: &'a mut Effects,
    limit: OutputLimit,
    own: Option<&'a mut RunningSession<'o>>,
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
            let first_change = self.change_count;
            let new = || Prefix { first_change, ..Prefix::default() };
            let prefix = self.prefixes.entry(prefix.clone()).or_insert_with(new);
            prefix.listeners.insert(session.id);
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
            if let Some(held) = self.prefixes.get_mut(prefix) {
                held.listeners.remove(&session.id);
                if held.listeners.is_empty() {
                    self.prefixes.remove(prefix);
                }
            }
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

    /// Forgets who keeps a key that changed, and tells them; `None` stands for every key. The
    /// session that runs is told by [`tell_untold`](Self::tell_untold).
    ///
    /// Who reads a key after this is remembered with it anew: within a transaction or script,
    /// reads may follow changes.
    pub(crate) fn tell_change(
        &mut self,
        key: Option<Box<[u8]>>,
        ChangeOrigin { running, cause, by_script }: ChangeOrigin,
        (sessions, effects, limit): (&mut Sessions, &mut Effects, OutputLimit),
        own: Option<&mut RunningSession<'_>>,
    ) {
        let mut notice = Delivery { sessions, effects, limit, own };
        let Some(key) = key else {
            self.forget_keys();
            notice.tell_of_flush(running);
            if let Some(holder) = running {
                self.leave_untold(Untold { holder, key: None, cause });
            }
            return;
        };
        for holder in self.forget_key(&key) {
            match running == Some(holder) {
                true => self.leave_untold(Untold { holder, key: Some(key.clone()), cause }),
                false => notice.tell_of_key(holder, &key, cause),
            }
        }
        if self.has_prefix_of(&key) {
            self.record_change(key, cause.filter(|_| !by_script));
        }
    }

    /// Whether somebody hears of a prefix of the key.
    fn has_prefix_of(&self, key: &[u8]) -> bool {
        let mut rest = key;
        // A prefix of the key is not greater than it, and not greater than what it has in common
        // with the greatest of those, if that one is none.
        while let Some((prefix, _)) =
            self.prefixes.range::<[u8], _>((Bound::Unbounded, Bound::Included(rest))).next_back()
        {
            if key.starts_with(prefix) {
                return true;
            }
            let common = key.iter().zip(prefix).take_while(|(a, b)| a == b).count();
            rest = &key[..common];
        }
        false
    }

    /// For those in broadcast mode.
    fn record_change(&mut self, key: Box<[u8]>, cause: Option<SessionId>) {
        let change = LastChange { number: self.change_count, cause };
        self.change_count += 1;
        if self.too_much_changed {
            return;
        }
        let bytes = size_of::<LastChange>() + size_of::<Box<[u8]>>() + key.len();
        if self.changed.insert(key, change).is_none() {
            self.changed_bytes += bytes;
        }
        if self.changed_bytes > WAITING_BYTES_MAX {
            self.changed = BTreeMap::new();
            self.too_much_changed = true;
        }
    }

    /// For the session that runs.
    fn leave_untold(&mut self, untold: Untold) {
        if self.untold_bytes > WAITING_BYTES_MAX {
            // It is going to be told that everything changed.
            return;
        }
        self.untold_bytes += untold.memory();
        match self.untold_bytes > WAITING_BYTES_MAX {
            true => self.untold = vec![Untold { key: None, ..untold }],
            false => self.untold.push(untold),
        }
    }

    /// Whether [`tell_untold`](Self::tell_untold) has something to tell.
    #[inline]
    pub(crate) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// Tells the session that ran of the keys it kept, in the order of their changes.
    pub(crate) fn tell_untold(
        &mut self,
        sessions: &mut Sessions,
        effects: &mut Effects,
        limit: OutputLimit,
    ) {
        let mut notice = Delivery { sessions, effects, limit, own: None };
        self.untold_bytes = 0;
        for Untold { holder, key, cause } in std::mem::take(&mut self.untold) {
            match key {
                Some(key) => notice.tell_of_key(holder, &key, cause),
                None => notice.tell_one_of_flush(holder),
            }
        }
    }

    /// Nobody will be told.
    pub(crate) fn forget_untold(&mut self) {
        self.untold.clear();
        self.untold_bytes = 0;
    }

    /// Writes what the session that runs has to hear before its reply, if it hears for itself.
    pub(crate) fn tell_running(&mut self, session: &Session, reply: &mut ReplyWriter) {
        let redirects = session.tracking.as_ref().is_none_or(|held| held.redirect.is_some());
        let is_mute = session.has(session_flag::REPLY_OFF | session_flag::REPLY_SKIP);
        if redirects || is_mute || session.protocol != Protocol::Resp3 {
            return;
        }
        self.untold.retain(|Untold { holder, key, .. }| {
            let Some(key) = key.as_ref().filter(|_| *holder == session.id) else { return true };
            reply.push(2);
            reply.bulk(b"invalidate");
            reply.array(1);
            reply.bulk(key);
            false
        });
        if self.untold.is_empty() {
            self.untold_bytes = 0;
        }
    }

    /// Whether [`broadcast`](Self::broadcast) has something to tell.
    #[inline]
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty() || self.too_much_changed
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
        self.changed_bytes = 0;
        let mut notice = Delivery { sessions, effects, limit, own: None };
        if std::mem::take(&mut self.too_much_changed) {
            let listeners = self.prefixes.values().flat_map(|prefix| &prefix.listeners);
            let listeners: BTreeSet<SessionId> = listeners.copied().collect();
            return listeners.into_iter().for_each(|id| notice.tell_one_of_flush(id));
        }
        for (prefix, Prefix { listeners, first_change }) in &self.prefixes {
            let of_prefix: Vec<(&[u8], Option<SessionId>)> = changed
                .range::<[u8], _>((Bound::Included(prefix.as_slice()), Bound::Unbounded))
                .take_while(|(key, _)| key.starts_with(prefix))
                .filter(|(_, change)| change.number >= *first_change)
                .map(|(key, change)| (&**key, change.cause))
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
        let mut notice = Delivery { sessions, effects, limit, own: None };
        for key in keys {
            for id in self.forget_key(&key) {
                notice.tell_of_key(id, &key, None);
            }
        }
    }
}

impl RunningSession<'_> {
    fn hear_change(&mut self, key: Option<&[u8]>, write_keys: &dyn Fn(&mut ReplyWriter)) {
        let mut writer = ReplyWriter::new(self.protocol);
        match self.protocol {
            Protocol::Resp3 => {
                writer.push(2);
                writer.bulk(b"invalidate");
            }
            Protocol::Resp2 if self.is_subscribed => {
                writer.push(3);
                writer.bulk(b"message");
                writer.bulk(CHANNEL);
            }
            Protocol::Resp2 => return,
        }
        write_keys(&mut writer);
        (self.hear)(MessageSubject::Change(key), writer.into_bytes());
    }
}

impl Delivery<'_, '_> {
    fn tell_of_prefix(&mut self, id: SessionId, changed: &[(&[u8], Option<SessionId>)]) {
        let tracking = self.sessions.get(id).and_then(|session| session.tracking.as_ref());
        let Some(tracking) = tracking else { return };
        let is_own = |cause: Option<SessionId>| tracking.no_loop && cause == Some(id);
        let keys: Vec<&[u8]> =
            changed.iter().filter(|(_, cause)| !is_own(*cause)).map(|(key, _)| *key).collect();
        if !keys.is_empty() {
            self.send(id, None, |writer| {
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
        self.send(id, Some(key), |writer| {
            writer.array(1);
            writer.bulk(key);
        });
    }

    /// Tells all who track but the one that runs.
    fn tell_of_flush(&mut self, running: Option<SessionId>) {
        let ids: Vec<SessionId> = self.sessions.iter().map(|session| session.id).collect();
        ids.into_iter().filter(|id| running != Some(*id)).for_each(|id| self.tell_one_of_flush(id));
    }

    fn tell_one_of_flush(&mut self, id: SessionId) {
        let session = self.sessions.get(id);
        if session.is_some_and(|session| session.has(session_flag::TRACKING)) {
            self.send(id, None, ReplyWriter::null);
        }
    }

    /// Sends to the session or to where it redirects.
    fn send(&mut self, id: SessionId, key: Option<&[u8]>, write_keys: impl Fn(&mut ReplyWriter)) {
        let Some(session) = self.sessions.get(id) else { return };
        let redirect = session.tracking.as_ref().and_then(|tracking| tracking.redirect);
        let Some(to) = redirect else {
            if session.protocol == Protocol::Resp3 {
                self.push(id, &write_keys);
            }
            return;
        };
        if let Some(own) = self.own.as_deref_mut().filter(|own| own.id == to) {
            return own.hear_change(key, &write_keys);
        }
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
