//! Streams: entries in order of their ids, and the groups that share them.

mod add;
mod claim;
mod group;
mod id;
mod info;
mod pending;
mod range;
mod read;
mod write;

use super::prelude::*;
use crate::notifications;
use add::{xadd, xtrim};
use claim::{xautoclaim, xclaim};
use group::{xack, xgroup_create, xgroup_createconsumer, xgroup_delconsumer, xgroup_destroy};
use group::{xgroup_help, xgroup_setid};
use info::{xinfo_consumers, xinfo_groups, xinfo_help, xinfo_stream};
use pending::xpending;
use range::{xdel, xlen, xrange, xrevrange, xsetid};
use read::{xread, xreadgroup};

const XREAD_KEYS: &[KeySpec] = &[KeySpec::all_after("STREAMS", 1, 2, RO | ACCESS)];
const XREADGROUP_KEYS: &[KeySpec] = &[KeySpec::all_after("STREAMS", 4, 2, RO | ACCESS)];

const EXCLUSIVE: &[HistoryEntry] = &[("6.2.0", "Bounds may be exclusive.")];

pub(super) const TABLE: &[Command] = &[
    Command::new("xack", AtLeast(4), WRITE | FAST, xack)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Acknowledges entries read in a group.")
        .arguments("key#k@0 group#s *id#s"),
    Command::new("xadd", AtLeast(5), WRITE | GROWS | FAST, xadd)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(1)", "Appends an entry, and optionally trims the stream.")
        .arguments(
            "key#k@0 ?nomkstream#t=NOMKSTREAM^6.2.0 ?trim#b(strategy#o(maxlen#t=MAXLEN \
             minid#t=MINID^6.2.0) ?operator#o(equal#t== approximately#t=~) threshold#s \
             ?count#i=LIMIT^6.2.0) id_or_auto#o(auto_id#t=* id#s) \
             *field_value#b(field#s value#s)",
        )
        .history(&[
            ("6.2.0", "Takes NOMKSTREAM, MINID and LIMIT."),
            ("7.0.0", "Of an id, the moment alone may be given."),
        ]),
    Command::new("xautoclaim", AtLeast(6), WRITE | FAST, xautoclaim)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "6.2.0", "O(1)", "Claims entries that have been pending for long.")
        .arguments(
            "key#k@0 group#s consumer#s min-idle-time#s start#s ?count#i=COUNT \
             ?justid#t=JUSTID",
        )
        .history(&[("7.0.0", "Tells which entries were gone.")]),
    Command::new("xclaim", AtLeast(6), WRITE | FAST, xclaim)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(log N)", "Gives pending entries to another consumer.")
        .arguments(
            "key#k@0 group#s consumer#s min-idle-time#s *id#s ?ms#i=IDLE \
             ?unix-time-milliseconds#u=TIME ?count#i=RETRYCOUNT ?force#t=FORCE \
             ?justid#t=JUSTID ?id#s=LASTID",
        ),
    Command::new("xdel", AtLeast(3), WRITE | FAST, xdel)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Removes entries by their ids.")
        .arguments("key#k@0 *id#s"),
    Command::container("xgroup", GROUP_COMMANDS).docs(
        Group::Stream,
        "5.0.0",
        "O(1)",
        "Manages consumer groups.",
    ),
    Command::container("xinfo", INFO_COMMANDS).docs(
        Group::Stream,
        "5.0.0",
        "O(N)",
        "Tells about streams, groups and consumers.",
    ),
    Command::new("xlen", Exactly(2), READ | FAST, xlen)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "How many entries a stream has.")
        .arguments("key#k@0"),
    Command::new("xpending", AtLeast(3), READ, xpending)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(N)", "What a group has read and not acknowledged.")
        .arguments(
            "key#k@0 group#s ?filters#b(?min-idle-time#i=IDLE^6.2.0 start#s end#s \
             count#i ?consumer#s)",
        )
        .history(&[("6.2.0", "Takes IDLE; bounds may be exclusive.")]),
    Command::new("xrange", AtLeast(4), READ, xrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Entries from one id to another.")
        .arguments("key#k@0 start#s end#s ?count#i=COUNT")
        .history(EXCLUSIVE),
    Command::new("xread", AtLeast(4), READ | BLOCKING, xread)
        .keys(XREAD_KEYS)
        .keys_found_by(read::xread_keys)
        .categories(category::STREAM)
        .docs(
            Group::Stream,
            "5.0.0",
            "O(N)",
            "Entries after given ids, optionally waiting for them.",
        )
        .arguments("?count#i=COUNT ?milliseconds#i=BLOCK streams#b=STREAMS(*key#k@0 *id#s)"),
    Command::new("xreadgroup", AtLeast(7), WRITE | BLOCKING, xreadgroup)
        .keys(XREADGROUP_KEYS)
        .keys_found_by(read::xreadgroup_keys)
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Entries that nobody else in the group was given.")
        .arguments(
            "group_consumer#b=GROUP(group#s consumer#s) ?count#i=COUNT \
             ?milliseconds#i=BLOCK ?noack#t=NOACK streams#b=STREAMS(*key#k@0 *id#s)",
        ),
    Command::new("xrevrange", AtLeast(4), READ, xrevrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Entries from one id to another, newest first.")
        .arguments("key#k@0 end#s start#s ?count#i=COUNT")
        .history(EXCLUSIVE),
    Command::new("xsetid", AtLeast(3), WRITE | GROWS | FAST, xsetid)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Sets the last id of a stream.")
        .arguments(
            "key#k@0 last-id#s ?entries_added#i=ENTRIESADDED^7.0.0 \
             ?max_deleted_entry_id#s=MAXDELETEDID^7.0.0",
        )
        .history(&[("7.0.0", "Takes ENTRIESADDED and MAXDELETEDID.")]),
    Command::new("xtrim", AtLeast(4), WRITE, xtrim)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(N)", "Removes the oldest entries.")
        .arguments(
            "key#k@0 trim#b(strategy#o(maxlen#t=MAXLEN minid#t=MINID^6.2.0) \
             ?operator#o(equal#t== approximately#t=~) threshold#s ?count#i=LIMIT^6.2.0)",
        )
        .history(&[("6.2.0", "Takes MINID and LIMIT.")]),
];

const GROUP_COMMANDS: &[Command] = &[
    Command::new("create", AtLeast(5), WRITE | GROWS, xgroup_create)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(2, RW | INSERT)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Creates a group.")
        .arguments(
            "key#k@0 groupname#s id#o(id#s new_id#t=$) ?mkstream#t=MKSTREAM \
             ?entries_read#i=ENTRIESREAD",
        )
        .history(&[("7.0.0", "Takes ENTRIESREAD.")]),
    Command::new("createconsumer", Exactly(5), WRITE | GROWS, xgroup_createconsumer)
        .keys(&[KeySpec::one(2, RW | INSERT)])
        .categories(category::STREAM)
        .docs(Group::Stream, "6.2.0", "O(1)", "Creates a consumer of a group.")
        .arguments("key#k@0 groupname#s consumername#s"),
    Command::new("delconsumer", Exactly(5), WRITE, xgroup_delconsumer)
        .keys(&[KeySpec::one(2, RW | DELETE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Removes a consumer and what it has pending.")
        .arguments("key#k@0 groupname#s consumername#s"),
    Command::new("destroy", Exactly(4), WRITE, xgroup_destroy)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(2, RW | DELETE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Removes a group.")
        .arguments("key#k@0 groupname#s"),
    Command::new("help", Exactly(2), LOADING | STALE, xgroup_help)
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "The subcommands."),
    Command::new("setid", AtLeast(5), WRITE, xgroup_setid)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(2, RW | UPDATE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Moves a group to another id.")
        .arguments("key#k@0 groupname#s id#o(id#s new_id#t=$) ?entries_read#i=ENTRIESREAD")
        .history(&[("7.0.0", "Takes ENTRIESREAD.")]),
];

const INFO_COMMANDS: &[Command] = &[
    Command::new("consumers", Exactly(4), READ, xinfo_consumers)
        .keys(&[KeySpec::one(2, RO | ACCESS)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(1)", "The consumers of a group.")
        .arguments("key#k@0 groupname#s"),
    Command::new("groups", Exactly(3), READ, xinfo_groups)
        .keys(&[KeySpec::one(2, RO | ACCESS)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "The groups of a stream.")
        .arguments("key#k@0")
        .history(&[("7.0.0", "Tells entries-read and lag.")]),
    Command::new("help", Exactly(2), LOADING | STALE, xinfo_help)
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "The subcommands."),
    Command::new("stream", AtLeast(3), READ, xinfo_stream)
        .keys(&[KeySpec::one(2, RO | ACCESS)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Facts about a stream, optionally in full.")
        .arguments("key#k@0 ?full#b=FULL(?count#i=COUNT)")
        .history(&[
            ("6.0.0", "Takes FULL."),
            ("7.0.0", "Tells how much was ever added and deleted, and how far groups have read."),
        ]),
];
