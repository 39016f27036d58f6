//! XINFO.

use store_resp::ReplyWriter;
use store_types::{Consumer, Group as StreamGroup, Stream, StreamId};

use super::super::prelude::*;
use super::group::no_such_form;
use super::write::{limit, reply_entries, reply_entry, reply_id};

/// Entries that XINFO STREAM FULL shows of each kind unless told otherwise.
const FULL_COUNT: u64 = 10;

pub(super) fn xinfo_stream(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let Some(stream) = cx.db.read_as::<Stream>(request.arg(2))? else {
        return Err(CommandError::NO_SUCH_KEY);
    };
    let syntax = || no_such_form("XINFO", request.arg(1));
    let count = match request.len() {
        3 => None,
        4 if is_word(request.arg(3), "FULL") => Some(FULL_COUNT),
        6 if is_word(request.arg(3), "FULL") && is_word(request.arg(4), "COUNT") => {
            Some(u64::try_from(integer(request.arg(5))?).unwrap_or(FULL_COUNT))
        }
        _ => return Err(syntax()),
    };
    let reply = &mut cx.reply;
    reply.map(if count.is_some() { 9 } else { 10 });
    describe(reply, stream);
    match count {
        None => describe_ends(reply, stream),
        Some(count) => describe_full(reply, stream, Some(count).filter(|count| *count > 0)),
    }
    Ok(())
}

fn describe(reply: &mut ReplyWriter, stream: &Stream) {
    let ids = [
        ("last-generated-id", stream.last_id()),
        ("max-deleted-entry-id", stream.max_deleted_id()),
    ];
    reply.bulk(b"length");
    reply.count(stream.len());
    reply.bulk(b"radix-tree-keys");
    reply.count(stream.node_count());
    reply.bulk(b"radix-tree-nodes");
    reply.count(radix_nodes(stream.nodes().map(|(id, _)| id)));
    for (name, id) in ids {
        reply.bulk(name.as_bytes());
        reply_id(reply, id);
    }
    reply.bulk(b"entries-added");
    reply.integer(stream.entries_added() as i64);
    reply.bulk(b"recorded-first-entry-id");
    reply_id(reply, stream.first_id());
}

fn describe_ends(reply: &mut ReplyWriter, stream: &Stream) {
    reply.bulk(b"groups");
    reply.count(stream.groups().len());
    let first = stream.range(StreamId::MIN, StreamId::MAX).next();
    let last = stream.range_back(StreamId::MIN, StreamId::MAX).next();
    for (name, entry) in [("first-entry", first), ("last-entry", last)] {
        reply.bulk(name.as_bytes());
        match entry {
            Some(entry) => reply_entry(reply, entry),
            None => reply.null(),
        }
    }
}

fn describe_full(reply: &mut ReplyWriter, stream: &Stream, count: Option<u64>) {
    reply.bulk(b"entries");
    reply_entries(reply, stream.range(StreamId::MIN, StreamId::MAX), count);
    reply.bulk(b"groups");
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(7);
        reply.bulk(b"name");
        reply.bulk(name);
        describe_progress(reply, stream, group);
        reply.bulk(b"pel-count");
        reply.count(group.pending().len());
        reply.bulk(b"pending");
        reply.array(group.pending().len().min(limit(count)));
        for (id, pending) in group.pending().iter().take(limit(count)) {
            reply.array(4);
            reply_id(reply, *id);
            reply.bulk(&pending.consumer);
            reply.integer(pending.delivered_at);
            reply.integer(pending.deliveries as i64);
        }
        reply.bulk(b"consumers");
        reply.array(group.consumers().len());
        for (name, consumer) in group.consumers() {
            describe_consumer(reply, group, name, consumer, count);
        }
    }
}

fn describe_progress(reply: &mut ReplyWriter, stream: &Stream, group: &StreamGroup) {
    reply.bulk(b"last-delivered-id");
    reply_id(reply, group.last_id());
    let read = group.entries_read().map(|count| count as i64);
    for (name, count) in [("entries-read", read), ("lag", stream.lag(group))] {
        reply.bulk(name.as_bytes());
        match count {
            Some(count) => reply.integer(count),
            None => reply.null(),
        }
    }
}

