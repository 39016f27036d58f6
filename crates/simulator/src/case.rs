//! The rows of the table: which faults meet whom, and what is promised then.

use crate::clock::MILLISECOND;
use crate::control::Subject;
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::nodes::NodeFault;
use crate::promise::Promise;
use crate::random::Random;
use crate::rival::LEASE;
use crate::world::{Climate, LEASE_STEP};

/// A family of worlds.
#[derive(Debug)]
pub struct Case {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What happens in it.
    pub about: &'static str,
    /// The promises that are not given in it: a broken one must be found. All others hold.
    pub excused: &'static [Promise],
    pub(crate) faults: &'static [(Fault, u32)],
    wires: Wires,
    pub(crate) replicas: Replicas,
}

/// Who stands by to take the store over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replicas {
    None,
    /// One, somewhat behind: mode `available`.
    Lagging,
    /// One to three that must all confirm what counts: mode `strict`.
    Confirming,
    /// None: three or five independent nodes decide together: mode `quorum`.
    Quorum,
}

/// How bad the wires are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wires {
    Good,
    Bad,
    Any,
}

/// Whether faults go on to the end or are healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Faults to the end: P1 to P5.
    Safety,
    /// Faults, then none: P6 as well.
    Liveness,
}

impl Mode {
    /// Half of the seeds run in each mode.
    pub fn of_seed(seed: u64) -> Self {
        if seed.is_multiple_of(2) { Mode::Safety } else { Mode::Liveness }
    }
}

const PEOPLE: &[(Fault, u32)] = &[
    (Fault::AskToResign, 4),
    (Fault::AskToHandOver, 6),
    (Fault::Resign, 4),
    (Fault::HandOver, 6),
    (Fault::OperatorPause, 1),
    (Fault::OperatorResume, 2),
    (Fault::Clear, 1),
    (Fault::Unready, 2),
    (Fault::Ready, 3),
    (Fault::PauseHere, 1),
    (Fault::ResumeHere, 2),
    (Fault::BeatsFail, 2),
    (Fault::RenewNow, 2),
    (Fault::Break, 2),
];

const MIXTURE: &[(Fault, u32)] = &[
    (Fault::Pause, 5),
    (Fault::Suspend, 3),
    (Fault::Crash, 3),
    (Fault::Stop, 3),
    (Fault::Break, 5),
    (Fault::CutOff, 4),
    (Fault::CutReplies, 4),
    (Fault::Slow, 4),
    (Fault::Deaf, 2),
    (Fault::ForgedHint, 4),
    (Fault::ClockRate, 2),
    (Fault::ServerPause, 2),
    (Fault::RestartEmpty, 2),
    (Fault::Failover, 2),
    (Fault::AskToResign, 3),
    (Fault::AskToHandOver, 3),
    (Fault::Resign, 2),
    (Fault::HandOver, 3),
    (Fault::OperatorPause, 1),
    (Fault::OperatorResume, 2),
    (Fault::Clear, 1),
    (Fault::Unready, 1),
    (Fault::Ready, 2),
    (Fault::PauseHere, 1),
    (Fault::ResumeHere, 2),
    (Fault::BeatsFail, 1),
    (Fault::RenewNow, 2),
];

/// The same with a primary that is cut off and with a flush, which only `strict` bears.
const STRICT_MIXTURE: &[(Fault, u32)] = &{
    let mut faults = [(Fault::IsolatedPrimary, 3); MIXTURE.len() + 2];
    faults[MIXTURE.len()] = (Fault::FlushForNewcomer, 1);
    let mut at = 0;
    while at < MIXTURE.len() {
        faults[at] = MIXTURE[at];
        at += 1;
    }
    faults
};

/// What may go wrong with a minority of the nodes, however bad the wires to the others are.
const NODES: &[(Fault, u32)] = &[
    (Fault::Node(NodeFault::Crash), 3),
    (Fault::Node(NodeFault::RestartEmpty), 4),
    (Fault::Node(NodeFault::RestartOld), 4),
    (Fault::Node(NodeFault::Pause), 3),
    (Fault::Node(NodeFault::Flush), 3),
    (Fault::Node(NodeFault::Cut), 3),
    (Fault::Node(NodeFault::CutReplies), 3),
    (Fault::Node(NodeFault::Slow), 3),
    (Fault::Pause, 2),
    (Fault::Crash, 2),
    (Fault::Break, 1),
    (Fault::Resign, 2),
    (Fault::HandOver, 2),
];

