//! Taking members with the lowest or highest scores, waiting if need be.

use store_resp::ReplyWriter;
use store_types::SortedSet;

use super::super::collection::{
    PopWish, count, count_further, first_filled, remove_emptied, reply_element, timeout_ms,
};
use super::super::prelude::*;
use crate::session::TimeoutReply;

/// Which scores are taken first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extreme {
    Lowest,
    Highest,
}

impl Extreme {
    /// MIN or MAX.
    fn parse(arg: &[u8]) -> Result<Self, CommandError> {
        if is_word(arg, "MIN") {
            Ok(Self::Lowest)
        } else if is_word(arg, "MAX") {
            Ok(Self::Highest)
        } else {
            Err(CommandError::SYNTAX)
        }
    }

    /// The command that takes at once.
    fn pop_command(self) -> &'static [u8] {
        match self {
            Self::Lowest => b"ZPOPMIN",
            Self::Highest => b"ZPOPMAX",
        }
    }

    /// The event of taking.
    fn pop_event(self) -> &'static str {
        match self {
            Self::Lowest => "zpopmin",
            Self::Highest => "zpopmax",
        }
    }
}

pub(super) fn zpopmin(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    pop(cx, request, Extreme::Lowest)
}

pub(super) fn zpopmax(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    pop(cx, request, Extreme::Highest)
}

fn pop(cx: &mut Context<'_>, request: Request<'_>, extreme: Extreme) -> CommandResult {
    if request.len() > 3 {
        return Err(CommandError::SYNTAX);
    }
    let wanted = request.get(2).map(count).transpose()?;
    // Without a count the one pair is flat even in RESP3.
    let nested = wanted.is_some() && cx.reply.is_resp3();
    let begin = |reply: &mut ReplyWriter, len| reply.array(if nested { len } else { 2 * len });
    if take(cx, request.arg(1), extreme, wanted.unwrap_or(1), nested, begin)? == 0 {
        cx.reply.array(0);
    }
    Ok(())
}

/// Takes up to `wanted` members and writes them with their scores behind what `begin` writes,
/// which gets their number. Writes nothing when there are none, or none are wanted.
fn take(
    cx: &mut Context<'_>,
    key: &[u8],
    extreme: Extreme,
    wanted: usize,
    nested: bool,
    begin: impl FnOnce(&mut ReplyWriter, usize),
) -> Result<usize, CommandError> {
    let Some(mut set) = cx.db.write_as::<SortedSet>(key)? else { return Ok(0) };
    let (len, taken) = (set.len(), wanted.min(set.len()));
    if taken == 0 {
        return Ok(0);
    }
    let ranks = match extreme {
        Extreme::Lowest => 0..taken,
        Extreme::Highest => len - taken..len,
    };
    begin(&mut cx.reply, taken);
    let mut members = set.range(ranks.clone());
    while let Some((member, score)) = match extreme {
        Extreme::Lowest => members.next(),
        Extreme::Highest => members.next_back(),
    } {
        if nested {
            cx.reply.array(2);
        }
        reply_element(&mut cx.reply, member);
        cx.reply.double(score);
    }
    set.remove_range(ranks);
    drop(set);
    cx.db.changed_after_event(event_class::SORTED_SET, extreme.pop_event(), key);
    cx.db.signal_modified(key);
    count_further(cx, taken - 1);
    if taken == len {
        remove_emptied(cx, key);
    }
    Ok(taken)
}

pub(super) fn bzpopmin(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    blocking_pop(cx, request, Extreme::Lowest)
}

pub(super) fn bzpopmax(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    blocking_pop(cx, request, Extreme::Highest)
}

fn blocking_pop(cx: &mut Context<'_>, request: Request<'_>, extreme: Extreme) -> CommandResult {
    let last = request.len() - 1;
    let timeout = timeout_ms(request.arg(last))?;
    let keys = (1..last).map(|at| request.arg(at));
    let Some(key) = first_filled::<SortedSet>(cx, keys.clone())? else {
        return cx.block(request, keys, timeout, TimeoutReply::NullArray);
    };
    take(cx, key, extreme, 1, false, |reply, _| {
        reply.array(3);
        reply.bulk(key);
    })?;
    cx.propagate_instead(&[extreme.pop_command(), key]);
    Ok(())
}

/// Takes from the first sorted set that has something; false, writing nothing, without one.
fn grant(cx: &mut Context<'_>, wish: &PopWish<'_, Extreme>) -> Result<bool, CommandError> {
    let Some(key) = first_filled::<SortedSet>(cx, wish.keys())? else { return Ok(false) };
    let taken = take(cx, key, wish.side, wish.count, true, |reply, len| {
        reply.array(2);
        reply.bulk(key);
        reply.array(len);
    })?;
    let pop = wish.side.pop_command();
    cx.propagate_instead(&[pop, key, taken.to_string().as_bytes()]);
    Ok(true)
}

pub(super) fn zmpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !grant(cx, &PopWish::parse(request, 1, Extreme::parse)?)? {
        cx.reply.null_array();
    }
    Ok(())
}

pub(super) fn bzmpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let wish = PopWish::parse(request, 2, Extreme::parse)?;
    let timeout = timeout_ms(request.arg(1))?;
    if grant(cx, &wish)? {
        return Ok(());
    }
    cx.block(request, wish.keys(), timeout, TimeoutReply::NullArray)
}
