//! XPENDING: what was read in a group and not acknowledged.

use store_resp::ReplyWriter;
use store_types::{Group as StreamGroup, Pending, Stream, StreamId};

use super::super::prelude::*;
use super::group::no_key_or_group;
use super::id;
use super::write::reply_id;

/// Which pending entries are wanted.
struct Wanted<'a> {
    start: StreamId,
    end: StreamId,
    count: usize,
    idle_min: i64,
    consumer: Option<&'a [u8]>,
}

pub(super) fn xpending(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let wanted = match request.len() {
        3 => None,
        6..=9 => Some(parse_wanted(request)?),
        _ => return Err(CommandError::SYNTAX),
    };
    let (key, name) = (request.arg(1), request.arg(2));
    let now = cx.db.now_ms() as i64;
    let group = cx.db.read_as::<Stream>(key)?.and_then(|stream| stream.group(name));
    let group = group.ok_or_else(|| no_key_or_group(key, name, ""))?;
    match wanted {
        None => summarize(&mut cx.reply, group),
        Some(wanted) => list(&mut cx.reply, group, &wanted, now),
    }
    Ok(())
}

fn parse_wanted(request: Request<'_>) -> Result<Wanted<'_>, CommandError> {
    let (mut idle_min, mut at) = (0, 3);
    if is_word(request.arg(3), "IDLE") {
        idle_min = integer(request.arg(4))?;
        if request.len() < 8 {
            return Err(CommandError::SYNTAX);
        }
        at = 5;
    }
    let count = integer(request.arg(at + 2))?.max(0) as usize;
    let start = id::parse_start(request.arg(at))?;
    let end = id::parse_end(request.arg(at + 1))?;
    Ok(Wanted { start, end, count, idle_min, consumer: request.get(at + 3) })
}

fn summarize(reply: &mut ReplyWriter, group: &StreamGroup) {
    let pending = group.pending();
    reply.array(4);
    reply.count(pending.len());
    let (Some((first, _)), Some((last, _))) = (pending.first_key_value(), pending.last_key_value())
    else {
        reply.null();
        reply.null();
        return reply.null_array();
    };
    reply_id(reply, *first);
    reply_id(reply, *last);
    let busy = || group.consumers().filter(|(_, consumer)| !consumer.pending().is_empty());
    reply.array(busy().count());
    for (name, consumer) in busy() {
        reply.array(2);
        reply.bulk(name);
        reply.bulk_integer(consumer.pending().len() as i64);
    }
}

fn list(reply: &mut ReplyWriter, group: &StreamGroup, wanted: &Wanted<'_>, now: i64) {
    if wanted.start > wanted.end {
        return reply.array(0);
    }
    let range = wanted.start..=wanted.end;
    let all = group.pending();
    let begun = reply.begin();
    let mut listing = Listing { reply, wanted, now, written: 0 };
    match wanted.consumer {
        None => all.range(range).all(|(id, pending)| listing.add(*id, pending)),
        Some(name) => group.consumer(name).is_none_or(|consumer| {
            let mut own = consumer.pending().range(range);
            own.all(|id| all.get(id).is_none_or(|pending| listing.add(*id, pending)))
        }),
    };
    let written = listing.written;
    reply.end_array(begun, written);
}

struct Listing<'a> {
    reply: &'a mut ReplyWriter,
    wanted: &'a Wanted<'a>,
    now: i64,
    written: usize,
}

impl Listing<'_> {
    /// Lists one if it has been idle long enough; `false` when there are enough.
    fn add(&mut self, id: StreamId, pending: &Pending) -> bool {
        if self.written >= self.wanted.count {
            return false;
        }
        let idle = self.now.saturating_sub(pending.delivered_at);
        if self.wanted.idle_min == 0 || idle >= self.wanted.idle_min {
            self.written += 1;
            self.reply.array(4);
            reply_id(self.reply, id);
            self.reply.bulk(&pending.consumer);
            self.reply.integer(idle.max(0));
            self.reply.integer(pending.deliveries as i64);
        }
        true
    }
}
