//! Telling what happened to keys, in the order in which it happened: events to those who listen to
//! their channels, changes to those who keep the keys.
//!
//! ```text
//! Keyspace ► Effects::notifications ► tell_notifications ► others at once
//!                                      ► the session that runs: events beside its reply,
//!                                        changes after it
//! ```
//! Only a session that listens needs to know where its reply stands, so only for such a one
//! notifications are told after every command. For all others they are told after the request, or
//! earlier where a script or transaction causes many.

use store_resp::{Output, Protocol};

use crate::commands::prelude::*;
use crate::context::Caller;
use crate::effects::ServerRequest;
use crate::keyspace::Keyspace;
use crate::keyspace::changes::{KeyEvent, Notification};
use crate::pubsub::Frame;
use crate::pubsub::commands::{deliver, each_channel};
use crate::session::{SessionId, session_flag};
use crate::state::ServerState;
use crate::tracking::commands::watch_changes;
use crate::tracking::{ChangeOrigin, MessageSubject, RunningSession};

/// Tells everybody what happened. `own` is the session that runs, unless it is in the table of
/// sessions.
pub(crate) fn tell_notifications(
    db: &mut Keyspace,
    server: &mut ServerState,
    running: Option<SessionId>,
    mut own: Option<RunningSession<'_>>,
) {
    let mask = db.changes.event_mask;
    let limit = server.config.settings().clients.output_limits.pubsub;
    for notifications in db.changes.notifications.take() {
        let (key, cause, by_script) = match notifications {
            Notification::Event(_) if server.pubsub.is_empty() => continue,
            Notification::Event(event) => {
                each_channel(&event, mask, |channel, text| {
                    deliver(server, channel, text, &mut |frame| {
                        if let Some(own) = &mut own {
                            let bytes = frame_bytes(frame, own.protocol);
                            (own.hear)(MessageSubject::Event(&event), bytes);
                        }
                    });
                });
                continue;
            }
            Notification::Changed { key, by_script } => (key, running, by_script),
            Notification::Lost(key) => (Some(key), None, false),
        };
        let outputs = (&mut server.sessions, &mut server.effects, limit);
        let origin = ChangeOrigin { running, cause, by_script };
        server.tracking.tell_change(key, origin, outputs, own.as_mut());
    }
    server.effects.has_untold = server.tracking.has_untold();
    watch_changes(db, server);
}

/// Tells the session that ran of the keys it kept.
pub(crate) fn tell_untold(server: &mut ServerState) {
    server.effects.has_untold = false;
    let limit = server.config.settings().clients.output_limits.pubsub;
    let (sessions, effects) = (&mut server.sessions, &mut server.effects);
    server.tracking.tell_untold(sessions, effects, limit);
}

/// Tells what happened so far; messages for the session that runs stand before what it writes from
/// now on.
pub(crate) fn tell_own(cx: &mut Context<'_>) {
    if cx.db.changes.notifications.is_empty() {
        return;
    }
    let mut heard = Vec::new();
    let (id, protocol) = (cx.session.id, client_protocol(cx));
    let is_subscribed = cx.session.has(session_flag::SUBSCRIBED);
    let hear = &mut |_: MessageSubject<'_>, bytes: Vec<u8>| heard.extend(bytes);
    tell_notifications(
        cx.db,
        cx.server,
        Some(id),
        Some(RunningSession { id, protocol, is_subscribed, hear }),
    );
    hear_bytes(cx, &heard);
}

/// The same, for a session that would hear of it behind its reply otherwise.
pub(crate) fn tell_before_reply_if_listening(cx: &mut Context<'_>) {
    if cx.session.has(session_flag::SUBSCRIBED | session_flag::HEARS_FOR_OTHERS) {
        tell_own(cx);
    }
}

