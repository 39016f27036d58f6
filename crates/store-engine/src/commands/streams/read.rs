//! XREAD and XREADGROUP.

use store_resp::OwnedRequest;
use store_types::{Stream, StreamId};

use super::super::prelude::*;
use super::claim::announce;
use super::group::no_key_or_group;
use super::id::{self, IdText};
use super::write::{Claims, limit, reply_entries, reply_entry, reply_id, see_consumer};
use super::{XREAD_KEYS, XREADGROUP_KEYS};
use crate::context::{Caller, Propagate};
use crate::key_finder::{FoundKey, by_specs};
use crate::session::TimeoutReply;

/// Entries that a waiting client gets at once when it gave no COUNT.
const WOKEN_COUNT: u64 = 1000;
/// How the id `>` is kept: nothing is behind the highest id, so it is free to mean this.
const NEW_ONES: StreamId = StreamId::MAX;

/// The arguments of either command.
struct ReadOptions<'a> {
    /// Group and consumer.
    group: Option<(&'a [u8], &'a [u8])>,
    is_acknowledged: bool,
    count: Option<u64>,
    /// Milliseconds to wait, zero for ever.
    block_ms: Option<u64>,
    first_key: usize,
    key_count: usize,
}

impl<'a> ReadOptions<'a> {
    fn keys(&self, request: Request<'a>) -> impl Iterator<Item = &'a [u8]> {
        request.args_from(self.first_key).take(self.key_count)
    }
}

pub(super) fn xread(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    read(cx, request, false)
}

pub(super) fn xreadgroup(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    // What is propagated are claims and moves, however it ends.
    cx.propagate = Propagate::Instead(Vec::new());
    read(cx, request, true)
}

fn read(cx: &mut Context<'_>, request: Request<'_>, is_group: bool) -> CommandResult {
    let options = parse_options(request, is_group, cx.caller)?;
    if cx.caller == Caller::Resumed {
        return read_ready(cx, request, &options);
    }
    let ids = resolve_ids(cx, request, &options)?;
    let begun = cx.reply.begin();
    let mut served = 0;
    for (key, after) in options.keys(request).zip(&ids) {
        let is_served = match options.group {
            Some(group) => read_in_group(cx, key, group, *after, &options)?,
            None => read_after(cx, key, *after, &options)?,
        };
        served += usize::from(is_served);
    }
    if served > 0 {
        if cx.reply.is_resp3() {
            cx.reply.end_map(begun, served);
        } else {
            cx.reply.end_array(begun, served);
        }
        return Ok(());
    }
    match options.block_ms {
        Some(timeout_ms) => wait(cx, request, &options, &ids, timeout_ms),
        None => {
            cx.reply.null_array();
            Ok(())
        }
    }
}

/// The keys of XREAD, found as the command itself finds them.
pub(super) fn xread_keys(request: Request<'_>) -> Option<Vec<FoundKey>> {
    stream_keys(request, false)
}

/// The keys of XREADGROUP, found as the command itself finds them.
pub(super) fn xreadgroup_keys(request: Request<'_>) -> Option<Vec<FoundKey>> {
    stream_keys(request, true)
}

fn stream_keys(request: Request<'_>, is_group: bool) -> Option<Vec<FoundKey>> {
    let Ok(options) = parse_options(request, is_group, Caller::Client) else {
        // The command touches nothing then; clients that only ask for keys get what Redis tells.
        let specs = if is_group { XREADGROUP_KEYS } else { XREAD_KEYS };
        return by_specs(specs, request);
    };
    let places = options.first_key..options.first_key + options.key_count;
    Some(places.map(|arg| FoundKey { arg, access: RO | ACCESS }).collect())
}

fn parse_options(
    request: Request<'_>,
    is_group: bool,
    caller: Caller,
) -> Result<ReadOptions<'_>, CommandError> {
    let mut options = ReadOptions {
        group: None,
        is_acknowledged: false,
        count: None,
        block_ms: None,
        first_key: 0,
        key_count: 0,
    };
    let mut at = 1;
    while let Some(word) = request.get(at) {
        let left = request.len() - at - 1;
        let is = |name| is_word(word, name);
        if is("BLOCK") && left >= 1 {
            options.block_ms = Some(parse_timeout(caller, request, at + 1)?);
            at += 2;
        } else if is("COUNT") && left >= 1 {
            let count = integer(request.arg(at + 1))?.max(0) as u64;
            options.count = Some(count).filter(|count| *count > 0);
            at += 2;
        } else if is("STREAMS") && left >= 1 {
            if !left.is_multiple_of(2) {
                return Err(UNBALANCED);
            }
            options.first_key = at + 1;
            options.key_count = left / 2;
            break;
        } else if is("GROUP") && left >= 2 {
            if !is_group {
                return Err(only_in_groups("GROUP"));
            }
            options.group = Some((request.arg(at + 1), request.arg(at + 2)));
            at += 3;
        } else if is("NOACK") {
            if !is_group {
                return Err(only_in_groups("NOACK"));
            }
            options.is_acknowledged = true;
            at += 1;
        } else {
            return Err(CommandError::SYNTAX);
        }
    }
    if options.key_count == 0 {
        return Err(CommandError::SYNTAX);
    }
    if is_group && options.group.is_none() {
        return Err(CommandError::text("ERR Missing GROUP option for XREADGROUP"));
    }
    Ok(options)
}

