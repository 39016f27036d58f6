//! Rules of the cluster broken one at a time: in the core, or by what drives it.

use store_cluster::Flaw;

use super::judge::Rule;

/// Where a rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the core.
    Core(Flaw),
    /// Packets leave although the file that they rely on is not on disk yet.
    SendBeforePersist,
    /// The file forgets in which epoch the node voted last.
    VoteClearedOnRestart,
    /// A node whose file cannot be written goes on as if it were.
    SaysUnsaved,
}

/// A flaw, and what must catch it.
#[derive(Debug)]
pub struct Control {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is broken.
    pub flaw: Planted,
    /// The rule that must notice. Its worlds are watched for this one alone.
    pub breaks: Rule,
}

const fn driver(name: &'static str, flaw: Planted, breaks: Rule) -> Control {
    Control { name, flaw, breaks }
}

const fn core(name: &'static str, flaw: Flaw, breaks: Rule) -> Control {
    Control { name, flaw: Planted::Core(flaw), breaks }
}

/// All flaws. Each is caught within 10,000 worlds.
pub const CONTROLS: &[Control] = &[
    driver("epoch-without-persist", Planted::SendBeforePersist, Rule::K1),
    driver("claim-on-full-disk", Planted::SaysUnsaved, Rule::K1),
    core("no-collision-rule", Flaw::NoCollisionRule, Rule::K1),
    core("takeover-keeps-epoch", Flaw::TakeoverKeepsEpoch, Rule::K1),
    driver("vote-before-fsync", Planted::SendBeforePersist, Rule::K2),
    driver("vote-cleared-on-restart", Planted::VoteClearedOnRestart, Rule::K2),
    driver("vote-on-full-disk", Planted::SaysUnsaved, Rule::K2),
    core("votes-unseen", Flaw::VotesUnseen, Rule::K2),
    core("count-acks-twice", Flaw::CountAcksTwice, Rule::K3),
    core("accept-old-acks", Flaw::AcceptOldAcks, Rule::K3),
    core("half-quorum", Flaw::HalfQuorum, Rule::K3),
    core("no-minority-rule", Flaw::NoMinorityRule, Rule::K4),
    core("no-rejoin-delay", Flaw::NoRejoinDelay, Rule::K4),
    core("lower-epoch-wins", Flaw::LowerEpochWins, Rule::K5),
    core("dead-keeps-slots", Flaw::DeadKeepsSlots, Rule::K5),
    core("no-update-messages", Flaw::NoUpdateMessages, Rule::K5),
    core("no-unclaimed-bits", Flaw::NoUnclaimedBits, Rule::K5),
    core("stands-behind", Flaw::StandsBehind, Rule::K8),
    core("no-grandmaster-rule", Flaw::NoGrandmasterRule, Rule::K6),
    core("migrate-at-once", Flaw::MigrateAtOnce, Rule::K6),
    core("handshake-from-gossip", Flaw::HandshakeFromGossip, Rule::K7),
    core("fail-by-own-opinion", Flaw::FailByOwnOpinion, Rule::K9),
    core("reports-never-expire", Flaw::ReportsNeverExpire, Rule::K9),
    core("fail-not-broadcast", Flaw::FailNotBroadcast, Rule::K9),
    core("fail-never-cleared", Flaw::FailNeverCleared, Rule::K9),
    core("no-age-limit", Flaw::NoAgeLimit, Rule::K10),
    core("no-rank", Flaw::NoRank, Rule::K10),
    core("no-retry", Flaw::NoRetry, Rule::K10),
    core("stay-master", Flaw::StayMaster, Rule::K11),
];
