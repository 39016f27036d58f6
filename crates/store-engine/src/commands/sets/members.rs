//! Single members, and all of them.

use store_types::Set;

use super::super::collection::{count_further, remove_emptied, reply_element};
use super::super::element_scan::Found;
use super::super::prelude::*;
use super::super::scan::{parse_cursor, parse_options};

pub(super) fn sadd(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let mut set = cx.db.write_or_create(key, Set::new)?;
    let limits = &cx.server.limits;
    let added = request.args_from(2).filter(|member| set.insert(member, limits)).count();
    drop(set);
    if added > 0 {
        cx.db.changed(event_class::SET, "sadd", key);
        count_further(cx, added - 1);
    }
    cx.reply.count(added);
    Ok(())
}

pub(super) fn srem(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let Some(mut set) = cx.db.write_as::<Set>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let removed = request.args_from(2).filter(|member| set.remove(member)).count();
    let is_empty = set.is_empty();
    drop(set);
    if removed > 0 {
        cx.db.changed(event_class::SET, "srem", key);
        count_further(cx, removed - 1);
    }
    if is_empty {
        remove_emptied(cx, key);
    }
    cx.reply.count(removed);
    Ok(())
}

pub(super) fn smove(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (source, target, member) = (request.arg(1), request.arg(2), request.arg(3));
    // Both are looked for, even if the first is not there.
    let has_source = cx.db.peek_as::<Set>(source).map(|set| set.is_some());
    let target_kind = cx.db.peek_as::<Set>(target).map(|_| ());
    if !has_source? {
        cx.reply.integer(0);
        return Ok(());
    }
    target_kind?;
    let mut set = cx.db.write_as::<Set>(source)?.expect("the set was just seen");
    if source == target {
        cx.reply.integer(i64::from(set.contains(member)));
        return Ok(());
    }
    if !set.remove(member) {
        cx.reply.integer(0);
        return Ok(());
    }
    let is_empty = set.is_empty();
    drop(set);
    cx.db.changed_after_event(event_class::SET, "srem", source);
    if is_empty {
        remove_emptied(cx, source);
    }
    let added = cx.db.write_or_create(target, Set::new)?.insert(member, &cx.server.limits);
    cx.db.signal_modified(source);
    if added {
        cx.db.changed(event_class::SET, "sadd", target);
    }
    cx.reply.integer(1);
    Ok(())
}

pub(super) fn sismember(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let set = cx.db.read_as::<Set>(request.arg(1))?;
    let there = set.is_some_and(|set| set.contains(request.arg(2)));
    cx.reply.integer(i64::from(there));
    Ok(())
}

pub(super) fn smismember(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let set = cx.db.read_as::<Set>(request.arg(1))?;
    cx.reply.array(request.len() - 2);
    for member in request.args_from(2) {
        let there = set.is_some_and(|set| set.contains(member));
        cx.reply.integer(i64::from(there));
    }
    Ok(())
}

pub(super) fn scard(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let len = cx.db.read_as::<Set>(request.arg(1))?.map_or(0, Set::len);
    cx.reply.count(len);
    Ok(())
}

pub(super) fn smembers(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let set = cx.db.read_as::<Set>(request.arg(1))?;
    cx.reply.set(set.map_or(0, Set::len));
    for member in set.into_iter().flat_map(Set::iter) {
        reply_element(&mut cx.reply, member);
    }
    Ok(())
}

pub(super) fn sscan(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let cursor = parse_cursor(request.arg(2))?;
    let set = cx.db.read_as::<Set>(request.arg(1))?;
    let mut found = Found::begin(&mut cx.reply);
    let Some(set) = set else {
        found.end(0);
        return Ok(());
    };
    let options = parse_options(request, 3, false)?;
    let next = set.scan(cursor, options.count, |member| {
        if member.with_bytes(|text| options.wants(text)) {
            found.push(member);
        }
    });
    found.end(next);
    Ok(())
}