fn parse_timeout(caller: Caller, request: Request<'_>, at: usize) -> Result<u64, CommandError> {
    if caller == Caller::Script {
        let name = request.arg(0);
        let text = [name, b" command is not allowed with BLOCK option from scripts"].concat();
        return Err(CommandError::new([b"ERR ", &text[..]].concat()));
    }
    let error = CommandError::text("ERR timeout is not an integer or out of range");
    let timeout = integer(request.arg(at)).map_err(|_| error)?;
    let error = CommandError::text("ERR timeout is negative");
    u64::try_from(timeout).map_err(|_| error)
}

const UNBALANCED: CommandError = CommandError::text(
    "ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.",
);

fn only_in_groups(option: &str) -> CommandError {
    CommandError::new(format!(
        "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
    ))
}

/// The ids behind which to read, one for each key; everything is checked before anything is read.
fn resolve_ids(
    cx: &mut Context<'_>,
    request: Request<'_>,
    options: &ReadOptions<'_>,
) -> Result<Vec<StreamId>, CommandError> {
    let mut ids = Vec::with_capacity(options.key_count);
    for (index, key) in options.keys(request).enumerate() {
        let stream = cx.db.read_as::<Stream>(key)?;
        if let Some((group, _)) = options.group
            && stream.is_none_or(|stream| stream.group(group).is_none())
        {
            return Err(no_key_or_group(key, group, " in XREADGROUP with GROUP option"));
        }
        let text = request.arg(options.first_key + options.key_count + index);
        ids.push(match (text, options.group) {
            (b"$", None) => stream.map_or(StreamId::MIN, Stream::last_id),
            (b"$", Some(_)) => return Err(LAST_IN_GROUP),
            (b">", Some(_)) => NEW_ONES,
            (b">", None) => return Err(NEW_WITHOUT_GROUP),
            _ => id::parse(text, 0)?,
        });
    }
    Ok(ids)
}

const LAST_IN_GROUP: CommandError = CommandError::text(
    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of \
     this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID \
     would just return an empty result set.",
);
const NEW_WITHOUT_GROUP: CommandError = CommandError::text(
    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
     <consumer> option.",
);

/// The id of the last entry that is still there.
pub(super) fn last_entry_id(stream: &Stream) -> Option<StreamId> {
    let last = stream.last_id();
    let mut back = stream.range_back(StreamId::MIN, last);
    back.next().map(|entry| entry.id)
}

fn begin_key(cx: &mut Context<'_>, key: &[u8]) {
    if !cx.reply.is_resp3() {
        cx.reply.array(2);
    }
    cx.reply.bulk(key);
}

/// Without a group: writes what lies behind `after`, if anything does.
fn read_after(
    cx: &mut Context<'_>,
    key: &[u8],
    after: StreamId,
    options: &ReadOptions<'_>,
) -> Result<bool, CommandError> {
    // Redis counts this second look as well.
    let Some(stream) = cx.db.read_as::<Stream>(key)? else { return Ok(false) };
    if last_entry_id(stream).is_none_or(|last| last <= after) {
        return Ok(false);
    }
    write_after(cx, key, after, options.count)?;
    Ok(true)
}

