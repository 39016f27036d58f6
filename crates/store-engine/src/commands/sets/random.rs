//! Members chosen at random.

use store_types::{Element, Set};

use super::super::collection::{
    Picks, count, count_further, randomness, remove_emptied, reply_element, signed_count,
};
use super::super::prelude::*;

/// Members that one propagated SREM names at most, as in Redis.
const REMOVED_PER_REQUEST_MAX: usize = 1024;

pub(super) fn srandmember(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let mut rng = randomness(cx);
    if request.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let Some(count) = request.get(2).map(signed_count).transpose()? else {
        match cx.db.read_as::<Set>(key)?.and_then(|set| set.random(&mut rng)) {
            Some(member) => reply_element(&mut cx.reply, member),
            None => cx.reply.null(),
        }
        return Ok(());
    };
    let Some(set) = cx.db.read_as::<Set>(key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    match Picks::of(count)? {
        Picks::Distinct(count) => {
            let members = set.sample(&mut rng, count);
            cx.reply.array(members.len());
            members.into_iter().for_each(|member| reply_element(&mut cx.reply, member));
        }
        Picks::Repeated(count) => {
            cx.reply.array(count);
            for _ in 0..count {
                let member = set.random(&mut rng).expect("a set is never empty");
                reply_element(&mut cx.reply, member);
            }
        }
    }
    Ok(())
}

pub(super) fn spop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    match request.len() {
        2 => pop_one(cx, request.arg(1)),
        3 => pop_some(cx, request.arg(1), count(request.arg(2))?),
        _ => Err(CommandError::SYNTAX),
    }
}

fn pop_one(cx: &mut Context<'_>, key: &[u8]) -> CommandResult {
    let mut rng = randomness(cx);
    let Some(mut set) = cx.db.write_as::<Set>(key)? else {
        cx.reply.null();
        return Ok(());
    };
    let member = set.random(&mut rng).map(Element::to_vec).expect("a set is never empty");
    set.remove(&member);
    let is_empty = set.is_empty();
    drop(set);
    cx.db.changed(event_class::SET, "spop", key);
    cx.propagate_instead(&[b"SREM", key, &member]);
    if is_empty {
        remove_emptied(cx, key);
    }
    cx.reply.bulk(&member);
    Ok(())
}

fn pop_some(cx: &mut Context<'_>, key: &[u8], count: usize) -> CommandResult {
    let mut rng = randomness(cx);
    let Some(mut set) = cx.db.write_as::<Set>(key)?.filter(|_| count > 0) else {
        cx.reply.set(0);
        return Ok(());
    };
    if count >= set.len() {
        let len = set.len();
        cx.reply.set(len);
        set.iter().for_each(|member| reply_element(&mut cx.reply, member));
        drop(set);
        // Redis answers this by a union of one set, which reads it.
        cx.db.stats.hits += 1;
        cx.db.changed(event_class::SET, "spop", key);
        count_further(cx, len - 1);
        cx.propagate_instead(&[b"DEL", key]);
        remove_emptied(cx, key);
        return Ok(());
    }
    let members: Vec<Vec<u8>> =
        set.sample(&mut rng, count).into_iter().map(Element::to_vec).collect();
    cx.reply.set(members.len());
    for member in &members {
        set.remove(member);
        cx.reply.bulk(member);
    }
    drop(set);
    cx.db.changed(event_class::SET, "spop", key);
    count_further(cx, members.len() - 1);
    for members in members.chunks(REMOVED_PER_REQUEST_MAX) {
        let mut removal: Vec<&[u8]> = vec![b"SREM", key];
        removal.extend(members.iter().map(Vec::as_slice));
        cx.propagate_instead(&removal);
    }
    Ok(())
}
