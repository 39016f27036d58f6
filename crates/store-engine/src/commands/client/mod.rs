//! CLIENT: this connection and others.

mod kill;
mod list;
mod pause;

use super::connection::set_name;
use super::prelude::*;
use crate::effects::Unblock;
use crate::session::{Blocked, TimeoutReply, session_flag};
use crate::tracking::commands::{
    client_caching, client_getredir, client_tracking, client_trackinginfo,
};
use kill::client_kill;
pub(crate) use kill::kill;
pub(crate) use list::describe_client;
use list::{client_info, client_list};
pub(crate) use pause::{begin_pause, end_pause, resume_postponed};
use pause::{client_pause, client_unpause};

pub(super) const TABLE: &[Command] = &[Command::container("client", CLIENT_SUBCOMMANDS)
    .also(KEEPS_CACHING | SENTINEL)
    .docs(Group::Connection, "2.4.0", "O(1)", "Manages this connection and others.")];

const PLAIN: u32 = NO_SCRIPT | LOADING | STALE;

const CLIENT_SUBCOMMANDS: &[Command] = &[
    Command::new("caching", Exactly(3), PLAIN, client_caching)
        .categories(category::CONNECTION)
        .docs(
            Group::Connection,
            "6.0.0",
            "O(1)",
            "Whether the keys of the next command are tracked.",
        )
        .arguments("mode#o(yes#t=YES no#t=NO)"),
    Command::new("getname", Exactly(2), PLAIN, client_getname)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "2.6.9", "O(1)", "The name of this connection."),
    Command::new("getredir", Exactly(2), PLAIN, client_getredir)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "6.0.0", "O(1)", "Which connection is told about tracked keys."),
    Command::new("help", Exactly(2), LOADING | STALE, client_help)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "5.0.0", "O(1)", "What the subcommands do."),
    Command::new("id", Exactly(2), PLAIN, client_id).categories(category::CONNECTION).docs(
        Group::Connection,
        "5.0.0",
        "O(1)",
        "The number of this connection.",
    ),
    Command::new("info", Exactly(2), PLAIN, client_info)
        .categories(category::CONNECTION)
        .tips(&["nondeterministic_output"])
        .docs(Group::Connection, "6.2.0", "O(1)", "Facts about this connection."),
    Command::new("kill", AtLeast(3), ADMIN | PLAIN, client_kill)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "2.4.0", "O(N)", "Closes connections.")
        .arguments(
            "filter#o(ip:port#s!2.8.12 *new-format#o(?client-id#i=ID^2.8.12 \
             ?normal_master_slave_pubsub#o=TYPE^2.8.12(normal#t=NORMAL \
             master#t=MASTER^3.2.0 slave#t=SLAVE replica#t=REPLICA^5.0.0 \
             pubsub#t=PUBSUB) ?username#s=USER ?ip:port#s=ADDR ?ip:port#s=LADDR^6.2.0 \
             ?yes/no#s=SKIPME))",
        )
        .history(&[
            ("2.8.12", "Takes filters by name."),
            ("2.8.12", "Takes ID."),
            ("3.2.0", "TYPE may be master."),
            ("5.0.0", "TYPE may be replica, besides slave."),
            ("6.2.0", "Takes LADDR."),
        ]),
    Command::new("list", AtLeast(2), ADMIN | PLAIN, client_list)
        .categories(category::CONNECTION)
        .tips(&["nondeterministic_output"])
        .docs(Group::Connection, "2.4.0", "O(N)", "Facts about all connections.")
        .arguments(
            "?normal_master_replica_pubsub#o=TYPE^5.0.0(normal#t=NORMAL \
             master#t=MASTER replica#t=REPLICA pubsub#t=PUBSUB) \
             ?id#b=ID^6.2.0(*client-id#i)",
        )
        .history(&[
            ("2.8.12", "Tells id."),
            ("5.0.0", "Takes TYPE."),
            ("6.0.0", "Tells user."),
            ("6.2.0", "Tells argv-mem, tot-mem, laddr and redir; takes ID."),
            ("7.0.0", "Tells resp, multi-mem, rbs and rbp."),
            ("7.0.3", "Tells ssub."),
        ]),
    Command::new("no-evict", Exactly(3), ADMIN | PLAIN, client_no_evict)
        .categories(category::CONNECTION)
        .docs(
            Group::Connection,
            "7.0.0",
            "O(1)",
            "Keeps this connection when client memory is short.",
        )
        .arguments("enabled#o(on#t=ON off#t=OFF)"),
    Command::new("pause", AtLeast(3), ADMIN | PLAIN, client_pause)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "2.9.50", "O(1)", "Holds back all requests, or all writes.")
        .arguments("timeout#i ?mode#o^6.2.0(write#t=WRITE all#t=ALL)")
        .history(&[("6.2.0", "Takes WRITE and ALL.")]),
    Command::new("reply", Exactly(3), PLAIN, client_reply)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "3.2.0", "O(1)", "Whether this connection wants replies.")
        .arguments("on_off_skip#o(on#t=ON off#t=OFF skip#t=SKIP)"),
    Command::new("setname", Exactly(3), PLAIN, client_setname)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "2.6.9", "O(1)", "Names this connection.")
        .arguments("connection-name#s"),
    Command::new("tracking", AtLeast(3), PLAIN, client_tracking)
        .categories(category::CONNECTION)
        .docs(
            Group::Connection,
            "6.0.0",
            "O(1)",
            "Whether this connection is told when keys that it read change.",
        )
        .arguments(
            "status#o(on#t=ON off#t=OFF) ?client-id#i=REDIRECT ?*+prefix#s=PREFIX \
             ?bcast#t=BCAST ?optin#t=OPTIN ?optout#t=OPTOUT ?noloop#t=NOLOOP",
        ),
    Command::new("trackinginfo", Exactly(2), PLAIN, client_trackinginfo)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "6.2.0", "O(1)", "How this connection tracks keys."),
    Command::new("unblock", AtLeast(3), ADMIN | PLAIN, client_unblock)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "5.0.0", "O(log N)", "Ends the wait of a blocked connection.")
        .arguments("client-id#i ?timeout_error#o(timeout#t=TIMEOUT error#t=ERROR)"),
    Command::new("unpause", Exactly(2), ADMIN | PLAIN, client_unpause)
        .categories(category::CONNECTION)
        .docs(Group::Connection, "6.2.0", "O(N)", "Ends CLIENT PAUSE."),
];

