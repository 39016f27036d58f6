//! Who watches which keys (WATCH).

use std::collections::BTreeMap;

use crate::session::SessionId;

/// Watched keys and their watchers, by database.
#[derive(Debug, Default)]
pub struct Watches {
    watchers: BTreeMap<usize, BTreeMap<Box<[u8]>, Vec<SessionId>>>,
}

impl Watches {
    /// Whether nobody watches anything: the common case, asked on every write.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Begins to watch. False when the session watches the key already.
    pub fn add(&mut self, db: usize, key: &[u8], session: SessionId) -> bool {
        let watchers = self.watchers.entry(db).or_default().entry(key.into()).or_default();
        let is_new = !watchers.contains(&session);
        if is_new {
            watchers.push(session);
        }
        is_new
    }

    /// Stops watching one key.
    pub fn remove(&mut self, db: usize, key: &[u8], session: SessionId) {
        let Some(keys) = self.watchers.get_mut(&db) else { return };
        let Some(watchers) = keys.get_mut(key) else { return };
        watchers.retain(|watcher| *watcher != session);
        if watchers.is_empty() {
            keys.remove(key);
        }
        if keys.is_empty() {
            self.watchers.remove(&db);
        }
    }

    /// Stops watching one key for everybody, and tells who did.
    pub fn take(&mut self, db: usize, key: &[u8]) -> Vec<SessionId> {
        let Some(keys) = self.watchers.get_mut(&db) else { return Vec::new() };
        let watchers = keys.remove(key).unwrap_or_default();
        if keys.is_empty() {
            self.watchers.remove(&db);
        }
        watchers
    }

    /// Who watches a key.
    pub fn of(&self, db: usize, key: &[u8]) -> &[SessionId] {
        let watchers = self.watchers.get(&db).and_then(|keys| keys.get(key));
        watchers.map_or(&[], Vec::as_slice)
    }

    /// All watched keys of a database with their watchers.
    pub fn in_db(&self, db: usize) -> impl Iterator<Item = (&[u8], &[SessionId])> {
        let keys = self.watchers.get(&db).into_iter().flatten();
        keys.map(|(key, watchers)| (&**key, watchers.as_slice()))
    }
}