fn write_after(
    cx: &mut Context<'_>,
    key: &[u8],
    after: StreamId,
    count: Option<u64>,
) -> CommandResult {
    begin_key(cx, key);
    let start = after.next().unwrap_or(StreamId::MIN);
    if let Some(stream) = cx.db.peek_as::<Stream>(key)? {
        reply_entries(&mut cx.reply, stream.range(start, StreamId::MAX), count);
    }
    Ok(())
}

/// In a group: the consumer's own history, or what nobody was given yet.
fn read_in_group(
    cx: &mut Context<'_>,
    key: &[u8],
    (group, consumer): (&[u8], &[u8]),
    after: StreamId,
    options: &ReadOptions<'_>,
) -> Result<bool, CommandError> {
    let now = cx.db.now_ms() as i64;
    let mut claims = Claims::new(cx, key, group);
    // Redis counts this second look as well.
    cx.db.read(key);
    let Some(mut stream) = cx.db.write_as::<Stream>(key)? else { return Ok(false) };
    let read_up_to = stream.group(group).map_or(StreamId::MAX, |group| group.last_id());
    // A consumer that gets nothing is not noted either.
    if after == NEW_ONES && last_entry_id(&stream).is_none_or(|last| last <= read_up_to) {
        return Ok(false);
    }
    let created = see_consumer(&mut stream, &mut claims, consumer, now);
    drop(stream);
    announce(cx, created, key);
    begin_key(cx, key);
    claims.without_counting(|claims| match after == NEW_ONES {
        true => {
            let count = (options.count, options.is_acknowledged);
            deliver_new(cx, key, (group, consumer), count, claims)
        }
        false => deliver_history(cx, key, (group, consumer), (after, options.count), claims),
    })?;
    claims.changes += 1;
    claims.finish(cx);
    Ok(true)
}

/// Gives the consumer what lies behind the group's last id, and moves the group.
fn deliver_new(
    cx: &mut Context<'_>,
    key: &[u8],
    (group, consumer): (&[u8], &[u8]),
    (count, is_acknowledged): (Option<u64>, bool),
    claims: &mut Claims<'_>,
) -> CommandResult {
    let now = cx.db.now_ms() as i64;
    let Some(mut stream) = cx.db.write_as::<Stream>(key)? else { return Ok(()) };
    let read_up_to = stream.group(group).map_or(StreamId::MAX, |group| group.last_id());
    let start = read_up_to.next().unwrap_or(StreamId::MIN);
    let mut ids = Vec::new();
    let begun = cx.reply.begin();
    for entry in stream.range(start, StreamId::MAX).take(limit(count)) {
        ids.push(entry.id);
        reply_entry(&mut cx.reply, entry);
    }
    cx.reply.end_array(begun, ids.len());
    for id in ids {
        stream.advance_group(group, id);
        if is_acknowledged {
            continue;
        }
        let Some(group) = stream.group_mut(group) else { continue };
        group.assign(id, consumer, now, 1);
        if let Some(pending) = group.pending().get(&id) {
            claims.claimed(id, pending, group.last_id());
        }
    }
    if let Some(group) = stream.group(group).filter(|group| group.last_id() != read_up_to) {
        claims.moved(group);
    }
    Ok(())
}

