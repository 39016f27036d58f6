//! Channels: whoever listens gets what is published meanwhile.

use store_cluster::Publication;
use store_types::glob;

use crate::command::Channels;
use crate::commands::prelude::*;
use crate::context::Caller;
use crate::gate;
use crate::keyspace::changes::KeyEvent;
use crate::notifications;
use crate::pubsub::{Frame, SUBSCRIPTIONS_MAX, TopicKind, tell};
use crate::sentinel;
use crate::session::SessionId;
use crate::state::ServerState;

const LISTENS: u32 = PUBSUB | NO_SCRIPT | LOADING | STALE | ALLOW_SUBSCRIBED;
/// What sentinels have, too: they publish their events.
const LISTENS_ANYWHERE: u32 = LISTENS | SENTINEL;

pub(crate) const TABLE: &[Command] = &[
    Command::new("psubscribe", AtLeast(2), LISTENS_ANYWHERE, psubscribe)
        .channels(Channels::Patterns)
        .docs(Group::PubSub, "2.0.0", "O(N)", "Listens to channels that match patterns.")
        .arguments("*pattern#b(pattern#p)"),
    Command::new(
        "publish",
        Exactly(3),
        PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE | SENTINEL,
        publish,
    )
    .channels(Channels::First)
    .docs(Group::PubSub, "2.0.0", "O(N+M)", "Sends a message to all who listen to a channel.")
    .arguments("channel#s message#s"),
    Command::container("pubsub", PUBSUB_SUBCOMMANDS).docs(
        Group::PubSub,
        "2.8.0",
        "O(1)",
        "Who listens to what.",
    ),
    Command::new("punsubscribe", AtLeast(1), LISTENS_ANYWHERE, punsubscribe)
        .docs(Group::PubSub, "2.0.0", "O(N+M)", "Stops listening to patterns.")
        .arguments("?*pattern#p"),
    Command::new("spublish", Exactly(3), PUBSUB | LOADING | STALE | FAST | MAY_REPLICATE, spublish)
        .channels(Channels::First)
        .keys(&[KeySpec::one(1, NOT_KEY)])
        .docs(
            Group::PubSub,
            "7.0.0",
            "O(N)",
            "Sends a message to all who listen to a shard channel.",
        )
        .arguments("shardchannel#s message#s"),
    Command::new("ssubscribe", AtLeast(2), LISTENS, ssubscribe)
        .channels(Channels::All)
        .keys(&[KeySpec::all(1, NOT_KEY)])
        .docs(Group::PubSub, "7.0.0", "O(N)", "Listens to shard channels.")
        .arguments("*shardchannel#s"),
    Command::new("subscribe", AtLeast(2), LISTENS_ANYWHERE, subscribe)
        .channels(Channels::All)
        .docs(Group::PubSub, "2.0.0", "O(N)", "Listens to channels.")
        .arguments("*channel#s"),
    Command::new("sunsubscribe", AtLeast(1), LISTENS, sunsubscribe)
        .keys(&[KeySpec::all(1, NOT_KEY)])
        .docs(Group::PubSub, "7.0.0", "O(N)", "Stops listening to shard channels.")
        .arguments("?*shardchannel#s"),
    Command::new("unsubscribe", AtLeast(1), LISTENS_ANYWHERE, unsubscribe)
        .docs(Group::PubSub, "2.0.0", "O(N)", "Stops listening to channels.")
        .arguments("?*channel#s"),
];

const PUBSUB_SUBCOMMANDS: &[Command] = &[
    Command::new("channels", AtLeast(2), PUBSUB | LOADING | STALE, pubsub_channels)
        .docs(Group::PubSub, "2.8.0", "O(N)", "The channels that somebody listens to.")
        .arguments("?pattern#p"),
    Command::new("help", Exactly(2), LOADING | STALE, pubsub_help).docs(
        Group::PubSub,
        "6.2.0",
        "O(1)",
        "What the subcommands do.",
    ),
    Command::new("numpat", Exactly(2), PUBSUB | LOADING | STALE, pubsub_numpat).docs(
        Group::PubSub,
        "2.8.0",
        "O(1)",
        "How many patterns somebody listens to.",
    ),
    Command::new("numsub", AtLeast(2), PUBSUB | LOADING | STALE, pubsub_numsub)
        .docs(Group::PubSub, "2.8.0", "O(N)", "How many listen to channels.")
        .arguments("?*channel#s"),
    Command::new("shardchannels", AtLeast(2), PUBSUB | LOADING | STALE, pubsub_shardchannels)
        .docs(Group::PubSub, "7.0.0", "O(N)", "The shard channels that somebody listens to.")
        .arguments("?pattern#p"),
    Command::new("shardnumsub", AtLeast(2), PUBSUB | LOADING | STALE, pubsub_shardnumsub)
        .docs(Group::PubSub, "7.0.0", "O(N)", "How many listen to shard channels.")
        .arguments("?*shardchannel#s"),
];