/// After a command of a session that listens: what it caused stands before its reply, which begins
/// at `reply_start`, or behind it, as in Redis.
#[cold]
pub(crate) fn tell_beside_reply(cx: &mut Context<'_>, request: Request<'_>, reply_start: usize) {
    let command = cx.server.registry.row(cx.row).command;
    let (mut before, mut behind, mut heard) = (Vec::new(), Vec::new(), Vec::new());
    let (id, protocol) = (cx.session.id, client_protocol(cx));
    let is_subscribed = cx.session.has(session_flag::SUBSCRIBED);
    let hear = &mut |about: MessageSubject<'_>, bytes: Vec<u8>| match about {
        MessageSubject::Event(event) => heard.push((event.clone(), bytes)),
        MessageSubject::Change(key) => heard.push((event_of_change(key), bytes)),
    };
    tell_notifications(
        cx.db,
        cx.server,
        Some(id),
        Some(RunningSession { id, protocol, is_subscribed, hear }),
    );
    let is_aside = is_aside(cx);
    for (mut event, bytes) in heard {
        if event.name == CHANGE && cx.db.look(&event.key).is_none() {
            event.name = "del";
        }
        let is_behind = command.told_behind.is_some_and(|it| it(request, &event)) && !is_aside;
        if is_behind { &mut behind } else { &mut before }.extend(bytes);
    }
    if !may_hear(cx, before.len() + behind.len()) {
        return;
    }
    cx.session.aside.extend(before);
    if !is_aside {
        let before = std::mem::take(&mut cx.session.aside);
        cx.reply.insert_at(reply_start, &before);
        cx.reply.raw(&behind);
    }
}

/// Trackers hear of a change where listeners hear of its event.
fn event_of_change(key: Option<&[u8]>) -> KeyEvent {
    let key = key.unwrap_or_default().into();
    KeyEvent { db: 0, class: event_class::GENERIC, name: CHANGE, key }
}

/// No event has this name.
const CHANGE: &str = "";

/// The reply stands behind what looking for keys causes and behind the making of a key, and before
/// the rest.
pub(crate) fn most(_: Request<'_>, event: &KeyEvent) -> bool {
    event.class & (event_class::EXPIRED | event_class::KEY_MISS | event_class::NEW) == 0
}

/// The reply stands behind what looking for keys causes, and before the rest.
pub(crate) fn changes(_: Request<'_>, event: &KeyEvent) -> bool {
    event.class & (event_class::EXPIRED | event_class::KEY_MISS) == 0
}

/// An element is given before the reply and taken behind it.
pub(crate) fn taking(request: Request<'_>, event: &KeyEvent) -> bool {
    let (source, target) = (request.arg(1), request.arg(2));
    match event.name {
        CHANGE => source != target && *event.key == *source,
        name => matches!(name, "lpop" | "rpop" | "del"),
    }
}

/// A message for the session that runs.
pub(crate) fn hear(cx: &mut Context<'_>, frame: &Frame) {
    hear_bytes(cx, &frame_bytes(frame, client_protocol(cx)));
}

/// Messages for the session that runs, as they are sent.
pub(crate) fn hear_bytes(cx: &mut Context<'_>, bytes: &[u8]) {
    match is_aside(cx) {
        _ if !may_hear(cx, bytes.len()) => {}
        true => cx.session.aside.extend_from_slice(bytes),
        false => cx.reply.raw(bytes),
    }
}

/// Whether the session that runs may hear so many bytes more. It reads nothing before its request
/// is over, so at the limit of those who listen it is closed, as [`tell`](crate::pubsub::tell)
/// does with others: scripts cause any number of messages.
fn may_hear(cx: &mut Context<'_>, len: usize) -> bool {
    if cx.session.has(session_flag::OVERRUN) {
        return false;
    }
    let limit = cx.server.config.settings().clients.output_limits.pubsub;
    let unread = cx.session.aside.len() + cx.reply.unread() + len;
    if len == 0 || limit.hard == 0 || unread <= limit.hard {
        return true;
    }
    cx.session.aside = Vec::new();
    cx.session.flags |= session_flag::CLOSING | session_flag::OVERRUN;
    cx.server.effects.requests.push(ServerRequest::Close(cx.session.id));
    false
}

/// What was written from `begun_at` on is a message, which CLIENT REPLY does not silence.
pub(crate) fn set_aside_if_mute(cx: &mut Context<'_>, begun_at: usize) {
    if is_aside(cx) {
        let message = cx.reply.as_bytes()[begun_at..].to_vec();
        cx.reply.truncate(begun_at);
        hear_bytes(cx, &message);
    }
}

/// Whether what is written now is no part of what the client reads.
fn is_aside(cx: &Context<'_>) -> bool {
    cx.caller == Caller::Script
        || cx.session.has(session_flag::REPLY_OFF | session_flag::REPLY_SKIP)
}

/// The protocol of the session itself: that of a script which runs may be another.
fn client_protocol(cx: &Context<'_>) -> Protocol {
    let running = cx.server.scripting.running.as_ref();
    running.map_or(cx.session.protocol, |running| running.protocol)
}

fn frame_bytes(frame: &Frame, protocol: Protocol) -> Vec<u8> {
    let mut output = Output::default();
    frame.write_to(&mut output, protocol);
    output.to_vec()
}