/// What the consumer was given behind `after` and did not acknowledge.
fn deliver_history(
    cx: &mut Context<'_>,
    key: &[u8],
    (name, consumer): (&[u8], &[u8]),
    (after, count): (StreamId, Option<u64>),
    claims: &mut Claims<'_>,
) -> CommandResult {
    let now = cx.db.now_ms() as i64;
    let Some(mut stream) = cx.db.write_as::<Stream>(key)? else { return Ok(()) };
    let start = after.next().unwrap_or(StreamId::MIN);
    let own = stream.group(name).and_then(|group| group.consumer(consumer));
    let ids: Vec<StreamId> = own.map_or_else(Vec::new, |consumer| {
        consumer.pending().range(start..).take(limit(count)).copied().collect()
    });
    cx.reply.array(ids.len());
    for id in ids {
        let Some(entry) = stream.get(id) else {
            cx.reply.array(2);
            reply_id(&mut cx.reply, id);
            cx.reply.null_array();
            continue;
        };
        reply_entry(&mut cx.reply, entry);
        let Some(group) = stream.group_mut(name) else { continue };
        let deliveries = group.pending().get(&id).map_or(0, |pending| pending.deliveries);
        group.assign(id, consumer, now, deliveries + 1);
        if let Some(pending) = group.pending().get(&id) {
            claims.claimed(id, pending, group.last_id());
        }
    }
    Ok(())
}

/// Waits for entries; the ids are kept as they were found now.
fn wait(
    cx: &mut Context<'_>,
    request: Request<'_>,
    options: &ReadOptions<'_>,
    ids: &[StreamId],
    timeout_ms: u64,
) -> CommandResult {
    let first_id = options.first_key + options.key_count;
    let mut fixed = OwnedRequest::from_args(request.args_from(0).take(first_id));
    for (index, id) in ids.iter().enumerate() {
        match *id {
            NEW_ONES => fixed.push(request.arg(first_id + index)),
            id => fixed.push(IdText::new(id).as_bytes()),
        }
    }
    let keys = options.keys(request);
    cx.block(fixed.as_request(), keys, timeout_ms, TimeoutReply::NullArray)?;
    if let Some(blocked) = &mut cx.blocked {
        blocked.needs_key = options.group.is_some();
    }
    Ok(())
}

/// A key that the session waits for got something, or is gone.
fn read_ready(
    cx: &mut Context<'_>,
    request: Request<'_>,
    options: &ReadOptions<'_>,
) -> CommandResult {
    let Some(key) = cx.ready_key else { return Ok(()) };
    let index = options.keys(request).position(|waited| waited == key).unwrap_or_default();
    let found = match cx.db.peek_as::<Stream>(key) {
        Ok(Some(stream)) => {
            let read_up_to = |name| stream.group(name).map(|group| group.last_id());
            Some((stream.last_id(), options.group.map(|(name, _)| read_up_to(name))))
        }
        // A value of another kind is as good as none.
        Ok(None) | Err(_) => None,
    };
    let waited = id::parse(request.arg(options.first_key + options.key_count + index), 0);
    let (last_id, after) = match found {
        Some((last_id, None)) => (last_id, waited?),
        Some((last_id, Some(Some(read_up_to)))) => (last_id, read_up_to),
        Some((_, Some(None))) => return Err(GROUP_IS_GONE),
        None if options.group.is_some() => return Err(KEY_IS_GONE),
        None => return stay(cx, request, options),
    };
    if last_id <= after {
        return stay(cx, request, options);
    }
    if cx.reply.is_resp3() {
        cx.reply.map(1);
    } else {
        cx.reply.array(1);
    }
    let count = Some(options.count.unwrap_or(WOKEN_COUNT));
    let Some((group, consumer)) = options.group else {
        return write_after(cx, key, after, count);
    };
    let now = cx.db.now_ms() as i64;
    let mut claims = Claims::new(cx, key, group);
    let stream = cx.db.write_as::<Stream>(key)?;
    let created =
        stream.is_some_and(|mut stream| see_consumer(&mut stream, &mut claims, consumer, now));
    announce(cx, created, key);
    begin_key(cx, key);
    let count = (count, options.is_acknowledged);
    claims.without_counting(|claims| deliver_new(cx, key, (group, consumer), count, claims))?;
    claims.finish(cx);
    Ok(())
}

const GROUP_IS_GONE: CommandError =
    CommandError::text("NOGROUP the consumer group this client was blocked on no longer exists");
const KEY_IS_GONE: CommandError = CommandError::text("UNBLOCKED the stream key no longer exists");

/// Goes on waiting; the engine keeps what it knows of the session.
fn stay(cx: &mut Context<'_>, request: Request<'_>, options: &ReadOptions<'_>) -> CommandResult {
    cx.block(request, options.keys(request), 0, TimeoutReply::NullArray)
}
