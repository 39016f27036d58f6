//! Who lives in a world: our own election, or something broken on purpose that must be caught.

use crate::flaw::Flaw;
use crate::promise::Promise;
use crate::rival::RivalKind;

/// Who lives in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Our own election as it is.
    Ours,
    /// Our own election with one rule broken.
    Flawed(Flaw),
    /// A control.
    Rival(RivalKind),
}

impl Subject {
    pub(crate) fn flaw(self) -> Option<Flaw> {
        match self {
            Subject::Flawed(flaw) => Some(flaw),
            _ => None,
        }
    }

    pub(crate) fn speaks_protocol(self) -> bool {
        !matches!(self, Subject::Rival(_))
    }
}

/// A control: something broken on purpose that must be caught.
#[derive(Debug)]
pub struct Control {
    /// What it is called on the command line.
    pub name: &'static str,
    /// The promise that it breaks. Its worlds are watched for this one alone: a control that only
    /// another promise would catch is not caught.
    pub breaks: Promise,
    /// What is wrong with it.
    pub about: &'static str,
    /// Who.
    pub subject: Subject,
    /// In which case it is run.
    pub case: &'static str,
}

/// All controls.
pub const CONTROLS: &[Control] = &[
    rival("S0", RivalKind::S0, "unconditional expire, wall clock"),
    rival("S1", RivalKind::S1, "get, compare locally, expire"),
    rival("S2", RivalKind::S2, "compare-and-expire, no deadline"),
    rival("S3a", RivalKind::S3a, "a lease that nothing renews"),
    rival("S3b", RivalKind::S3b, "setnx, then expire"),
    flawed(Flaw::DeadlineFromAnswer, Promise::P1, "wires")
        .named("deadline-from-answer", "the lease is counted from the answer"),
    flawed(Flaw::NoDriftMargin, Promise::P1, "drift")
        .named("no-drift-margin", "leases are believed in as if all clocks ran alike"),
    flawed(Flaw::IdWithoutToken, Promise::P1, "mixture")
        .named("id-without-token", "renew and release compare the id alone"),
    flawed(Flaw::TransferWithoutToken, Promise::P5, "hand-overs")
        .named("transfer-without-token", "a hand-over gives away whatever its caller holds"),
    flawed(Flaw::AbandonWithoutAttempt, Promise::P5, "hand-overs")
        .named("abandon-anything", "abandoning gives back whatever its caller holds"),
    flawed(Flaw::AttemptPerProcess, Promise::P6, "mixture")
        .named("attempt-per-process", "every acquire has the same number"),
    flawed(Flaw::NoQuarantine, Promise::P1, "failover")
        .named("no-quarantine", "a store that lost data grants at once"),
    flawed(Flaw::QuarantineShortened, Promise::P1, "restart-old")
        .named("quarantine-shortened", "whoever waits cuts the quarantine to its own lease"),
    flawed(Flaw::ClaimSkipsQuarantine, Promise::P1, "old-keys")
        .named("claim-in-quarantine", "a successor takes over while a quarantine runs"),
    flawed(Flaw::OwnLeaseOnly, Promise::P1, "restart-empty")
        .named("own-lease-only", "the own lease is named as the longest in the fleet"),
    flawed(Flaw::BeatNamesNoLease, Promise::P1, "raised")
        .named("beat-names-no-lease", "only an attempt names the longest lease"),
    flawed(Flaw::FloorForgotten, Promise::P1, "flush-veterans")
        .named("floor-forgotten", "nobody tells which tokens it has seen"),
    flawed(Flaw::CloseWithoutRelease, Promise::P6, "mixture")
        .named("close-without-release", "a closed term is not given back"),
    flawed(Flaw::ReleaseBeforeWork, Promise::P1, "hand-overs")
        .named("release-before-work", "a term is given back while its work runs"),
    flawed(Flaw::ThirdPartyRelease, Promise::P1, "hand-overs")
        .named("third-party-release", "resigning is done by releasing the leader's key"),
    flawed(Flaw::ClearForConstant, Promise::P6, "hand-overs")
        .named("clear-for-constant", "after a clear all wait alike, however short their leases"),
    flawed(Flaw::HandOverForgotten, Promise::P6, "denied")
        .named("hand-over-forgotten", "a hand-over whose term is lost meanwhile has no outcome"),
    flawed(Flaw::PauseOverlooked, Promise::P6, "paused")
        .named("pause-overlooked", "a leader hands over while nobody may take over"),
    flawed(Flaw::WorkOutlivesLease, Promise::P1, "starved")
        .named("work-outlives-lease", "work stops by its driver's word and not by the clock"),
    flawed(Flaw::HintsPostpone, Promise::P6, "hint-storm")
        .named("hints-postpone", "every hint of a grant moves the next attempt"),
    flawed(Flaw::StaleDeposes, Promise::P6, "stale-reads")
        .named("stale-deposes", "a server without writes says that a term is lost"),
    flawed(Flaw::StaleReleases, Promise::P6, "stale-reads")
        .named("stale-releases", "a release counts as done on a server without writes"),
    flawed(Flaw::ClockBackWaits, Promise::P6, "clock-back")
        .named("clock-back-waits", "a key stays for as long as the store's clock went back"),
    flawed(Flaw::OldMarkVouches, Promise::P1, "own-restart")
        .named("old-mark-vouches", "own store: restored data counts as complete"),
    flawed(Flaw::TrustsAge, Promise::P1, "cluster")
        .named("cluster-trusts-age", "cluster: the owner of an empty slot is taken for new"),
    flawed(Flaw::PeriodsShareNumbers, Promise::P7, "ticks")
        .named("periods-share-numbers", "ticks: one count for periods of all lengths"),
    flawed(Flaw::PeriodsShareNumbers, Promise::P7, "ticks-ahead")
        .named("future-ticks-count", "ticks: what was done while the clock was ahead counts"),
    flawed(Flaw::NeverStartedCounts, Promise::P7, "ticks")
        .named("never-started-counts", "ticks: a program that could not be started counts as run"),
    flawed(Flaw::DoneAfterLease, Promise::P7, "ticks")
        .named("done-after-lease", "ticks: work that ended after its lease is reported as done"),
    flawed(Flaw::RerunsAnyway, Promise::P7, "ticks")
        .named("reruns-anyway", "ticks: what must not be run twice is, after a crash"),
    flawed(Flaw::TickUnconfirmed, Promise::P7, "strict-ticks")
        .named("tick-unconfirmed", "strict: ticks count before the replicas have them"),
    flawed(Flaw::WaitElsewhere, Promise::P1, "strict-isolated")
        .named("wait-elsewhere", "strict: replicas are waited for on another connection"),
    flawed(Flaw::FewerReplicas, Promise::P1, "strict-isolated")
        .named("fewer-replicas", "strict: one replica fewer than there are is enough"),
    flawed(Flaw::TrustsAge, Promise::P1, "strict-flush")
        .named("strict-trusts-age", "strict: a flushed server is taken for new by its age"),
    flawed(Flaw::HalfQuorum, Promise::P1, "quorum-mixture")
        .named("half-quorum", "quorum: half of the nodes are enough"),
    flawed(Flaw::CountedLate, Promise::P1, "quorum-wires")
        .named("counted-late", "quorum: answers count after the deadline"),
    flawed(Flaw::NoSettling, Promise::P2, "quorum-mixture")
        .named("no-settling", "quorum: each node counts under its own token"),
    flawed(Flaw::TrustsAge, Promise::P1, "quorum-amnesia")
        .named("quorum-trusts-age", "quorum: a flushed node is taken for new by its age"),
    flawed(Flaw::FastestClock, Promise::P2, "quorum-amnesia")
        .named("fastest-clock", "quorum: a term is numbered by the fastest clock"),
    flawed(Flaw::AdoptUnchecked, Promise::P1, "quorum-wires")
        .named("adopt-unchecked", "quorum: a node adopts whatever it holds or has lost"),
    flawed(Flaw::AdoptBackwards, Promise::P3, "quorum-late")
        .named("adopt-backwards", "quorum: a vacant node goes back to an earlier term"),
    flawed(Flaw::OldMarkVouches, Promise::P1, "quorum-own")
        .named("quorum-old-mark", "quorum of own stores: restored data counts as complete"),
    flawed(Flaw::SwapUncompared, Promise::P1, "swap-wires")
        .named("swap-uncompared", "compare and swap: written without comparing"),
    flawed(Flaw::SwapComparesClocks, Promise::P1, "observed-mixture")
        .named("swap-compares-clocks", "observed: a lease is held against the own clock"),
    flawed(Flaw::SwapCountsOn, Promise::P1, "observed-mixture")
        .named("swap-counts-on", "observed: a new version is not counted anew"),
    flawed(Flaw::SwapKeepsToken, Promise::P2, "swap-mixture")
        .named("swap-keeps-token", "compare and swap: tokens do not grow"),
    flawed(Flaw::SwapSameLife, Promise::P1, "swap-restart")
        .named("swap-same-life", "compare and swap: no quarantine in another life"),
];

const fn rival(name: &'static str, kind: RivalKind, about: &'static str) -> Control {
    let subject = Subject::Rival(kind);
    Control { name, breaks: Promise::P1, about, subject, case: "mixture" }
}

const fn flawed(flaw: Flaw, breaks: Promise, case: &'static str) -> Control {
    Control { name: "", breaks, about: "", subject: Subject::Flawed(flaw), case }
}

impl Control {
    const fn named(self, name: &'static str, about: &'static str) -> Self {
        Control { name, about, ..self }
    }
}
