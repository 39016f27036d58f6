//! Hashes: values by field.

mod fields;
mod many;
mod number;

use super::prelude::*;
use crate::notifications;
use fields::{hdel, hexists, hget, hlen, hmget, hmset, hset, hsetnx, hstrlen};
use many::{hgetall, hkeys, hrandfield, hscan, hvals};
use number::{hincrby, hincrbyfloat};

pub(super) const TABLE: &[Command] = &[
    Command::new("hdel", AtLeast(3), WRITE | FAST, hdel)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(N)", "Removes fields.")
        .arguments("key#k@0 *field#s")
        .history(&[("2.4.0", "Takes several fields.")]),
    Command::new("hexists", Exactly(3), READ | FAST, hexists)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(1)", "Whether a field exists.")
        .arguments("key#k@0 field#s"),
    Command::new("hget", Exactly(3), READ | FAST, hget)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(1)", "The value of a field.")
        .arguments("key#k@0 field#s"),
    Command::new("hgetall", Exactly(2), READ, hgetall)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::HASH)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Hash, "2.0.0", "O(N)", "All fields with their values.")
        .arguments("key#k@0"),
    Command::new("hincrby", Exactly(4), WRITE | GROWS | FAST, hincrby)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(1)", "Adds to the integer in a field.")
        .arguments("key#k@0 field#s increment#i"),
    Command::new("hincrbyfloat", Exactly(4), WRITE | GROWS | FAST, hincrbyfloat)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.6.0", "O(1)", "Adds to the number in a field.")
        .arguments("key#k@0 field#s increment#d"),
    Command::new("hkeys", Exactly(2), READ, hkeys)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::HASH)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Hash, "2.0.0", "O(N)", "All fields.")
        .arguments("key#k@0"),
    Command::new("hlen", Exactly(2), READ | FAST, hlen)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(1)", "How many fields there are.")
        .arguments("key#k@0"),
    Command::new("hmget", AtLeast(3), READ | FAST, hmget)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(N)", "The values of several fields.")
        .arguments("key#k@0 *field#s"),
    Command::new("hmset", AtLeast(4), WRITE | GROWS | FAST, hmset)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(N)", "Sets several fields.")
        .arguments("key#k@0 *field_value#b(field#s value#s)")
        .deprecated("4.0.0", "`HSET`, which takes several fields"),
    Command::new("hrandfield", AtLeast(2), READ, hrandfield)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::HASH)
        .tips(&["nondeterministic_output"])
        .docs(Group::Hash, "6.2.0", "O(N)", "Fields chosen at random.")
        .arguments("key#k@0 ?options#b(count#i ?withvalues#t=WITHVALUES)"),
    Command::new("hscan", AtLeast(3), READ, hscan)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::HASH)
        .tips(&["nondeterministic_output"])
        .docs(Group::Hash, "2.8.0", "O(1)", "Walks over the fields in steps.")
        .arguments("key#k@0 cursor#i ?pattern#p=MATCH ?count#i=COUNT"),
    Command::new("hset", AtLeast(4), WRITE | GROWS | FAST, hset)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(N)", "Sets fields.")
        .arguments("key#k@0 *field_value#b(field#s value#s)")
        .history(&[("4.0.0", "Takes several fields with their values.")]),
    Command::new("hsetnx", Exactly(4), WRITE | GROWS | FAST, hsetnx)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::HASH)
        .docs(Group::Hash, "2.0.0", "O(1)", "Sets a field unless it exists.")
        .arguments("key#k@0 field#s value#s"),
    Command::new("hstrlen", Exactly(3), READ | FAST, hstrlen)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::HASH)
        .docs(Group::Hash, "3.2.0", "O(1)", "The length of the value of a field.")
        .arguments("key#k@0 field#s"),
    Command::new("hvals", Exactly(2), READ, hvals)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::HASH)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Hash, "2.0.0", "O(N)", "All values.")
        .arguments("key#k@0"),
];
