//! What replication says in the log. Scripts around Redis wait for these lines, so the words are
//! those of Redis.

use store_engine::{Engine, LogLevel, SessionId};
use store_replica::{
    Address, CloseReason, Event, FAILED_WRITES_MAX, FailoverEvent, LinkFault, ReplicaState, Role,
};

use super::ReplicationDriver;
use super::link_log::link_words;

/// The lines for an event, if it is worth any.
pub(crate) fn words(
    driver: &ReplicationDriver,
    engine: &Engine,
    event: &Event,
) -> Vec<(LogLevel, String)> {
    let notice = |line: String| (LogLevel::Notice, line);
    match event {
        Event::TakesOver { session, id } => {
            let session = driver.session(*session).and_then(|id| engine.describe_session(id));
            let by = session.unwrap_or_default();
            vec![
                notice(format!("Failover request received for replid {}.", id.as_str())),
                notice(format!("MASTER MODE enabled (failover request from '{by}')")),
            ]
        }
        Event::FullSync { session, had: 1.., .. } if engine.key_count() == 0 => {
            let lines = primary_words(driver, event).into_iter();
            lines.chain([empty_words(&name_of(driver, *session))]).collect()
        }
        Event::LinkStopped(LinkFault::FailedWrite) => vec![stopped_words(driver, engine)],
        Event::Failover { to, event } => vec![notice(failover_words(to.as_ref(), *event))],
        _ => primary_words(driver, event).into_iter().collect(),
    }
}

/// A server that came back without its data makes its replicas forget theirs.
fn empty_words(replica: &str) -> (LogLevel, String) {
    let line = format!(
        "!!! This server has no keys, and replica {replica}, which has data of another history, is \
         about to copy that. If this server lost its data, end it now, and make the replica the \
         master (REPLICAOF NO ONE there) !!!"
    );
    (LogLevel::Warning, line)
}

/// A write of the primary fails whatever data it sends before.
fn stopped_words(driver: &ReplicationDriver, engine: &Engine) -> (LogLevel, String) {
    let line = format!(
        "Writes of MASTER have failed here {FAILED_WRITES_MAX} times, each soon after all of its \
         data, and no data is asked for any more; this replica serves what it has. Let clients of \
         the master do without the command that is named above, then {}",
        follow_again(driver, engine)
    );
    (LogLevel::Warning, line)
}

/// What to do for a primary that is left alone.
pub(crate) fn follow_again(driver: &ReplicationDriver, engine: &Engine) -> String {
    match driver.machine.role() {
        Role::Replica(_) if engine.cluster_role().is_some() => {
            "run CLUSTER REPLICATE with the name of that master here".to_owned()
        }
        Role::Replica(primary) => format!("run REPLICAOF {} {} here", primary.host, primary.port),
        Role::Primary => "run REPLICAOF here".to_owned(),
    }
}

fn failover_words(to: Option<&Address>, event: FailoverEvent) -> String {
    let target = to.map_or_else(|| "any replica".to_owned(), Address::to_string);
    let aborted = |reason: &str| format!("FAILOVER to {target} aborted: {reason}");
    match event {
        FailoverEvent::Requested => format!("FAILOVER requested to {target}."),
        FailoverEvent::Started => format!("Failover target {target} is synced, failing over."),
        FailoverEvent::Forced => format!("FAILOVER to {target} time out exceeded, failing over."),
        FailoverEvent::Done => format!("FAILOVER to {target} is done."),
        FailoverEvent::TimedOut => aborted("Replica never caught up before timeout"),
        FailoverEvent::Aborted => aborted("Failover manually aborted"),
        FailoverEvent::Rejected => aborted("Failover target rejected psync request"),
        FailoverEvent::TargetLost => aborted("the target is not connected any more"),
        FailoverEvent::Unreached => aborted("the target did not answer before timeout"),
    }
}

fn primary_words(driver: &ReplicationDriver, event: &Event) -> Option<(LogLevel, String)> {
    let name = |session: &store_replica::SessionId| name_of(driver, *session);
    let notice = |line: String| Some((LogLevel::Notice, line));
    match event {
        Event::PartialSync { session, bytes } => {
            let from = driver.machine.history().offset() - bytes + 1;
            notice(format!(
                "Partial resynchronization request from {} accepted. Sending {bytes} bytes of \
                 backlog starting from offset {from}.",
                name(session)
            ))
        }
        Event::FullSync { session, was_refused: false, .. } => notice(format!(
            "Replica {0} asks for synchronization. Full resync requested by replica {0}",
            name(session)
        )),
        Event::FullSync { session, was_refused: true, .. } => notice(format!(
            "Replica {0} asks for synchronization. Unable to partial resync with replica {0} for \
             lack of backlog",
            name(session)
        )),
        Event::ReplicaOnline(session) => {
            notice(format!("Synchronization with replica {} succeeded", name(session)))
        }
        Event::AckBeyondEnd(session) => Some((
            LogLevel::Warning,
            format!("Replica {} confirms more than there is; ignored", name(session)),
        )),
        _ => link_words(event),
    }
}

fn name_of(driver: &ReplicationDriver, session: store_replica::SessionId) -> String {
    let replica = driver.machine.replicas().iter().find(|it| it.session() == session);
    match replica.map(|replica| replica.address()) {
        Some(address) if address.port != 0 => address.to_string(),
        Some(address) => format!("{}:<unknown-replica-port>", address.host),
        None => format!("client id #{}", session.0),
    }
}

/// Why a replica is closed.
pub(crate) fn closing_words(
    engine: &Engine,
    id: SessionId,
    reason: CloseReason,
) -> Option<(LogLevel, String)> {
    let told = engine.state().replication.replicas.iter().find(|it| it.session == id);
    let name = told.map_or_else(
        || format!("client id #{}", id.number),
        |replica| format!("{}:{}", replica.ip, replica.port),
    );
    // As in Redis, one that has yet to confirm its payload counts among those that follow.
    let has_payload = |state| matches!(state, ReplicaState::AwaitAck | ReplicaState::Online);
    let follows = told.is_some_and(|replica| has_payload(replica.state));
    let stage = if follows { "streaming sync" } else { "full sync" };
    let line = match reason {
        CloseReason::Silent => format!("Disconnecting timedout replica ({stage}): {name}"),
        CloseReason::OutputLimit => format!(
            "Replica {name} scheduled to be closed ASAP for overcoming of output buffer limits: \
             see client-output-buffer-limit replica and repl-backlog-size."
        ),
        CloseReason::SnapshotFailed => {
            format!("SYNC failed. The snapshot for replica {name} could not be made")
        }
        CloseReason::HistoryChanged | CloseReason::DataReplaced => {
            return Some((LogLevel::Notice, format!("Replica {name} is to synchronize again")));
        }
        CloseReason::PayloadOnly => return None,
    };
    Some((LogLevel::Warning, line))
}
