//! MULTI, EXEC and WATCH.

use super::prelude::*;
use crate::acl;
use crate::context::Caller;
use crate::gate;
use crate::keyspace::Keyspace;
use crate::registry::RowId;
use crate::session::{Session, Transaction, Watched, session_flag};

const PLAIN: u32 = NO_SCRIPT | LOADING | STALE | FAST | ALLOW_BUSY;
/// EXEC runs scripts that were queued.
const EXEC: u32 =
    NO_SCRIPT | LOADING | STALE | SKIP_SLOWLOG | RUNS_SCRIPTS | RUNS_IN_MULTI | RUNS_QUEUED;

pub(super) const TABLE: &[Command] = &[
    Command::new("discard", Exactly(1), PLAIN | RUNS_IN_MULTI | DROPS_QUEUED, discard)
        .categories(category::TRANSACTION)
        .docs(Group::Transactions, "2.0.0", "O(N)", "Forgets the commands queued since MULTI."),
    Command::new("exec", Exactly(1), EXEC, exec).categories(category::TRANSACTION).docs(
        Group::Transactions,
        "1.2.0",
        "O(1)",
        "Runs the commands queued since MULTI, with nothing in between.",
    ),
    Command::new("multi", Exactly(1), PLAIN | RUNS_IN_MULTI, multi)
        .categories(category::TRANSACTION)
        .docs(Group::Transactions, "1.2.0", "O(1)", "Begins to queue commands for EXEC."),
    Command::new("unwatch", Exactly(1), PLAIN, unwatch).categories(category::TRANSACTION).docs(
        Group::Transactions,
        "2.2.0",
        "O(1)",
        "Stops watching keys.",
    ),
    Command::new("watch", AtLeast(2), PLAIN | RUNS_IN_MULTI, watch)
        .keys(&[KeySpec::all(1, RO)])
        .categories(category::TRANSACTION)
        .docs(
            Group::Transactions,
            "2.2.0",
            "O(1)",
            "Makes EXEC do nothing if one of the keys changes before it.",
        )
        .arguments("*key#k@0"),
];

fn multi(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    if cx.in_multi() {
        return Err(CommandError::text("ERR MULTI calls can not be nested"));
    }
    cx.session.flags |= session_flag::IN_MULTI;
    cx.session.transaction = Some(Box::default());
    cx.reply.ok();
    Ok(())
}

fn discard(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    if !cx.in_multi() {
        return Err(CommandError::text("ERR DISCARD without MULTI"));
    }
    end_transaction(cx.db, cx.session);
    cx.reply.ok();
    Ok(())
}

fn exec(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    if !cx.in_multi() {
        return Err(CommandError::text("ERR EXEC without MULTI"));
    }
    look_for_ended_watches(cx);
    let is_broken = cx.session.has(session_flag::MULTI_BROKEN);
    let watch_broken = cx.session.has(session_flag::WATCH_BROKEN);
    let transaction = end_transaction(cx.db, cx.session);
    if is_broken {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return Err(CommandError::text(text));
    }
    if watch_broken {
        cx.reply.null_array();
        return Ok(());
    }
    let queued = transaction.map(|transaction| transaction.queued).unwrap_or_default();
    cx.reply.array(queued.len());
    let mut last_ran = true;
    for (row, request) in &queued {
        last_ran = run_queued(cx, *row, request.as_request());
    }
    // As in Redis: a refusal that no other command follows is EXEC's own failure.
    cx.server.registry.stats_mut(cx.row).failed += u64::from(!last_ran);
    Ok(())
}

/// Runs one queued request. Its user may have lost the permission since: false then.
fn run_queued(cx: &mut Context<'_>, row: RowId, request: Request<'_>) -> bool {
    if cx.session.has(session_flag::RESTRICTED) {
        let outer = (cx.row, cx.caller);
        (cx.row, cx.caller) = (row, Caller::Transaction);
        let checked = acl::check_queued(cx, request);
        (cx.row, cx.caller) = outer;
        if let Err(error) = checked {
            cx.server.stats.count_error(error.code());
            cx.reply.error(error.as_bytes());
            return false;
        }
    }
    gate::call_queued(cx, row, request, Caller::Transaction);
    true
}

/// A watched key that ended since breaks the transaction, though nobody has removed it yet; nor is
/// it removed by this.
fn look_for_ended_watches(cx: &mut Context<'_>) {
    let db = cx.db.selected();
    for watched in cx.session.watched.iter().filter(|watched| !watched.had_ended) {
        cx.db.select(watched.db);
        if cx.db.has_ended(watched.key) {
            cx.session.flags |= session_flag::WATCH_BROKEN;
        }
    }
    cx.db.select(db);
}

fn watch(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if cx.in_multi() {
        return Err(CommandError::text("ERR WATCH inside MULTI is not allowed"));
    }
    if !cx.session.has(session_flag::WATCH_BROKEN) {
        let db = cx.db.selected();
        for key in request.args_from(1) {
            if cx.db.watches.add(db, key, cx.session.id) {
                let had_ended = cx.db.has_ended(key);
                cx.session.watched.push(Watched { db, key, had_ended });
            }
        }
    }
    cx.reply.ok();
    Ok(())
}

fn unwatch(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    unwatch_all(cx.db, cx.session);
    cx.reply.ok();
    Ok(())
}

/// Stops watching, and forgets what was seen.
pub(super) fn unwatch_all(db: &mut Keyspace, session: &mut Session) {
    for watched in session.watched.take().iter() {
        db.watches.remove(watched.db, watched.key, session.id);
    }
    session.flags &= !session_flag::WATCH_BROKEN;
    // What this very request has touched is forgotten with the rest.
    db.changes.touched_watchers.retain(|watcher| *watcher != session.id);
    db.changes.lost_watches.retain(|lost| lost.watcher != session.id);
}

/// Leaves MULTI, and hands out what was queued.
pub(crate) fn end_transaction(
    db: &mut Keyspace,
    session: &mut Session,
) -> Option<Box<Transaction>> {
    unwatch_all(db, session);
    session.flags &= !(session_flag::IN_MULTI | session_flag::MULTI_BROKEN);
    session.transaction.take()
}