const QUORUM_MIXTURE: &[(Fault, u32)] = &[
    (Fault::Node(NodeFault::Crash), 2),
    (Fault::Node(NodeFault::RestartEmpty), 3),
    (Fault::Node(NodeFault::RestartOld), 3),
    (Fault::Node(NodeFault::Pause), 2),
    (Fault::Node(NodeFault::Flush), 2),
    (Fault::Node(NodeFault::Cut), 2),
    (Fault::Node(NodeFault::CutReplies), 2),
    (Fault::Node(NodeFault::Slow), 2),
    (Fault::Pause, 5),
    (Fault::Suspend, 2),
    (Fault::Crash, 3),
    (Fault::Stop, 3),
    (Fault::Break, 4),
    (Fault::CutOff, 3),
    (Fault::CutReplies, 3),
    (Fault::Slow, 3),
    (Fault::Deaf, 2),
    (Fault::ForgedHint, 4),
    (Fault::ClockRate, 2),
    (Fault::AskToResign, 3),
    (Fault::AskToHandOver, 3),
    (Fault::Resign, 2),
    (Fault::HandOver, 3),
    (Fault::OperatorPause, 1),
    (Fault::OperatorResume, 2),
    (Fault::Clear, 1),
    (Fault::Unready, 1),
    (Fault::Ready, 2),
    (Fault::PauseHere, 1),
    (Fault::ResumeHere, 2),
    (Fault::BeatsFail, 1),
    (Fault::RenewNow, 2),
];

