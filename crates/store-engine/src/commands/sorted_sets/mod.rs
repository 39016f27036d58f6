//! Sorted sets: distinct members in the order of their scores.

mod add;
mod algebra;
mod bounds;
mod members;
mod pop;
mod range;
mod store;

use super::prelude::*;
use crate::notifications;
use add::{zadd, zincrby};
use algebra::{zdiff, zdiffstore, zinter, zintercard, zinterstore, zunion, zunionstore};
use members::{zcard, zmscore, zrandmember, zrank, zrem, zrevrank, zscan, zscore};
use pop::{bzmpop, bzpopmax, bzpopmin, zmpop, zpopmax, zpopmin};
use range::{
    zcount, zlexcount, zrange, zrangebylex, zrangebyscore, zrangestore, zremrangebylex,
    zremrangebyrank, zremrangebyscore, zrevrange, zrevrangebylex, zrevrangebyscore,
};

const TIMEOUT: &[HistoryEntry] = &[("6.0.0", "The timeout may have a fraction.")];

pub(super) const TABLE: &[Command] = &[
    Command::new("bzmpop", AtLeast(5), WRITE | BLOCKING | MOVABLE_KEYS, bzmpop)
        .keys(&[KeySpec::counted(2, RW | ACCESS | DELETE)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "7.0.0",
            "O(K)+O(M*log(N))",
            "Takes members from the first sorted set that has some, waiting for one.",
        )
        .arguments("timeout#d numkeys#i *key#k@0 where#o(min#t=MIN max#t=MAX) ?count#i=COUNT"),
    Command::new("bzpopmax", AtLeast(3), WRITE | NO_SCRIPT | BLOCKING | FAST, bzpopmax)
        .keys(&[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "5.0.0",
            "O(log(N))",
            "Takes the member with the highest score, waiting for one.",
        )
        .arguments("*key#k@0 timeout#d")
        .history(TIMEOUT),
    Command::new("bzpopmin", AtLeast(3), WRITE | NO_SCRIPT | BLOCKING | FAST, bzpopmin)
        .keys(&[KeySpec::range(1, -2, 1, RW | ACCESS | DELETE)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "5.0.0",
            "O(log(N))",
            "Takes the member with the lowest score, waiting for one.",
        )
        .arguments("*key#k@0 timeout#d")
        .history(TIMEOUT),
    Command::new("zadd", AtLeast(4), WRITE | GROWS | FAST, zadd)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | UPDATE)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "1.2.0", "O(log(N))", "Adds members or changes their scores.")
        .arguments(
            "key#k@0 ?condition#o^3.0.2(nx#t=NX xx#t=XX) ?comparison#o^6.2.0(gt#t=GT \
             lt#t=LT) ?change#t=CH^3.0.2 ?increment#t=INCR^3.0.2 \
             *score_member#b(score#d member#s)",
        )
        .history(&[
            ("2.4.0", "Takes several members."),
            ("3.0.2", "Takes XX, NX, CH and INCR."),
            ("6.2.0", "Takes GT and LT."),
        ]),
    Command::new("zcard", Exactly(2), READ | FAST, zcard)
        .keys(&[KeySpec::one(1, RO)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "1.2.0", "O(1)", "How many members there are.")
        .arguments("key#k@0"),
    Command::new("zcount", Exactly(4), READ | FAST, zcount)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "2.0.0",
            "O(log(N))",
            "How many members have a score within a range.",
        )
        .arguments("key#k@0 min#d max#d"),
    Command::new("zdiff", AtLeast(3), READ | MOVABLE_KEYS, zdiff)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(L+(N-K)log(N))",
            "Members of the first sorted set that are in none of the others.",
        )
        .arguments("numkeys#i *key#k@0 ?withscores#t=WITHSCORES"),
    Command::new("zdiffstore", AtLeast(4), WRITE | GROWS | MOVABLE_KEYS, zdiffstore)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::counted(2, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(L+(N-K)log(N))",
            "Stores the difference of sorted sets.",
        )
        .arguments("destination#k@0 numkeys#i *key#k@1"),
    Command::new("zincrby", Exactly(4), WRITE | GROWS | FAST, zincrby)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, RW | ACCESS | UPDATE)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "1.2.0", "O(log(N))", "Adds to the score of a member.")
        .arguments("key#k@0 increment#i member#s"),
    Command::new("zinter", AtLeast(3), READ | MOVABLE_KEYS, zinter)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "6.2.0", "O(N*K)+O(M*log(M))", "Members that all sorted sets have.")
        .arguments(
            "numkeys#i *key#k@0 ?*weight#i=WEIGHTS ?aggregate#o=AGGREGATE(sum#t=SUM \
             min#t=MIN max#t=MAX) ?withscores#t=WITHSCORES",
        ),
    Command::new("zintercard", AtLeast(3), READ | MOVABLE_KEYS, zintercard)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "7.0.0", "O(N*K)", "How many members all sorted sets have.")
        .arguments("numkeys#i *key#k@0 ?limit#i=LIMIT"),
    Command::new("zinterstore", AtLeast(4), WRITE | GROWS | MOVABLE_KEYS, zinterstore)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::counted(2, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "2.0.0",
            "O(N*K)+O(M*log(M))",
            "Stores the intersection of sorted sets.",
        )
        .arguments(
            "destination#k@0 numkeys#i *key#k@1 ?*weight#i=WEIGHTS \
             ?aggregate#o=AGGREGATE(sum#t=SUM min#t=MIN max#t=MAX)",
        ),
    Command::new("zlexcount", Exactly(4), READ | FAST, zlexcount)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "2.8.9",
            "O(log(N))",
            "How many members lie within a range of texts.",
        )
        .arguments("key#k@0 min#s max#s"),
    Command::new("zmpop", AtLeast(4), WRITE | MOVABLE_KEYS, zmpop)
        .keys(&[KeySpec::counted(1, RW | ACCESS | DELETE)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "7.0.0",
            "O(K)+O(M*log(N))",
            "Takes members from the first sorted set that has some.",
        )
        .arguments("numkeys#i *key#k@0 where#o(min#t=MIN max#t=MAX) ?count#i=COUNT"),
    Command::new("zmscore", AtLeast(3), READ | FAST, zmscore)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "6.2.0", "O(N)", "The scores of several members.")
        .arguments("key#k@0 *member#s"),
    Command::new("zpopmax", AtLeast(2), WRITE | FAST, zpopmax)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "5.0.0", "O(log(N)*M)", "Takes members with the highest scores.")
        .arguments("key#k@0 ?count#i"),
    Command::new("zpopmin", AtLeast(2), WRITE | FAST, zpopmin)
        .keys(&[KeySpec::one(1, RW | ACCESS | DELETE)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "5.0.0", "O(log(N)*M)", "Takes members with the lowest scores.")
        .arguments("key#k@0 ?count#i"),
    Command::new("zrandmember", AtLeast(2), READ, zrandmember)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .tips(&["nondeterministic_output"])
        .docs(Group::SortedSet, "6.2.0", "O(N)", "Members chosen at random.")
        .arguments("key#k@0 ?options#b(count#i ?withscores#t=WITHSCORES)"),
    Command::new("zrange", AtLeast(4), READ, zrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "1.2.0",
            "O(log(N)+M)",
            "Members within a range of ranks, scores or texts.",
        )
        .arguments(
            "key#k@0 start#s stop#s ?sortby#o^6.2.0(byscore#t=BYSCORE bylex#t=BYLEX) \
             ?rev#t=REV^6.2.0 ?offset_count#b=LIMIT^6.2.0(offset#i count#i) \
             ?withscores#t=WITHSCORES",
        )
        .history(&[("6.2.0", "Takes REV, BYSCORE, BYLEX and LIMIT.")]),
    Command::new("zrangebylex", AtLeast(4), READ, zrangebylex)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "2.8.9", "O(log(N)+M)", "Members within a range of texts.")
        .arguments("key#k@0 min#s max#s ?offset_count#b=LIMIT(offset#i count#i)")
        .deprecated("6.2.0", "`ZRANGE … BYLEX`"),
    Command::new("zrangebyscore", AtLeast(4), READ, zrangebyscore)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "1.0.5", "O(log(N)+M)", "Members within a range of scores.")
        .arguments(
            "key#k@0 min#d max#d ?withscores#t=WITHSCORES^2.0.0 \
             ?offset_count#b=LIMIT(offset#i count#i)",
        )
        .history(&[("2.0.0", "Takes WITHSCORES.")])
        .deprecated("6.2.0", "`ZRANGE … BYSCORE`"),
    Command::new("zrangestore", AtLeast(5), WRITE | GROWS, zrangestore)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::one(2, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "6.2.0", "O(log(N)+M)", "Stores a range of a sorted set.")
        .arguments(
            "dst#k@0 src#k@1 min#s max#s ?sortby#o(byscore#t=BYSCORE bylex#t=BYLEX) \
             ?rev#t=REV ?offset_count#b=LIMIT(offset#i count#i)",
        ),
    Command::new("zrank", Exactly(3), READ | FAST, zrank)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "2.0.0", "O(log(N))", "How many members are before a member.")
        .arguments("key#k@0 member#s"),
    Command::new("zrem", AtLeast(3), WRITE | FAST, zrem)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "1.2.0", "O(M*log(N))", "Removes members.")
        .arguments("key#k@0 *member#s")
        .history(&[("2.4.0", "Takes several members.")]),
    Command::new("zremrangebylex", Exactly(4), WRITE, zremrangebylex)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "2.8.9", "O(log(N)+M)", "Removes members within a range of texts.")
        .arguments("key#k@0 min#s max#s"),
    Command::new("zremrangebyrank", Exactly(4), WRITE, zremrangebyrank)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "2.0.0", "O(log(N)+M)", "Removes members within a range of ranks.")
        .arguments("key#k@0 start#i stop#i"),
    Command::new("zremrangebyscore", Exactly(4), WRITE, zremrangebyscore)
        .keys(&[KeySpec::one(1, RW | DELETE)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "1.2.0", "O(log(N)+M)", "Removes members within a range of scores.")
        .arguments("key#k@0 min#d max#d"),
    Command::new("zrevrange", AtLeast(4), READ, zrevrange)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "1.2.0",
            "O(log(N)+M)",
            "Members within a range of ranks, highest score first.",
        )
        .arguments("key#k@0 start#i stop#i ?withscores#t=WITHSCORES")
        .deprecated("6.2.0", "`ZRANGE … REV`"),
    Command::new("zrevrangebylex", AtLeast(4), READ, zrevrangebylex)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "2.8.9",
            "O(log(N)+M)",
            "Members within a range of texts, last first.",
        )
        .arguments("key#k@0 max#s min#s ?offset_count#b=LIMIT(offset#i count#i)")
        .deprecated("6.2.0", "`ZRANGE … BYLEX REV`"),
    Command::new("zrevrangebyscore", AtLeast(4), READ, zrevrangebyscore)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "2.2.0",
            "O(log(N)+M)",
            "Members within a range of scores, highest first.",
        )
        .arguments(
            "key#k@0 max#d min#d ?withscores#t=WITHSCORES \
             ?offset_count#b=LIMIT(offset#i count#i)",
        )
        .history(&[("2.1.6", "Bounds may be exclusive.")])
        .deprecated("6.2.0", "`ZRANGE … BYSCORE REV`"),
    Command::new("zrevrank", Exactly(3), READ | FAST, zrevrank)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "2.0.0", "O(log(N))", "How many members are after a member.")
        .arguments("key#k@0 member#s"),
    Command::new("zscan", AtLeast(3), READ, zscan)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .tips(&["nondeterministic_output"])
        .docs(Group::SortedSet, "2.8.0", "O(1)", "Walks over the members in steps.")
        .arguments("key#k@0 cursor#i ?pattern#p=MATCH ?count#i=COUNT"),
    Command::new("zscore", Exactly(3), READ | FAST, zscore)
        .keys(&[KeySpec::one(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "1.2.0", "O(1)", "The score of a member.")
        .arguments("key#k@0 member#s"),
    Command::new("zunion", AtLeast(3), READ | MOVABLE_KEYS, zunion)
        .keys(&[KeySpec::counted(1, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(
            Group::SortedSet,
            "6.2.0",
            "O(N)+O(M*log(M))",
            "Members that any of the sorted sets has.",
        )
        .arguments(
            "numkeys#i *key#k@0 ?*weight#i=WEIGHTS ?aggregate#o=AGGREGATE(sum#t=SUM \
             min#t=MIN max#t=MAX) ?withscores#t=WITHSCORES",
        ),
    Command::new("zunionstore", AtLeast(4), WRITE | GROWS | MOVABLE_KEYS, zunionstore)
        .told_behind(notifications::most)
        .keys(&[KeySpec::one(1, OW | UPDATE), KeySpec::counted(2, RO | ACCESS)])
        .categories(category::SORTED_SET)
        .docs(Group::SortedSet, "2.0.0", "O(N)+O(M*log(M))", "Stores the union of sorted sets.")
        .arguments(
            "destination#k@0 numkeys#i *key#k@1 ?*weight#i=WEIGHTS \
             ?aggregate#o=AGGREGATE(sum#t=SUM min#t=MIN max#t=MAX)",
        ),
];
