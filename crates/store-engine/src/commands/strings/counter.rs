//! Strings that are numbers.

use store_types::number::Extended;

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

pub(super) fn incrbyfloat(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let before = match cx.db.peek_string(key)? {
        Some(StringRef::Integer(number)) => Summand::Finite(Extended::from_i64(number)),
        Some(StringRef::Bytes(bytes)) => Summand::parse(bytes)?,
        None => Summand::Finite(Extended::ZERO),
    };
    let sum = match (before, Summand::parse(request.arg(2))?) {
        (Summand::Finite(before), Summand::Finite(amount)) => before.checked_add(amount),
        _ => None,
    };
    let sum = sum.ok_or(CommandError::text("ERR increment would produce NaN or Infinity"))?;
    let text = sum.to_text();
    // Kept as text even when it is an integer, as Redis does.
    cx.db.set(key, NewValue::Bytes(text.as_bytes()), Expiry::Keep);
    cx.db.changed(event_class::STRING, "incrbyfloat", key);
    cx.propagate_instead(&[b"SET", key, text.as_bytes(), b"KEEPTTL"]);
    cx.reply.bulk(text.as_bytes());
    Ok(())
}

/// A number to add: infinities are numbers, but no sum with them is kept.
enum Summand {
    Finite(Extended),
    Infinite,
}

impl Summand {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        if let Some(number) = Extended::parse(text) {
            return Ok(Self::Finite(number));
        }
        let unsigned = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
        match is_word(unsigned, "inf") || is_word(unsigned, "infinity") {
            true => Ok(Self::Infinite),
            false => Err(CommandError::NOT_FLOAT),
        }
    }
}
