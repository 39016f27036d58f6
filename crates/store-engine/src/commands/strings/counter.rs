//! Strings that are numbers.

use super::super::prelude::*;
use crate::keyspace::{Expiry, NewValue, StringRef};

pub(super) fn incr(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    add(cx, request.arg(1), 1)
}

pub(super) fn decr(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    add(cx, request.arg(1), -1)
}

pub(super) fn incrby(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    add(cx, request.arg(1), integer(request.arg(2))?)
}

pub(super) fn decrby(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let amount = integer(request.arg(2))?;
    let amount = amount.checked_neg().ok_or(CommandError::text("ERR decrement would overflow"))?;
    add(cx, request.arg(1), amount)
}

fn add(cx: &mut Context<'_>, key: &[u8], amount: i64) -> CommandResult {
    let before = match cx.db.peek_string(key)? {
        Some(StringRef::Integer(number)) => number,
        Some(StringRef::Bytes(bytes)) => integer(bytes)?,
        None => 0,
    };
    let after = before
        .checked_add(amount)
        .ok_or(CommandError::text("ERR increment or decrement would overflow"))?;
    cx.db.set(key, NewValue::Integer(after), Expiry::Keep);
    cx.db.changed(event_class::STRING, "incrby", key);
    cx.reply.integer(after);
    Ok(())
}
