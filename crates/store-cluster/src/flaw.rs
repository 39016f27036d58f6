//! Rules that a simulator breaks one at a time, to see that its judges notice. Built only with the
//! feature `flaws`; without it no rule can be broken.
#![cfg_attr(not(feature = "flaws"), expect(unreachable_pub, reason = "only simulators name it"))]

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Two masters may keep one epoch.
    NoCollisionRule,
    /// Who takes over without votes keeps its old epoch.
    TakeoverKeepsEpoch,
    /// The same voter counts each time.
    CountAcksTwice,
    /// Votes of earlier elections count.
    AcceptOldAcks,
    /// A vote goes to whoever is at the candidate's address.
    VotesUnseen,
    /// Half of the masters elect.
    HalfQuorum,
    /// A master that reaches few others goes on.
    NoMinorityRule,
    /// A master that was cut off serves at once.
    NoRejoinDelay,
    /// The older claim for a slot wins.
    LowerEpochWins,
    /// Of two that claim a slot with one epoch, one that failed may keep it.
    DeadKeepsSlots,
    /// Nobody is told that it is behind.
    NoUpdateMessages,
    /// A slot that its owner gave up stays his.
    NoUnclaimedBits,
    /// A replica may follow a replica.
    NoGrandmasterRule,
    /// A replica moves to an orphan at once.
    MigrateAtOnce,
    /// Whoever answers at an address that was gossiped about is taken in.
    HandshakeFromGossip,
    /// Nobody else is asked whether a node has failed.
    FailByOwnOpinion,
    /// What a node said long ago counts.
    ReportsNeverExpire,
    /// A failure is not told to others.
    FailNotBroadcast,
    /// A node that came back stays failed.
    FailNeverCleared,
    /// Replicas with data of any age stand.
    NoAgeLimit,
    /// Replicas stand in any order.
    NoRank,
    /// In a failover by hand, a replica does not wait for what its master wrote last.
    StandsBehind,
    /// A replica that lost an election gives up.
    NoRetry,
    /// A master that lost its last slot stays one.
    StayMaster,
    /// Whose slot it is depends on epochs alone, as with Redis.
    NoHandover,
    /// A master claims with a new epoch what somebody may have taken from it.
    ClaimsOpenSlots,
    /// The giver of a slot gets it back when its epoch is the greater one.
    YieldsTaken,
    /// Keys of a slot that was given away count again when a restart brings them back.
    ImportOutdatedKeys,
    /// All keys of others' slots are taken for outdated.
    DropAdoptedKeys,
}
