//! SLOWLOG: requests that took long.

use store_resp::OwnedRequest;

use crate::commands::prelude::*;
use crate::commands::secrets;
use crate::registry::RowId;
use crate::session::SessionId;
use crate::slow_log::{SlowRequest, shortened};
use crate::state::ServerState;

pub(crate) const TABLE: &[Command] = &[Command::container("slowlog", SLOWLOG_SUBCOMMANDS).docs(
    Group::Server,
    "2.2.12",
    "O(1)",
    "Requests that took long.",
)];

const SLOWLOG_SUBCOMMANDS: &[Command] = &[
    Command::new("get", AtLeast(2), ADMIN | LOADING | STALE, slowlog_get)
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .docs(Group::Server, "2.2.12", "O(N)", "The latest requests that took long.")
        .arguments("?count#i")
        .history(&[("4.0.0", "Tells address and name of the client.")]),
    Command::new("help", Exactly(2), LOADING | STALE, slowlog_help).docs(
        Group::Server,
        "6.2.0",
        "O(1)",
        "What the subcommands do.",
    ),
    Command::new("len", Exactly(2), ADMIN | LOADING | STALE, slowlog_len)
        .tips(&["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"])
        .docs(Group::Server, "2.2.12", "O(1)", "How many requests that took long are kept."),
    Command::new("reset", Exactly(2), ADMIN | LOADING | STALE, slowlog_reset)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Server, "2.2.12", "O(N)", "Forgets the requests that took long."),
];

fn slowlog_get(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let wanted = match request.len() {
        2 => 10,
        3 => {
            let text = "ERR count should be greater than or equal to -1";
            let count = integer(request.arg(2));
            let count = count.ok().filter(|count| *count >= -1).ok_or(CommandError::text(text))?;
            usize::try_from(count).unwrap_or(usize::MAX)
        }
        _ => return Err(crate::commands::help::wrong_arguments("SLOWLOG", request)),
    };
    let (log, reply) = (&cx.server.slow_log, &mut cx.reply);
    reply.array(wanted.min(log.len()));
    for entry in log.iter().take(wanted) {
        reply.array(6);
        reply.integer(entry.id as i64);
        reply.integer(entry.at_s as i64);
        reply.integer(entry.micros as i64);
        reply.array(entry.args.len());
        entry.args.iter().for_each(|arg| reply.bulk(arg));
        reply.bulk(entry.client.as_bytes());
        reply.bulk(&entry.name);
    }
    Ok(())
}

fn slowlog_len(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.count(cx.server.slow_log.len());
    Ok(())
}

fn slowlog_reset(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.server.slow_log.clear();
    cx.reply.ok();
    Ok(())
}

/// A request that took as long as the slow log or the latency monitor wants to know.
pub(crate) struct Slow<'a> {
    /// Unix microseconds.
    pub(crate) at_us: u64,
    pub(crate) micros: u64,
    pub(crate) row: RowId,
    pub(crate) request: Request<'a>,
    /// It waited for a key; the time is that of serving it.
    pub(crate) waited: bool,
}

/// Notes a slow request of a client with this address and name.
#[cold]
pub(crate) fn note_slow(server: &mut ServerState, slow: Slow<'_>, (address, name): (&str, &[u8])) {
    let command = server.registry.row(slow.row).command;
    let at_s = slow.at_us / 1_000_000;
    let event = match slow.waited {
        true => "command-unblocking",
        false if command.has(FAST) => "fast-command",
        false => "command",
    };
    note_latency(server, event, at_s, slow.micros);
    let threshold_us = server.config.settings().logs.slow_over_us;
    let len_max = server.config.settings().logs.slow_len_max;
    let is_slow = u64::try_from(threshold_us).is_ok_and(|threshold| slow.micros >= threshold);
    // EXEC is not noted: what was slow inside of it is.
    if !is_slow || command.has(SKIP_SLOWLOG) {
        return;
    }
    let secrets = secrets::of(command, slow.request);
    let entry = SlowRequest {
        id: 0,
        at_s,
        micros: slow.micros,
        args: shortened(slow.request, &secrets),
        client: address.to_owned(),
        name: name.to_vec(),
    };
    server.slow_log.add(entry, len_max);
}

/// Notes a request whose wait is ended by another: as in Redis, nothing is left of its arguments.
pub(crate) fn note_unblocked(cx: &mut Context<'_>, id: SessionId, row: RowId) {
    let Some(session) = cx.server.sessions.get(id) else { return };
    let (address, name) = (session.origin.address.clone(), session.name.clone());
    let nothing = OwnedRequest::from_args([]);
    let (at_us, request) = (cx.db.now_us(), nothing.as_request());
    let slow = Slow { at_us, micros: 0, row, request, waited: true };
    note_slow(cx.server, slow, (&address, &name));
}

/// Notes an event that took as long as the latency monitor wants to know.
pub(crate) fn note_latency(server: &mut ServerState, event: &'static str, at_s: u64, micros: u64) {
    let threshold_ms = server.config.settings().logs.latency_over_ms;
    if threshold_ms > 0 && micros / 1000 >= threshold_ms {
        server.latency.add(event, at_s, micros / 1000);
    }
}

fn slowlog_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    crate::commands::help::reply(
        cx,
        "SLOWLOG",
        &[
            ("GET [<count>]", "The latest requests that took long; 10 unless told, -1 for all."),
            ("LEN", "How many are kept."),
            ("RESET", "Forget them."),
        ],
    );
    Ok(())
}
