//! MONITOR: every request as it runs.

use store_resp::ReplyWriter;

use super::prelude::*;
use super::secrets;
use crate::context::Caller;
use crate::notifications;
use crate::pubsub::tell;
use crate::session::session_flag;
use crate::state::{ServerState, server_gate};

pub(super) const TABLE: &[Command] = &[Command::new(
    "monitor",
    Exactly(1),
    ADMIN | NO_SCRIPT | LOADING | STALE,
    monitor,
)
.docs(Group::Server, "1.0.0", "", "Shows every request as it runs.")];

fn monitor(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    if matches!(cx.caller, Caller::Transaction | Caller::Script) {
        return Err(CommandError::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    if cx.session.has(session_flag::MONITOR) {
        // Redis says nothing to one who looks on already.
        return Ok(());
    }
    cx.session.flags |= session_flag::MONITOR;
    cx.server.monitors.insert(cx.session.id);
    cx.server.gates |= server_gate::MONITORED;
    cx.reply.ok();
    Ok(())
}

/// The session shows no more.
pub(super) fn leave_monitor(server: &mut ServerState, session: &mut crate::session::Session) {
    session.flags &= !session_flag::MONITOR;
    server.monitors.remove(&session.id);
    if server.monitors.is_empty() {
        server.gates &= !server_gate::MONITORED;
    }
}

/// Shows a request that ran to all who watch.
pub(crate) fn show_to_monitors(cx: &mut Context<'_>, request: Request<'_>) {
    if !cx.server.registry.row(cx.row).command.has(SKIP_MONITOR | ADMIN) {
        show_request(cx, request);
    }
}

/// Shows a request of any kind to all who watch.
pub(crate) fn show_request(cx: &mut Context<'_>, request: Request<'_>) {
    let line = line(cx, request);
    let limit = cx.server.config.settings().clients.output_limits.pubsub;
    let (sessions, effects) = (&mut cx.server.sessions, &mut cx.server.effects);
    for id in &cx.server.monitors {
        tell(sessions, effects, limit, *id, |output, _| output.extend_from_slice(&line));
    }
    // One that says QUIT hears no more.
    if cx.server.monitors.contains(&cx.session.id) && !cx.session.has(session_flag::CLOSING) {
        notifications::hear_bytes(cx, &line);
    }
}

fn line(cx: &Context<'_>, request: Request<'_>) -> Vec<u8> {
    let now_us = cx.db.now_us();
    let origin = &cx.session.origin;
    let source = match cx.caller {
        Caller::Script => "lua".to_owned(),
        _ if origin.is_unix => format!("unix:{}", origin.address.trim_end_matches(":0")),
        _ => origin.address.clone(),
    };
    let mut text =
        format!("{}.{:06} [{} {source}]", now_us / 1_000_000, now_us % 1_000_000, cx.session.db)
            .into_bytes();
    let secrets = secrets::of(cx.server.registry.row(cx.row).command, request);
    for (at, arg) in request.args_from(0).enumerate() {
        text.push(b' ');
        push_quoted(&mut text, if secrets.contains(&at) { b"(redacted)" } else { arg });
    }
    let mut writer = ReplyWriter::default();
    writer.simple(&String::from_utf8_lossy(&text));
    writer.into_bytes()
}

/// Bytes in quotes, everything that is not plain text escaped.
pub(super) fn push_quoted(text: &mut Vec<u8>, bytes: &[u8]) {
    text.push(b'"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => text.extend_from_slice(&[b'\\', *byte]),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'\t' => text.extend_from_slice(b"\\t"),
            0x07 => text.extend_from_slice(b"\\a"),
            0x08 => text.extend_from_slice(b"\\b"),
            b' '..=b'~' => text.push(*byte),
            _ => text.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    text.push(b'"');
}
