//! Commands of replication. What they ask for is decided by the driver's machine; the session is
//! held back until it has answered.

use std::time::Duration;

use store_replica::{Address, FailoverPhase, FailoverRequest};

use crate::commands::describe_client;
use crate::commands::prelude::*;
use crate::config::is_host;
use crate::context::Caller;
use crate::effects::ServerRequest;
use crate::replication::{Asker, ReplicationRequest, replica_info, role};
use crate::sentinel;
use crate::session::{TimeoutReply, session_flag};

pub(crate) const TABLE: &[Command] = &[
    Command::new("failover", AtLeast(1), ADMIN | NO_SCRIPT | STALE, failover)
        .docs(Group::Server, "6.2.0", "O(1)", "Hands the role of master to a replica.")
        .arguments(
            "?target#b=TO(host#s port#i ?force#t=FORCE) ?abort#t=ABORT \
             ?milliseconds#i=TIMEOUT",
        ),
    Command::new("psync", AtLeast(3), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING | NO_MULTI, psync)
        .docs(Group::Server, "2.8.0", "", "Turns the connection into a replication link.")
        .arguments("replicationid#s offset#i"),
    Command::new(
        "replconf",
        AtLeast(1),
        ADMIN | NO_SCRIPT | LOADING | STALE | ALLOW_BUSY | SYSTEM,
        replconf,
    )
    .docs(Group::Server, "3.0.0", "O(1)", "What replicas tell their master."),
    Command::new("replicaof", Exactly(3), ADMIN | NO_SCRIPT | STALE | NO_ASYNC_LOADING, replicaof)
        .docs(Group::Server, "5.0.0", "O(1)", "Makes the server a replica or a master.")
        .arguments("args#o(host-port#b(host#s port#i) no-one#b(no#t=NO one#t=ONE))"),
    Command::new(
        "role",
        Exactly(1),
        NO_SCRIPT | LOADING | STALE | FAST | SENTINEL | TELLS_OFFSET,
        role,
    )
    .categories(category::ADMIN | category::DANGEROUS)
    .docs(Group::Server, "2.8.12", "O(1)", "Whether the server is master or replica."),
    Command::new("slaveof", Exactly(3), ADMIN | NO_SCRIPT | STALE | NO_ASYNC_LOADING, replicaof)
        .docs(Group::Server, "1.0.0", "O(1)", "Makes the server a replica or a master.")
        .arguments("args#o(host-port#b(host#s port#i) no-one#b(no#t=NO one#t=ONE))")
        .deprecated("5.0.0", "`REPLICAOF`"),
    Command::new("sync", Exactly(1), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING | NO_MULTI, sync).docs(
        Group::Server,
        "1.0.0",
        "",
        "Turns the connection into a replication link.",
    ),
    Command::new("wait", Exactly(3), NO_SCRIPT, wait)
        .categories(category::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .docs(Group::Generic, "3.0.0", "O(1)", "Waits until replicas have confirmed writes.")
        .arguments("numreplicas#i timeout#i"),
];

fn role(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if cx.server.identity.is_sentinel {
        return sentinel::role(cx, request);
    }
    if let Some(link) = cx.server.replication.link.clone() {
        replica_info::reply_role(cx, &link);
        return Ok(());
    }
    cx.reply.array(3);
    cx.reply.bulk(b"master");
    let facts = &cx.server.replication;
    cx.reply.integer(facts.offset() as i64);
    cx.reply.array(facts.replicas.iter().filter(|it| it.is_past_transfer()).count());
    for replica in facts.replicas.iter().filter(|it| it.is_past_transfer()) {
        cx.reply.array(3);
        cx.reply.bulk(replica.ip.as_bytes());
        cx.reply.bulk(replica.port.to_string().as_bytes());
        cx.reply.bulk(replica.acked.to_string().as_bytes());
    }
    Ok(())
}

fn replicaof(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.refuse_in_cluster("ERR REPLICAOF not allowed in cluster mode.")?;
    if cx.server.replication.failover != FailoverPhase::None {
        return Err(CommandError::text("ERR REPLICAOF not allowed while failing over."));
    }
    let primary = match is_word(request.arg(1), "NO") && is_word(request.arg(2), "ONE") {
        true => None,
        false if cx.session.has(session_flag::REPLICA) => {
            return Err(CommandError::text("ERR Command is not valid when client is a replica."));
        }
        false => Some(primary_address(request)?),
    };
    if primary == cx.server.config.settings().replica.primary {
        let text =
            if primary.is_some() { "OK Already connected to specified master" } else { "OK" };
        cx.reply.simple(text);
        if primary.is_some() {
            // It may have been left alone for a while.
            ask(cx, ReplicationRequest::Follow(primary, Asker::WentOn));
        }
        return Ok(());
    }
    let told = primary.as_ref().map(|it| (it.host.as_str(), it.port));
    // CONFIG REWRITE may follow in the same transaction; the rest is done behind the request.
    role::set_primary(cx.server, told);
    let by = describe_client(cx.server, cx.session, cx.db.now_ms());
    let line = match told {
        Some((host, port)) => format!("REPLICAOF {host}:{port} enabled (user request from '{by}')"),
        None => format!("MASTER MODE enabled (user request from '{by}')"),
    };
    cx.server.effects.requests.push(ServerRequest::Log(line));
    let asker = asker(cx);
    ask(cx, ReplicationRequest::Follow(primary, asker));
    cx.reply.ok();
    match asker {
        Asker::WentOn => Ok(()),
        // What it asks for next finds the new role.
        Asker::Waits => cx.wait_for_driver(request),
    }
}

fn primary_address(request: Request<'_>) -> Result<Address, CommandError> {
    let port = integer_within(request.arg(2), 0, 65_535)
        .map_err(|_| CommandError::text("ERR Invalid master port"))?;
    let host = String::from_utf8(request.arg(1).to_vec()).ok();
    let host = host.filter(|host| is_host(host));
    let host = host.ok_or(CommandError::text("ERR Invalid master host"))?;
    Ok(Address { host, port: port as u16 })
}

fn replconf(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    hold(cx, request, ReplicationRequest::Replconf(request.to_owned()))
}

fn psync(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    check_no_output(cx)?;
    hold(cx, request, ReplicationRequest::Psync(request.to_owned()))
}

fn sync(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    check_no_output(cx)?;
    hold(cx, request, ReplicationRequest::Sync)
}

/// What was not sent yet would be taken for a part of the answer.
fn check_no_output(cx: &Context<'_>) -> CommandResult {
    match cx.reply.unread() == 0 || cx.session.has(session_flag::REPLICA) {
        true => Ok(()),
        false => Err(CommandError::text("ERR SYNC and PSYNC are invalid with pending output")),
    }
}

/// Holds the session back until the driver's machine has answered.
pub(crate) fn hold(
    cx: &mut Context<'_>,
    request: Request<'_>,
    asked: ReplicationRequest,
) -> CommandResult {
    if matches!(cx.caller, Caller::Transaction | Caller::Script) {
        let name = cx.server.registry.row(cx.row).full_name.to_uppercase();
        return Err(CommandError::new(format!("ERR {name} isn't allowed in a transaction")));
    }
    ask(cx, asked);
    cx.wait_for_driver(request)
}

fn asker(cx: &Context<'_>) -> Asker {
    match cx.caller {
        Caller::Transaction | Caller::Script => Asker::WentOn,
        _ => Asker::Waits,
    }
}

/// In a transaction it is answered by what was last told of replication, and begins behind EXEC.
fn failover(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.refuse_in_cluster(
        "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.",
    )?;
    let asker = asker(cx);
    let (checked, asked) = match request.len() == 2 && is_word(request.arg(1), "ABORT") {
        true => {
            let checked = cx.server.replication.check_abort();
            (checked, ReplicationRequest::AbortFailover(asker))
        }
        false => {
            let asked = failover_options(request)?;
            let checked = cx.server.replication.check_failover(&asked);
            (checked, ReplicationRequest::Failover(asked, asker))
        }
    };
    if asker == Asker::Waits {
        return hold(cx, request, asked);
    }
    checked.map_err(|error| CommandError::new(format!("ERR {error}")))?;
    ask(cx, asked);
    cx.reply.ok();
    Ok(())
}

fn failover_options(request: Request<'_>) -> Result<FailoverRequest, CommandError> {
    let mut asked = FailoverRequest::default();
    let mut at = 1;
    while let Some(word) = request.get(at) {
        let left = request.len() - at - 1;
        at += match () {
            () if is_word(word, "TIMEOUT") && left >= 1 && asked.timeout.is_none() => {
                let timeout = u64::try_from(integer(request.arg(at + 1))?).ok();
                let timeout = timeout
                    .filter(|ms| *ms > 0)
                    .ok_or(CommandError::text("ERR FAILOVER timeout must be greater than 0"))?;
                asked.timeout = Some(Duration::from_millis(timeout));
                2
            }
            () if is_word(word, "TO") && left >= 2 && asked.to.is_none() => {
                let port = integer(request.arg(at + 2))?;
                let host = String::from_utf8_lossy(request.arg(at + 1)).into_owned();
                // Nobody follows from a port that there is not.
                let port = u16::try_from(port).unwrap_or(0);
                asked.to = Some(Address { host, port });
                3
            }
            () if is_word(word, "FORCE") && !asked.is_forced => {
                asked.is_forced = true;
                1
            }
            () => return Err(CommandError::SYNTAX),
        };
    }
    Ok(asked)
}

/// As Redis says it: clients know this text.
const WAIT_ON_REPLICA: &str = "ERR WAIT cannot be used with replica instances. Please also note \
                               that since Redis 4.0 if a replica is configured to be writable \
                               (which is not the default) writes to replicas are just local and \
                               are not propagated.";

fn wait(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if cx.server.replication.link.is_some() {
        return Err(CommandError::text(WAIT_ON_REPLICA));
    }
    let count = integer(request.arg(1))?;
    let not_integer = CommandError::text("ERR timeout is not an integer or out of range");
    let timeout = store_resp::parse_integer(request.arg(2)).ok_or(not_integer)?;
    if timeout < 0 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    let have = cx.server.replication.count_acks(cx.session.wrote_at);
    let count = usize::try_from(count).unwrap_or(0);
    if matches!(cx.caller, Caller::Transaction | Caller::Script) || have >= count {
        cx.reply.count(have);
        return Ok(());
    }
    cx.server.replication.waits_begun += 1;
    let wait = cx.server.replication.waits_begun;
    ask(cx, ReplicationRequest::Wait { count, wait });
    cx.block(request, std::iter::empty(), timeout as u64, TimeoutReply::Replicas(wait))
}

fn ask(cx: &mut Context<'_>, request: ReplicationRequest) {
    let id = cx.session.id;
    cx.server.effects.requests.push(ServerRequest::Replication(id, request));
}
