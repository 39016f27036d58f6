//! Fields that are numbers.

use store_types::number::{Extended, IntText, parse_f64};
use store_types::{Element, Hash};

use super::super::prelude::*;

pub(super) fn hincrby(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, field) = (request.arg(1), request.arg(2));
    let amount = integer(request.arg(3))?;
    let before = match stored(cx, key, field)? {
        None => 0,
        Some(value) => {
            value.as_i64().ok_or(CommandError::text("ERR hash value is not an integer"))?
        }
    };
    let after = before
        .checked_add(amount)
        .ok_or(CommandError::text("ERR increment or decrement would overflow"))?;
    store(cx, key, field, IntText::new(after).as_bytes())?;
    cx.db.changed(event_class::HASH, "hincrby", key);
    cx.reply.integer(after);
    Ok(())
}

pub(super) fn hincrbyfloat(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, field) = (request.arg(1), request.arg(2));
    let amount = amount(request.arg(3))?;
    let would_overflow = CommandError::text("ERR increment would produce NaN or Infinity");
    let before = match stored(cx, key, field)? {
        None => Extended::from_i64(0),
        Some(value) => match value.with_bytes(Extended::parse) {
            Some(number) => number,
            None if value.with_bytes(is_infinite) => return Err(would_overflow),
            None => return Err(CommandError::text("ERR hash value is not a float")),
        },
    };
    let after = before.checked_add(amount).ok_or(would_overflow)?.to_text();
    store(cx, key, field, after.as_bytes())?;
    cx.db.changed(event_class::HASH, "hincrbyfloat", key);
    // The sum depends on the machine's long double: what was found here counts everywhere.
    cx.propagate_instead(&[b"HSET", key, field, after.as_bytes()]);
    cx.reply.bulk(after.as_bytes());
    Ok(())
}

fn amount(arg: &[u8]) -> Result<Extended, CommandError> {
    match Extended::parse(arg) {
        Some(amount) => Ok(amount),
        None if is_infinite(arg) => Err(CommandError::text("ERR value is NaN or Infinity")),
        None => Err(CommandError::NOT_FLOAT),
    }
}

fn is_infinite(text: &[u8]) -> bool {
    parse_f64(text).is_some_and(f64::is_infinite)
}

fn stored<'a>(
    cx: &'a mut Context<'_>,
    key: &[u8],
    field: &[u8],
) -> Result<Option<Element<'a>>, CommandError> {
    Ok(cx.db.peek_as::<Hash>(key)?.and_then(|hash| hash.get(field)))
}

fn store(cx: &mut Context<'_>, key: &[u8], field: &[u8], value: &[u8]) -> CommandResult {
    let mut hash = cx.db.write_or_create(key, Hash::new)?;
    hash.insert(field, value, &cx.server.limits);
    Ok(())
}
