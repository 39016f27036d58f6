//! Results that become a key of their own.

use store_types::SortedSet;

use super::super::prelude::*;

/// Puts a result under `key`, or removes the key when there is none; answers its length.
pub(super) fn store_or_delete(
    cx: &mut Context<'_>,
    key: &[u8],
    result: SortedSet,
    event: &'static str,
) {
    let len = result.len();
    if len == 0 {
        cx.db.delete_target(key);
    } else {
        cx.db.set_object(key, result);
        cx.db.changed(event_class::SORTED_SET, event, key);
    }
    cx.reply.count(len);
}
