//! Which sessions wait for which keys (BLPOP and its kind), first come first.

use std::collections::{HashMap, VecDeque};

use crate::session::SessionId;

/// Keys that blocked sessions wait for.
#[derive(Debug, Default)]
pub struct WaitingKeys {
    sessions: HashMap<(usize, Box<[u8]>), VecDeque<SessionId>>,
}

impl WaitingKeys {
    /// Whether nobody waits: the common case.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Whether somebody waits for the key.
    pub fn contains(&self, db: usize, key: &[u8]) -> bool {
        !self.is_empty() && self.sessions.contains_key(&(db, key.into()))
    }

    /// Puts the session at the end of the key's queue, once.
    pub fn add(&mut self, db: usize, key: &[u8], session: SessionId) {
        let queue = self.sessions.entry((db, key.into())).or_default();
        if !queue.contains(&session) {
            queue.push_back(session);
        }
    }

    /// Takes the session out of the key's queue.
    pub fn remove(&mut self, db: usize, key: &[u8], session: SessionId) {
        let place = (db, key.into());
        if let Some(queue) = self.sessions.get_mut(&place) {
            queue.retain(|waiting| *waiting != session);
            if queue.is_empty() {
                self.sessions.remove(&place);
            }
        }
    }

    /// Who waits for the key, in order.
    pub fn of(&self, db: usize, key: &[u8]) -> Vec<SessionId> {
        self.sessions
            .get(&(db, key.into()))
            .map_or_else(Vec::new, |queue| queue.iter().copied().collect())
    }

    /// The keys of a database somebody waits for.
    pub fn in_db(&self, db: usize) -> Vec<Box<[u8]>> {
        self.sessions.keys().filter(|(at, _)| *at == db).map(|(_, key)| key.clone()).collect()
    }
}
