//! XCLAIM and XAUTOCLAIM: pending entries change hands.

use store_types::{Pending, Stream, StreamId};

use super::super::prelude::*;
use super::group::no_key_or_group;
use super::id;
use super::write::{Claims, reply_entry, reply_id, see_consumer};

/// The options of XCLAIM.
#[derive(Default)]
struct ClaimOptions {
    is_forced: bool,
    only_ids: bool,
    delivered_at: Option<i64>,
    deliveries: Option<u64>,
    last_id: StreamId,
}

fn check_group(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (key, name) = (request.arg(1), request.arg(2));
    let group = cx.db.read_as::<Stream>(key)?.and_then(|stream| stream.group(name));
    group.map(|_| ()).ok_or_else(|| no_key_or_group(key, name, ""))
}

fn parse_idle(request: Request<'_>, command: &str) -> Result<i64, CommandError> {
    let text = format!("ERR Invalid min-idle-time argument for {command}");
    Ok(integer(request.arg(4)).map_err(|_| CommandError::new(text))?.max(0))
}

pub(super) fn xclaim(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    check_group(cx, request)?;
    let idle_min = parse_idle(request, "XCLAIM")?;
    let ids: Vec<StreamId> =
        request.args_from(5).map_while(|text| StreamId::parse(text, 0)).collect();
    let now = cx.db.now_ms() as i64;
    let options = parse_options(request, 5 + ids.len(), now)?;
    let delivered_at = options.delivered_at.filter(|at| (0..=now).contains(at)).unwrap_or(now);

    let (key, name, consumer) = (request.arg(1), request.arg(2), request.arg(3));
    let mut claims = Claims::new(cx, key, name);
    let Some(mut stream) = cx.db.write_as::<Stream>(key)? else { return Ok(()) };
    let mut is_moved = false;
    if let Some(group) = stream.group_mut(name)
        && options.last_id > group.last_id()
    {
        group.set_id(options.last_id, group.entries_read());
        is_moved = true;
    }
    let begun = cx.reply.begin();
    let (mut claimed, mut created) = (0, false);
    for id in ids {
        let before = stream.group(name).and_then(|group| group.pending().get(&id)).cloned();
        if stream.get(id).is_none() {
            forget(&mut stream, &mut claims, name, (id, before));
            continue;
        }
        let deliveries = match &before {
            Some(pending) if is_idle(pending, idle_min, now) => pending.deliveries,
            None if options.is_forced => 1,
            _ => continue,
        };
        let deliveries = options.deliveries.unwrap_or(deliveries + u64::from(!options.only_ids));
        created |= see_consumer(&mut stream, &mut claims, consumer, now);
        assign(&mut stream, &mut claims, name, id, (consumer, delivered_at, deliveries));
        reply_claimed(&mut cx.reply, &stream, id, options.only_ids);
        claimed += 1;
    }
    cx.reply.end_array(begun, claimed);
    if is_moved && claims.changes == 0 {
        claims.changes += 1;
        if let Some(group) = stream.group(name) {
            claims.moved(group);
        }
    }
    drop(stream);
    announce(cx, created, key);
    claims.finish(cx);
    Ok(())
}

fn parse_options(
    request: Request<'_>,
    first: usize,
    now: i64,
) -> Result<ClaimOptions, CommandError> {
    let (mut options, mut at) = (ClaimOptions::default(), first);
    while let Some(word) = request.get(at) {
        let number = |text| {
            let name = String::from_utf8_lossy(word).to_ascii_uppercase();
            let error = format!("ERR Invalid {name} option argument for XCLAIM");
            integer(text).map_err(|_| CommandError::new(error))
        };
        let value = request.get(at + 1);
        let is = |name| is_word(word, name);
        at += 2;
        match value {
            Some(text) if is("IDLE") => {
                options.delivered_at = Some(now.wrapping_sub(number(text)?));
            }
            Some(text) if is("TIME") => options.delivered_at = Some(number(text)?),
            Some(text) if is("RETRYCOUNT") => {
                options.deliveries = u64::try_from(number(text)?).ok();
            }
            Some(text) if is("LASTID") => options.last_id = id::parse(text, 0)?,
            _ => {
                at -= 1;
                if is("FORCE") {
                    options.is_forced = true;
                } else if is("JUSTID") {
                    options.only_ids = true;
                } else {
                    let text = [b"ERR Unrecognized XCLAIM option '", word, b"'"].concat();
                    return Err(CommandError::new(text));
                }
            }
        }
    }
    Ok(options)
}

fn is_idle(pending: &Pending, idle_min: i64, now: i64) -> bool {
    idle_min == 0 || now.saturating_sub(pending.delivered_at) >= idle_min
}

/// An entry that is gone cannot be claimed: it is no longer pending either.
fn forget(
    stream: &mut Stream,
    claims: &mut Claims<'_>,
    name: &[u8],
    (id, pending): (StreamId, Option<Pending>),
) {
    if let Some(pending) = pending
        && let Some(group) = stream.group_mut(name)
    {
        claims.claimed(id, &pending, group.last_id());
        group.acknowledge(id);
    }
}

