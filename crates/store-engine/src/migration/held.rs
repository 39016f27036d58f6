//! What ends while writes are held back. Whoever takes this server's place has all that was written
//! before, and would not have what is done now: it is done when writes may run again, and never
//! when another server has taken over by then.

use store_cluster::MigrationEnd;

use super::DecodedValue;
use crate::engine::Engine;
use crate::replication::UNBLOCKED;
use crate::session::SessionId;

/// Something that changes data, or the answer that tells of it.
#[derive(Debug)]
pub(crate) enum Held {
    /// Another server has these keys.
    Moved { id: SessionId, number: u64, db: usize, keys: Vec<Vec<u8>> },
    /// A migration whose keys are held is over.
    Ended { id: SessionId, number: u64, reply: Vec<u8> },
    /// The value of a RESTORE. There is at most one for each session that waits.
    Restored { id: SessionId, number: u64, value: DecodedValue },
}

impl Engine {
    /// Whether something was held back that may be done now.
    pub(crate) fn has_held_work(&self) -> bool {
        let migrations = &self.state.migrations;
        !self.state.is_paused() && (!migrations.held.is_empty() || migrations.was_woken_in_pause)
    }

    /// Does what was held back.
    pub(crate) fn finish_held(&mut self, now_us: u64) {
        for held in std::mem::take(&mut self.state.migrations.held) {
            match held {
                Held::Moved { id, number, db, keys } => {
                    self.finish_moved(now_us, (id, number), db, &keys);
                }
                Held::Ended { id, number, reply } => self.finish_migration(id, number, &reply),
                Held::Restored { id, number, value } => {
                    drop(self.finish_restore(now_us, id, number, value));
                }
            }
        }
        if std::mem::take(&mut self.state.migrations.was_woken_in_pause) {
            self.serve_waiting();
        }
    }

    /// Another server decides about the keys from now on: nothing of it is done.
    pub(crate) fn drop_held(&mut self) {
        self.state.migrations.was_woken_in_pause = false;
        for held in std::mem::take(&mut self.state.migrations.held) {
            match held {
                Held::Moved { db, keys, .. } => keys.iter().for_each(|key| self.keep_key(db, key)),
                Held::Ended { id, number, .. } => {
                    let end = MigrationEnd::Lost { is_sent: true };
                    self.finish_migration(id, number, format!("-{end}\r\n").as_bytes());
                }
                Held::Restored { id, number, .. } => self.finish_migration(id, number, UNBLOCKED),
            }
        }
    }

    /// Whether the end of this migration has to wait for its keys.
    pub(super) fn holds_keys_of(&self, wanted: u64) -> bool {
        let mut held = self.state.migrations.held.iter();
        held.any(|held| matches!(held, Held::Moved { number, .. } if *number == wanted))
    }
}
