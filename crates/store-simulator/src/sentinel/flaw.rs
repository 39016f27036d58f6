//! Rules of Sentinel broken one at a time, by what surrounds the unchanged core.

use super::judge::Rule;

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Votes are asked for and counted in whatever epoch is current, not in the failover's own.
    CountCurrentEpoch,
    /// A vote leaves before it is on disk.
    NoSaveBeforeVote,
    /// SENTINEL RESET takes a promotion back, and leaves its epoch.
    ResetForgetsPromotion,
    /// Whoever answers where several say that they are votes for each of them.
    VotesByName,
    /// Hellos do not say since when their primary is the primary.
    HelloWithoutEpoch,
    /// A failover begins although fewer than a quorum hold the primary for down.
    DownBelowQuorum,
    /// Sentinels that were not met do not count for the majority.
    ElectedWithoutMajority,
    /// How long a replica has been without its primary is not asked.
    IgnoreAge,
    /// The most data counts more than the priority.
    OffsetBeforePriority,
    /// Offsets are compared whatever history they count.
    OffsetsOfTwoHistories,
    /// A hello with an older configuration is believed.
    OlderHelloWins,
    /// A process that stood still decides as if nothing had been.
    ActInTilt,
    /// All replicas are turned to the new primary at once.
    AllReplicasAtOnce,
    /// An epoch after which there is hardly another one is believed.
    BelieveEveryEpoch,
}

/// A flaw, and what must catch it.
#[derive(Debug)]
pub struct Control {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is broken.
    pub flaw: Flaw,
    /// The rule that must notice. Its worlds are watched for this one alone.
    pub breaks: Rule,
}

const fn control(name: &'static str, flaw: Flaw, breaks: Rule) -> Control {
    Control { name, flaw, breaks }
}

/// All flaws.
pub const CONTROLS: &[Control] = &[
    control("count-current-epoch", Flaw::CountCurrentEpoch, Rule::S1),
    control("no-save-before-vote", Flaw::NoSaveBeforeVote, Rule::S1),
    control("elected-without-majority", Flaw::ElectedWithoutMajority, Rule::S1),
    control("votes-by-name", Flaw::VotesByName, Rule::S1),
    control("hello-without-epoch", Flaw::HelloWithoutEpoch, Rule::S2),
    control("reset-forgets-promotion", Flaw::ResetForgetsPromotion, Rule::S2),
    control("older-hello-wins", Flaw::OlderHelloWins, Rule::S2),
    control("ignore-age", Flaw::IgnoreAge, Rule::S3),
    control("offset-before-priority", Flaw::OffsetBeforePriority, Rule::S3),
    control("offsets-of-two-histories", Flaw::OffsetsOfTwoHistories, Rule::S3),
    control("odown-below-quorum", Flaw::DownBelowQuorum, Rule::S4),
    control("act-in-tilt", Flaw::ActInTilt, Rule::S4),
    control("all-replicas-at-once", Flaw::AllReplicasAtOnce, Rule::S5),
    control("believe-every-epoch", Flaw::BelieveEveryEpoch, Rule::S6),
];
