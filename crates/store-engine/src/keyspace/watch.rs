//! Who watches which keys (WATCH).

use std::collections::HashMap;

use crate::session::SessionId;

/// Watched keys and their watchers.
#[derive(Debug, Default)]
pub struct Watches {
    watchers: HashMap<(usize, Box<[u8]>), Vec<SessionId>>,
}

impl Watches {
    /// Whether nobody watches anything: the common case, asked on every write.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.watchers.is_empty()
    }

    /// Begins to watch. False when the session watches the key already.
    pub fn add(&mut self, db: usize, key: &[u8], session: SessionId) -> bool {
        let watchers = self.watchers.entry((db, key.into())).or_default();
        let is_new = !watchers.contains(&session);
        if is_new {
            watchers.push(session);
        }
        is_new
    }

    /// Stops watching one key.
    pub fn remove(&mut self, db: usize, key: &[u8], session: SessionId) {
        let place = (db, key.into());
        if let Some(watchers) = self.watchers.get_mut(&place) {
            watchers.retain(|watcher| *watcher != session);
            if watchers.is_empty() {
                self.watchers.remove(&place);
            }
        }
    }

    /// Who watches a key.
    pub fn of(&self, db: usize, key: &[u8]) -> &[SessionId] {
        self.watchers.get(&(db, key.into())).map_or(&[], Vec::as_slice)
    }

    /// All watched keys of a database with their watchers.
    pub fn in_db(&self, db: usize) -> impl Iterator<Item = (&[u8], &[SessionId])> {
        let of_db = self.watchers.iter().filter(move |((at, _), _)| *at == db);
        of_db.map(|((_, key), watchers)| (&**key, watchers.as_slice()))
    }
}
