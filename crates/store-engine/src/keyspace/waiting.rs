//! Which sessions wait for which keys (BLPOP and its kind), first come first.

use std::collections::{BTreeMap, VecDeque};

use crate::session::SessionId;

/// Keys that blocked sessions wait for, by database.
#[derive(Debug, Default)]
pub struct WaitingKeys {
    sessions: BTreeMap<usize, BTreeMap<Box<[u8]>, VecDeque<SessionId>>>,
}

impl WaitingKeys {
    /// Whether nobody waits: the common case.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether somebody waits for the key.
    #[inline]
    pub fn contains(&self, db: usize, key: &[u8]) -> bool {
        !self.is_empty() && self.sessions.get(&db).is_some_and(|keys| keys.contains_key(key))
    }

    /// Puts the session at the end of the key's queue, once.
    pub fn add(&mut self, db: usize, key: &[u8], session: SessionId) {
        let queue = self.sessions.entry(db).or_default().entry(key.into()).or_default();
        if !queue.contains(&session) {
            queue.push_back(session);
        }
    }

    /// Takes the session out of the key's queue.
    pub fn remove(&mut self, db: usize, key: &[u8], session: SessionId) {
        let Some(keys) = self.sessions.get_mut(&db) else { return };
        let Some(queue) = keys.get_mut(key) else { return };
        queue.retain(|waiting| *waiting != session);
        if queue.is_empty() {
            keys.remove(key);
        }
        if keys.is_empty() {
            self.sessions.remove(&db);
        }
    }

    /// Who waits for the key, in order.
    pub fn of(&self, db: usize, key: &[u8]) -> Vec<SessionId> {
        let queue = self.sessions.get(&db).and_then(|keys| keys.get(key));
        queue.into_iter().flatten().copied().collect()
    }

    /// The keys of a database somebody waits for.
    pub fn in_db(&self, db: usize) -> Vec<Box<[u8]>> {
        self.sessions.get(&db).into_iter().flatten().map(|(key, _)| key.clone()).collect()
    }
}
