//! OBJECT: how a value is kept.

use super::prelude::*;
use crate::keyspace::{Entry, ValueRef};
use crate::state::ServerState;

pub(super) const TABLE: &[Command] = &[Command::container("object", OBJECT_SUBCOMMANDS).docs(
    Group::Generic,
    "2.2.3",
    "O(1)",
    "How a value is kept.",
)];

const OBJECT_SUBCOMMANDS: &[Command] = &[
    Command::new("encoding", Exactly(3), READ, object_encoding)
        .keys(&[KeySpec::one(2, RO)])
        .categories(category::KEYSPACE)
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.2.3", "O(1)", "The form in which a value is kept.")
        .arguments("key#k@0"),
    Command::new("freq", Exactly(3), READ, object_freq)
        .keys(&[KeySpec::one(2, RO)])
        .categories(category::KEYSPACE)
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "4.0.0", "O(1)", "The logarithmic access counter of a key.")
        .arguments("key#k@0"),
    Command::new("help", Exactly(2), LOADING | STALE, object_help)
        .categories(category::KEYSPACE)
        .docs(Group::Generic, "6.2.0", "O(1)", "What the subcommands do."),
    Command::new("idletime", Exactly(3), READ, object_idletime)
        .keys(&[KeySpec::one(2, RO)])
        .categories(category::KEYSPACE)
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.2.3", "O(1)", "Seconds since a key was last used.")
        .arguments("key#k@0"),
    Command::new("refcount", Exactly(3), READ, object_refcount)
        .keys(&[KeySpec::one(2, RO)])
        .categories(category::KEYSPACE)
        .tips(&["nondeterministic_output"])
        .docs(Group::Generic, "2.2.3", "O(1)", "How many places share a value.")
        .arguments("key#k@0"),
];

/// Longest string that Redis keeps in one piece with its header.
const EMBEDDED_MAX: usize = 44;
/// What the reference count of an integer that Redis shares looks like, and the first that is
/// not shared.
const SHARED_COUNT: i64 = i32::MAX as i64;
const SHARED_INTEGERS: i64 = 10_000;

/// The name that OBJECT ENCODING tells.
pub(super) fn encoding_name(entry: &Entry) -> &'static str {
    match entry.value() {
        ValueRef::Integer(_) => "int",
        ValueRef::Bytes(bytes) if bytes.len() <= EMBEDDED_MAX && !entry.is_edited() => "embstr",
        ValueRef::Bytes(_) => "raw",
        ValueRef::Object(value) => value.encoding_name(),
    }
}

fn object_encoding(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    match cx.db.inspect(request.arg(2)) {
        Some(entry) => cx.reply.bulk(encoding_name(entry).as_bytes()),
        None => cx.reply.null(),
    }
    Ok(())
}

fn object_refcount(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    match cx.db.inspect(request.arg(2)) {
        Some(entry) => cx.reply.integer(reference_count(cx.server, entry)),
        None => cx.reply.null(),
    }
    Ok(())
}

/// What Redis would tell: it shares small numbers, unless each needs access bits of its own. We
/// share nothing, so the policy of today counts, not that of when the value was set.
pub(super) fn reference_count(server: &ServerState, entry: &Entry) -> i64 {
    let has_limit = server.config.settings().memory.max > 0;
    let shares = !(has_limit && server.eviction.orders_by_access());
    match entry.value() {
        ValueRef::Integer(0..SHARED_INTEGERS) if shares => SHARED_COUNT,
        _ => 1,
    }
}

fn object_idletime(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (policy, now_ms) = (cx.db.access_policy(), cx.db.now_ms());
    let Some(entry) = cx.db.inspect(request.arg(2)) else {
        cx.reply.null();
        return Ok(());
    };
    if policy.is_lfu {
        return Err(CommandError::text(
            "ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that \
             when switching between policies at runtime LRU and LFU data will take some time to \
             adjust.",
        ));
    }
    cx.reply.integer(policy.idle_seconds(entry.access(), now_ms) as i64);
    Ok(())
}

fn object_freq(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (policy, now_ms) = (cx.db.access_policy(), cx.db.now_ms());
    let Some(entry) = cx.db.inspect(request.arg(2)) else {
        cx.reply.null();
        return Ok(());
    };
    if !policy.is_lfu {
        return Err(CommandError::text(
            "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
             note that when switching between policies at runtime LRU and LFU data will take \
             some time to adjust.",
        ));
    }
    cx.reply.integer(i64::from(policy.counter(entry.access(), now_ms)));
    Ok(())
}

fn object_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    super::help::reply(
        cx,
        "OBJECT",
        &[
            ("ENCODING <key>", "How the value is kept."),
            ("FREQ <key>", "Its access counter under an LFU policy."),
            ("IDLETIME <key>", "Seconds since it was last used."),
            ("REFCOUNT <key>", "How many places share it."),
        ],
    );
    Ok(())
}
