//! Adding and taking at the ends.

use store_types::{End, List};

use super::super::collection::{count, count_further, remove_emptied, reply_element};
use super::super::prelude::*;
use super::{pop_event, push_event};
use crate::context::Caller;

pub(super) fn lpush(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    push(cx, request, End::Front)
}

pub(super) fn rpush(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    push(cx, request, End::Back)
}

pub(super) fn lpushx(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    push_if_there(cx, request, End::Front)
}

pub(super) fn rpushx(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    push_if_there(cx, request, End::Back)
}

fn push_if_there(cx: &mut Context<'_>, request: Request<'_>, end: End) -> CommandResult {
    if cx.db.peek_as::<List>(request.arg(1))?.is_none() {
        cx.reply.integer(0);
        return Ok(());
    }
    push(cx, request, end)
}

fn push(cx: &mut Context<'_>, request: Request<'_>, end: End) -> CommandResult {
    let key = request.arg(1);
    let mut list = cx.db.write_or_create(key, List::new)?;
    for element in request.args_from(2) {
        list.push(end, element, &cx.server.limits);
    }
    let len = list.len();
    drop(list);
    cx.db.changed(event_class::LIST, push_event(end), key);
    count_further(cx, request.len() - 3);
    cx.reply.count(len);
    Ok(())
}

pub(super) fn lpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    pop(cx, request, End::Front)
}

pub(super) fn rpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    pop(cx, request, End::Back)
}

fn pop(cx: &mut Context<'_>, request: Request<'_>, end: End) -> CommandResult {
    if request.len() > 3 {
        let text = format!("ERR wrong number of arguments for '{}' command", pop_event(end));
        return Err(CommandError::new(text));
    }
    let key = request.arg(1);
    let Some(wanted) = request.get(2).map(count).transpose()? else {
        if !take_one(cx, key, end)? {
            cx.reply.null();
        }
        return Ok(());
    };
    if cx.db.peek_as::<List>(key)?.is_none() {
        cx.reply.null_array();
        return Ok(());
    }
    take_some(cx, key, end, wanted)?;
    Ok(())
}

/// Takes one element and writes it; false, writing nothing, when there is no list.
pub(super) fn take_one(cx: &mut Context<'_>, key: &[u8], end: End) -> Result<bool, CommandError> {
    let Some(mut list) = cx.db.write_as::<List>(key)? else { return Ok(false) };
    let reply = &mut cx.reply;
    list.pop_with(end, |element| reply_element(reply, element));
    let is_empty = list.is_empty();
    drop(list);
    after_taking(cx, key, end, is_empty);
    if cx.caller == Caller::Resumed {
        // What one waited for is no change of its own: it is part of the push.
        cx.db.dirty -= 1;
    }
    Ok(true)
}

/// Takes up to `wanted` elements, writes them as an array, and returns how many there were.
pub(super) fn take_some(
    cx: &mut Context<'_>,
    key: &[u8],
    end: End,
    wanted: usize,
) -> Result<usize, CommandError> {
    let Some(mut list) = cx.db.write_as::<List>(key)? else { return Ok(0) };
    let (len, taken) = (list.len(), wanted.min(list.len()));
    cx.reply.array(taken);
    if taken == 0 {
        return Ok(0);
    }
    let range = match end {
        End::Front => 0..taken,
        End::Back => len - taken..len,
    };
    match end {
        End::Front => list.range(range.clone()).for_each(|e| reply_element(&mut cx.reply, e)),
        End::Back => list.range(range.clone()).rev().for_each(|e| reply_element(&mut cx.reply, e)),
    }
    list.remove_range(range);
    drop(list);
    after_taking(cx, key, end, taken == len);
    if cx.caller == Caller::Resumed {
        cx.db.signal_modified(key);
    }
    count_further(cx, taken - 1);
    Ok(taken)
}

/// Tells that elements were taken.
pub(super) fn after_taking(cx: &mut Context<'_>, key: &[u8], end: End, is_empty: bool) {
    cx.db.changed_after_event(event_class::LIST, pop_event(end), key);
    if is_empty {
        remove_emptied(cx, key);
    }
    // As in Redis: that one who waited takes what was just given is no change of its own.
    if cx.caller != Caller::Resumed {
        cx.db.signal_modified(key);
    }
}

pub(super) fn llen(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let len = cx.db.read_as::<List>(request.arg(1))?.map_or(0, List::len);
    cx.reply.count(len);
    Ok(())
}
