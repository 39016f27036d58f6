//! Single fields.

use store_types::Hash;

use super::super::collection::{count_further, remove_emptied, reply_element};
use super::super::prelude::*;

pub(super) fn hset(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let added = set_fields(cx, request)?;
    cx.reply.count(added);
    Ok(())
}

pub(super) fn hmset(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    set_fields(cx, request)?;
    cx.reply.ok();
    Ok(())
}

/// Sets all fields of the request and returns how many are new.
fn set_fields(cx: &mut Context<'_>, request: Request<'_>) -> Result<usize, CommandError> {
    if request.len() % 2 == 1 {
        let name = &cx.server.registry.row(cx.row).full_name;
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return Err(CommandError::new(text));
    }
    let key = request.arg(1);
    let pairs = (request.len() - 2) / 2;
    let limits = &cx.server.limits;
    let mut hash = cx.db.write_or_create(key, Hash::new)?;
    let mut added = 0;
    for at in (2..request.len()).step_by(2) {
        added += usize::from(hash.insert(request.arg(at), request.arg(at + 1), limits));
    }
    drop(hash);
    cx.db.changed(event_class::HASH, "hset", key);
    count_further(cx, pairs - 1);
    Ok(added)
}

pub(super) fn hsetnx(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, field) = (request.arg(1), request.arg(2));
    let mut hash = cx.db.write_or_create(key, Hash::new)?;
    if hash.contains(field) {
        cx.reply.integer(0);
        return Ok(());
    }
    hash.insert(field, request.arg(3), &cx.server.limits);
    drop(hash);
    cx.db.changed(event_class::HASH, "hset", key);
    cx.reply.integer(1);
    Ok(())
}

pub(super) fn hget(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let hash = cx.db.read_as::<Hash>(request.arg(1))?;
    match hash.and_then(|hash| hash.get(request.arg(2))) {
        Some(value) => reply_element(&mut cx.reply, value),
        None => cx.reply.null(),
    }
    Ok(())
}

pub(super) fn hmget(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let hash = cx.db.read_as::<Hash>(request.arg(1))?;
    cx.reply.array(request.len() - 2);
    for field in request.args_from(2) {
        match hash.and_then(|hash| hash.get(field)) {
            Some(value) => reply_element(&mut cx.reply, value),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

pub(super) fn hdel(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let Some(mut hash) = cx.db.write_as::<Hash>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let removed = request.args_from(2).filter(|field| hash.remove(field)).count();
    let is_empty = hash.is_empty();
    drop(hash);
    if removed > 0 {
        cx.db.changed(event_class::HASH, "hdel", key);
        count_further(cx, removed - 1);
    }
    if is_empty {
        remove_emptied(cx, key);
    }
    cx.reply.count(removed);
    Ok(())
}

pub(super) fn hexists(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let hash = cx.db.read_as::<Hash>(request.arg(1))?;
    let there = hash.is_some_and(|hash| hash.contains(request.arg(2)));
    cx.reply.integer(i64::from(there));
    Ok(())
}

pub(super) fn hlen(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let len = cx.db.read_as::<Hash>(request.arg(1))?.map_or(0, Hash::len);
    cx.reply.count(len);
    Ok(())
}

pub(super) fn hstrlen(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let hash = cx.db.read_as::<Hash>(request.arg(1))?;
    let value = hash.and_then(|hash| hash.get(request.arg(2)));
    cx.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}
