//! Sets: distinct members in no order.

mod algebra;
mod members;
mod random;

use super::prelude::*;
use crate::notifications;
use algebra::{sdiff, sdiffstore, sinter, sintercard, sinterstore, sunion, sunionstore};
use members::{sadd, scard, sismember, smembers, smismember, smove, srem, sscan};
use random::{spop, srandmember};

const MANY_MEMBERS: &[HistoryEntry] = &[("2.4.0", "Takes several members.")];

pub(super) const TABLE: &[Command] = &[
    Command::new("sadd", AtLeast(3), WRITE | GROWS | FAST, sadd)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::SET)
        .docs(Group::Set, "1.0.0", "O(N)", "Adds members to a set.")
        .arguments("key#k@0 *member#s")
        .history(MANY_MEMBERS),
    Command::new("scard", Exactly(2), READ | FAST, scard)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::SET)
        .docs(Group::Set, "1.0.0", "O(1)", "How many members there are.")
        .arguments("key#k@0"),
    Command::new("sdiff", AtLeast(2), READ, sdiff)
        .keys(&[KeySpec::all(1, RO | ACCESS)])
        .categories(category::SET)
        .tips(&["nondeterministic_output_order"])
        .docs(
            Group::Set,
            "1.0.0",
            "O(N)",
            "Members of the first set that are in none of the others.",
        )
        .arguments("*key#k@0"),
    Command::new("sdiffstore", AtLeast(3), WRITE | GROWS, sdiffstore)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::all(2, RO | ACCESS)])
        .categories(category::SET)
        .docs(Group::Set, "1.0.0", "O(N)", "Stores the difference of sets.")
        .arguments("destination#k@0 *key#k@1"),
    Command::new("sinter", AtLeast(2), READ, sinter)
        .keys(&[KeySpec::all(1, RO | ACCESS)])
        .categories(category::SET)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Set, "1.0.0", "O(N*M)", "Members that all sets have.")
        .arguments("*key#k@0"),
    Command::new("sintercard", AtLeast(3), READ | MOVABLE_KEYS, sintercard)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .categories(category::SET)
        .docs(Group::Set, "7.0.0", "O(N*M)", "How many members all sets have.")
        .arguments("numkeys#i *key#k@0 ?limit#i=LIMIT"),
    Command::new("sinterstore", AtLeast(3), WRITE | GROWS, sinterstore)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | UPDATE), KeySpec::all(2, RO | ACCESS)])
        .categories(category::SET)
        .docs(Group::Set, "1.0.0", "O(N*M)", "Stores the intersection of sets.")
        .arguments("destination#k@0 *key#k@1"),
    Command::new("sismember", Exactly(3), READ | FAST, sismember)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::SET)
        .docs(Group::Set, "1.0.0", "O(1)", "Whether a set has a member.")
        .arguments("key#k@0 member#s"),
    Command::new("smembers", Exactly(2), READ, smembers)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SET)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Set, "1.0.0", "O(N)", "All members.")
        .arguments("key#k@0"),
    Command::new("smismember", AtLeast(3), READ | FAST, smismember)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SET)
        .docs(Group::Set, "6.2.0", "O(N)", "Which of several members a set has.")
        .arguments("key#k@0 *member#s"),
    Command::new("smove", Exactly(4), WRITE | FAST, smove)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, RW | INSERT)])
        .categories(category::SET)
        .docs(Group::Set, "1.0.0", "O(1)", "Moves a member from a set to another.")
        .arguments("source#k@0 destination#k@1 member#s"),
    Command::new("spop", AtLeast(2), WRITE | FAST, spop)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE)])
        .categories(category::SET)
        .tips(&["nondeterministic_output"])
        .docs(Group::Set, "1.0.0", "O(N)", "Takes members chosen at random.")
        .arguments("key#k@0 ?count#i^3.2.0")
        .history(&[("3.2.0", "Takes a count.")]),
    Command::new("srandmember", AtLeast(2), READ, srandmember)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SET)
        .tips(&["nondeterministic_output"])
        .docs(Group::Set, "1.0.0", "O(N)", "Members chosen at random.")
        .arguments("key#k@0 ?count#i^2.6.0")
        .history(&[("2.6.0", "Takes a count.")]),
    Command::new("srem", AtLeast(3), WRITE | FAST, srem)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::SET)
        .docs(Group::Set, "1.0.0", "O(N)", "Removes members from a set.")
        .arguments("key#k@0 *member#s")
        .history(MANY_MEMBERS),
    Command::new("sscan", AtLeast(3), READ, sscan)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SET)
        .tips(&["nondeterministic_output"])
        .docs(Group::Set, "2.8.0", "O(1)", "Walks over the members in steps.")
        .arguments("key#k@0 cursor#i ?pattern#p=MATCH ?count#i=COUNT"),
    Command::new("sunion", AtLeast(2), READ, sunion)
        .keys(&[KeySpec::all(1, RO | ACCESS)])
        .categories(category::SET)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Set, "1.0.0", "O(N)", "Members that any of the sets has.")
        .arguments("*key#k@0"),
    Command::new("sunionstore", AtLeast(3), WRITE | GROWS, sunionstore)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::all(2, RO | ACCESS)])
        .categories(category::SET)
        .docs(Group::Set, "1.0.0", "O(N)", "Stores the union of sets.")
        .arguments("destination#k@0 *key#k@1"),
];
