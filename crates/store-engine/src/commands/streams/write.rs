//! What stream commands write: entries to clients, claims to replicas.

use store_resp::{OwnedRequest, ReplyWriter};
use store_types::{Element, Group, Pending, Stream, StreamEntry, StreamId};

use super::id::IdText;
use crate::CommandResult;
use crate::context::{Context, Propagate};

pub(super) fn reply_id(reply: &mut ReplyWriter, id: StreamId) {
    reply.bulk(IdText::new(id).as_bytes());
}

fn reply_element(reply: &mut ReplyWriter, element: Element<'_>) {
    match element {
        Element::Int(number) => reply.bulk_integer(number),
        Element::Bytes(bytes) => reply.bulk(bytes),
    }
}

/// An entry: its id, and its fields with their values in one array.
pub(super) fn reply_entry(reply: &mut ReplyWriter, entry: StreamEntry<'_>) {
    reply.array(2);
    reply_id(reply, entry.id);
    reply.array(2 * entry.fields.len());
    for (name, value) in entry.fields {
        reply_element(reply, name);
        reply_element(reply, value);
    }
}

/// The first `count` entries, all of them with `None`.
pub(super) fn reply_entries<'a>(
    reply: &mut ReplyWriter,
    entries: impl Iterator<Item = StreamEntry<'a>>,
    count: Option<u64>,
) {
    let begun = reply.begin();
    let mut written = 0;
    for entry in entries.take(limit(count)) {
        reply_entry(reply, entry);
        written += 1;
    }
    reply.end_array(begun, written);
}

/// How many to take: as many as `count` says.
pub(super) fn limit(count: Option<u64>) -> usize {
    count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX))
}

/// What reading and claiming in a group come to, in words that give the same data when replayed.
pub(super) struct Claims<'a> {
    key: &'a [u8],
    group: &'a [u8],
    /// `None` when nobody is to be told.
    requests: Option<Vec<OwnedRequest>>,
    /// Changes, told or not.
    pub(super) changes: u64,
}

impl<'a> Claims<'a> {
    pub(super) fn new(cx: &Context<'_>, key: &'a [u8], group: &'a [u8]) -> Self {
        let requests = cx.db.changes.propagating.then(Vec::new);
        Self { key, group, requests, changes: 0 }
    }

    fn push(&mut self, args: &[&[u8]]) {
        if let Some(requests) = &mut self.requests {
            requests.push(OwnedRequest::from_args(args.iter().copied()));
        }
    }

    /// A consumer was created on the way.
    pub(super) fn consumer_created(&mut self, consumer: &[u8]) {
        self.changes += 1;
        self.push(&[b"XGROUP", b"CREATECONSUMER", self.key, self.group, consumer]);
    }

    /// Entries that a consumer reads are told to replicas, but count for no change.
    pub(super) fn without_counting(
        &mut self,
        work: impl FnOnce(&mut Self) -> CommandResult,
    ) -> CommandResult {
        let changes = self.changes;
        let result = work(self);
        self.changes = changes;
        result
    }

    /// An entry was given to a consumer, or found to be gone: who replays it finds the same.
    pub(super) fn claimed(&mut self, id: StreamId, pending: &Pending, last_id: StreamId) {
        self.changes += 1;
        if self.requests.is_none() {
            return;
        }
        let (id, last_id) = (IdText::new(id), IdText::new(last_id));
        let time = pending.delivered_at.to_string();
        let deliveries = pending.deliveries.to_string();
        self.push(&[
            b"XCLAIM",
            self.key,
            self.group,
            &pending.consumer,
            b"0",
            id.as_bytes(),
            b"TIME",
            time.as_bytes(),
            b"RETRYCOUNT",
            deliveries.as_bytes(),
            b"FORCE",
            b"JUSTID",
            b"LASTID",
            last_id.as_bytes(),
        ]);
    }

    /// The group moved.
    pub(super) fn moved(&mut self, group: &Group) {
        let id = IdText::new(group.last_id());
        let read =
            group.entries_read().map_or(-1, |read| read.min(i64::MAX as u64) as i64).to_string();
        let words = [&b"XGROUP"[..], b"SETID", self.key, self.group, id.as_bytes()];
        self.push(&[&words[..], &[b"ENTRIESREAD", read.as_bytes()]].concat());
    }

    /// Adds the changes up and has them propagated instead of the request.
    pub(super) fn finish(self, cx: &mut Context<'_>) {
        cx.db.dirty += self.changes;
        let Some(requests) = self.requests else { return };
        match &mut cx.propagate {
            Propagate::Instead(before) => before.extend(requests),
            Propagate::Verbatim | Propagate::Always => {
                cx.propagate = Propagate::Instead(requests);
            }
        }
    }
}

/// The consumer is there and was seen now; one that is new is told and announced.
pub(super) fn see_consumer(
    stream: &mut Stream,
    claims: &mut Claims<'_>,
    consumer: &[u8],
    now: i64,
) -> bool {
    let created =
        stream.group_mut(claims.group).is_some_and(|group| group.touch_consumer(consumer, now));
    if created {
        claims.consumer_created(consumer);
    }
    created
}