fn subscribe(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    begin_listening(cx, request, TopicKind::Channel)
}

fn psubscribe(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    begin_listening(cx, request, TopicKind::Pattern)
}

fn ssubscribe(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    begin_listening(cx, request, TopicKind::Shard)
}

fn unsubscribe(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    stop_listening(cx, request, TopicKind::Channel)
}

fn punsubscribe(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    stop_listening(cx, request, TopicKind::Pattern)
}

fn sunsubscribe(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    stop_listening(cx, request, TopicKind::Shard)
}

fn begin_listening(cx: &mut Context<'_>, request: Request<'_>, kind: TopicKind) -> CommandResult {
    let word = match kind {
        TopicKind::Channel => "subscribe",
        TopicKind::Pattern => "psubscribe",
        TopicKind::Shard => "ssubscribe",
    };
    if kind == TopicKind::Shard && matches!(cx.caller, Caller::Transaction | Caller::Script) {
        let text = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client";
        return Err(CommandError::text(text));
    }
    for topic in request.args_from(1) {
        let held = cx.session.subscriptions.as_ref().map_or(0, |held| held.count());
        if held >= SUBSCRIPTIONS_MAX {
            return Err(CommandError::text("ERR this connection listens to too many channels"));
        }
        cx.server.pubsub.subscribe(cx.session, kind, topic);
        confirm(cx, word, Some(topic), kind);
    }
    Ok(())
}

fn stop_listening(cx: &mut Context<'_>, request: Request<'_>, kind: TopicKind) -> CommandResult {
    let word = match kind {
        TopicKind::Channel => "unsubscribe",
        TopicKind::Pattern => "punsubscribe",
        TopicKind::Shard => "sunsubscribe",
    };
    if request.len() > 1 {
        for topic in request.args_from(1) {
            cx.server.pubsub.unsubscribe(cx.session, kind, topic);
            confirm(cx, word, Some(topic), kind);
        }
        return Ok(());
    }
    let held: Vec<Box<[u8]>> = match &cx.session.subscriptions {
        Some(held) => held.of(kind).iter().cloned().collect(),
        None => Vec::new(),
    };
    for topic in &held {
        cx.server.pubsub.unsubscribe(cx.session, kind, topic);
        confirm(cx, word, Some(topic), kind);
    }
    if held.is_empty() {
        confirm(cx, word, None, kind);
    }
    Ok(())
}

/// Each topic is answered by a message of its own, with what the session then listens to.
fn confirm(cx: &mut Context<'_>, word: &str, topic: Option<&[u8]>, kind: TopicKind) {
    let held = |kinds: &[TopicKind]| {
        let held = cx.session.subscriptions.as_ref();
        held.map_or(0, |held| kinds.iter().map(|kind| held.of(*kind).len()).sum())
    };
    let count = match kind {
        TopicKind::Shard => held(&[TopicKind::Shard]),
        TopicKind::Channel | TopicKind::Pattern => held(&[TopicKind::Channel, TopicKind::Pattern]),
    };
    let begun_at = cx.reply.len();
    cx.reply.push(3);
    cx.reply.bulk(word.as_bytes());
    cx.reply.bulk_or_null(topic);
    cx.reply.count(count);
    notifications::set_aside_if_mute(cx, begun_at);
}

fn publish(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if cx.server.identity.is_sentinel {
        return sentinel::publish(cx, request);
    }
    let count = publish_from(cx, request.arg(1), request.arg(2));
    propagate(cx, request, false);
    cx.reply.count(count);
    Ok(())
}

/// Publishes on behalf of the running session; its own copy stands before its reply.
fn publish_from(cx: &mut Context<'_>, channel: &[u8], text: &[u8]) -> usize {
    // What happened before is told before.
    notifications::tell_own(cx);
    let mut own = Vec::new();
    let count = deliver(cx.server, channel, text, &mut |frame| own.push(Frame::clone(frame)));
    own.iter().for_each(|frame| notifications::hear(cx, frame));
    count
}

/// Sends to all who listen; those that are not in the table of sessions, which is the one that
/// runs, are handed to `own`.
pub(crate) fn deliver(
    server: &mut ServerState,
    channel: &[u8],
    text: &[u8],
    own: &mut dyn FnMut(&Frame),
) -> usize {
    let limit = server.config.settings().clients.output_limits.pubsub;
    let (sessions, effects) = (&mut server.sessions, &mut server.effects);
    server.pubsub.publish(channel, text, |id, frame| {
        if sessions.get(id).is_none() {
            return own(frame);
        }
        tell(sessions, effects, limit, id, |output, protocol| frame.write_to(output, protocol));
    })
}