fn describe_consumer(
    reply: &mut ReplyWriter,
    group: &StreamGroup,
    name: &[u8],
    consumer: &Consumer,
    count: Option<u64>,
) {
    reply.map(4);
    reply.bulk(b"name");
    reply.bulk(name);
    reply.bulk(b"seen-time");
    reply.integer(consumer.seen_at());
    reply.bulk(b"pel-count");
    reply.count(consumer.pending().len());
    reply.bulk(b"pending");
    reply.array(consumer.pending().len().min(limit(count)));
    for id in consumer.pending().iter().take(limit(count)) {
        let pending = group.pending().get(id);
        reply.array(3);
        reply_id(reply, *id);
        reply.integer(pending.map_or(0, |pending| pending.delivered_at));
        reply.integer(pending.map_or(0, |pending| pending.deliveries as i64));
    }
}

pub(super) fn xinfo_groups(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let Some(stream) = cx.db.read_as::<Stream>(request.arg(2))? else {
        return Err(CommandError::NO_SUCH_KEY);
    };
    let reply = &mut cx.reply;
    reply.array(stream.groups().len());
    for (name, group) in stream.groups() {
        reply.map(6);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"consumers");
        reply.count(group.consumers().len());
        reply.bulk(b"pending");
        reply.count(group.pending().len());
        describe_progress(reply, stream, group);
    }
    Ok(())
}

pub(super) fn xinfo_consumers(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let now = cx.db.now_ms() as i64;
    let (key, name) = (request.arg(2), request.arg(3));
    let Some(stream) = cx.db.read_as::<Stream>(key)? else {
        return Err(CommandError::NO_SUCH_KEY);
    };
    let group = stream.group(name).ok_or_else(|| super::group::no_group(name, key))?;
    let reply = &mut cx.reply;
    reply.array(group.consumers().len());
    for (name, consumer) in group.consumers() {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(name);
        reply.bulk(b"pending");
        reply.count(consumer.pending().len());
        reply.bulk(b"idle");
        reply.integer(now.saturating_sub(consumer.seen_at()).max(0));
    }
    Ok(())
}

pub(super) fn xinfo_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    super::super::help::reply(
        cx,
        "XINFO",
        &[
            ("CONSUMERS <key> <group>", "Show the consumers of a group."),
            ("GROUPS <key>", "Show the groups of a stream."),
            ("STREAM <key> [FULL [COUNT <count>]]", "Show a stream, with its entries if FULL."),
        ],
    );
    Ok(())
}

/// How many nodes a radix tree with compressed paths has that holds these ascending ids: the
/// structure in which Redis keeps them, of which XINFO tells the size.
///
/// Each id is a leaf. Each place where ids part is a node, and each run of bytes between such
/// places is one more.
fn radix_nodes(ids: impl Iterator<Item = StreamId>) -> usize {
    const BYTES: usize = 16;
    let mut nodes = 0;
    // Depths, from the top, at which the ids seen last parted.
    let mut parted: Vec<usize> = Vec::new();
    let mut before: Option<[u8; BYTES]> = None;
    // A run of bytes from behind one place to the next is a node unless it is empty.
    let run = |from: Option<usize>, to: usize| usize::from(from.map_or(0, |at| at + 1) < to);
    for id in ids {
        let bytes = id.to_bytes();
        if let Some(before) = before {
            let common = bytes.iter().zip(&before).take_while(|(a, b)| a == b).count();
            let mut to = BYTES;
            while let Some(depth) = parted.pop_if(|depth| *depth > common) {
                nodes += run(Some(depth), to) + 1;
                to = depth;
            }
            // The branch that ends here hangs on the place where the next one parts from it.
            nodes += run(Some(common), to);
            if parted.last() != Some(&common) {
                parted.push(common);
            }
        }
        nodes += 1;
        before = Some(bytes);
    }
    let Some(_) = before else { return 1 };
    let mut to = BYTES;
    while let Some(depth) = parted.pop() {
        nodes += run(Some(depth), to) + 1;
        to = depth;
    }
    nodes + run(None, to)
}
