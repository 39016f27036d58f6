//! Keys that ended: removed when met, and looked for in bounded turns.

use store_resp::OwnedRequest;
use store_types::Rng;

use super::changes::event_class;
use super::table::Scope;
use super::{Found, Keyspace};

/// Segments with an ended key that one turn looks through at the least effort: about 2,000
/// entries each, so a turn stays near a millisecond.
const SEGMENTS_MAX: usize = 8;
/// Each further step of effort adds so many.
const SEGMENTS_PER_EFFORT: usize = 2;
/// Segments that one turn asks whether they have an ended key, which is cheap.
const SEGMENTS_ASKED_MAX: usize = 20_000;
/// Keys removed by one turn.
const KEYS_MAX: usize = 4000;

/// What a turn of active expiry came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpiryTurn {
    /// All that ended is gone, as far as one look around tells.
    Done,
    /// The turn was full: come back soon.
    More,
}

impl Keyspace {
    /// Removes a key that ended, with all that follows from it.
    #[cold]
    pub(super) fn expire(&mut self, found: Found, key: &[u8]) {
        let entry = self.take_found(found);
        self.discard(entry, self.freeing.expire);
        self.stats.expired += 1;
        // Trackers hear of the event first; with an eviction it is the other way round.
        self.notify(event_class::EXPIRED, "expired", key);
        self.signal_lost(key);
        if self.changes.propagating {
            let request = OwnedRequest::from_args([self.freeing.expire.command(), key]);
            self.changes.unit.requests.push((self.selected, request));
        }
    }

    /// A client of a replica that takes writes gave the key an end. What the primary's stream does
    /// is the primary's to end.
    #[cold]
    pub(super) fn remember_own(&mut self, key: &[u8]) {
        if !self.loading {
            self.own_volatile.insert((self.selected, key.into()));
        }
    }

    /// How many keys this replica removes by itself when they end.
    pub(crate) fn own_volatile_len(&self) -> usize {
        self.own_volatile.len()
    }

    /// Removes those that ended, and forgets those that are gone or end no more.
    fn expire_own(&mut self) -> ExpiryTurn {
        let (selected, keeps_ended) = (self.selected, self.keeps_ended);
        let keys = self.own_volatile.iter().skip(self.own_cursor).take(KEYS_MAX);
        let keys: Vec<_> = keys.cloned().collect();
        let is_last = keys.len() < KEYS_MAX;
        // What is forgotten moves the others up.
        let mut kept = 0;
        for (db, key) in keys {
            self.selected = db;
            self.keeps_ended = false;
            let is_volatile = self.expires_at(&key).flatten().is_some();
            match is_volatile {
                true => kept += 1,
                false => _ = self.own_volatile.remove(&(db, key)),
            }
        }
        (self.selected, self.keeps_ended) = (selected, keeps_ended);
        self.own_cursor = if is_last { 0 } else { self.own_cursor + kept };
        ExpiryTurn::Done
    }

    /// Whether any key of any database will end, and is removed here when it does.
    pub(crate) fn has_volatile(&self) -> bool {
        if self.is_replica {
            return !self.own_volatile.is_empty();
        }
        self.databases.iter().any(|table| table.volatile_len() > 0)
    }

    /// How long the keys of database `db` that end still have on average, in milliseconds: an
    /// estimate from a few of them, the same ones at the same moment.
    pub(crate) fn average_ttl_ms(&self, db: usize) -> u64 {
        /// Keys come from one segment per draw.
        const DRAWS: usize = 8;
        const KEYS_PER_DRAW: usize = 8;
        let mut random = Rng::seeded(self.now_us);
        let (mut sum, mut count) = (0u128, 0);
        for _ in 0..DRAWS {
            self.databases[db].sample(Scope::Volatile, KEYS_PER_DRAW, &mut random, &mut |entry| {
                let ends_at = entry.expires_at().unwrap_or(self.now_ms);
                sum += u128::from(ends_at.saturating_sub(self.now_ms));
                count += 1;
            });
        }
        sum.checked_div(count).unwrap_or(0) as u64
    }

    /// DEBUG SET-ACTIVE-EXPIRE: whether turns do anything.
    pub fn set_active_expiry(&mut self, enabled: bool) {
        self.expiry_enabled = enabled;
    }

    /// `active-expire-effort`: how much one turn does, from 1 to 10.
    pub(crate) fn set_expiry_effort(&mut self, effort: usize) {
        self.expiry_effort = effort;
    }

    /// Removes some of the keys that ended and nobody asked for, going round the segments of
    /// all databases.
    pub(crate) fn expire_turn(&mut self) -> ExpiryTurn {
        if !self.expiry_enabled || self.loading || !self.has_volatile() {
            return ExpiryTurn::Done;
        }
        if self.is_replica {
            return self.expire_own();
        }
        let (selected, mut looked, mut removed) = (self.selected, 0, 0);
        let segments: usize = self.databases.iter().map(|table| table.segment_count()).sum();
        let segments_max = SEGMENTS_MAX + SEGMENTS_PER_EFFORT * (self.expiry_effort - 1);
        let mut turn = ExpiryTurn::Done;
        for _ in 0..segments.min(SEGMENTS_ASKED_MAX) {
            let (db, segment) = self.next_segment();
            self.selected = db;
            // A key ends after its moment, not at it.
            let ended_by = self.now_ms.saturating_sub(1);
            if !self.table().segment_due(segment, ended_by) {
                continue;
            }
            let keys = self.table_mut().expired_keys(segment, ended_by, KEYS_MAX - removed);
            removed += keys.len();
            looked += 1;
            for key in keys {
                // Looking it up is what removes it.
                self.contains(&key);
            }
            if looked == segments_max || removed == KEYS_MAX {
                turn = ExpiryTurn::More;
                break;
            }
        }
        self.selected = selected;
        turn
    }

    fn next_segment(&mut self) -> (usize, usize) {
        let (mut db, mut segment) = self.expiry_cursor;
        while segment >= self.databases[db].segment_count() {
            (db, segment) = ((db + 1) % self.databases.len(), 0);
        }
        self.expiry_cursor = (db, segment + 1);
        (db, segment)
    }
}
