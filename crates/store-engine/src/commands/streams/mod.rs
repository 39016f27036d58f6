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

use super::news;
use super::prelude::*;
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

pub(super) const TABLE: &[Command] = &[
    Command::new("xack", AtLeast(4), WRITE | FAST, xack)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Acknowledges entries read in a group."),
    Command::new("xadd", AtLeast(5), WRITE | GROWS | FAST, xadd)
        .told_behind(news::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(1)", "Appends an entry, and trims if wished."),
    Command::new("xautoclaim", AtLeast(6), WRITE | FAST, xautoclaim)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "6.2.0", "O(1)", "Claims whatever has been pending for long."),
    Command::new("xclaim", AtLeast(6), WRITE | FAST, xclaim)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(log N)", "Gives pending entries to another consumer."),
    Command::new("xdel", AtLeast(3), WRITE | FAST, xdel)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Removes entries by their ids."),
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
        .docs(Group::Stream, "5.0.0", "O(1)", "How many entries a stream has."),
    Command::new("xpending", AtLeast(3), READ, xpending)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(N)", "What a group has read and not acknowledged."),
    Command::new("xrange", AtLeast(4), READ, xrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Entries from one id to another."),
    Command::new("xread", AtLeast(4), READ | BLOCKING, xread)
        .keys(XREAD_KEYS)
        .keys_found_by(read::xread_keys)
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Entries behind given ids, waiting if wished."),
    Command::new("xreadgroup", AtLeast(7), WRITE | BLOCKING, xreadgroup)
        .keys(XREADGROUP_KEYS)
        .keys_found_by(read::xreadgroup_keys)
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Entries nobody else of the group was given."),
    Command::new("xrevrange", AtLeast(4), READ, xrevrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Entries from one id to another, newest first."),
    Command::new("xsetid", AtLeast(3), WRITE | GROWS | FAST, xsetid)
        .told_behind(news::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Sets the last id of a stream."),
    Command::new("xtrim", AtLeast(4), WRITE, xtrim)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(N)", "Removes the oldest entries."),
];

const GROUP_COMMANDS: &[Command] = &[
    Command::new("create", AtLeast(5), WRITE | GROWS, xgroup_create)
        .told_behind(news::most)
        .keys(&[KeySpec::one(2, RW | INSERT)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Creates a group."),
    Command::new("createconsumer", Exactly(5), WRITE | GROWS, xgroup_createconsumer)
        .keys(&[KeySpec::one(2, RW | INSERT)])
        .categories(category::STREAM)
        .docs(Group::Stream, "6.2.0", "O(1)", "Creates a consumer of a group."),
    Command::new("delconsumer", Exactly(5), WRITE, xgroup_delconsumer)
        .keys(&[KeySpec::one(2, RW | DELETE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Removes a consumer and what it has pending."),
    Command::new("destroy", Exactly(4), WRITE, xgroup_destroy)
        .told_behind(news::most)
        .keys(&[KeySpec::one(2, RW | DELETE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(N)", "Removes a group."),
    Command::new("help", Exactly(2), LOADING | STALE, xgroup_help)
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "The subcommands."),
    Command::new("setid", AtLeast(5), WRITE, xgroup_setid)
        .told_behind(news::most)
        .keys(&[KeySpec::one(2, RW | UPDATE)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "Moves a group to another id."),
];

const INFO_COMMANDS: &[Command] = &[
    Command::new("consumers", Exactly(4), READ, xinfo_consumers)
        .keys(&[KeySpec::one(2, RO | ACCESS)])
        .categories(category::STREAM)
        .tips(&["nondeterministic_output"])
        .docs(Group::Stream, "5.0.0", "O(1)", "The consumers of a group."),
    Command::new("groups", Exactly(3), READ, xinfo_groups)
        .keys(&[KeySpec::one(2, RO | ACCESS)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "The groups of a stream."),
    Command::new("help", Exactly(2), LOADING | STALE, xinfo_help)
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "The subcommands."),
    Command::new("stream", AtLeast(3), READ, xinfo_stream)
        .keys(&[KeySpec::one(2, RO | ACCESS)])
        .categories(category::STREAM)
        .docs(Group::Stream, "5.0.0", "O(1)", "A stream, in full if wished."),
];