/// All cases, by what PROTOCOL says of modes `available`, `strict` and `quorum`.
pub const CASES: &[Case] = &[
    Case {
        name: "calm",
        about: "nothing but people's wishes now and then",
        excused: &[],
        faults: &[(Fault::Resign, 1), (Fault::HandOver, 1), (Fault::AskToHandOver, 1)],
        wires: Wires::Good,
        replicas: Replicas::None,
    },
    Case {
        name: "drift",
        about: "clocks up to 1 % apart, changing their rates",
        excused: &[],
        faults: &[(Fault::ClockRate, 6), (Fault::Pause, 2), (Fault::CutOff, 3), (Fault::Crash, 1)],
        wires: Wires::Good,
        replicas: Replicas::None,
    },
    Case {
        name: "pauses",
        about: "processes and the store stand still",
        excused: &[],
        faults: &[(Fault::Pause, 6), (Fault::ServerPause, 2), (Fault::Resign, 1)],
        wires: Wires::Any,
        replicas: Replicas::None,
    },
    Case {
        name: "suspend",
        about: "hosts sleep and wake",
        excused: &[],
        faults: &[(Fault::Suspend, 6), (Fault::Pause, 1), (Fault::Break, 1)],
        wires: Wires::Any,
        replicas: Replicas::None,
    },
    Case {
        name: "wires",
        about: "loss, delay beyond the lease, copies, broken connections",
        excused: &[],
        faults: &[
            (Fault::Break, 3),
            (Fault::CutOff, 3),
            (Fault::CutReplies, 4),
            (Fault::Slow, 6),
            (Fault::Resign, 1),
        ],
        wires: Wires::Bad,
        replicas: Replicas::None,
    },
    Case {
        name: "hints",
        about: "hints lost, doubled and forged",
        excused: &[],
        faults: &[(Fault::ForgedHint, 20), (Fault::Deaf, 4), (Fault::Crash, 2), (Fault::Resign, 3)],
        wires: Wires::Any,
        replicas: Replicas::None,
    },
    Case {
        name: "hand-overs",
        about: "a storm of resignations, hand-overs, pauses and clears",
        excused: &[],
        faults: PEOPLE,
        wires: Wires::Any,
        replicas: Replicas::None,
    },
    Case {
        name: "churn",
        about: "processes crash, stop and start",
        excused: &[],
        faults: &[(Fault::Crash, 5), (Fault::Stop, 4), (Fault::Pause, 1), (Fault::Break, 2)],
        wires: Wires::Any,
        replicas: Replicas::None,
    },
    Case {
        name: "restart-empty",
        about: "the store restarts with nothing in it",
        excused: &[],
        faults: &[
            (Fault::RestartEmpty, 3),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::CutOff, 2),
            (Fault::Resign, 1),
        ],
        wires: Wires::Any,
        replicas: Replicas::None,
    },
    Case {
        name: "failover",
        about: "a lagging replica takes over from a dead primary",
        excused: &[],
        faults: &[
            (Fault::Failover, 4),
            (Fault::Pause, 1),
            (Fault::Crash, 2),
            (Fault::CutReplies, 2),
            (Fault::Resign, 2),
            (Fault::HandOver, 3),
        ],
        wires: Wires::Any,
        replicas: Replicas::Lagging,
    },
    Case {
        name: "flush-veterans",
        about: "FLUSHALL while everyone has seen a token",
        excused: &[],
        faults: &[
            (Fault::FlushAmongVeterans, 2),
            (Fault::Pause, 2),
            (Fault::CutOff, 1),
            (Fault::Resign, 2),
        ],
        wires: Wires::Any,
        replicas: Replicas::None,
    },
    Case {
        name: "mixture",
        about: "everything above at once",
        excused: &[],
        faults: MIXTURE,
        wires: Wires::Any,
        replicas: Replicas::Lagging,
    },
    Case {
        name: "strict-failover",
        about: "strict: a replica takes over from a dead primary",
        excused: &[],
        faults: &[
            (Fault::Failover, 4),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::CutReplies, 2),
            (Fault::Resign, 2),
            (Fault::HandOver, 3),
        ],
        wires: Wires::Any,
        replicas: Replicas::Confirming,
    },
    Case {
        name: "strict-isolated",
        about: "strict: the old primary goes on serving some",
        excused: &[],
        faults: &[
            (Fault::IsolatedPrimary, 4),
            (Fault::Failover, 1),
            (Fault::Pause, 2),
            (Fault::Crash, 1),
            (Fault::Resign, 2),
            (Fault::HandOver, 3),
        ],
        wires: Wires::Any,
        replicas: Replicas::Confirming,
    },
    Case {
        name: "strict-flush",
        about: "strict: FLUSHALL, and somebody comes who never saw a token",
        excused: &[],
        faults: &[
            (Fault::FlushForNewcomer, 3),
            (Fault::Failover, 1),
            (Fault::Pause, 2),
            (Fault::Crash, 1),
            (Fault::CutReplies, 1),
            (Fault::Resign, 2),
            (Fault::HandOver, 2),
        ],
        wires: Wires::Any,
        replicas: Replicas::Confirming,
    },
    Case {
        name: "strict-mixture",
        about: "strict: everything at once, an isolated primary and a flush too",
        excused: &[],
        faults: STRICT_MIXTURE,
        wires: Wires::Any,
        replicas: Replicas::Confirming,
    },
    Case {
        name: "strict-clock",
        about: "strict: the store's clock steps forward",
        excused: &[Promise::P1],
        faults: &[(Fault::ServerClockForward, 3), (Fault::Pause, 1), (Fault::CutOff, 1)],
        wires: Wires::Good,
        replicas: Replicas::Confirming,
    },
    Case {
        name: "quorum-calm",
        about: "quorum: nothing but people's wishes now and then",
        excused: &[],
        faults: &[(Fault::Resign, 1), (Fault::HandOver, 1), (Fault::AskToHandOver, 1)],
        wires: Wires::Good,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-nodes",
        about: "quorum: a minority crashes, restarts empty or old, is flushed or cut off",
        excused: &[],
        faults: NODES,
        wires: Wires::Any,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-wires",
        about: "quorum: loss, delay beyond the lease, copies, broken connections",
        excused: &[],
        faults: &[
            (Fault::Break, 3),
            (Fault::CutOff, 3),
            (Fault::CutReplies, 4),
            (Fault::Slow, 6),
            (Fault::Resign, 1),
            (Fault::Node(NodeFault::Slow), 2),
        ],
        wires: Wires::Bad,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-clocks",
        about: "quorum: clocks of a minority jump, its keys are deleted",
        excused: &[],
        faults: &[
            (Fault::Node(NodeFault::ClockForward), 5),
            (Fault::Node(NodeFault::ClockBack), 3),
            (Fault::Node(NodeFault::Delete), 3),
            (Fault::ClockRate, 2),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::Resign, 2),
            (Fault::HandOver, 1),
        ],
        wires: Wires::Good,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-late",
        about: "quorum: clocks of a minority go back, requests come after their term is over",
        excused: &[],
        faults: &[
            (Fault::Node(NodeFault::ClockBack), 3),
            (Fault::Slow, 4),
            (Fault::Crash, 4),
            (Fault::Resign, 10),
        ],
        wires: Wires::Bad,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-amnesia",
        about: "quorum: any node, all of them too, loses its data",
        excused: &[],
        faults: &[
            (Fault::AnyNode(NodeFault::RestartEmpty), 4),
            (Fault::AnyNode(NodeFault::RestartOld), 4),
            (Fault::AnyNode(NodeFault::Flush), 3),
            (Fault::Node(NodeFault::Cut), 3),
            (Fault::Pause, 3),
            (Fault::Crash, 2),
            (Fault::CutOff, 2),
            (Fault::Resign, 2),
        ],
        wires: Wires::Any,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-people",
        about: "quorum: a storm of resignations, hand-overs, pauses and clears",
        excused: &[],
        faults: PEOPLE,
        wires: Wires::Any,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-mixture",
        about: "quorum: everything at once, on a minority of the nodes",
        excused: &[],
        faults: QUORUM_MIXTURE,
        wires: Wires::Any,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-exposed",
        about: "quorum: a clock of a minority jumps while a renewal has not reached the others",
        excused: &[Promise::P1],
        faults: &[
            (Fault::ExposedNode(NodeFault::ClockForward), 6),
            (Fault::ExposedNode(NodeFault::Delete), 3),
            (Fault::Slow, 3),
            (Fault::Pause, 4),
            (Fault::Crash, 2),
            (Fault::Resign, 1),
        ],
        wires: Wires::Bad,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "quorum-majority",
        about: "quorum: clocks of a majority jump, its keys are deleted",
        excused: &[Promise::P1],
        faults: &[
            (Fault::AnyNode(NodeFault::ClockForward), 4),
            (Fault::AnyNode(NodeFault::Delete), 2),
            (Fault::Pause, 1),
        ],
        wires: Wires::Good,
        replicas: Replicas::Quorum,
    },
    Case {
        name: "isolated-primary",
        about: "the old primary goes on serving some",
        excused: &[Promise::P1, Promise::P2],
        faults: &[(Fault::IsolatedPrimary, 3), (Fault::Pause, 1), (Fault::Crash, 1)],
        wires: Wires::Good,
        replicas: Replicas::Lagging,
    },
    Case {
        name: "server-clock",
        about: "the store's clock steps forward",
        excused: &[Promise::P1],
        faults: &[(Fault::ServerClockForward, 3), (Fault::Pause, 1), (Fault::CutOff, 1)],
        wires: Wires::Good,
        replicas: Replicas::None,
    },
    Case {
        name: "flush-newcomer",
        about: "FLUSHALL, and somebody comes who never saw a token",
        excused: &[Promise::P1],
        faults: &[(Fault::FlushForNewcomer, 2), (Fault::Pause, 2)],
        wires: Wires::Good,
        replicas: Replicas::None,
    },
    Case {
        name: "vm-pause",
        about: "a host is frozen with its clock",
        excused: &[Promise::P1],
        faults: &[(Fault::VmPause, 4), (Fault::Break, 1)],
        wires: Wires::Good,
        replicas: Replicas::None,
    },
];

