//! Cutting a stream from its old end.

use std::sync::Arc;

use super::{Stream, StreamId, node, own_bytes};

/// Which entries to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrimTo {
    /// The latest so many.
    MaxLen(u64),
    /// Those with this name or a higher one.
    MinId(StreamId),
}

/// How exactly to cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// To the entry.
    Exactly(TrimTo),
    /// Whole nodes only, and of them only so many entries at a time; zero means no limit.
    Roughly {
        /// Which entries to keep at least.
        to: TrimTo,
        /// The most entries to remove.
        removed_max: u64,
    },
}

impl Stream {
    /// Removes old entries; returns how many.
    pub fn trim(&mut self, trim: Trim) -> u64 {
        let (to, removed_max) = match trim {
            Trim::Exactly(to) => (to, 0),
            Trim::Roughly { to, removed_max } => (to, removed_max),
        };
        let mut removed = 0;
        while let Some(node) = self.nodes.first_entry() {
            if matches!(to, TrimTo::MaxLen(length_max) if self.length <= length_max) {
                break;
            }
            let head = node::head(node.get());
            let live = head.live as u64;
            if removed_max > 0 && removed + live > removed_max {
                break;
            }
            let whole = match to {
                TrimTo::MaxLen(length_max) => self.length - live >= length_max,
                TrimTo::MinId(id) => {
                    let last = node::last_entry(node.get()).expect("no node is empty");
                    node::entry(node.get(), &head, *node.key(), last).id < id
                }
            };
            if whole {
                self.node_bytes -= own_bytes(&node.remove());
                self.length -= live;
                removed += live;
                continue;
            }
            if let Trim::Exactly(to) = trim {
                removed += self.trim_first_node(to);
            }
            break;
        }
        if removed > 0 {
            self.first_id = self.find_first_id();
        }
        removed
    }

    /// Flags entries of the first node; some of them stay.
    fn trim_first_node(&mut self, to: TrimTo) -> u64 {
        let Some(mut shared) = self.nodes.first_entry() else { return 0 };
        let first = *shared.key();
        self.node_bytes -= own_bytes(shared.get());
        let pack = Arc::make_mut(shared.get_mut());
        let head = node::head(pack);
        let mut removed = 0;
        let mut place = node::first_entry(&head);
        while let Some(at) = place {
            let entry = node::entry(pack, &head, first, at);
            let stop = match to {
                TrimTo::MaxLen(length_max) => self.length - removed <= length_max,
                TrimTo::MinId(id) => entry.id >= id,
            };
            if stop {
                break;
            }
            place = entry.next;
            if !entry.deleted {
                let (flags_at, flags) = entry.flags();
                // Flags keep their width: the places of later entries stay true.
                node::flag_deleted(pack, flags_at, flags);
                removed += 1;
            }
        }
        node::set_counts(pack, head.live - removed as i64, head.deleted + removed as i64);
        self.node_bytes += own_bytes(pack);
        self.length -= removed;
        removed
    }
}