fn assign(
    stream: &mut Stream,
    claims: &mut Claims<'_>,
    name: &[u8],
    id: StreamId,
    (consumer, delivered_at, deliveries): (&[u8], i64, u64),
) {
    let Some(group) = stream.group_mut(name) else { return };
    group.assign(id, consumer, delivered_at, deliveries);
    if let Some(pending) = group.pending().get(&id) {
        claims.claimed(id, pending, group.last_id());
    }
}

fn reply_claimed(
    reply: &mut store_resp::ReplyWriter,
    stream: &Stream,
    id: StreamId,
    only_ids: bool,
) {
    match stream.get(id).filter(|_| !only_ids) {
        Some(entry) => reply_entry(reply, entry),
        None => reply_id(reply, id),
    }
}

/// Tells of a consumer that was created on the way.
pub(super) fn announce(cx: &mut Context<'_>, created: bool, key: &[u8]) {
    if created {
        cx.db.notify(event_class::STREAM, "xgroup-createconsumer", key);
    }
}

/// Pending entries that XAUTOCLAIM looks at for each one that it may return.
const ATTEMPTS_FACTOR: usize = 10;
/// What Redis allows as COUNT.
const COUNT_MAX: i64 = i64::MAX / 16;

/// What XAUTOCLAIM is asked for.
struct AutoClaim {
    idle_min: i64,
    start: StreamId,
    count: usize,
    only_ids: bool,
}

fn parse_auto_claim(request: Request<'_>) -> Result<AutoClaim, CommandError> {
    let idle_min = parse_idle(request, "XAUTOCLAIM")?;
    let start = id::parse_start(request.arg(5))?;
    let (mut count, mut only_ids, mut at) = (100, false, 6);
    while let Some(word) = request.get(at) {
        if is_word(word, "COUNT")
            && let Some(number) = request.get(at + 1)
        {
            let number = integer(number).ok().filter(|number| (1..=COUNT_MAX).contains(number));
            count = number.ok_or(CommandError::text("ERR COUNT must be > 0"))? as usize;
            at += 1;
        } else if is_word(word, "JUSTID") {
            only_ids = true;
        } else {
            return Err(CommandError::SYNTAX);
        }
        at += 1;
    }
    Ok(AutoClaim { idle_min, start, count, only_ids })
}

pub(super) fn xautoclaim(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let parsed = parse_auto_claim(request);
    if parsed.is_err() {
        // The key is looked up first, which counts whatever else is wrong.
        cx.db.read(request.arg(1));
    }
    let AutoClaim { idle_min, start, count, only_ids } = parsed?;
    check_group(cx, request)?;
    let (key, name, consumer) = (request.arg(1), request.arg(2), request.arg(3));
    let now = cx.db.now_ms() as i64;
    let mut claims = Claims::new(cx, key, name);
    let Some(mut stream) = cx.db.write_as::<Stream>(key)? else { return Ok(()) };
    let found = look_for_idle(&stream, name, start, (idle_min, now, count));
    let created =
        !found.claimed.is_empty() && see_consumer(&mut stream, &mut claims, consumer, now);
    for (id, deliveries) in &found.claimed {
        let deliveries = deliveries + u64::from(!only_ids);
        assign(&mut stream, &mut claims, name, *id, (consumer, now, deliveries));
    }
    for (id, pending) in &found.gone {
        forget(&mut stream, &mut claims, name, (*id, Some(pending.clone())));
    }
    cx.reply.array(3);
    reply_id(&mut cx.reply, found.next);
    cx.reply.array(found.claimed.len());
    for (id, _) in &found.claimed {
        reply_claimed(&mut cx.reply, &stream, *id, only_ids);
    }
    cx.reply.array(found.gone.len());
    for (id, _) in &found.gone {
        reply_id(&mut cx.reply, *id);
    }
    drop(stream);
    announce(cx, created, key);
    claims.finish(cx);
    Ok(())
}

/// What a look through the pending entries came to.
struct Found {
    /// To be claimed, with how often they were delivered.
    claimed: Vec<(StreamId, u64)>,
    /// Pending, but removed from the stream.
    gone: Vec<(StreamId, Pending)>,
    /// Where to go on, `0-0` at the end.
    next: StreamId,
}

fn look_for_idle(
    stream: &Stream,
    name: &[u8],
    start: StreamId,
    (idle_min, now, count): (i64, i64, usize),
) -> Found {
    let mut found = Found { claimed: Vec::new(), gone: Vec::new(), next: StreamId::MIN };
    let Some(group) = stream.group(name) else { return found };
    let attempts_max = count.saturating_mul(ATTEMPTS_FACTOR);
    for (attempts, (id, pending)) in group.pending().range(start..).enumerate() {
        if attempts >= attempts_max || found.claimed.len() + found.gone.len() >= count {
            found.next = *id;
            break;
        }
        if stream.get(*id).is_none() {
            found.gone.push((*id, pending.clone()));
        } else if is_idle(pending, idle_min, now) {
            found.claimed.push((*id, pending.deliveries));
        }
    }
    found
}
