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

    /// Promises that would be broken by the mere look of a flaw, before it does any harm.
    pub(crate) fn ignores(self) -> &'static [Promise] {
        match self {
            Subject::Flawed(Flaw::DeadlineFromAnswer | Flaw::CountedLate) => &[Promise::P4],
            Subject::Flawed(Flaw::NoQuarantine) => &[Promise::P2],
            Subject::Flawed(Flaw::IdWithoutToken | Flaw::ThirdPartyRelease) => &[Promise::P5],
            _ => &[],
        }
    }
}

/// A control: something broken on purpose that must be caught.
#[derive(Debug)]
pub struct Control {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is wrong with it.
    pub about: &'static str,
    /// Who.
    pub subject: Subject,
    /// In which case it is run.
    pub case: &'static str,
}

/// All controls.
pub const CONTROLS: &[Control] = &[
    control("S0", "unconditional expire, wall clock", Subject::Rival(RivalKind::S0), "mixture"),
    control("S1", "get, compare locally, expire", Subject::Rival(RivalKind::S1), "mixture"),
    control("S2", "compare-and-expire, no deadline", Subject::Rival(RivalKind::S2), "mixture"),
    control("S3a", "a lease that nothing renews", Subject::Rival(RivalKind::S3a), "mixture"),
    control("S3b", "setnx, then expire", Subject::Rival(RivalKind::S3b), "mixture"),
    control(
        "deadline-from-answer",
        "the lease is counted from the answer",
        Subject::Flawed(Flaw::DeadlineFromAnswer),
        "wires",
    ),
    control(
        "id-without-token",
        "renew and release compare the id alone",
        Subject::Flawed(Flaw::IdWithoutToken),
        "mixture",
    ),
    control(
        "attempt-per-process",
        "every acquire has the same number",
        Subject::Flawed(Flaw::AttemptPerProcess),
        "mixture",
    ),
    control(
        "no-quarantine",
        "a store that lost data grants at once",
        Subject::Flawed(Flaw::NoQuarantine),
        "failover",
    ),
    control(
        "close-without-release",
        "a closed term is not given back",
        Subject::Flawed(Flaw::CloseWithoutRelease),
        "mixture",
    ),
    control(
        "third-party-release",
        "resigning is done by releasing the leader's key",
        Subject::Flawed(Flaw::ThirdPartyRelease),
        "hand-overs",
    ),
    control(
        "wait-elsewhere",
        "strict: replicas are waited for on another connection",
        Subject::Flawed(Flaw::WaitElsewhere),
        "strict-isolated",
    ),
    control(
        "fewer-replicas",
        "strict: one replica fewer than there are is enough",
        Subject::Flawed(Flaw::FewerReplicas),
        "strict-isolated",
    ),
    control(
        "strict-trusts-age",
        "strict: a flushed server is taken for new by its age",
        Subject::Flawed(Flaw::TrustsAge),
        "strict-flush",
    ),
    control(
        "half-quorum",
        "quorum: half of the nodes are enough",
        Subject::Flawed(Flaw::HalfQuorum),
        "quorum-mixture",
    ),
    control(
        "counted-late",
        "quorum: answers count after the deadline",
        Subject::Flawed(Flaw::CountedLate),
        "quorum-wires",
    ),
    control(
        "no-settling",
        "quorum: each node counts under its own token",
        Subject::Flawed(Flaw::NoSettling),
        "quorum-mixture",
    ),
    control(
        "quorum-trusts-age",
        "quorum: a flushed node is taken for new by its age",
        Subject::Flawed(Flaw::TrustsAge),
        "quorum-amnesia",
    ),
    control(
        "fastest-clock",
        "quorum: a term is numbered by the fastest clock",
        Subject::Flawed(Flaw::FastestClock),
        "quorum-amnesia",
    ),
    control(
        "adopt-unchecked",
        "quorum: a node adopts whatever it holds or has lost",
        Subject::Flawed(Flaw::AdoptUnchecked),
        "quorum-amnesia",
    ),
    control(
        "adopt-backwards",
        "quorum: a vacant node goes back to an earlier term",
        Subject::Flawed(Flaw::AdoptBackwards),
        "quorum-late",
    ),
];

const fn control(
    name: &'static str,
    about: &'static str,
    subject: Subject,
    case: &'static str,
) -> Control {
    Control { name, about, subject, case }
}
