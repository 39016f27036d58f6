//! Intersection, union and difference.

use store_types::{Element, Set};

use super::super::collection::{count_from, key_count, look_set, reply_element};
use super::super::prelude::*;
use crate::notifications;

/// What is made of several sets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
}

pub(super) fn sinter(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_result(cx, request, Operation::Intersection)
}

pub(super) fn sunion(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_result(cx, request, Operation::Union)
}

pub(super) fn sdiff(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_result(cx, request, Operation::Difference)
}

pub(super) fn sinterstore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    store_result(cx, request, Operation::Intersection, "sinterstore")
}

pub(super) fn sunionstore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    store_result(cx, request, Operation::Union, "sunionstore")
}

pub(super) fn sdiffstore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    store_result(cx, request, Operation::Difference, "sdiffstore")
}

fn reply_result(cx: &mut Context<'_>, request: Request<'_>, what: Operation) -> CommandResult {
    let keys = request.args_from(1);
    check_kinds(cx, keys.clone())?;
    let sets: Vec<Option<&Set>> = keys.map(|key| look_set(cx.db, key)).collect();
    let reply = &mut cx.reply;
    if let Operation::Union = what {
        let all = union(&sets, &cx.server.limits);
        reply.set(all.len());
        all.iter().for_each(|member| reply_element(reply, member));
        return Ok(());
    }
    let begun = reply.begin();
    let mut len = 0;
    let mut tell = |member: Element<'_>| {
        reply_element(reply, member);
        len += 1;
        true
    };
    match what {
        Operation::Difference => difference(&sets, &mut tell),
        _ => intersection(sets, &mut tell),
    }
    reply.end_set(begun, len);
    Ok(())
}

fn store_result(
    cx: &mut Context<'_>,
    request: Request<'_>,
    what: Operation,
    event: &'static str,
) -> CommandResult {
    let target = request.arg(1);
    let keys = request.args_from(2);
    check_kinds(cx, keys.clone())?;
    let sets: Vec<Option<&Set>> = keys.map(|key| look_set(cx.db, key)).collect();
    let lacks_one = what == Operation::Intersection && sets.iter().any(Option::is_none);
    let limits = &cx.server.limits;
    let mut result = Set::new();
    let mut keep = |member: Element<'_>| {
        member.with_bytes(|member| result.insert(member, limits));
        true
    };
    match what {
        Operation::Union => result = union(&sets, limits),
        Operation::Difference => difference(&sets, &mut keep),
        Operation::Intersection => intersection(sets, &mut keep),
    }
    let len = result.len();
    if len == 0 {
        cx.db.delete_target(target);
        if lacks_one {
            // As in Redis: where nothing had to be computed, the reply comes last.
            notifications::tell_before_reply_if_listening(cx);
        }
    } else {
        cx.db.set_object(target, result);
        cx.db.changed(event_class::SET, event, target);
    }
    cx.reply.count(len);
    Ok(())
}

pub(super) fn sintercard(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let count = key_count(request.arg(1))?;
    if count > request.len() - 2 {
        let text = "ERR Number of keys can't be greater than number of args";
        return Err(CommandError::text(text));
    }
    let mut limit = 0;
    let mut at = 2 + count;
    while let Some(word) = request.get(at) {
        let value = request.get(at + 1).filter(|_| is_word(word, "LIMIT"));
        let error = CommandError::text("ERR LIMIT can't be negative");
        limit = count_from(value.ok_or(CommandError::SYNTAX)?, 0, error)?;
        at += 2;
    }
    let keys = request.args_from(2).take(count);
    check_kinds(cx, keys.clone())?;
    let sets = keys.map(|key| look_set(cx.db, key)).collect();
    let mut len = 0;
    intersection(sets, &mut |_| {
        len += 1;
        len != limit
    });
    cx.reply.count(len);
    Ok(())
}

/// Reads every key, as statistics and expiry want it. Fails when one holds no set.
fn check_kinds<'k>(cx: &mut Context<'_>, keys: impl Iterator<Item = &'k [u8]>) -> CommandResult {
    for key in keys {
        cx.db.read_as::<Set>(key)?;
    }
    Ok(())
}

/// Visits what all sets have until `visit` says false. The smallest set leads.
fn intersection(sets: Vec<Option<&Set>>, visit: &mut dyn FnMut(Element<'_>) -> bool) {
    let Some(mut sets) = sets.into_iter().collect::<Option<Vec<&Set>>>() else { return };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return };
    for member in smallest.iter() {
        let everywhere = others.iter().all(|set| set.contains_element(member));
        if everywhere && !visit(member) {
            return;
        }
    }
}

/// Visits what the first set alone has.
fn difference(sets: &[Option<&Set>], visit: &mut dyn FnMut(Element<'_>) -> bool) {
    let Some((Some(first), others)) = sets.split_first() else { return };
    for member in first.iter() {
        let elsewhere = others.iter().flatten().any(|set| set.contains_element(member));
        if !elsewhere && !visit(member) {
            return;
        }
    }
}

/// What any of the sets has.
fn union(sets: &[Option<&Set>], limits: &store_types::Limits) -> Set {
    let mut all = Set::new();
    for member in sets.iter().flatten().flat_map(|set| set.iter()) {
        member.with_bytes(|member| all.insert(member, limits));
    }
    all
}
