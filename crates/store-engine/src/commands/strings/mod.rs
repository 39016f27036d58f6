//! Strings: values of any bytes, numbers among them.

mod counter;
mod edit;
mod lcs;
mod set;

use std::ops::Range;
use std::sync::Arc;

use super::prelude::*;
use crate::keyspace::NewValue;
use crate::notifications;
use counter::{decr, decrby, incr, incrby, incrbyfloat};
use edit::{append, getrange, setrange, strlen};
pub(super) use edit::{check_len, string_max};
use lcs::lcs;
use set::{get, getdel, getex, getset, mget, mset, msetnx, psetex, set, setex, setnx};

pub(super) const TABLE: &[Command] = &[
    Command::new("append", Exactly(3), WRITE | GROWS | FAST, append)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::STRING)
        .docs(Group::String, "2.0.0", "O(1)", "Adds to the end of a string.")
        .arguments("key#k@0 value#s"),
    Command::new("decr", Exactly(2), WRITE | GROWS | FAST, decr)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "1.0.0", "O(1)", "Subtracts one from the integer in a string.")
        .arguments("key#k@0"),
    Command::new("decrby", Exactly(3), WRITE | GROWS | FAST, decrby)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "1.0.0", "O(1)", "Subtracts from the integer in a string.")
        .arguments("key#k@0 decrement#i"),
    Command::new("get", Exactly(2), READ | FAST, get)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STRING)
        .docs(Group::String, "1.0.0", "O(1)", "The string at a key.")
        .arguments("key#k@0"),
    Command::new("getdel", Exactly(2), WRITE | FAST, getdel)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE)])
        .categories(category::STRING)
        .docs(Group::String, "6.2.0", "O(1)", "The string at a key, which is removed.")
        .arguments("key#k@0"),
    Command::new("getex", AtLeast(2), WRITE | FAST, getex)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "6.2.0", "O(1)", "The string at a key, whose expiry is changed.")
        .arguments(
            "key#k@0 ?expiration#o(seconds#i=EX milliseconds#i=PX \
             unix-time-seconds#u=EXAT unix-time-milliseconds#u=PXAT persist#t=PERSIST)",
        ),
    Command::new("getrange", Exactly(4), READ, getrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STRING)
        .docs(Group::String, "2.4.0", "O(N)", "A part of a string.")
        .arguments("key#k@0 start#i end#i"),
    Command::new("getset", Exactly(3), WRITE | GROWS | FAST, getset)
        .told_behind(notifications::changes)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "1.0.0", "O(1)", "Sets a string and returns the previous one.")
        .arguments("key#k@0 value#s")
        .deprecated("6.2.0", "`SET … GET`"),
    Command::new("incr", Exactly(2), WRITE | GROWS | FAST, incr)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "1.0.0", "O(1)", "Adds one to the integer in a string.")
        .arguments("key#k@0"),
    Command::new("incrby", Exactly(3), WRITE | GROWS | FAST, incrby)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "1.0.0", "O(1)", "Adds to the integer in a string.")
        .arguments("key#k@0 increment#i"),
    Command::new("incrbyfloat", Exactly(3), WRITE | GROWS | FAST, incrbyfloat)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "2.6.0", "O(1)", "Adds to the number in a string.")
        .arguments("key#k@0 increment#d"),
    Command::new("lcs", AtLeast(3), READ, lcs)
        .keys(&[KeySpec::range(1, 1, 1, RO | ACCESS)])
        .categories(category::STRING)
        .docs(Group::String, "7.0.0", "O(N*M)", "The longest common subsequence of two strings.")
        .arguments(
            "key1#k@0 key2#k@0 ?len#t=LEN ?idx#t=IDX ?len#i=MINMATCHLEN \
             ?withmatchlen#t=WITHMATCHLEN",
        ),
    Command::new("mget", AtLeast(2), READ | FAST, mget)
        .keys(&[KeySpec::all(1, RO | ACCESS)])
        .categories(category::STRING)
        .tips(&["request_policy:multi_shard"])
        .docs(Group::String, "1.0.0", "O(N)", "The strings at several keys.")
        .arguments("*key#k@0"),
    Command::new("mset", AtLeast(3), WRITE | GROWS, mset)
        .keys(&[KeySpec::range(1, -1, 2, OW | UPDATE)])
        .categories(category::STRING)
        .tips(&["request_policy:multi_shard", "response_policy:all_succeeded"])
        .docs(Group::String, "1.0.1", "O(N)", "Sets several strings at once.")
        .arguments("*key_value#b(key#k@0 value#s)"),
    Command::new("msetnx", AtLeast(3), WRITE | GROWS, msetnx)
        .keys(&[KeySpec::range(1, -1, 2, OW | INSERT)])
        .categories(category::STRING)
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .docs(Group::String, "1.0.1", "O(N)", "Sets several strings unless one of the keys exists.")
        .arguments("*key_value#b(key#k@0 value#s)"),
    Command::new("psetex", Exactly(4), WRITE | GROWS, psetex)
        .keys(&[KeySpec::one(1, OW | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "2.6.0", "O(1)", "Sets a string that expires after milliseconds.")
        .arguments("key#k@0 milliseconds#i value#s"),
    Command::new("set", AtLeast(3), WRITE | GROWS, set)
        .told_behind(set::told_behind_set)
        .access_found_by(set::access_of_set)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE | VARIABLE)])
        .categories(category::STRING)
        .docs(
            Group::String,
            "1.0.0",
            "O(1)",
            "Sets a string, optionally under conditions and with an expiry.",
        )
        .arguments(
            "key#k@0 value#s ?condition#o^2.6.12(nx#t=NX xx#t=XX) ?get#t=GET^6.2.0 \
             ?expiration#o(seconds#i=EX^2.6.12 milliseconds#i=PX^2.6.12 \
             unix-time-seconds#u=EXAT^6.2.0 unix-time-milliseconds#u=PXAT^6.2.0 \
             keepttl#t=KEEPTTL^6.0.0)",
        )
        .history(&[
            ("2.6.12", "Takes EX, PX, NX and XX."),
            ("6.0.0", "Takes KEEPTTL."),
            ("6.2.0", "Takes GET, EXAT and PXAT."),
            ("7.0.0", "NX and GET may come together."),
        ]),
    Command::new("setex", Exactly(4), WRITE | GROWS, setex)
        .keys(&[KeySpec::one(1, OW | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "2.0.0", "O(1)", "Sets a string that expires after seconds.")
        .arguments("key#k@0 seconds#i value#s"),
    Command::new("setnx", Exactly(3), WRITE | GROWS | FAST, setnx)
        .keys(&[KeySpec::one(1, OW | INSERT)])
        .categories(category::STRING)
        .docs(Group::String, "1.0.0", "O(1)", "Sets a string unless the key exists.")
        .arguments("key#k@0 value#s"),
    Command::new("setrange", Exactly(4), WRITE | GROWS, setrange)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::STRING)
        .docs(Group::String, "2.2.0", "O(1)", "Overwrites a part of a string.")
        .arguments("key#k@0 offset#i value#s"),
    Command::new("strlen", Exactly(2), READ | FAST, strlen)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::STRING)
        .docs(Group::String, "2.2.0", "O(1)", "The length of a string.")
        .arguments("key#k@0"),
    Command::new("substr", Exactly(4), READ, getrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::STRING)
        .docs(Group::String, "1.0.0", "O(N)", "A part of a string: GETRANGE by its older name.")
        .arguments("key#k@0 start#i end#i")
        .deprecated("2.0.0", "`GETRANGE`"),
];

/// Argument `index` in the form in which a string is kept. A large one is kept without a copy.
#[inline]
pub(super) fn stored_arg(request: Request<'_>, index: usize) -> NewValue<'_> {
    match request.shared(index) {
        Some(text) => NewValue::Shared(Arc::clone(text)),
        None => stored(request.arg(index)),
    }
}

/// Replies with a part of the long string at `key`, without a copy where it is large.
pub(super) fn reply_shared(
    cx: &mut Context<'_>,
    key: &[u8],
    part: impl FnOnce(&[u8]) -> Range<usize>,
) {
    match cx.db.share_string(key) {
        Some(text) => cx.reply.bulk_shared(&text, part(&text)),
        None => cx.reply.null(),
    }
}

/// The form in which a string is kept: as an integer when it is the canonical text of one.
#[inline]
pub(super) fn stored(bytes: &[u8]) -> NewValue<'_> {
    match store_resp::parse_integer(bytes) {
        Some(number) => NewValue::Integer(number),
        None => NewValue::Bytes(bytes),
    }
}
