//! Lists: elements in a row, added and taken at either end.

mod ends;
mod inside;
mod moves;
mod take;

use store_types::End;

use super::prelude::*;
use crate::notifications;
use ends::{llen, lpop, lpush, lpushx, rpop, rpush, rpushx};
use inside::{lindex, linsert, lpos, lrange, lrem, lset, ltrim};
use moves::{blmove, brpoplpush, lmove, rpoplpush};
use take::{blmpop, blpop, brpop, lmpop};

const TIMEOUT: &[HistoryEntry] = &[("6.0.0", "The timeout may have a fraction.")];
const COUNT: &[HistoryEntry] = &[("6.2.0", "Takes a count.")];
const MANY_ELEMENTS_2: &[HistoryEntry] = &[("2.4.0", "Takes several elements.")];
const MANY_ELEMENTS_4: &[HistoryEntry] = &[("4.0.0", "Takes several elements.")];

pub(super) const TABLE: &[Command] = &[
    Command::new("blmove", Exactly(6), WRITE | GROWS | NO_SCRIPT | BLOCKING, blmove)
        .told_behind(notifications::taking)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, RW | INSERT)])
        .categories(category::LIST)
        .docs(Group::List, "6.2.0", "O(1)", "Moves an element between lists, waiting for one.")
        .arguments(
            "source#k@0 destination#k@1 wherefrom#o(left#t=LEFT right#t=RIGHT) \
             whereto#o(left#t=LEFT right#t=RIGHT) timeout#d",
        ),
    Command::new("blmpop", AtLeast(5), WRITE | BLOCKING | MOVABLE_KEYS, blmpop)
        .told_behind(notifications::most)
        .keys(&[KeySpec::counted(2, RW | ACCESS | DELETE)])
        .categories(category::LIST)
        .docs(
            Group::List,
            "7.0.0",
            "O(N+M)",
            "Takes elements from the first list that has some, waiting for one.",
        )
        .arguments(
            "timeout#d numkeys#i *key#k@0 where#o(left#t=LEFT right#t=RIGHT) \
             ?count#i=COUNT",
        ),
    Command::new("blpop", AtLeast(3), WRITE | NO_SCRIPT | BLOCKING, blpop)
        .told_behind(notifications::most)
        .keys(&[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)])
        .categories(category::LIST)
        .docs(
            Group::List,
            "2.0.0",
            "O(N)",
            "Takes the first element of the first list that has one, waiting for it.",
        )
        .arguments("*key#k@0 timeout#d")
        .history(TIMEOUT),
    Command::new("brpop", AtLeast(3), WRITE | NO_SCRIPT | BLOCKING, brpop)
        .told_behind(notifications::most)
        .keys(&[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)])
        .categories(category::LIST)
        .docs(
            Group::List,
            "2.0.0",
            "O(N)",
            "Takes the last element of the first list that has one, waiting for it.",
        )
        .arguments("*key#k@0 timeout#d")
        .history(TIMEOUT),
    Command::new("brpoplpush", Exactly(4), WRITE | GROWS | NO_SCRIPT | BLOCKING, brpoplpush)
        .told_behind(notifications::taking)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, RW | INSERT)])
        .categories(category::LIST)
        .docs(
            Group::List,
            "2.2.0",
            "O(1)",
            "Moves the last element of a list to the front of another, waiting for it.",
        )
        .arguments("source#k@0 destination#k@1 timeout#d")
        .history(TIMEOUT)
        .deprecated("6.2.0", "`BLMOVE … RIGHT LEFT`"),
    Command::new("lindex", Exactly(3), READ, lindex)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(N)", "The element at an index.")
        .arguments("key#k@0 index#i"),
    Command::new("linsert", Exactly(5), WRITE | GROWS, linsert)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::LIST)
        .docs(Group::List, "2.2.0", "O(N)", "Inserts an element before or after another.")
        .arguments("key#k@0 where#o(before#t=BEFORE after#t=AFTER) pivot#s element#s"),
    Command::new("llen", Exactly(2), READ | FAST, llen)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(1)", "The length of a list.")
        .arguments("key#k@0"),
    Command::new("lmove", Exactly(5), WRITE | GROWS, lmove)
        .told_behind(notifications::taking)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, RW | INSERT)])
        .categories(category::LIST)
        .docs(
            Group::List,
            "6.2.0",
            "O(1)",
            "Moves an element from an end of a list to an end of another.",
        )
        .arguments(
            "source#k@0 destination#k@1 wherefrom#o(left#t=LEFT right#t=RIGHT) \
             whereto#o(left#t=LEFT right#t=RIGHT)",
        ),
    Command::new("lmpop", AtLeast(4), WRITE | MOVABLE_KEYS, lmpop)
        .told_behind(notifications::most)
        .keys(&[KeySpec::counted(1, RW | ACCESS | DELETE)])
        .categories(category::LIST)
        .docs(Group::List, "7.0.0", "O(N+M)", "Takes elements from the first list that has some.")
        .arguments("numkeys#i *key#k@0 where#o(left#t=LEFT right#t=RIGHT) ?count#i=COUNT"),
    Command::new("lpop", AtLeast(2), WRITE | FAST, lpop)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(N)", "Takes elements from the front of a list.")
        .arguments("key#k@0 ?count#i^6.2.0")
        .history(COUNT),
    Command::new("lpos", AtLeast(3), READ, lpos)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::LIST)
        .docs(Group::List, "6.0.6", "O(N)", "The indexes of elements equal to a given one.")
        .arguments("key#k@0 element#s ?rank#i=RANK ?num-matches#i=COUNT ?len#i=MAXLEN"),
    Command::new("lpush", AtLeast(3), WRITE | GROWS | FAST, lpush)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(N)", "Adds elements at the front of a list.")
        .arguments("key#k@0 *element#s")
        .history(MANY_ELEMENTS_2),
    Command::new("lpushx", AtLeast(3), WRITE | GROWS | FAST, lpushx)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::LIST)
        .docs(Group::List, "2.2.0", "O(N)", "Adds elements at the front of a list that exists.")
        .arguments("key#k@0 *element#s")
        .history(MANY_ELEMENTS_4),
    Command::new("lrange", Exactly(4), READ, lrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(S+N)", "The elements between two indexes.")
        .arguments("key#k@0 start#i stop#i"),
    Command::new("lrem", Exactly(4), WRITE, lrem)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(N+M)", "Removes elements equal to a given one.")
        .arguments("key#k@0 count#i element#s"),
    Command::new("lset", Exactly(4), WRITE | GROWS, lset)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(N)", "Replaces the element at an index.")
        .arguments("key#k@0 index#i element#s"),
    Command::new("ltrim", Exactly(4), WRITE, ltrim)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(N)", "Keeps only the elements between two indexes.")
        .arguments("key#k@0 start#i stop#i"),
    Command::new("rpop", AtLeast(2), WRITE | FAST, rpop)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(N)", "Takes elements from the back of a list.")
        .arguments("key#k@0 ?count#i^6.2.0")
        .history(COUNT),
    Command::new("rpoplpush", Exactly(3), WRITE | GROWS, rpoplpush)
        .told_behind(notifications::taking)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE), KeySpec::one(2, RW | INSERT)])
        .categories(category::LIST)
        .docs(
            Group::List,
            "1.2.0",
            "O(1)",
            "Moves the last element of a list to the front of another.",
        )
        .arguments("source#k@0 destination#k@1")
        .deprecated("6.2.0", "`LMOVE … RIGHT LEFT`"),
    Command::new("rpush", AtLeast(3), WRITE | GROWS | FAST, rpush)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::LIST)
        .docs(Group::List, "1.0.0", "O(N)", "Adds elements at the back of a list.")
        .arguments("key#k@0 *element#s")
        .history(MANY_ELEMENTS_2),
    Command::new("rpushx", AtLeast(3), WRITE | GROWS | FAST, rpushx)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | INSERT)])
        .categories(category::LIST)
        .docs(Group::List, "2.2.0", "O(N)", "Adds elements at the back of a list that exists.")
        .arguments("key#k@0 *element#s")
        .history(MANY_ELEMENTS_4),
];

/// LEFT or RIGHT.
fn end(arg: &[u8]) -> Result<End, CommandError> {
    if is_word(arg, "LEFT") {
        Ok(End::Front)
    } else if is_word(arg, "RIGHT") {
        Ok(End::Back)
    } else {
        Err(CommandError::SYNTAX)
    }
}

/// The event of taking an element from an end.
fn pop_event(end: End) -> &'static str {
    match end {
        End::Front => "lpop",
        End::Back => "rpop",
    }
}

/// The command that takes from an end.
fn pop_command(end: End) -> &'static [u8] {
    match end {
        End::Front => b"LPOP",
        End::Back => b"RPOP",
    }
}

/// The event of adding an element at an end.
fn push_event(end: End) -> &'static str {
    match end {
        End::Front => "lpush",
        End::Back => "rpush",
    }
}
