//! CLIENT PAUSE: requests wait, so that a failover finds nothing in flight.

use super::super::prelude::*;
use crate::keyspace::Keyspace;
use crate::session::session_flag;
use crate::state::{Pause, ServerState, server_gate};

pub(super) fn client_pause(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let all = match request.get(3) {
        None => true,
        Some(_) if request.len() > 4 => {
            return Err(super::super::help::wrong_arguments("CLIENT", request));
        }
        Some(word) if is_word(word, "ALL") => true,
        Some(word) if is_word(word, "WRITE") => false,
        Some(_) => return Err(CommandError::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let not_integer = CommandError::text("ERR timeout is not an integer or out of range");
    let timeout = store_resp::parse_integer(request.arg(2)).ok_or(not_integer.clone())?;
    if timeout < 0 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    let until = (cx.db.now_ms() as i64).checked_add(timeout).ok_or(not_integer)? as u64;
    let before = cx.server.pause.unwrap_or(Pause { until_ms: 0, all: false });
    cx.server.pause = Some(Pause { until_ms: until.max(before.until_ms), all: all || before.all });
    begin_pause(cx.db, cx.server);
    cx.reply.ok();
    Ok(())
}

pub(super) fn client_unpause(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    end_pause(cx.db, cx.server);
    cx.reply.ok();
    Ok(())
}

/// Requests are held back from now on, and keys that end stay.
pub(crate) fn begin_pause(db: &mut Keyspace, server: &mut ServerState) {
    server.gates |= server_gate::PAUSED;
    db.set_paused(true);
}

/// Lets the sessions that were held back go on.
pub(crate) fn end_pause(db: &mut Keyspace, server: &mut ServerState) {
    server.pause = None;
    if server.holds_writes {
        return;
    }
    db.set_paused(false);
    server.gates &= !server_gate::PAUSED;
    resume_postponed(server);
}

/// Lets all sessions that are held back try again.
pub(crate) fn resume_postponed(server: &mut ServerState) {
    for id in std::mem::take(&mut server.postponed) {
        if let Some(session) = server.sessions.get_mut(id) {
            session.flags &= !(session_flag::BLOCKED | session_flag::POSTPONED);
            session.postponed = None;
            server.effects.resumed_sessions.push(id);
        }
    }
}
