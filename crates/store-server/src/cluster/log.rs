//! What the log says. Where tools look for words of Redis, they find them.

use store_cluster::{Cluster, Event};
use store_engine::LogLevel;

const LOST_MASTER: &str = "Manual failover ended: the connection to the master was lost, and its \
                           clients may write again. Ask for it again.";

/// A line about something that happened.
pub(crate) fn words(machine: &Cluster, now_ms: u64, event: &Event) -> (LogLevel, String) {
    let line = match event {
        Event::StateChanged { is_ok } => {
            let state = if *is_ok { "ok" } else { "fail" };
            return (LogLevel::Warning, format!("Cluster state changed: {state}"));
        }
        Event::Suspected(id) => {
            return (LogLevel::Debug, format!("*** NODE {id} possibly failing"));
        }
        Event::Failed { id, is_own_finding: true } => {
            format!("Marking node {id} as failing (quorum reached).")
        }
        Event::Failed { id, is_own_finding: false } => {
            format!("Marking node {id} as failing: another node said so.")
        }
        Event::Recovered(id) => format!("Node {id} can be reached again."),
        Event::ElectionPlanned { starts_at, rank } => {
            let (delay, offset) = (starts_at.saturating_sub(now_ms), machine.data().offset);
            format!(
                "Start of election delayed for {delay} milliseconds (rank #{rank}, offset \
                 {offset})."
            )
        }
        Event::ElectionStarted { epoch, is_manual: false, .. } => {
            format!("Starting a failover election for epoch {epoch}.")
        }
        Event::ElectionStarted { epoch, is_manual: true, .. } => {
            format!("Starting a failover election for epoch {epoch}, as an operator asked.")
        }
        Event::DataTooOld { age: Some(age) } => format!(
            "Currently unable to failover: the master was last heard {age} milliseconds ago, which \
             is longer than cluster-replica-validity-factor allows."
        ),
        Event::DataTooOld { age: None } => {
            "Currently unable to failover: this replica was never in step with its master."
                .to_owned()
        }
        Event::ElectionWon { epoch, quorum } => format!(
            "Failover election won: I'm the new master. configEpoch set to {epoch} after \
             successful failover, {quorum} votes were needed."
        ),
        Event::Voted { candidate, epoch } => {
            format!("Failover auth granted to {candidate} for epoch {epoch}")
        }
        Event::VoteRefused { candidate, reason } => {
            format!("Failover auth denied to {candidate}: {reason}")
        }
        Event::EpochTaken(epoch) => format!("configEpoch set to {epoch} without a vote."),
        Event::EpochRefused { .. } | Event::NoEpochLeft => return words_on_epochs(event),
        Event::Migrating { to } => {
            format!("Migrating to orphaned master {to}: it has no replica that works.")
        }
        Event::ManualFailoverTimedOut => "Manual failover timed out.".to_owned(),
        Event::ManualFailoverLostMaster => LOST_MASTER.to_owned(),
        Event::AddressReused(id) => format!(
            "Another node answers at the address of {id}: it is not dialled any more until it \
             tells where it is."
        ),
        Event::OutdatedKeys { slots, owner } => format!(
            "Node {owner} has the slots {slots:?}, which this node gave away: keys of them that \
             came back with the restart go."
        ),
        Event::LastSlotLost { taker } => {
            format!("The last slot of this shard went to {taker}: this node follows it now.")
        }
    };
    (LogLevel::Notice, line)
}

/// Epochs that are used up, or would be: without a failover nobody else notices.
fn words_on_epochs(event: &Event) -> (LogLevel, String) {
    let line = match event {
        Event::EpochRefused { id, peer, epoch } => format!(
            "Packets of node {id} at {peer} are dropped: its epoch {epoch} leaves no room for \
             later failovers. Stop that node, restore its nodes.conf from a copy or remove it, and \
             let the node join the cluster anew"
        ),
        _ => "No epoch is left, so that there is no failover and no change of slots. Stop all \
              nodes, lower all epochs in their nodes.conf by the same number, and start them again"
            .to_owned(),
    };
    (LogLevel::Warning, line)
}
