//! CLIENT LIST and INFO: connections in words.

use std::fmt::Write;

use store_resp::Output;

use super::super::prelude::*;
use crate::pubsub::TopicKind;
use crate::session::{RequestSize, Session, session_flag};
use crate::state::ServerState;
use crate::tracking::TrackingMode;

/// What kind of client a session is, as filters and output limits tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientType {
    Normal,
    PubSub,
    Replica,
    /// The link to a primary.
    Primary,
}

impl ClientType {
    pub(super) fn of(session: &Session) -> Self {
        match session.flags {
            flags if flags & session_flag::PRIMARY_LINK != 0 => Self::Primary,
            flags if flags & session_flag::REPLICA != 0 => Self::Replica,
            flags if flags & session_flag::SUBSCRIBED != 0 => Self::PubSub,
            _ => Self::Normal,
        }
    }

    pub(super) fn parse(word: &[u8]) -> Result<Self, CommandError> {
        let known = [
            ("normal", Self::Normal),
            ("pubsub", Self::PubSub),
            ("slave", Self::Replica),
            ("replica", Self::Replica),
            ("master", Self::Primary),
        ];
        let found = known.iter().find(|(name, _)| is_word(word, name));
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let name = String::from_utf8_lossy(word);
            CommandError::new(format!("ERR Unknown client type '{name}'"))
        })
    }
}

/// What the running session holds beside itself: its output is with the reply, and its request
/// with the driver.
struct RunningSession<'a> {
    output: &'a Output,
    request: Request<'a>,
}

/// One line of CLIENT LIST, without its end.
pub(crate) fn describe_client(server: &ServerState, session: &Session, now_ms: u64) -> String {
    describe(server, session, None, now_ms)
}

fn describe(
    server: &ServerState,
    session: &Session,
    running: Option<RunningSession<'_>>,
    now_ms: u64,
) -> String {
    let output = running.as_ref().map_or(&session.output, |running| running.output);
    let request = running.as_ref().map(|running| RequestSize::of(running.request));
    let arguments = request.map_or_else(|| held_arguments(session), |size| size.arguments);
    let (nodes, node_bytes) = output.queued();
    let seconds_since = |at_ms: u64| now_ms.saturating_sub(at_ms) / 1000;
    let held = |kind| session.subscriptions.as_ref().map_or(0, |held| held.of(kind).len());
    let queued = session.transaction.as_ref().map_or(-1, |held| held.queued.len() as i64);
    let queued_bytes = session.transaction.as_ref().map_or(0, |held| held.argument_bytes);
    let command = session.last_command.map_or("NULL", |row| &server.registry.row(row).full_name);
    let redirect = match &session.tracking {
        Some(tracking) => tracking.redirect.map_or(0, |id| id.number as i64),
        None => -1,
    };
    // A request that runs counts as not read yet; one that a pause holds back, as read.
    let unread = session.query_bytes + request.map_or(0, |size| size.wire);
    let query = unread.saturating_sub(session.postponed.map_or(0, |size| size.wire));
    let query_free = session.query_capacity.saturating_sub(session.query_bytes);
    let is_running = running.is_some();
    let own_output = if is_running { output.memory() } else { 0 };
    let total = session.memory() + own_output + arguments;
    let mut line = String::new();
    let written = write!(
        line,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} \
         ssub={} multi={queued} qbuf={query} qbuf-free={query_free} argv-mem={arguments} multi-mem={queued_bytes} rbs={} \
         rbp={} obl={} oll={nodes} omem={node_bytes} tot-mem={total} events={} cmd={command} user={} \
         redir={redirect} resp={}",
        session.id.number,
        session.origin.address,
        session.origin.local_address,
        session.origin.descriptor,
        String::from_utf8_lossy(&session.name),
        seconds_since(session.opened_at_ms),
        seconds_since(session.asked_at_ms),
        flags(session),
        session.db,
        held(TopicKind::Channel),
        held(TopicKind::Pattern),
        held(TopicKind::Shard),
        output.capacity(),
        output.capacity(),
        output.buffered(),
        if output.is_empty() { "r" } else { "rw" },
        String::from_utf8_lossy(&session.user),
        if session.protocol == store_resp::Protocol::Resp3 { 3 } else { 2 },
    );
    written.expect("writing to a string cannot fail");
    line
}

