//! The rows of the table: every case, by what the protocol says of its mode.

use crate::case::{Case, Replicas, Wires, row};
use crate::fault::Fault;
use crate::mixtures::{
    MIXTURE, NODES, OBSERVED_MIXTURE, PAUSED, PEOPLE, QUORUM_MIXTURE, QUORUM_PAUSED,
    STRICT_MIXTURE, SWAP_MIXTURE, SWAP_RESTART, SWAP_WIRES,
};
use crate::nodes::NodeFault;
use crate::promise::Promise;

/// All cases: those in which everything is promised, then those that are expected to break.
pub const CASES: &[Case] = &[
    row(
        "calm",
        "nothing but people's wishes now and then",
        &[(Fault::Resign, 1), (Fault::HandOver, 1), (Fault::AskToHandOver, 1)],
    )
    .wires(Wires::Good),
    row(
        "drift",
        "clocks up to 1 % apart, changing their rates",
        &[(Fault::ClockRate, 6), (Fault::Pause, 2), (Fault::CutOff, 3), (Fault::Crash, 1)],
    )
    .wires(Wires::Good),
    row(
        "pauses",
        "processes and the store stand still",
        &[(Fault::Pause, 6), (Fault::ServerPause, 2), (Fault::Resign, 1)],
    ),
    row(
        "suspend",
        "hosts sleep and wake",
        &[(Fault::Suspend, 6), (Fault::Pause, 1), (Fault::Break, 1)],
    ),
    row(
        "wires",
        "loss, delay beyond the lease, copies, broken connections",
        &[
            (Fault::Break, 3),
            (Fault::CutOff, 3),
            (Fault::CutReplies, 4),
            (Fault::Slow, 6),
            (Fault::Resign, 1),
        ],
    )
    .wires(Wires::Bad),
    row(
        "hints",
        "hints lost, doubled and forged",
        &[(Fault::ForgedHint, 20), (Fault::Deaf, 4), (Fault::Crash, 2), (Fault::Resign, 3)],
    ),
    row("hand-overs", "a storm of resignations, hand-overs, pauses and clears", PEOPLE),
    row("paused", "operators pause and resume the election; whoever leads keeps its term", PAUSED),
    row(
        "denied",
        "the store denies access for a while, in the middle of hand-overs too",
        &[
            (Fault::Denied, 3),
            (Fault::HandOver, 8),
            (Fault::AskToHandOver, 2),
            (Fault::Clear, 2),
            (Fault::Resign, 2),
            (Fault::Crash, 1),
        ],
    ),
    row(
        "churn",
        "processes crash, stop and start",
        &[(Fault::Crash, 5), (Fault::Stop, 4), (Fault::Pause, 1), (Fault::Break, 2)],
    ),
    row(
        "restart-empty",
        "the store restarts with nothing in it",
        &[
            (Fault::RestartEmpty, 3),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::CutOff, 2),
            (Fault::Resign, 1),
        ],
    ),
    row(
        "failover",
        "a lagging replica takes over from a dead primary",
        &[
            (Fault::Failover, 4),
            (Fault::Pause, 1),
            (Fault::Crash, 2),
            (Fault::CutReplies, 2),
            (Fault::Resign, 2),
            (Fault::HandOver, 3),
        ],
    )
    .store(Replicas::Lagging),
    row(
        "flush-veterans",
        "FLUSHALL while everyone has seen a token",
        &[
            (Fault::FlushAmongVeterans, 2),
            (Fault::Pause, 2),
            (Fault::CutOff, 1),
            (Fault::Resign, 2),
        ],
    ),
    row(
        "starved",
        "drivers get no time; work and clocks go on",
        &[
            (Fault::Starve, 8),
            (Fault::Pause, 1),
            (Fault::CutOff, 1),
            (Fault::Resign, 2),
            (Fault::HandOver, 2),
        ],
    ),
    row(
        "restart-old",
        "the store restarts with older data: a backup, a snapshot, a log cut short",
        &[
            (Fault::RestartOld, 3),
            (Fault::RestartTail, 2),
            (Fault::RestartKept, 1),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::CutOff, 2),
            (Fault::Clear, 1),
            (Fault::Resign, 1),
            (Fault::HandOver, 2),
        ],
    ),
    row(
        "own-restart",
        "the same with our own store, which vouches for what it has",
        &[
            (Fault::RestartOld, 3),
            (Fault::RestartTail, 1),
            (Fault::RestartKept, 2),
            (Fault::RestartEmpty, 1),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::CutOff, 2),
            (Fault::Resign, 1),
        ],
    )
    .vouched(),
    row(
        "raised",
        "leases are raised, then the store restarts with older data",
        &[
            (Fault::Raise, 3),
            (Fault::RestartOld, 3),
            (Fault::CutOff, 3),
            (Fault::Pause, 2),
            (Fault::Stop, 1),
            (Fault::AskToResign, 5),
            (Fault::OperatorResume, 5),
        ],
    )
    .raised()
    .hectic(),
    row(
        "clock-back",
        "the store's clock steps back",
        &[
            (Fault::ServerClockBack, 3),
            (Fault::Crash, 3),
            (Fault::Pause, 1),
            (Fault::CutOff, 1),
            (Fault::HandOver, 2),
            (Fault::Clear, 1),
            (Fault::RestartKept, 1),
        ],
    ),
    row(
        "old-keys",
        "a replica takes over whose clock is behind: keys of the past live again",
        &[
            (Fault::Failover, 4),
            (Fault::HandOver, 12),
            (Fault::Pause, 1),
            (Fault::CutOff, 2),
            (Fault::Slow, 3),
            (Fault::Crash, 1),
        ],
    )
    .wires(Wires::Bad)
    .hectic()
    .store(Replicas::Lagging)
    .clocks_unset()
    .without(&[Promise::P2, Promise::P3]),
    row(
        "hint-storm",
        "somebody keeps publishing that a term began",
        &[
            (Fault::HintStorm, 2),
            (Fault::ForgedHint, 5),
            (Fault::Deaf, 1),
            (Fault::Crash, 3),
            (Fault::Resign, 2),
        ],
    ),
    row(
        "stale-reads",
        "connections find a server with old data that takes no writes",
        &[
            (Fault::Astray, 6),
            (Fault::Failover, 1),
            (Fault::Crash, 1),
            (Fault::Resign, 3),
            (Fault::HandOver, 3),
            (Fault::AskToResign, 1),
        ],
    )
    .store(Replicas::Lagging),
    row(
        "cluster",
        "a cluster's slot moves, with its data or without",
        &[
            (Fault::SlotLost, 2),
            (Fault::SlotMoved, 2),
            (Fault::Pause, 2),
            (Fault::CutOff, 2),
            (Fault::Crash, 3),
            (Fault::Stop, 1),
            (Fault::Resign, 1),
            (Fault::HandOver, 1),
        ],
    )
    .store(Replicas::Slots),
    row("mixture", "everything above at once", MIXTURE).store(Replicas::Lagging),
    row(
        "ticks",
        "jobs run once per tick, on one store that loses nothing",
        &[
            (Fault::Crash, 5),
            (Fault::Pause, 3),
            (Fault::Starve, 4),
            (Fault::CutOff, 2),
            (Fault::CutReplies, 2),
            (Fault::Break, 2),
            (Fault::Suspend, 1),
            (Fault::ServerPause, 1),
            (Fault::Resign, 1),
            (Fault::Clear, 1),
            (Fault::RestartKept, 1),
        ],
    )
    .runners(),
    row(
        "ticks-ahead",
        "jobs on a store whose clock was far ahead and is set right",
        &[
            (Fault::ClockCorrected, 2),
            (Fault::Crash, 3),
            (Fault::Pause, 2),
            (Fault::Starve, 2),
            (Fault::CutReplies, 1),
        ],
    )
    .runners(),
    row(
        "strict-ticks",
        "strict: jobs, with fail-overs and isolated primaries",
        &[
            (Fault::Failover, 4),
            (Fault::IsolatedPrimary, 3),
            (Fault::Crash, 3),
            (Fault::Pause, 2),
            (Fault::Starve, 2),
            (Fault::CutReplies, 2),
        ],
    )
    .store(Replicas::Confirming)
    .runners(),
    row(
        "strict-failover",
        "strict: a replica takes over from a dead primary",
        &[
            (Fault::Failover, 4),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::CutReplies, 2),
            (Fault::Resign, 2),
            (Fault::HandOver, 3),
        ],
    )
    .store(Replicas::Confirming),
    row(
        "strict-isolated",
        "strict: the old primary goes on serving some",
        &[
            (Fault::IsolatedPrimary, 4),
            (Fault::Failover, 1),
            (Fault::Pause, 2),
            (Fault::Crash, 1),
            (Fault::Resign, 2),
            (Fault::HandOver, 3),
        ],
    )
    .store(Replicas::Confirming),
    row(
        "strict-flush",
        "strict: FLUSHALL, and somebody comes who never saw a token",
        &[
            (Fault::FlushForNewcomer, 3),
            (Fault::Failover, 1),
            (Fault::Pause, 2),
            (Fault::Crash, 1),
            (Fault::CutReplies, 1),
            (Fault::Resign, 2),
            (Fault::HandOver, 2),
        ],
    )
    .store(Replicas::Confirming),
    row(
        "strict-mixture",
        "strict: everything at once, an isolated primary and a flush too",
        STRICT_MIXTURE,
    )
    .store(Replicas::Confirming),
    row(
        "strict-clock",
        "strict: the store's clock steps forward",
        &[(Fault::ServerClockForward, 3), (Fault::Pause, 1), (Fault::CutOff, 1)],
    )
    .wires(Wires::Good)
    .store(Replicas::Confirming)
    .without(&[Promise::P1]),
    row(
        "quorum-calm",
        "quorum: nothing but people's wishes now and then",
        &[(Fault::Resign, 1), (Fault::HandOver, 1), (Fault::AskToHandOver, 1)],
    )
    .wires(Wires::Good)
    .store(Replicas::Quorum),
    row(
        "quorum-nodes",
        "quorum: a minority crashes, restarts empty or old, is flushed or cut off",
        NODES,
    )
    .store(Replicas::Quorum),
    row(
        "quorum-wires",
        "quorum: loss, delay beyond the lease, copies, broken connections",
        &[
            (Fault::Break, 3),
            (Fault::CutOff, 3),
            (Fault::CutReplies, 4),
            (Fault::Slow, 6),
            (Fault::Resign, 1),
            (Fault::Node(NodeFault::Slow), 2),
        ],
    )
    .wires(Wires::Bad)
    .store(Replicas::Quorum),
    row(
        "quorum-clocks",
        "quorum: clocks of a minority jump, its keys are deleted",
        &[
            (Fault::Node(NodeFault::ClockForward), 5),
            (Fault::Node(NodeFault::ClockBack), 3),
            (Fault::Node(NodeFault::Delete), 3),
            (Fault::ClockRate, 2),
            (Fault::Pause, 2),
            (Fault::Crash, 2),
            (Fault::Resign, 2),
            (Fault::HandOver, 1),
        ],
    )
    .wires(Wires::Good)
    .store(Replicas::Quorum),
    row(
        "quorum-late",
        "quorum: clocks of a minority go back, requests come after their term is over",
        &[
            (Fault::Node(NodeFault::ClockBack), 3),
            (Fault::Slow, 4),
            (Fault::Crash, 4),
            (Fault::Resign, 10),
        ],
    )
    .wires(Wires::Bad)
    .store(Replicas::Quorum),
    row(
        "quorum-amnesia",
        "quorum: any node, all of them too, loses its data",
        &[
            (Fault::AnyNode(NodeFault::RestartEmpty), 4),
            (Fault::AnyNode(NodeFault::RestartOld), 4),
            (Fault::AnyNode(NodeFault::Flush), 3),
            (Fault::Node(NodeFault::Cut), 3),
            (Fault::Pause, 3),
            (Fault::Crash, 2),
            (Fault::CutOff, 2),
            (Fault::Resign, 2),
        ],
    )
    .store(Replicas::Quorum),
    row(
        "quorum-own",
        "quorum of own stores: a minority restarts, with older data too",
        &[
            (Fault::Node(NodeFault::RestartOld), 8),
            (Fault::Node(NodeFault::Crash), 2),
            (Fault::Node(NodeFault::Cut), 4),
            (Fault::Node(NodeFault::CutReplies), 2),
            (Fault::Pause, 2),
            (Fault::Crash, 3),
            (Fault::Resign, 4),
        ],
    )
    .wires(Wires::Bad)
    .store(Replicas::Quorum)
    .vouched(),
    row("quorum-people", "quorum: a storm of resignations, hand-overs, pauses and clears", PEOPLE)
        .store(Replicas::Quorum),
    row(
        "quorum-paused",
        "quorum: operators pause and resume the election; whoever leads keeps its term",
        QUORUM_PAUSED,
    )
    .store(Replicas::Quorum),
    row("quorum-mixture", "quorum: everything at once, on a minority of the nodes", QUORUM_MIXTURE)
        .store(Replicas::Quorum),
    row(
        "swap-wires",
        "compare and swap: loss, delay beyond the lease, copies, broken connections",
        SWAP_WIRES,
    )
    .wires(Wires::Bad)
    .store(Replicas::Swapped),
    row("swap-restart", "compare and swap: the store restarts, with older data too", SWAP_RESTART)
        .store(Replicas::Swapped),
    row("swap-mixture", "compare and swap: everything at once", SWAP_MIXTURE)
        .store(Replicas::Swapped),
    row(
        "observed-wires",
        "compare and swap without a clock: loss, delay, copies, broken connections",
        SWAP_WIRES,
    )
    .wires(Wires::Bad)
    .store(Replicas::Observed),
    row(
        "observed-mixture",
        "compare and swap without a clock: everything at once",
        OBSERVED_MIXTURE,
    )
    .store(Replicas::Observed),
    row(
        "quorum-exposed",
        "quorum: a clock of a minority jumps while a renewal has not reached the others",
        &[
            (Fault::ExposedNode(NodeFault::ClockForward), 6),
            (Fault::ExposedNode(NodeFault::Delete), 3),
            (Fault::Slow, 3),
            (Fault::Pause, 4),
            (Fault::Crash, 2),
            (Fault::Resign, 1),
        ],
    )
    .wires(Wires::Bad)
    .store(Replicas::Quorum)
    .without(&[Promise::P1]),
    row(
        "quorum-majority",
        "quorum: clocks of a majority jump, its keys are deleted",
        &[
            (Fault::AnyNode(NodeFault::ClockForward), 4),
            (Fault::AnyNode(NodeFault::Delete), 2),
            (Fault::Pause, 1),
        ],
    )
    .wires(Wires::Good)
    .store(Replicas::Quorum)
    .without(&[Promise::P1]),
    row(
        "ticks-lossy",
        "jobs on a store that restarts with older data or fails over behind",
        &[
            (Fault::RestartOld, 2),
            (Fault::RestartTail, 3),
            (Fault::Failover, 3),
            (Fault::Crash, 2),
            (Fault::Pause, 1),
        ],
    )
    .store(Replicas::Lagging)
    .runners()
    .without(&[Promise::P7]),
    row(
        "ticks-back",
        "jobs on a store whose clock goes back: periods come again",
        &[(Fault::ServerClockBack, 3), (Fault::Crash, 2), (Fault::Pause, 1)],
    )
    .runners()
    .without(&[Promise::P7]),
    row(
        "isolated-primary",
        "the old primary goes on serving some",
        &[(Fault::IsolatedPrimary, 3), (Fault::Pause, 1), (Fault::Crash, 1)],
    )
    .wires(Wires::Good)
    .store(Replicas::Lagging)
    .without(&[Promise::P1, Promise::P2]),
    row(
        "server-clock",
        "the store's clock steps forward",
        &[(Fault::ServerClockForward, 3), (Fault::Pause, 1), (Fault::CutOff, 1)],
    )
    .wires(Wires::Good)
    .without(&[Promise::P1]),
    row(
        "flush-newcomer",
        "FLUSHALL, and somebody comes who never saw a token",
        &[(Fault::FlushForNewcomer, 2), (Fault::Pause, 2)],
    )
    .wires(Wires::Good)
    .without(&[Promise::P1]),
    row("vm-pause", "a host is frozen with its clock", &[(Fault::VmPause, 4), (Fault::Break, 1)])
        .wires(Wires::Good)
        .without(&[Promise::P1]),
];
