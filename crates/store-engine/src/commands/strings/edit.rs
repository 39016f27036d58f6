//! Parts of strings.

use std::ops::Range;

use store_resp::SHARED_MIN;

use super::super::prelude::*;
use super::{reply_shared, stored_arg};
use crate::config::REQUEST_MAX;
use crate::keyspace::Expiry;
use crate::session::session_flag;

pub(super) fn strlen(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let len = cx.db.read_string(request.arg(1))?.map_or(0, |text| text.len());
    cx.reply.count(len);
    Ok(())
}

pub(super) fn append(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, tail) = (request.arg(1), request.arg(2));
    let len = match cx.db.peek_string(key)?.map(|text| text.len()) {
        None => {
            cx.db.set(key, stored_arg(request, 2), Expiry::Clear);
            tail.len()
        }
        Some(len) => {
            check_len(cx, len, tail.len())?;
            cx.db.edit_string(key, |text| {
                make_room(text, len + tail.len());
                text.extend_from_slice(tail);
            });
            len + tail.len()
        }
    };
    cx.db.changed(event_class::STRING, "append", key);
    cx.reply.count(len);
    Ok(())
}

pub(super) fn setrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, part) = (request.arg(1), request.arg(3));
    let offset = integer(request.arg(2))?;
    let offset =
        usize::try_from(offset).map_err(|_| CommandError::text("ERR offset is out of range"))?;
    let len = cx.db.peek_string(key)?.map_or(0, |text| text.len());
    if part.is_empty() {
        cx.reply.count(len);
        return Ok(());
    }
    check_len(cx, offset, part.len())?;
    let end = offset + part.len();
    cx.db.edit_string(key, |text| {
        if text.len() < end {
            make_room(text, end);
            text.resize(end, 0);
        }
        text[offset..end].copy_from_slice(part);
    });
    cx.db.changed(event_class::STRING, "setrange", key);
    cx.reply.count(len.max(end));
    Ok(())
}

pub(super) fn getrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (start, end) = (integer(request.arg(2))?, integer(request.arg(3))?);
    let Some(text) = cx.db.read_string(request.arg(1))? else {
        cx.reply.bulk(b"");
        return Ok(());
    };
    let part = part_of(text.len(), start, end);
    if part.len() < SHARED_MIN {
        let mut scratch = [0; 20];
        cx.reply.bulk(&text.bytes(&mut scratch)[part]);
    } else {
        reply_shared(cx, request.arg(1), |_| part);
    }
    Ok(())
}

/// The bytes from `start` to `end` inclusive; negative counts from the end.
fn part_of(len: usize, start: i64, end: i64) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let len = len as i64;
    let from_front = |at: i64| if at < 0 { (at.saturating_add(len)).max(0) } else { at };
    let (start, end) = (from_front(start), from_front(end).min(len - 1));
    if len == 0 || start > end {
        return 0..0;
    }
    start as usize..end as usize + 1
}

/// Makes room for a string of `len` bytes. A long one gets a megabyte more, where doubling it would
/// take as much again as it has.
fn make_room(text: &mut Vec<u8>, len: usize) {
    const LONG: usize = 1024 * 1024;
    if len > text.capacity() && len >= LONG {
        text.reserve_exact(len + LONG - text.len());
    }
}

/// The longest string that a request may make. One from a file or of the primary was allowed when
/// it first ran, where the setting may be another: then only what no setting allows is refused.
pub(in crate::commands) fn string_max(cx: &Context<'_>) -> usize {
    match cx.session.has(session_flag::LOADER | session_flag::PRIMARY_LINK) {
        true => REQUEST_MAX as usize,
        false => cx.server.config.settings().clients.bulk_max as usize,
    }
}

/// Fails when a string of `len` and `more` bytes would be too long.
pub(in crate::commands) fn check_len(cx: &Context<'_>, len: usize, more: usize) -> CommandResult {
    let total = len.saturating_add(more);
    if total > string_max(cx) {
        return Err(CommandError::STRING_TOO_LONG);
    }
    Ok(())
}
