//! Lists of faults that several cases share, each with how often it is drawn.

use crate::fault::Fault;
use crate::nodes::NodeFault;

pub(crate) const PEOPLE: &[(Fault, u32)] = &[
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

/// Operators pause and resume while all goes on that ends terms, or would.
pub(crate) const PAUSED: &[(Fault, u32)] = &[
    (Fault::OperatorPauseWatched, 6),
    (Fault::OperatorResume, 3),
    (Fault::HandOver, 6),
    (Fault::AskToHandOver, 5),
    (Fault::Resign, 3),
    (Fault::AskToResign, 2),
    (Fault::Crash, 3),
    (Fault::Stop, 1),
    (Fault::RestartKept, 1),
    (Fault::Pause, 1),
    (Fault::Starve, 1),
    (Fault::CutOff, 1),
    (Fault::Break, 1),
    (Fault::Unready, 1),
    (Fault::Ready, 2),
];

/// The same where several nodes decide, of which a minority is away and keeps what it has.
pub(crate) const QUORUM_PAUSED: &[(Fault, u32)] = &[
    (Fault::OperatorPauseWatched, 6),
    (Fault::OperatorResume, 3),
    (Fault::HandOver, 6),
    (Fault::AskToHandOver, 5),
    (Fault::Resign, 3),
    (Fault::AskToResign, 2),
    (Fault::Crash, 3),
    (Fault::Stop, 1),
    (Fault::Node(NodeFault::Crash), 1),
    (Fault::Node(NodeFault::Cut), 1),
    (Fault::Pause, 1),
    (Fault::CutOff, 1),
    (Fault::Break, 1),
];

pub(crate) const MIXTURE: &[(Fault, u32)] = &[
    (Fault::Pause, 5),
    (Fault::Starve, 3),
    (Fault::Astray, 2),
    (Fault::RestartOld, 1),
    (Fault::Suspend, 3),
    (Fault::Crash, 3),
    (Fault::Stop, 3),
    (Fault::Break, 5),
    (Fault::CutOff, 4),
    (Fault::CutReplies, 4),
    (Fault::Slow, 4),
    (Fault::Deaf, 2),
    (Fault::ForgedHint, 4),
    (Fault::HintStorm, 1),
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
pub(crate) const STRICT_MIXTURE: &[(Fault, u32)] = &{
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
pub(crate) const NODES: &[(Fault, u32)] = &[
    (Fault::Node(NodeFault::Crash), 3),
    (Fault::Node(NodeFault::RestartEmpty), 4),
    (Fault::Node(NodeFault::RestartOld), 4),
    (Fault::Node(NodeFault::Pause), 3),
    (Fault::Node(NodeFault::ReadOnly), 2),
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

pub(crate) const QUORUM_MIXTURE: &[(Fault, u32)] = &[
    (Fault::Starve, 3),
    (Fault::Node(NodeFault::Crash), 2),
    (Fault::Node(NodeFault::RestartEmpty), 3),
    (Fault::Node(NodeFault::RestartOld), 3),
    (Fault::Node(NodeFault::Pause), 2),
    (Fault::Node(NodeFault::ReadOnly), 2),
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
    (Fault::HintStorm, 1),
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

/// Compare and swap: what happens on the way.
pub(crate) const SWAP_WIRES: &[(Fault, u32)] = &[
    (Fault::Break, 3),
    (Fault::CutOff, 3),
    (Fault::CutReplies, 4),
    (Fault::Slow, 6),
    (Fault::Resign, 1),
];

/// Compare and swap: a fail-over, a restored backup, an empty store.
pub(crate) const SWAP_RESTART: &[(Fault, u32)] = &[
    (Fault::RestartOld, 3),
    (Fault::RestartKept, 1),
    (Fault::RestartEmpty, 1),
    (Fault::Pause, 2),
    (Fault::Crash, 2),
    (Fault::CutOff, 3),
    (Fault::Resign, 1),
];

/// Compare and swap: everything that can happen to processes, wires and the store.
pub(crate) const SWAP_MIXTURE: &[(Fault, u32)] = &[
    (Fault::RestartOld, 1),
    (Fault::RestartKept, 1),
    (Fault::ServerPause, 1),
    (Fault::ClockRate, 2),
    (Fault::Suspend, 1),
    (Fault::Pause, 3),
    (Fault::Crash, 3),
    (Fault::Stop, 1),
    (Fault::Break, 2),
    (Fault::CutOff, 2),
    (Fault::CutReplies, 2),
    (Fault::Slow, 2),
    (Fault::Resign, 2),
    (Fault::HandOver, 2),
];

/// The same where nobody asks the store for the time: its clock may do anything.
pub(crate) const OBSERVED_MIXTURE: &[(Fault, u32)] = &[
    (Fault::RestartKept, 1),
    (Fault::ServerPause, 1),
    (Fault::ServerClockForward, 2),
    (Fault::ServerClockBack, 1),
    (Fault::ClockRate, 2),
    (Fault::Suspend, 1),
    (Fault::Pause, 3),
    (Fault::Crash, 2),
    (Fault::Stop, 1),
    (Fault::Break, 1),
    (Fault::CutOff, 2),
    (Fault::CutReplies, 2),
    (Fault::Slow, 2),
    (Fault::Resign, 2),
    (Fault::HandOver, 1),
];
