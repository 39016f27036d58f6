//! Keys that are on their way to another server.

use std::collections::{BTreeMap, BTreeSet};

/// Keys that move elsewhere and are still here. They may be read. Nothing may change them, or the
/// change would be lost with them; whoever wants to waits until they are gone, or stay after all.
#[derive(Debug, Default)]
pub struct Leaving {
    keys: BTreeMap<usize, BTreeSet<Box<[u8]>>>,
    #[cfg(feature = "flaws")]
    is_ignored: bool,
}

impl Leaving {
    /// Whether no key is on its way.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// A key of a database begins to leave.
    pub fn insert(&mut self, db: usize, key: &[u8]) {
        self.keys.entry(db).or_default().insert(key.into());
    }

    /// A key has left, or stays.
    pub fn remove(&mut self, db: usize, key: &[u8]) {
        let Some(keys) = self.keys.get_mut(&db) else { return };
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(&db);
        }
    }

    /// Whether a key may not be changed now.
    pub fn contains(&self, db: usize, key: &[u8]) -> bool {
        #[cfg(feature = "flaws")]
        if self.is_ignored {
            return false;
        }
        self.keys.get(&db).is_some_and(|keys| keys.contains(key))
    }

    /// All of them stay.
    pub fn clear(&mut self) {
        self.keys.clear();
    }

    /// From now on the rule is broken.
    #[cfg(feature = "flaws")]
    pub fn ignore(&mut self) {
        self.is_ignored = true;
    }
}
