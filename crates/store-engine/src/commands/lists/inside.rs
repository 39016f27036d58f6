//! Elements by index or by what they are.

use store_types::{End, List};

use super::super::collection::{
    count_from, count_further, index_range, remove_emptied, reply_element,
};
use super::super::prelude::*;

pub(super) fn lindex(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let Some(list) = cx.db.read_as::<List>(request.arg(1))? else {
        cx.reply.null();
        return Ok(());
    };
    let index = from_front(integer(request.arg(2))?, list.len());
    match index.and_then(|index| list.get(index)) {
        Some(element) => reply_element(&mut cx.reply, element),
        None => cx.reply.null(),
    }
    Ok(())
}

/// An index counted from the front, `None` when it lies before it.
fn from_front(index: i64, len: usize) -> Option<usize> {
    usize::try_from(if index < 0 { index.checked_add(len as i64)? } else { index }).ok()
}

pub(super) fn lset(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let mut list = cx.db.write_as::<List>(key)?.ok_or(CommandError::NO_SUCH_KEY)?;
    let index = from_front(integer(request.arg(2))?, list.len());
    if !index.is_some_and(|index| list.set(index, request.arg(3))) {
        return Err(CommandError::INDEX_OUT_OF_RANGE);
    }
    drop(list);
    cx.db.changed(event_class::LIST, "lset", key);
    cx.reply.ok();
    Ok(())
}

pub(super) fn linsert(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, side) = (request.arg(1), request.arg(2));
    let before = is_word(side, "BEFORE");
    if !before && !is_word(side, "AFTER") {
        return Err(CommandError::SYNTAX);
    }
    let Some(mut list) = cx.db.write_as::<List>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let (pivot, element) = (request.arg(3), request.arg(4));
    let Some(index) = list.iter().position(|found| found == *pivot) else {
        cx.reply.integer(-1);
        return Ok(());
    };
    if before {
        list.insert_before(index, element, &cx.server.limits);
    } else {
        list.insert_after(index, element, &cx.server.limits);
    }
    cx.reply.count(list.len());
    drop(list);
    cx.db.changed(event_class::LIST, "linsert", key);
    Ok(())
}

pub(super) fn lrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (start, end) = (integer(request.arg(2))?, integer(request.arg(3))?);
    let Some(list) = cx.db.read_as::<List>(request.arg(1))? else {
        cx.reply.array(0);
        return Ok(());
    };
    let elements = list.range(index_range(start, end, list.len()));
    cx.reply.array(elements.len());
    for element in elements {
        reply_element(&mut cx.reply, element);
    }
    Ok(())
}

pub(super) fn ltrim(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let (start, end) = (integer(request.arg(2))?, integer(request.arg(3))?);
    cx.reply.ok();
    let Some(mut list) = cx.db.write_as::<List>(key)? else { return Ok(()) };
    let len = list.len();
    let kept = index_range(start, end, len);
    list.remove_range(kept.end..len);
    list.remove_range(0..kept.start);
    drop(list);
    // The event comes even when nothing was cut off; the change does not.
    cx.db.notify(event_class::LIST, "ltrim", key);
    count_further(cx, len - kept.len());
    if kept.is_empty() {
        remove_emptied(cx, key);
    }
    cx.db.signal_modified(key);
    Ok(())
}

pub(super) fn lrem(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, wanted) = (request.arg(1), request.arg(3));
    let count = integer(request.arg(2))?;
    let Some(mut list) = cx.db.write_as::<List>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let end = if count < 0 { End::Back } else { End::Front };
    let count_max = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let removed = list.remove(wanted, count_max, end);
    let is_empty = list.is_empty();
    drop(list);
    if removed > 0 {
        cx.db.changed(event_class::LIST, "lrem", key);
        count_further(cx, removed - 1);
    }
    if is_empty {
        remove_emptied(cx, key);
    }
    cx.reply.count(removed);
    Ok(())
}

/// What LPOS looks for.
struct Search {
    from: End,
    /// Matches to pass over.
    skipped: usize,
    /// Matches to tell; `None` for the first, as a single reply.
    wanted: Option<usize>,
    /// Elements to compare at most.
    compared_max: usize,
}

impl Search {
    fn parse(request: Request<'_>) -> Result<Self, CommandError> {
        let (mut rank, mut wanted, mut compared_max) = (1, None, usize::MAX);
        let mut at = 3;
        while let Some(word) = request.get(at) {
            let value = request.get(at + 1).ok_or(CommandError::SYNTAX)?;
            if is_word(word, "RANK") {
                rank = parse_rank(value)?;
            } else if is_word(word, "COUNT") {
                let error = CommandError::text("ERR COUNT can't be negative");
                wanted = Some(no_limit_if_zero(count_from(value, 0, error)?));
            } else if is_word(word, "MAXLEN") {
                let error = CommandError::text("ERR MAXLEN can't be negative");
                compared_max = no_limit_if_zero(count_from(value, 0, error)?);
            } else {
                return Err(CommandError::SYNTAX);
            }
            at += 2;
        }
        let from = if rank < 0 { End::Back } else { End::Front };
        let Some(rank) = rank.checked_abs() else {
            // The one rank that cannot be negated stays below every count in Redis.
            let wanted = wanted.map(|_| usize::MAX);
            return Ok(Self { from, skipped: 0, wanted, compared_max });
        };
        Ok(Self { from, skipped: rank as usize - 1, wanted, compared_max })
    }

    /// Indexes of matches, in the order of the search.
    fn run<'a>(&self, list: &'a List, element: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let (len, from) = (list.len(), self.from);
        let compared = (0..len).take(self.compared_max).filter_map({
            let mut elements = list.iter();
            move |step| match from {
                End::Front => (elements.next()? == *element).then_some(step),
                End::Back => (elements.next_back()? == *element).then_some(len - 1 - step),
            }
        });
        compared.skip(self.skipped)
    }
}

fn parse_rank(arg: &[u8]) -> Result<i64, CommandError> {
    match integer(arg)? {
        0 => Err(CommandError::text(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
             or use negative to start from the end of the list",
        )),
        rank => Ok(rank),
    }
}

fn no_limit_if_zero(count: usize) -> usize {
    if count == 0 { usize::MAX } else { count }
}

pub(super) fn lpos(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let search = Search::parse(request)?;
    let list = cx.db.read_as::<List>(request.arg(1))?;
    let mut found = list.into_iter().flat_map(|list| search.run(list, request.arg(2)));
    match search.wanted {
        None => match found.next() {
            Some(index) => cx.reply.count(index),
            None => cx.reply.null(),
        },
        Some(wanted) => {
            let begun = cx.reply.begin();
            let told = found.take(wanted).inspect(|index| cx.reply.count(*index)).count();
            cx.reply.end_array(begun, told);
        }
    }
    Ok(())
}
