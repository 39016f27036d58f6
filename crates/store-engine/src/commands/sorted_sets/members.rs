//! Single members, members at random, and all of them in steps.

use store_resp::ReplyWriter;
use store_types::number::{exact_integer, format_f64};
use store_types::{Element, SortedSet};

use super::super::collection::{
    Picks, begin_pair, begin_pairs, count_further, pair_picks, randomness, remove_emptied,
    reply_element,
};
use super::super::element_scan::Found;
use super::super::prelude::*;
use super::super::scan::{parse_cursor, parse_options};

pub(super) fn zrem(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let Some(mut set) = cx.db.write_as::<SortedSet>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let removed = request.args_from(2).filter(|member| set.remove(member).is_some()).count();
    let is_empty = set.is_empty();
    drop(set);
    if removed > 0 {
        cx.db.changed_after_event(event_class::SORTED_SET, "zrem", key);
        count_further(cx, removed - 1);
    }
    if is_empty {
        remove_emptied(cx, key);
    }
    if removed > 0 {
        cx.db.signal_modified(key);
    }
    cx.reply.count(removed);
    Ok(())
}

pub(super) fn zcard(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let len = cx.db.read_as::<SortedSet>(request.arg(1))?.map_or(0, SortedSet::len);
    cx.reply.count(len);
    Ok(())
}

pub(super) fn zscore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let set = cx.db.read_as::<SortedSet>(request.arg(1))?;
    let score = set.and_then(|set| set.score(request.arg(2)));
    reply_score(&mut cx.reply, score);
    Ok(())
}

pub(super) fn zmscore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let set = cx.db.read_as::<SortedSet>(request.arg(1))?;
    cx.reply.array(request.len() - 2);
    for member in request.args_from(2) {
        reply_score(&mut cx.reply, set.and_then(|set| set.score(member)));
    }
    Ok(())
}

fn reply_score(reply: &mut ReplyWriter, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

pub(super) fn zrank(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_rank(cx, request, |rank, _| rank)
}

pub(super) fn zrevrank(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    reply_rank(cx, request, |rank, len| len - 1 - rank)
}

fn reply_rank(
    cx: &mut Context<'_>,
    request: Request<'_>,
    counted: fn(usize, usize) -> usize,
) -> CommandResult {
    let set = cx.db.read_as::<SortedSet>(request.arg(1))?;
    let rank = set.and_then(|set| Some(counted(set.rank(request.arg(2))?, set.len())));
    match rank {
        Some(rank) => cx.reply.count(rank),
        None => cx.reply.null(),
    }
    Ok(())
}

pub(super) fn zrandmember(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let mut rng = randomness(cx);
    if request.len() == 2 {
        match cx.db.read_as::<SortedSet>(key)?.and_then(|set| set.random(&mut rng)) {
            Some((member, _)) => reply_element(&mut cx.reply, member),
            None => cx.reply.null(),
        }
        return Ok(());
    }
    let (count, with_scores) = pair_picks(request, "WITHSCORES")?;
    let Some(set) = cx.db.read_as::<SortedSet>(key)? else {
        cx.reply.array(0);
        return Ok(());
    };
    match Picks::of(count)? {
        Picks::Distinct(count) => {
            let members = set.sample(&mut rng, count);
            begin_pairs(&mut cx.reply, members.len(), with_scores);
            for member in members {
                reply_member(&mut cx.reply, member, with_scores);
            }
        }
        Picks::Repeated(count) => {
            begin_pairs(&mut cx.reply, count, with_scores);
            for _ in 0..count {
                let member = set.random(&mut rng).expect("a sorted set is never empty");
                reply_member(&mut cx.reply, member, with_scores);
            }
        }
    }
    Ok(())
}

fn reply_member(reply: &mut ReplyWriter, (member, score): (Element<'_>, f64), with_scores: bool) {
    begin_pair(reply, with_scores);
    reply_element(reply, member);
    if with_scores {
        reply.double(score);
    }
}

pub(super) fn zscan(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let cursor = parse_cursor(request.arg(2))?;
    let set = cx.db.read_as::<SortedSet>(request.arg(1))?;
    let mut found = Found::begin(&mut cx.reply);
    let Some(set) = set else {
        found.end(0);
        return Ok(());
    };
    let options = parse_options(request, 3, false)?;
    let is_small = set.as_listpack().is_some();
    let mut text = Vec::new();
    let next = set.scan(cursor, options.count, |member, score| {
        if !member.with_bytes(|text| options.wants(text)) {
            return;
        }
        found.push(member);
        // A small set answers scores as they are stored, here alone.
        match exact_integer(score).filter(|_| is_small) {
            Some(integer) => found.push(Element::Int(integer)),
            None => {
                text.clear();
                format_f64(&mut text, score);
                found.push(Element::Bytes(&text));
            }
        }
    });
    found.end(next);
    Ok(())
}