impl Case {
    /// Whether P1 to P6 are promised in it.
    pub fn is_promised(&self) -> bool {
        self.excused.is_empty()
    }

    /// The case called `name`.
    pub fn named(name: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.name == name)
    }

    pub(crate) fn climate(&self, random: &mut Random, subject: Subject) -> Climate {
        let lease = match subject {
            Subject::Rival(_) => LEASE.as_nanos() as u64,
            _ => LEASE_STEP * random.between(2, 6),
        };
        let is_bad = match self.wires {
            Wires::Good => false,
            Wires::Bad => true,
            Wires::Any => random.percent(50),
        };
        let mut when_bad = |value: u64| if is_bad { random.between(0, value) } else { 0 };
        let (loss_percent, copy_percent) = (when_bad(15), when_bad(15));
        let hint_loss_percent = when_bad(60);
        let delay_max = when_bad(lease / 3).max(5 * MILLISECOND);
        let replicas = match (self.replicas, subject) {
            (Replicas::Confirming, Subject::Flawed(Flaw::FewerReplicas)) => random.between(2, 3),
            (Replicas::Confirming, _) => random.between(1, 3),
            _ => 0,
        };
        Climate {
            lease,
            strikes_every: random.share(lease, 150, 1_500),
            delay_max,
            loss_percent,
            copy_percent,
            hint_loss_percent,
            reorders: is_bad && random.percent(50),
            stubborn_percent: random.between(0, 30),
            lag_max: random.share(lease, 0, 2_000),
            replicas: replicas as usize,
            nodes: match self.replicas {
                Replicas::Quorum => *random.pick(&[3, 5]),
                _ => 1,
            },
            leases_differ: random.percent(20),
        }
    }
}