/// Bytes of the arguments of a request that waits for a key or for the end of a pause.
fn held_arguments(session: &Session) -> usize {
    let asked = session.blocked.as_ref().map(|held| held.asked.as_ref().unwrap_or(&held.request));
    let blocked = asked.map(|request| RequestSize::of(request.as_request()));
    blocked.or(session.postponed).map_or(0, |size| size.arguments)
}

fn flags(session: &Session) -> String {
    let tracking = session.tracking.as_deref();
    let broadcasts = tracking.is_some_and(|held| held.mode == TrackingMode::Broadcast);
    let letters = [
        (session.has(session_flag::REPLICA), 'S'),
        (session.has(session_flag::PRIMARY_LINK), 'M'),
        (session.has(session_flag::MONITOR), 'O'),
        (session.has(session_flag::SUBSCRIBED), 'P'),
        (session.has(session_flag::IN_MULTI), 'x'),
        (session.has(session_flag::BLOCKED), 'b'),
        (tracking.is_some(), 't'),
        (tracking.is_some_and(|held| held.redirect_is_broken), 'R'),
        (broadcasts, 'B'),
        (session.has(session_flag::WATCH_BROKEN), 'd'),
        (session.has(session_flag::CLOSING), 'c'),
        (session.origin.is_unix, 'U'),
        (session.has(session_flag::READS_REPLICA), 'r'),
        (session.has(session_flag::NO_EVICT), 'e'),
    ];
    let set: String =
        letters.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter).collect();
    if set.is_empty() { "N".to_owned() } else { set }
}

pub(super) fn client_info(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let running = RunningSession { output: cx.reply.output(), request };
    let line = describe(cx.server, cx.session, Some(running), cx.db.now_ms()) + "\n";
    cx.reply.verbatim("txt", line.as_bytes());
    Ok(())
}

pub(super) fn client_list(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let mut kind = None;
    let mut numbers: Option<Vec<i64>> = None;
    match request.len() {
        2 => {}
        4 if is_word(request.arg(2), "TYPE") => kind = Some(ClientType::parse(request.arg(3))?),
        4.. if is_word(request.arg(2), "ID") => {
            let number =
                |arg| integer(arg).map_err(|_| CommandError::text("ERR Invalid client ID"));
            numbers = Some(request.args_from(3).map(number).collect::<Result<_, _>>()?);
        }
        _ => return Err(CommandError::SYNTAX),
    }
    let mut sessions = all_sessions(cx);
    sessions.retain(|session| kind.is_none_or(|kind| ClientType::of(session) == kind));
    if let Some(numbers) = numbers {
        let found = |number: &i64| {
            sessions.iter().copied().find(|session| session.id.number as i64 == *number)
        };
        sessions = numbers.iter().filter_map(found).collect();
    }
    let now_ms = cx.db.now_ms();
    let mut text = String::new();
    for session in sessions {
        let running = (session.id == cx.session.id)
            .then(|| RunningSession { output: cx.reply.output(), request });
        text.push_str(&describe(cx.server, session, running, now_ms));
        text.push('\n');
    }
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// All sessions that are not about to be closed, oldest first, the running one among them.
fn all_sessions<'c>(cx: &'c Context<'_>) -> Vec<&'c Session> {
    let others = cx.server.sessions.iter();
    let others = others.filter(|session| !session.has(session_flag::CLOSING));
    let mut sessions: Vec<&Session> = others.chain([&*cx.session]).collect();
    sessions.sort_unstable_by_key(|session| session.id.number);
    sessions
}
