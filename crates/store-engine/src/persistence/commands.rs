//! Snapshots on request, and the end of the server, which may leave one.

use std::time::Duration;

use store_replica::ReplicaState;

use crate::commands::prelude::*;
use crate::context::Caller;
use crate::effects::ServerRequest;
use crate::keyspace::SnapshotKind;
use crate::persistence::snapshot;
use crate::replication::{self, ReplicationRequest};
use crate::session::session_flag;
use crate::state::server_gate;

pub(crate) const TABLE: &[Command] =
    &[
        Command::new("bgsave", AtLeast(1), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING, bgsave)
            .docs(Group::Server, "1.0.0", "O(1)", "Saves all data while others are served.")
            .arguments("?schedule#t=SCHEDULE^3.2.2")
            .history(&[("3.2.2", "Takes SCHEDULE.")]),
        Command::new("lastsave", Exactly(1), LOADING | STALE | FAST, lastsave)
            .categories(category::ADMIN | category::DANGEROUS)
            .tips(&["nondeterministic_output"])
            .docs(Group::Server, "1.0.0", "O(1)", "When data was last saved, in unix seconds."),
        Command::new("save", Exactly(1), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING | NO_MULTI, save)
            .docs(Group::Server, "1.0.0", "O(N)", "Saves all data."),
        Command::new(
            "shutdown",
            AtLeast(1),
            ADMIN | NO_SCRIPT | LOADING | STALE | NO_MULTI | ALLOW_BUSY | ENDS_SERVER | SENTINEL,
            shutdown,
        )
        .docs(Group::Server, "1.0.0", "O(N)", "Ends the server.")
        .arguments(
            "?nosave_save#o(nosave#t=NOSAVE save#t=SAVE) ?now#t=NOW^7.0.0 \
             ?force#t=FORCE^7.0.0 ?abort#t=ABORT^7.0.0",
        )
        .history(&[("7.0.0", "Takes NOW, FORCE and ABORT.")]),
    ];

const IN_PROGRESS: CommandError = CommandError::text("ERR Background save already in progress");

fn bgsave(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let schedules = match request.get(1) {
        None => false,
        Some(word) if request.len() == 2 && is_word(word, "SCHEDULE") => true,
        Some(_) => return Err(CommandError::SYNTAX),
    };
    if !cx.server.platform.keeps_files() {
        return Err(CommandError::text("ERR This server keeps its data in memory only"));
    }
    if cx.server.saving.is_running() && !cx.server.saving.is_cancelled() {
        return Err(IN_PROGRESS);
    }
    // The walk through the keys is over before the file is.
    let is_rewriting = cx.db.snapshot_kind() == Some(SnapshotKind::Rewrite)
        || cx.server.persistence.aof.is_rewriting;
    if is_rewriting {
        if !schedules {
            return Err(CommandError::text(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE \
                 SCHEDULE in order to schedule a BGSAVE whenever possible.",
            ));
        }
        cx.server.saving.is_scheduled = true;
        cx.reply.simple("Background saving scheduled");
        return Ok(());
    }
    if cx.server.saving.is_running() || !snapshot::begin_save(cx.db, cx.server) {
        // One that was given up leaves its last traces; this one begins right after.
        cx.server.saving.is_scheduled = true;
    }
    cx.reply.simple("Background saving started");
    Ok(())
}

fn save(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    if cx.server.saving.is_running() {
        return Err(IN_PROGRESS);
    }
    let saved = snapshot::save_now(cx.db, cx.server);
    saved.map_err(|reason| CommandError::new(format!("ERR The snapshot failed: {reason}")))?;
    cx.reply.ok();
    Ok(())
}

fn lastsave(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.integer((cx.server.saving.saved_at_ms / 1000) as i64);
    Ok(())
}

fn shutdown(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (mut saves, mut saves_not, mut aborts) = (false, false, false);
    let (mut hastens, mut forces) = (false, false);
    for word in request.args_from(1) {
        match () {
            () if is_word(word, "SAVE") => saves = true,
            () if is_word(word, "NOSAVE") => saves_not = true,
            () if is_word(word, "ABORT") => aborts = true,
            () if is_word(word, "NOW") => hastens = true,
            () if is_word(word, "FORCE") => forces = true,
            () => return Err(CommandError::SYNTAX),
        }
    }
    if saves && saves_not || aborts && (saves || saves_not || hastens || forces) {
        return Err(CommandError::SYNTAX);
    }
    // A sentinel has nothing to save.
    saves_not |= cx.server.identity.is_sentinel;
    if aborts {
        if !cx.server.replication.is_ending {
            return Err(CommandError::text("ERR No shutdown in progress."));
        }
        return replication::commands::hold(cx, request, ReplicationRequest::AbortShutdown);
    }
    if !saves_not && cx.server.gates & server_gate::BUSY_SCRIPT != 0 {
        // A script is in the middle of its writes, so there is nothing whole to save.
        return Err(crate::scripting::commands::busy_error(cx));
    }
    // Asked again, replicas have what they could get.
    if cx.caller != Caller::Resumed {
        log(cx, "User requested shutdown...".to_owned());
    }
    // A script in the way may never end, and replicas hear nothing while it runs.
    let is_busy = cx.server.gates & server_gate::BUSY_SCRIPT != 0;
    if !hastens && !is_busy && waits_for_replicas(cx) {
        return replication::commands::hold(cx, request, ReplicationRequest::Shutdown);
    }
    if !forces && let Some(reason) = what_append_only_lacks(cx, saves_not) {
        log(cx, reason);
        return Err(CommandError::text("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    if !saves_not && let Err(reason) = snapshot::save_before_end(cx.db, cx.server, saves) {
        log(cx, format!("Cannot save before the end: {reason}"));
        if !forces {
            return Err(CommandError::text("ERR Errors trying to SHUTDOWN. Check logs."));
        }
    }
    cx.session.flags |= session_flag::CLOSING;
    cx.server.effects.requests.push(ServerRequest::Shutdown);
    Ok(())
}

/// Whether a replica may lack something that it could still get.
fn waits_for_replicas(cx: &Context<'_>) -> bool {
    let has_time = cx.server.config.settings().process.shutdown_wait > Duration::ZERO;
    let facts = &cx.server.replication;
    let has_online = facts.replicas.iter().any(|it| it.state == ReplicaState::Online);
    has_time && (has_online || facts.is_ending) && cx.caller == Caller::Client
}

/// Why an end would lose what the append-only file is to keep. Whoever saves not gives up what
/// cannot be written, and not what is being written.
fn what_append_only_lacks(cx: &mut Context<'_>, saves_not: bool) -> Option<String> {
    let aof = &cx.server.persistence.aof;
    let is_wanted = cx.server.config.settings().append.file.is_wanted
        && cx.server.persistence.loading.is_none();
    // The driver may have yet to hear that it is turned on.
    let is_starting =
        is_wanted && cx.server.platform.keeps_files() && (aof.is_starting || !aof.is_on);
    let failure = aof.trouble.as_ref().or(aof.start_failure.as_ref().filter(|_| is_starting));
    let failure = match failure {
        Some(_) if saves_not => return None,
        None if is_starting => return Some("Writing initial AOF, can't exit.".to_owned()),
        None if saves_not => return None,
        // What was told last may be a second old.
        None => cx.busy_handler.loss_on_exit()?,
        Some(reason) => reason.clone(),
    };
    Some(format!("Cannot write the append-only file before the end: {failure}"))
}

fn log(cx: &mut Context<'_>, line: String) {
    cx.server.effects.requests.push(ServerRequest::Log(line));
}
