//! CLIENT TRACKING: a session hears when keys that it keeps change.

use crate::command::flag;
use crate::commands::prelude::*;
use crate::context::Caller;
use crate::key_finder;
use crate::keyspace::Keyspace;
use crate::notifications::tell_own;
use crate::session::{Session, SessionId, session_flag};
use crate::state::ServerState;
use crate::tracking::{Tracking, TrackingMode};

/// Prefixes that one session may name.
const PREFIXES_MAX: usize = 10_000;

/// The options of CLIENT TRACKING.
#[derive(Default)]
struct TrackingOptions {
    redirect: Option<SessionId>,
    broadcast: bool,
    opt_in: bool,
    opt_out: bool,
    no_loop: bool,
    prefixes: Vec<Vec<u8>>,
}

pub(crate) fn client_tracking(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let options = parse(cx, request)?;
    if is_word(request.arg(2), "ON") {
        let tracking = combine(cx, options)?;
        if let Some(session) = tracking.redirect.and_then(|id| cx.server.sessions.get_mut(id)) {
            session.flags |= session_flag::HEARS_FOR_OTHERS;
        }
        if !cx.session.has(session_flag::TRACKING) {
            // What happened before, in the same transaction perhaps, is not for it.
            tell_own(cx);
            cx.server.tracking.forget_untold();
            cx.server.effects.has_untold = false;
        }
        cx.server.tracking.enable(cx.session, tracking);
        cx.db.changes.tracking = true;
    } else if is_word(request.arg(2), "OFF") {
        leave_tracking(cx.db, cx.server, cx.session);
    } else {
        return Err(CommandError::SYNTAX);
    }
    cx.reply.ok();
    Ok(())
}

/// The session tracks no more. Keys it has read stay known, should it track again.
pub(crate) fn leave_tracking(db: &mut Keyspace, server: &mut ServerState, session: &mut Session) {
    server.tracking.disable(session);
    watch_changes(db, server);
}

/// Changes are recorded as long as somebody may have to hear of them.
pub(crate) fn watch_changes(db: &mut Keyspace, server: &ServerState) {
    let tracking = &server.tracking;
    db.changes.tracking = tracking.session_count() > 0 || tracking.key_count() > 0;
}

fn parse(cx: &Context<'_>, request: Request<'_>) -> Result<TrackingOptions, CommandError> {
    let mut options = TrackingOptions::default();
    let mut at = 3;
    while let Some(word) = request.get(at) {
        let value = request.get(at + 1);
        match value {
            Some(value) if is_word(word, "REDIRECT") => {
                if options.redirect.is_some() {
                    let text = "ERR A client can only redirect to a single other client";
                    return Err(CommandError::text(text));
                }
                options.redirect = Some(session_of(cx, integer(value)?)?);
                at += 1;
            }
            Some(value) if is_word(word, "PREFIX") => {
                if options.prefixes.len() >= PREFIXES_MAX {
                    return Err(CommandError::text("ERR too many prefixes"));
                }
                options.prefixes.push(value.to_vec());
                at += 1;
            }
            _ if is_word(word, "BCAST") => options.broadcast = true,
            _ if is_word(word, "OPTIN") => options.opt_in = true,
            _ if is_word(word, "OPTOUT") => options.opt_out = true,
            _ if is_word(word, "NOLOOP") => options.no_loop = true,
            _ => return Err(CommandError::SYNTAX),
        }
        at += 1;
    }
    Ok(options)
}

fn session_of(cx: &Context<'_>, number: i64) -> Result<SessionId, CommandError> {
    let number = u64::try_from(number).unwrap_or(0);
    if number == cx.session.id.number {
        return Ok(cx.session.id);
    }
    let text = "ERR The client ID you want redirect to does not exist";
    let found = cx.server.sessions.find(number).map(|session| session.id);
    found.ok_or(CommandError::text(text))
}