fn client_id(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.integer(cx.session.id.number as i64);
    Ok(())
}

fn client_getname(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    match cx.session.name.as_slice() {
        b"" => cx.reply.null(),
        name => cx.reply.bulk(name),
    }
    Ok(())
}

fn client_setname(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    set_name(cx, request.arg(2))?;
    cx.reply.ok();
    Ok(())
}

fn client_reply(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let mode = request.arg(2);
    if is_word(mode, "ON") {
        cx.session.flags &= !(session_flag::REPLY_OFF | session_flag::REPLY_SKIP);
        cx.reply.ok();
    } else if is_word(mode, "OFF") {
        cx.session.flags |= session_flag::REPLY_OFF;
    } else if is_word(mode, "SKIP") {
        if !cx.session.has(session_flag::REPLY_OFF) {
            cx.session.flags |= session_flag::REPLY_SKIP | session_flag::REPLY_SKIP_NEXT;
        }
    } else {
        return Err(CommandError::SYNTAX);
    }
    Ok(())
}

fn client_no_evict(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let mode = request.arg(2);
    let on = is_word(mode, "ON");
    if !on && !is_word(mode, "OFF") {
        return Err(CommandError::SYNTAX);
    }
    cx.session.set_flag(session_flag::NO_EVICT, on);
    cx.reply.ok();
    Ok(())
}

fn client_unblock(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let unblock = match request.get(3) {
        None => Unblock::Timeout,
        Some(word) if request.len() == 4 && is_word(word, "TIMEOUT") => Unblock::Timeout,
        Some(word) if request.len() == 4 && is_word(word, "ERROR") => Unblock::Error,
        Some(_) if request.len() > 4 => {
            return Err(super::help::wrong_arguments("CLIENT", request));
        }
        Some(_) => {
            let text = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
            return Err(CommandError::text(text));
        }
    };
    let number = integer(request.arg(2))?;
    let found = u64::try_from(number).ok().and_then(|number| cx.server.sessions.find(number));
    // What the server does for a session goes on, and its answer would go to the next request.
    let is_interruptible =
        |blocked: &Blocked| !matches!(blocked.on_timeout, TimeoutReply::Driver(_));
    let waiting = found.filter(|session| session.blocked.as_deref().is_some_and(is_interruptible));
    let is_ended = |session: &crate::session::Session| {
        cx.server.effects.unblocks.iter().any(|(id, _)| *id == session.id)
    };
    let waiting =
        waiting.filter(|session| !session.has(session_flag::CLOSING) && !is_ended(session));
    let found = waiting.and_then(|session| Some((session.id, session.blocked.as_ref()?.row)));
    cx.reply.integer(i64::from(found.is_some()));
    if let Some((id, row)) = found {
        // As in Redis: whatever is ended counts as failed, and so does ending it with an error.
        cx.server.registry.stats_mut(row).failed += 1;
        cx.server.registry.stats_mut(cx.row).failed += u64::from(unblock == Unblock::Error);
        crate::slow_log::commands::note_unblocked(cx, id, row);
        cx.server.effects.unblocks.push((id, unblock));
    }
    Ok(())
}

fn client_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    super::help::reply(
        cx,
        "CLIENT",
        &[
            ("CACHING (YES|NO)", "Whether the keys of the next command are tracked."),
            ("GETREDIR", "The connection that hears of tracked keys."),
            ("GETNAME", "The name of this connection."),
            ("ID", "The number of this connection."),
            ("INFO", "Facts about this connection."),
            ("KILL <ip:port>", "Close the connection from there."),
            ("KILL <option> <value> [<option> <value> [...]]", "Close connections that match."),
            ("LIST [options ...]", "Facts about all connections."),
            ("NO-EVICT (ON|OFF)", "Keep this connection when client memory is short."),
            ("PAUSE <timeout> [WRITE|ALL]", "Hold requests back for so many milliseconds."),
            ("REPLY (ON|OFF|SKIP)", "Whether this connection wants replies."),
            ("SETNAME <name>", "Name this connection."),
            ("TRACKING (ON|OFF) [<option> ...]", "Hear when keys that were read change."),
            ("TRACKINGINFO", "How this connection tracks keys."),
            ("UNBLOCK <clientid> [TIMEOUT|ERROR]", "End the wait of a blocked connection."),
            ("UNPAUSE", "Let requests run again."),
        ],
    );
    Ok(())
}
