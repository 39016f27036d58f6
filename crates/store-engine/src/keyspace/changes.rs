//! What happened to keys and is not told yet: the keyspace notes it, the engine delivers it after
//! each request.

use std::collections::{BTreeMap, BTreeSet};

use store_resp::{OwnedRequest, Request};

use super::Garbage;
use crate::session::SessionId;

/// What happened to keys, and what of it is wanted at all.
#[derive(Debug, Default)]
pub struct Changes {
    /// Which classes of events are wanted (`notify-keyspace-events`).
    pub event_mask: u32,
    /// Whether some session tracks keys.
    pub tracking: bool,
    /// Whether units are wanted at all: without replicas and file, nobody pays for them.
    pub propagating: bool,
    /// Whether the append-only file wants them.
    pub(crate) feeds_file: bool,
    /// Whether the stream of replication wants them.
    pub(crate) feeds_stream: bool,
    /// Whether a script runs.
    pub in_script: bool,
    /// What happened to keys, in this order, and nobody was told yet.
    pub notifications: NotificationQueue,
    /// Sessions whose watched keys changed.
    pub touched_watchers: Vec<SessionId>,
    /// Watched keys that ended or were evicted.
    pub lost_watches: Vec<LostWatch>,
    /// Keys that got something a blocked session may wait for.
    pub ready_keys: ReadyKeys,
    /// Requests of the unit being built.
    pub unit: Unit,
    /// For the server: finished units in order.
    pub units: Vec<Unit>,
    /// What units were made of, to be used again.
    spare: SpareUnits,
    /// For the server: values to be freed where that delays nobody; it tells the engine by
    /// `Engine::note_freed`. Whoever drops them at once frees them here.
    pub garbage: Vec<Garbage>,
}

impl Changes {
    /// Units are wanted as long as anybody wants them.
    pub(crate) fn follow_feeds(&mut self) {
        self.propagating = self.feeds_file || self.feeds_stream;
    }

    /// Whether the engine has nothing to deliver.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.notifications.is_empty()
            && self.touched_watchers.is_empty()
            && self.lost_watches.is_empty()
            && self.ready_keys.is_empty()
            && self.unit.requests.is_empty()
    }

    /// A copy of a request for a unit.
    pub(crate) fn copy(&mut self, request: Request<'_>) -> OwnedRequest {
        let mut copy = self.spare.requests.pop().unwrap_or_default();
        request.copy_to(&mut copy);
        copy
    }

    /// Takes the unit that was being built; another one begins.
    pub(crate) fn take_unit(&mut self) -> Unit {
        let requests = self.spare.lists.pop().unwrap_or_default();
        std::mem::replace(&mut self.unit, Unit { requests, ..Unit::default() })
    }

    /// Keeps the memory of units that were fetched, for the next ones.
    pub(crate) fn recycle(&mut self, units: &mut Vec<Unit>) {
        for unit in units.drain(..) {
            self.spare.take(unit);
        }
    }

    /// Whether a unit is being built.
    pub(crate) fn is_unit_open(&self) -> bool {
        !self.unit.requests.is_empty()
    }

    /// Whether the data is ahead of what the stream of replication was fed.
    pub(crate) fn is_ahead(&self) -> bool {
        self.feeds_stream && (self.is_unit_open() || !self.units.is_empty())
    }

    /// Whether the server has nothing to fetch.
    #[inline]
    pub(crate) fn is_fetched(&self) -> bool {
        self.units.is_empty() && self.garbage.is_empty()
    }

    /// Forgets what was to be delivered.
    pub(crate) fn forget_undelivered(&mut self) {
        self.unit = Unit::default();
        self.notifications.clear();
        self.touched_watchers.clear();
        self.lost_watches.clear();
        self.ready_keys.clear();
    }
}