/// What the session tracks from now on. Fails where options do not go together, or not with
/// how it tracks already.
fn combine(cx: &Context<'_>, options: TrackingOptions) -> Result<Tracking, CommandError> {
    let refuse = |text: &'static str| Err(CommandError::text(text));
    let before = cx.session.tracking.as_deref();
    let mode_before = before.map(|tracking| tracking.mode);
    if !options.broadcast && !options.prefixes.is_empty() {
        return refuse("ERR PREFIX option requires BCAST mode to be enabled");
    }
    if mode_before.is_some_and(|mode| (mode == TrackingMode::Broadcast) != options.broadcast) {
        return refuse(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        );
    }
    if options.broadcast && (options.opt_in || options.opt_out) {
        return refuse("ERR OPTIN and OPTOUT are not compatible with BCAST");
    }
    if options.opt_in && options.opt_out {
        return refuse("ERR You can't specify both OPTIN mode and OPTOUT mode");
    }
    if options.opt_in && mode_before == Some(TrackingMode::OptOut)
        || options.opt_out && mode_before == Some(TrackingMode::OptIn)
    {
        return refuse(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, \
             and then re-enabling it with a different mode.",
        );
    }
    let mode = match &options {
        TrackingOptions { broadcast: true, .. } => TrackingMode::Broadcast,
        TrackingOptions { opt_in: true, .. } => TrackingMode::OptIn,
        TrackingOptions { opt_out: true, .. } => TrackingMode::OptOut,
        _ => TrackingMode::All,
    };
    let held = before.map_or(&[][..], |tracking| &tracking.prefixes);
    let prefixes = combine_prefixes(held, options.prefixes, options.broadcast)?;
    Ok(Tracking {
        mode,
        no_loop: options.no_loop,
        redirect: options.redirect,
        redirect_is_broken: false,
        caching: before.is_some_and(|tracking| tracking.caching),
        prefix_bytes: Tracking::prefix_bytes(&prefixes),
        prefixes,
    })
}

fn combine_prefixes(
    held: &[Vec<u8>],
    wanted: Vec<Vec<u8>>,
    broadcast: bool,
) -> Result<Vec<Vec<u8>>, CommandError> {
    let overlap = |a: &[u8], b: &[u8]| a.starts_with(b) || b.starts_with(a);
    let refuse = |prefix: &[u8], kind: &str, other: &[u8]| {
        let (prefix, other) = (String::from_utf8_lossy(prefix), String::from_utf8_lossy(other));
        CommandError::new(format!(
            "ERR Prefix '{prefix}' overlaps with {kind} prefix '{other}'. Prefixes for a single \
             client must not overlap."
        ))
    };
    for (at, prefix) in wanted.iter().enumerate() {
        if let Some(other) = held.iter().find(|other| overlap(prefix, other)) {
            return Err(refuse(prefix, "an existing", other));
        }
        if let Some(other) = wanted[at + 1..].iter().find(|other| overlap(prefix, other)) {
            return Err(refuse(prefix, "another provided", other));
        }
    }
    let mut prefixes = held.to_vec();
    if broadcast && wanted.is_empty() && !held.iter().any(Vec::is_empty) {
        prefixes.push(Vec::new());
    }
    prefixes.extend(wanted);
    Ok(prefixes)
}

pub(crate) fn client_caching(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let refuse = |text: &'static str| Err(CommandError::text(text));
    let Some(tracking) = cx.session.tracking.as_deref_mut() else {
        return refuse(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with \
             OPTIN or OPTOUT mode enabled",
        );
    };
    if is_word(request.arg(2), "YES") {
        if tracking.mode != TrackingMode::OptIn {
            return refuse(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            );
        }
    } else if is_word(request.arg(2), "NO") {
        if tracking.mode != TrackingMode::OptOut {
            return refuse(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            );
        }
    } else {
        return Err(CommandError::SYNTAX);
    }
    tracking.caching = true;
    cx.reply.ok();
    Ok(())
}

pub(crate) fn client_getredir(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let redirect = redirect_of(cx);
    cx.reply.integer(redirect);
    Ok(())
}

