//! Taking from the first of several lists, waiting if need be.

use store_types::{End, List};

use super::super::collection::{PopWish, first_filled, timeout_ms};
use super::super::prelude::*;
use super::ends::{take_one, take_some};
use super::{end, pop_command};
use crate::session::TimeoutReply;

pub(super) fn blpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    blocking_pop(cx, request, End::Front)
}

pub(super) fn brpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    blocking_pop(cx, request, End::Back)
}

fn blocking_pop(cx: &mut Context<'_>, request: Request<'_>, end: End) -> CommandResult {
    let last = request.len() - 1;
    let timeout = timeout_ms(request.arg(last))?;
    let keys = (1..last).map(|at| request.arg(at));
    let Some(key) = first_filled::<List>(cx, keys.clone())? else {
        return cx.block(request, keys, timeout, TimeoutReply::NullArray);
    };
    cx.reply.array(2);
    cx.reply.bulk(key);
    take_one(cx, key, end)?;
    cx.propagate_instead(&[pop_command(end), key]);
    Ok(())
}

/// Takes from the first list that has something; false, writing nothing, without one.
fn grant(cx: &mut Context<'_>, wish: &PopWish<'_, End>) -> Result<bool, CommandError> {
    let Some(key) = first_filled::<List>(cx, wish.keys())? else { return Ok(false) };
    cx.reply.array(2);
    cx.reply.bulk(key);
    let taken = take_some(cx, key, wish.side, wish.count)?;
    let pop = pop_command(wish.side);
    cx.propagate_instead(&[pop, key, taken.to_string().as_bytes()]);
    Ok(true)
}

pub(super) fn lmpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !grant(cx, &PopWish::parse(request, 1, end)?)? {
        cx.reply.null_array();
    }
    Ok(())
}

pub(super) fn blmpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let wish = PopWish::parse(request, 2, end)?;
    let timeout = timeout_ms(request.arg(1))?;
    if grant(cx, &wish)? {
        return Ok(());
    }
    cx.block(request, wish.keys(), timeout, TimeoutReply::NullArray)
}
