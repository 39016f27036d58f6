//! Taking from the first of several lists, waiting if need be.

use store_types::{End, List};

use super::super::collection::{count_from, first_filled, key_count, timeout_ms};
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

/// What LMPOP and BLMPOP ask for.
struct Wish {
    /// Positions of the first key and behind the last.
    keys: (usize, usize),
    end: End,
    count: usize,
}

impl Wish {
    /// Parses `numkeys key … LEFT|RIGHT [COUNT n]` from argument `at` on.
    fn parse(request: Request<'_>, at: usize) -> Result<Self, CommandError> {
        let first = at + 1;
        let behind = first.saturating_add(key_count(request.arg(at))?);
        let end = end(request.get(behind).ok_or(CommandError::SYNTAX)?)?;
        let count = match (request.get(behind + 1), request.get(behind + 2)) {
            (None, _) => 1,
            (Some(word), Some(count)) if is_word(word, "COUNT") => {
                count_from(count, 1, CommandError::text("ERR count should be greater than 0"))?
            }
            _ => return Err(CommandError::SYNTAX),
        };
        if request.len() > behind + 3 {
            return Err(CommandError::SYNTAX);
        }
        Ok(Self { keys: (first, behind), end, count })
    }

    /// Takes from the first list that has something; false, writing nothing, without one.
    fn grant(&self, cx: &mut Context<'_>, request: Request<'_>) -> Result<bool, CommandError> {
        let keys = (self.keys.0..self.keys.1).map(|at| request.arg(at));
        let Some(key) = first_filled::<List>(cx, keys)? else { return Ok(false) };
        cx.reply.array(2);
        cx.reply.bulk(key);
        let taken = take_some(cx, key, self.end, self.count)?;
        let pop = pop_command(self.end);
        cx.propagate_instead(&[pop, key, taken.to_string().as_bytes()]);
        Ok(true)
    }
}

pub(super) fn lmpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !Wish::parse(request, 1)?.grant(cx, request)? {
        cx.reply.null_array();
    }
    Ok(())
}

pub(super) fn blmpop(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let wish = Wish::parse(request, 2)?;
    let timeout = timeout_ms(request.arg(1))?;
    if wish.grant(cx, request)? {
        return Ok(());
    }
    let keys = (wish.keys.0..wish.keys.1).map(|at| request.arg(at));
    cx.block(request, keys, timeout, TimeoutReply::NullArray)
}