fn redirect_of(cx: &Context<'_>) -> i64 {
    match &cx.session.tracking {
        Some(tracking) => tracking.redirect.map_or(0, |id| id.number as i64),
        None => -1,
    }
}

pub(crate) fn client_trackinginfo(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let mut flags = Vec::new();
    match cx.session.tracking.as_deref() {
        None => flags.push("off"),
        Some(tracking) => {
            flags.push("on");
            flags.extend(match tracking.mode {
                TrackingMode::All => &[][..],
                TrackingMode::Broadcast => &["bcast"],
                TrackingMode::OptIn if tracking.caching => &["optin", "caching-yes"],
                TrackingMode::OptIn => &["optin"],
                TrackingMode::OptOut if tracking.caching => &["optout", "caching-no"],
                TrackingMode::OptOut => &["optout"],
            });
            flags.extend(tracking.no_loop.then_some("noloop"));
            flags.extend(tracking.redirect_is_broken.then_some("broken_redirect"));
        }
    }
    let redirect = redirect_of(cx);
    let reply = &mut cx.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(redirect);
    reply.bulk(b"prefixes");
    let mut prefixes = cx.session.tracking.as_ref().map_or(vec![], |held| held.prefixes.clone());
    prefixes.sort();
    reply.array(prefixes.len());
    prefixes.iter().for_each(|prefix| reply.bulk(prefix));
    Ok(())
}

/// After a command of a tracking session: remembers the keys it read. After one of a script, that
/// is every key the script declared: it may have read any of them.
pub(crate) fn remember_keys(cx: &mut Context<'_>, request: Request<'_>) {
    let row = cx.server.registry.row(cx.row);
    let is_inside = cx.caller != Caller::Client || cx.session.has(session_flag::IN_MULTI);
    let Some(tracking) = cx.session.tracking.as_deref_mut() else { return };
    let remembers = match tracking.mode {
        TrackingMode::All => true,
        TrackingMode::OptIn => tracking.caching,
        TrackingMode::OptOut => !tracking.caching,
        TrackingMode::Broadcast => false,
    };
    // CLIENT CACHING is about one command, or all between MULTI and EXEC.
    let container = row.parent.map_or(row, |parent| cx.server.registry.row(parent));
    if !container.command.has(flag::KEEPS_CACHING) && !is_inside {
        tracking.caching = false;
    }
    let reads = row.command.has(flag::READ) && !row.command.has(flag::RUNS_SCRIPTS);
    if !remembers || !reads {
        return;
    }
    let id = cx.session.id;
    // Who kept what changed before is told before, so that this is not forgotten with it.
    tell_own(cx);
    match cx.server.scripting.running.as_ref().filter(|_| cx.caller == Caller::Script) {
        Some(running) => {
            let tracking = &mut cx.server.tracking;
            running.tracked_keys.iter().for_each(|key| tracking.remember(id, key));
        }
        None => {
            let command = cx.server.registry.row(cx.row).command;
            for key in key_finder::keys_of(command, request).unwrap_or_default() {
                cx.server.tracking.remember(id, request.arg(key.arg));
            }
        }
    }
    let keys_max = cx.server.config.settings().clients.tracked_keys_max;
    cx.server.effects.tracking_is_full |= keys_max > 0 && cx.server.tracking.key_count() > keys_max;
}

/// Forgets tracked keys beyond `tracking-table-max-keys`.
pub(crate) fn shrink_tracking(server: &mut ServerState) {
    let keys_max = server.config.settings().clients.tracked_keys_max;
    let limit = server.config.settings().clients.output_limits.pubsub;
    let (sessions, effects) = (&mut server.sessions, &mut server.effects);
    server.tracking.shrink(keys_max, sessions, effects, limit);
}

/// Keys went to make room for a request: its session hears of that before the reply, since what
/// the reply says is newer.
#[cold]
pub(crate) fn tell_before_reply(cx: &mut Context<'_>) {
    tell_own(cx);
    cx.server.tracking.tell_running(cx.session, &mut cx.reply);
    cx.server.effects.has_untold = cx.server.tracking.has_untold();
}