/// Classes of keyspace events, numbered as in Redis so that the setting reads the same.
pub mod event_class {
    /// Publish on `__keyspace@<db>__:<key>`.
    pub const KEYSPACE: u32 = 1 << 0;
    /// Publish on `__keyevent@<db>__:<event>`.
    pub const KEYEVENT: u32 = 1 << 1;
    /// Commands of no kind in particular.
    pub const GENERIC: u32 = 1 << 2;
    /// Strings.
    pub const STRING: u32 = 1 << 3;
    /// Lists.
    pub const LIST: u32 = 1 << 4;
    /// Sets.
    pub const SET: u32 = 1 << 5;
    /// Hashes.
    pub const HASH: u32 = 1 << 6;
    /// Sorted sets.
    pub const SORTED_SET: u32 = 1 << 7;
    /// Keys that ended.
    pub const EXPIRED: u32 = 1 << 8;
    /// Keys given up for memory.
    pub const EVICTED: u32 = 1 << 9;
    /// Streams.
    pub const STREAM: u32 = 1 << 10;
    /// Reads of keys that are not there.
    pub const KEY_MISS: u32 = 1 << 11;
    /// Modules; no event of ours has it, the setting does.
    pub const MODULE: u32 = 1 << 13;
    /// Keys that are new.
    pub const NEW: u32 = 1 << 14;
}

/// One keyspace event, recorded only when the setting asks for its class.
#[derive(Clone, Debug)]
pub struct KeyEvent {
    /// Database of the key.
    pub db: usize,
    /// One bit of [`event_class`].
    pub class: u32,
    /// Its name, such as `set`.
    pub name: &'static str,
    /// The key.
    pub key: Box<[u8]>,
}

/// What happened to keys, for those who want to hear of it.
#[derive(Debug)]
pub enum Notification {
    /// An event that the setting asks for.
    Event(KeyEvent),
    /// A command changed a key. Only while some session tracks.
    Changed {
        /// The key; `None` stands for all of them.
        key: Option<Box<[u8]>>,
        /// Whether a script called the command.
        by_script: bool,
    },
    /// This key ended or was evicted, recorded as changes are: nobody changed it, so even a
    /// session that is not told of its own changes is told of this.
    Lost(Box<[u8]>),
}

impl Notification {
    fn memory(&self) -> usize {
        let key = match self {
            Notification::Event(event) => Some(&event.key),
            Notification::Changed { key, .. } => key.as_ref(),
            Notification::Lost(key) => Some(key),
        };
        size_of::<Self>() + key.map_or(0, |key| key.len())
    }
}

/// News in order, with the memory that they take.
#[derive(Debug, Default)]
pub struct NotificationQueue {
    queue: Vec<Notification>,
    bytes: usize,
}

impl NotificationQueue {
    /// So much is told before a script or transaction goes on: it may cause any number of them.
    const BYTES_MAX: usize = 256 * 1024;

