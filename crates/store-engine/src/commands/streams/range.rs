//! Entries by their ids: reading, removing, and the last id itself.

use store_types::Stream;

use super::super::prelude::*;
use super::id;
use super::write::reply_entries;

pub(super) fn xlen(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let len = cx.db.read_as::<Stream>(request.arg(1))?.map_or(0, Stream::len);
    cx.reply.count(len);
    Ok(())
}

pub(super) fn xrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    range(cx, request, Direction::Forward)
}

pub(super) fn xrevrange(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    range(cx, request, Direction::Back)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Back,
}

fn range(cx: &mut Context<'_>, request: Request<'_>, direction: Direction) -> CommandResult {
    let (start, end) = match direction {
        Direction::Forward => (request.arg(2), request.arg(3)),
        Direction::Back => (request.arg(3), request.arg(2)),
    };
    let (start, end) = (id::parse_start(start)?, id::parse_end(end)?);
    let count = parse_count(request)?;
    let Some(stream) = cx.db.read_as::<Stream>(request.arg(1))? else {
        cx.reply.array(0);
        return Ok(());
    };
    if count == Some(0) {
        cx.reply.null_array();
        return Ok(());
    }
    match direction {
        Direction::Forward => reply_entries(&mut cx.reply, stream.range(start, end), count),
        Direction::Back => reply_entries(&mut cx.reply, stream.range_back(start, end), count),
    }
    Ok(())
}

fn parse_count(request: Request<'_>) -> Result<Option<u64>, CommandError> {
    let (mut count, mut at) = (None, 4);
    while let Some(word) = request.get(at) {
        let Some(number) = request.get(at + 1).filter(|_| is_word(word, "COUNT")) else {
            return Err(CommandError::SYNTAX);
        };
        count = Some(integer(number)?.max(0) as u64);
        at += 2;
    }
    Ok(count)
}

pub(super) fn xdel(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let key = request.arg(1);
    let Some(mut stream) = cx.db.write_as::<Stream>(key)? else {
        cx.reply.integer(0);
        return Ok(());
    };
    let ids = id::parse_all(request, 2)?;
    let removed = ids.into_iter().filter(|id| stream.remove(*id)).count();
    drop(stream);
    if removed > 0 {
        cx.db.changed(event_class::STREAM, "xdel", key);
    }
    cx.reply.count(removed);
    Ok(())
}

pub(super) fn xsetid(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let last_id = id::parse(request.arg(2), 0)?;
    let (mut entries_added, mut max_deleted, mut at) = (None, None, 3);
    while let Some(word) = request.get(at) {
        let Some(value) = request.get(at + 1) else { return Err(CommandError::SYNTAX) };
        if is_word(word, "ENTRIESADDED") {
            let count = integer(value)?;
            let error = CommandError::text("ERR entries_added must be positive");
            entries_added = Some(u64::try_from(count).map_err(|_| error)?);
        } else if is_word(word, "MAXDELETEDID") {
            let id = id::parse(value, 0)?;
            if last_id < id {
                return Err(smaller_than("the provided max_deleted_entry_id"));
            }
            max_deleted = Some(id);
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 2;
    }
    let key = request.arg(1);
    let Some(mut stream) = cx.db.write_as::<Stream>(key)? else {
        return Err(CommandError::NO_SUCH_KEY);
    };
    if let Some(last) = super::read::last_entry_id(&stream) {
        if last_id < last {
            return Err(smaller_than("the target stream top item"));
        }
        if entries_added.is_some_and(|added| (stream.len() as u64) > added) {
            return Err(CommandError::text(
                "ERR The entries_added specified in XSETID is smaller than the target stream \
                 length",
            ));
        }
    }
    let max_deleted = max_deleted.filter(|id| *id != store_types::StreamId::MIN);
    stream.set_id(last_id, entries_added, max_deleted);
    drop(stream);
    cx.db.dirty += 1;
    cx.db.notify(event_class::STREAM, "xsetid", key);
    cx.reply.ok();
    Ok(())
}

fn smaller_than(what: &str) -> CommandError {
    CommandError::new(format!("ERR The ID specified in XSETID is smaller than {what}"))
}