fn spublish(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    notifications::tell_own(cx);
    let (me, mut own) = (cx.session.id, None);
    let (channel, text) = (request.arg(1), request.arg(2));
    let mut hear = |frame: &Frame| own = Some(Frame::clone(frame));
    let count = deliver_to_shard(cx.server, channel, text, Some(me), &mut hear);
    own.iter().for_each(|frame| notifications::hear(cx, frame));
    propagate(cx, request, true);
    cx.reply.count(count);
    Ok(())
}

/// A message goes to the other nodes of a cluster, or else to replicas.
fn propagate(cx: &mut Context<'_>, request: Request<'_>, is_sharded: bool) {
    let Some(cluster) = &mut cx.server.cluster else { return gate::propagate_message(cx, request) };
    let (channel, message) = (request.arg(1).into(), request.arg(2).into());
    cluster.machine.publish(cluster.now, Publication { channel, message, is_sharded });
}

/// Sends to all who listen to a shard channel, but for the session that runs: its copy is handed to
/// `own`.
pub(crate) fn deliver_to_shard(
    server: &mut ServerState,
    channel: &[u8],
    text: &[u8],
    me: Option<SessionId>,
    own: &mut dyn FnMut(&Frame),
) -> usize {
    let limit = server.config.settings().clients.output_limits.pubsub;
    let (sessions, effects) = (&mut server.sessions, &mut server.effects);
    server.pubsub.publish_to_shard(channel, text, |id, frame| {
        if Some(id) == me {
            return own(frame);
        }
        tell(sessions, effects, limit, id, |output, protocol| frame.write_to(output, protocol));
    })
}

/// Calls `publish` with each channel that the setting wants told of an event, and the text.
pub(crate) fn each_channel(event: &KeyEvent, mask: u32, mut publish: impl FnMut(&[u8], &[u8])) {
    if mask & event_class::KEYSPACE != 0 {
        let mut channel = format!("__keyspace@{}__:", event.db).into_bytes();
        channel.extend_from_slice(&event.key);
        publish(&channel, event.name.as_bytes());
    }
    if mask & event_class::KEYEVENT != 0 {
        let channel = format!("__keyevent@{}__:{}", event.db, event.name);
        publish(channel.as_bytes(), &event.key);
    }
}

fn pubsub_channels(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    list_topics(cx, request, TopicKind::Channel)
}

fn pubsub_shardchannels(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    list_topics(cx, request, TopicKind::Shard)
}

fn list_topics(cx: &mut Context<'_>, request: Request<'_>, kind: TopicKind) -> CommandResult {
    let pattern = match request.len() {
        2 => None,
        3 => Some(request.arg(2)),
        _ => return Err(crate::commands::help::wrong_arguments("PUBSUB", request)),
    };
    let begun = cx.reply.begin();
    let mut count = 0;
    for topic in cx.server.pubsub.topics(kind) {
        if pattern.is_none_or(|pattern| glob::matches(pattern, topic, glob::Case::Sensitive)) {
            cx.reply.bulk(topic);
            count += 1;
        }
    }
    cx.reply.end_array(begun, count);
    Ok(())
}

fn pubsub_numsub(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    count_listeners(cx, request, TopicKind::Channel)
}

fn pubsub_shardnumsub(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    count_listeners(cx, request, TopicKind::Shard)
}

fn count_listeners(cx: &mut Context<'_>, request: Request<'_>, kind: TopicKind) -> CommandResult {
    cx.reply.array(2 * (request.len() - 2));
    for topic in request.args_from(2) {
        cx.reply.bulk(topic);
        cx.reply.count(cx.server.pubsub.listeners(kind, topic));
    }
    Ok(())
}

fn pubsub_numpat(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.count(cx.server.pubsub.topics(TopicKind::Pattern).len());
    Ok(())
}

fn pubsub_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    crate::commands::help::reply(
        cx,
        "PUBSUB",
        &[
            ("CHANNELS [<pattern>]", "The channels that somebody listens to."),
            ("NUMPAT", "How many patterns somebody listens to."),
            ("NUMSUB [<channel> ...]", "How many listen to each channel."),
            ("SHARDCHANNELS [<pattern>]", "The shard channels that somebody listens to."),
            ("SHARDNUMSUB [<shardchannel> ...]", "How many listen to each shard channel."),
        ],
    );
    Ok(())
}