    pub(crate) fn push(&mut self, notification: Notification) {
        self.bytes += notification.memory();
        self.queue.push(notification);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether so much waits that it must not wait until the request is over.
    #[inline]
    pub(crate) fn is_large(&self) -> bool {
        self.bytes > Self::BYTES_MAX
    }

    pub(crate) fn take(&mut self) -> Vec<Notification> {
        std::mem::take(self).queue
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Keys that somebody waits for, in the order in which they first got something. Each is there
/// once, however often a script adds to it.
#[derive(Debug, Default)]
pub struct ReadyKeys {
    order: Vec<(usize, Box<[u8]>)>,
    known: BTreeMap<usize, BTreeSet<Box<[u8]>>>,
}

impl ReadyKeys {
    pub(crate) fn push(&mut self, db: usize, key: &[u8]) {
        let known = self.known.entry(db).or_default();
        if !known.contains(key) {
            known.insert(key.into());
            self.order.push((db, key.into()));
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<(usize, Box<[u8]>)> {
        std::mem::take(self).order
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// One write as replicas and the append-only file get it: all or nothing.
#[derive(Debug, Default)]
pub struct Unit {
    /// Requests with the database each runs in.
    pub requests: Vec<(usize, OwnedRequest)>,
    /// The session that asked for it; `None` when time did, or a lack of memory: then its requests
    /// do not depend on each other.
    pub origin: Option<SessionId>,
    /// Sessions that waited and got what they waited for by it. Kept for the stream alone.
    pub woken: Vec<SessionId>,
    /// Requests that not everybody gets, by their place, in order.
    pub(crate) exceptions: Vec<(usize, Audience)>,
}

/// Memory of units that are done with. A write would pay for it each time otherwise.
#[derive(Debug, Default)]
struct SpareUnits {
    requests: Vec<OwnedRequest>,
    lists: Vec<Vec<(usize, OwnedRequest)>>,
}

impl SpareUnits {
    /// As many as a turn of many small writes needs.
    const COUNT_MAX: usize = 1024;
    /// What a small write takes.
    const REQUEST_BYTES_MAX: usize = 512;
    const LIST_LEN_MAX: usize = 4;

    fn take(&mut self, unit: Unit) {
        let mut list = unit.requests;
        for (_, mut request) in list.drain(..) {
            let is_small = request.memory() <= Self::REQUEST_BYTES_MAX;
            if is_small && self.requests.len() < Self::COUNT_MAX {
                request.clear();
                self.requests.push(request);
            }
        }
        if list.capacity() <= Self::LIST_LEN_MAX && self.lists.len() < Self::COUNT_MAX {
            self.lists.push(list);
        }
    }
}

/// Who gets a request of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// File and stream.
    All,
    /// The append-only file alone.
    File,
    /// The stream of replication alone: messages, which no file needs.
    Stream,
}

impl Unit {
    pub(crate) fn push(&mut self, audience: Audience, db: usize, request: OwnedRequest) {
        if audience != Audience::All {
            self.exceptions.push((self.requests.len(), audience));
        }
        self.requests.push((db, request));
    }

    /// Whether all of it goes to the file and to the stream.
    #[inline]
    pub fn is_for_all(&self) -> bool {
        self.exceptions.is_empty()
    }

    /// The requests that this audience gets.
    pub fn requests_for(&self, audience: Audience) -> Vec<(usize, Request<'_>)> {
        let mut exceptions = self.exceptions.iter().peekable();
        let mut is_told = |at: usize| {
            let exception = exceptions.next_if(|(place, _)| *place == at);
            exception.is_none_or(|(_, only)| *only == audience)
        };
        let requests = self.requests.iter().enumerate().filter(|(at, _)| is_told(*at));
        requests.map(|(_, (db, request))| (*db, request.as_request())).collect()
    }
}

/// A key that was watched is gone or another one, though no command changed it.
#[derive(Debug)]
pub struct LostWatch {
    /// Who watched it.
    pub watcher: SessionId,
    /// Its database.
    pub db: usize,
    /// Its name.
    pub key: Box<[u8]>,
    /// What there is in its place.
    pub now: WatchedNow,
}

/// What stands at a watched name after the data there was replaced. A key that has ended and was
/// not removed yet counts as none, so to find one in place of another is no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedNow {
    /// Nothing.
    Gone,
    /// A key that has ended.
    Ended {
        /// Whether there was a key before, ended or not.
        was_there: bool,
    },
    /// A key.
    There,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To look through all exceptions for each request would take minutes here.
    #[test]
    fn a_unit_with_many_exceptions_is_told_apart_in_one_pass() {
        let kinds = [Audience::File, Audience::All, Audience::Stream, Audience::File];
        let count = 200_000;
        let mut unit = Unit::default();
        for at in 0..count {
            let request = OwnedRequest::from_args([at.to_string().as_bytes()]);
            unit.push(kinds[at % kinds.len()], at, request);
        }
        let places = |audience: Audience| {
            let requests = unit.requests_for(audience).into_iter();
            requests.map(|(db, _)| db).collect::<Vec<_>>()
        };
        let expected = |left_out: Audience| {
            (0..count).filter(|at| kinds[at % kinds.len()] != left_out).collect::<Vec<_>>()
        };
        assert_eq!(places(Audience::File), expected(Audience::Stream));
        assert_eq!(places(Audience::Stream), expected(Audience::File));
    }
}
