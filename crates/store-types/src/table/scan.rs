//! Walking a table in steps without any state but a number.
//!
//! The cursor is the smallest 48-bit hash prefix not yet visited. It means the same whatever the
//! table looks like by then, so growth, splits and merges between two steps lose nothing: an entry
//! that is there from the first step to the last is visited, and at most once.

use super::{Keyed, Table, hash};

/// Clients parse cursors as signed integers, and 48 bits are plenty to tell entries apart.
const PREFIX_BITS: u32 = 48;
/// Segments without anything to visit that are looked at in one step, so that a step stays short.
const EMPTY_MAX: usize = 64;

impl<T: Keyed> Table<T> {
    /// Visits about `count` entries from `cursor` on and returns the next cursor, zero at the end.
    pub(crate) fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&'a T),
    ) -> u64 {
        let mut cursor = cursor & ((1 << PREFIX_BITS) - 1);
        let (mut wanted, mut empty) = (count.max(1), 0);
        loop {
            let segment = &self.segments[self.segment_of(cursor << (64 - PREFIX_BITS))];
            let mut found: Vec<(u64, &T)> = segment
                .entries
                .iter()
                .map(|entry| (hash(self.seed, entry.key()) >> (64 - PREFIX_BITS), entry))
                .filter(|(prefix, _)| *prefix >= cursor)
                .collect();
            if found.len() > wanted {
                return visit_lowest(&mut found, wanted, visit);
            }
            wanted -= found.len();
            empty += usize::from(found.is_empty());
            found.into_iter().for_each(|(_, entry)| visit(entry));
            cursor = end_of(segment.prefix, segment.depth);
            if cursor == 0 || wanted == 0 || empty == EMPTY_MAX {
                return cursor;
            }
        }
    }
}

/// Visits the `wanted` lowest and all that share the last one's prefix; they cannot be told apart.
fn visit_lowest<'a, T>(
    found: &mut [(u64, &'a T)],
    wanted: usize,
    mut visit: impl FnMut(&'a T),
) -> u64 {
    let (_, &mut (last, _), _) =
        found.select_nth_unstable_by_key(wanted - 1, |(prefix, _)| *prefix);
    for (_, entry) in found.iter().filter(|(prefix, _)| *prefix <= last) {
        visit(entry);
    }
    (last + 1) & ((1 << PREFIX_BITS) - 1)
}

/// The first prefix after a segment's range, zero after the last segment.
fn end_of(prefix: u64, depth: u8) -> u64 {
    ((prefix + 1) << (PREFIX_BITS - u32::from(depth))) & ((1 << PREFIX_BITS) - 1)
}
