//! The gates every request passes, in order, and the running of what they admit.
//!
//! ```text
//! lookup ► arity ► authentication ► MULTI ban ► ACL ► route (in a cluster) ► memory ►
//!    pub/sub context ► queue or run
//! ```
//! Commands never check any of this themselves.

use store_resp::{OwnedRequest, Protocol, Request};

use crate::acl;
use crate::cluster::route;
use crate::command::{Command, Group, flag};
use crate::commands;
use crate::context::{Caller, Context, Propagate};
use crate::effects::ServerRequest;
use crate::error::{CommandError, CommandResult};
use crate::eviction;
use crate::keyspace::changes::Audience;
use crate::measure;
use crate::migration;
use crate::notifications;
use crate::persistence::load::LoadFailure;
use crate::registry::RowId;
use crate::scripting;
use crate::session::{RequestSize, session_flag};
use crate::state::server_gate;
use crate::tracking;

/// Commands that one transaction may queue.
const QUEUED_MAX: usize = 1 << 20;
/// Bytes of arguments that "unknown command" repeats.
const ECHOED_MAX: usize = 128;

/// Takes one request of the session through the gates.
#[inline]
pub(crate) fn handle(cx: &mut Context<'_>, request: Request<'_>) {
    let Some(mut row) = find_row(cx, request.arg(0)) else {
        return handle_unknown(cx, request);
    };
    let mut command = cx.server.registry.row(row).command;
    if !command.subcommands.is_empty() && request.len() > 1 {
        match cx.server.registry.find_subcommand(row, request.arg(1)) {
            Some(found) => row = found,
            None => return refuse_subcommand(cx, row, request),
        }
        command = cx.server.registry.row(row).command;
    }
    cx.row = row;
    cx.session.last_command = Some(row);
    if !command.arity.admits(request.len()) {
        let name = &cx.server.registry.row(row).full_name;
        let text = format!("ERR wrong number of arguments for '{name}' command");
        return reject(cx, &CommandError::new(text));
    }
    if cx.session.flags & session_flag::GATED == 0 && is_open(cx, command, request) {
        return call(cx, request);
    }
    handle_gated(cx, request);
}

/// Whether no gate of the server has anything to check, or only whether a key is served here, and
/// it is.
#[inline]
fn is_open(cx: &Context<'_>, command: &Command, request: Request<'_>) -> bool {
    match (cx.server.gates, &cx.server.cluster) {
        (0, _) => true,
        (server_gate::CLUSTER, Some(cluster)) => {
            !cx.db.has_emptied_slots() && route::is_plainly_here(cluster, command, request)
        }
        _ => false,
    }
}

/// The row of a name. Files know commands by the names of the table, whatever `rename-command`
/// makes of them for clients; files of old have the names that clients used.
#[inline]
fn find_row(cx: &Context<'_>, name: &[u8]) -> Option<RowId> {
    let registry = &cx.server.registry;
    if cx.session.has(session_flag::LOADER | session_flag::PRIMARY_LINK) {
        return registry.find_by_table_name(name).or_else(|| registry.find(name));
    }
    registry.find(name)
}

/// The long way, for sessions and times with something to check.
fn handle_gated(cx: &mut Context<'_>, request: Request<'_>) {
    if cx.session.has(session_flag::CLOSING) || cx.server.gates & server_gate::TORN != 0 {
        // Killed by another session since the request was read; or the server ends.
        return;
    }
    if cx.session.has(session_flag::LOADER | session_flag::PRIMARY_LINK) {
        return handle_loaded(cx, request);
    }
    let demands = RequestFlags::of(cx, request);
    if let Err(error) = admit_user(cx, request) {
        return reject(cx, &error);
    }
    if cx.server.gates & server_gate::CLUSTER != 0
        && let Err(error) = route::check(cx, request, demands.writes())
    {
        return redirect(cx, &error);
    }
    if let Err(error) = admit(cx, demands) {
        return reject(cx, &error);
    }
    const HOLDS: u32 = server_gate::PAUSED | server_gate::BUSY_SCRIPT;
    if cx.server.gates & HOLDS == server_gate::PAUSED && waits_for_pause(cx, demands) {
        return postpone(cx, request);
    }
    if is_queued(cx) {
        return queue(cx, request, demands.own);
    }
    if cx.server.gates & server_gate::LEAVING != 0 && migration::must_wait(cx, request) {
        return postpone(cx, request);
    }
    let reply_start = cx.reply.len();
    call(cx, request);
    after_call(cx, request, reply_start);
}

/// What a request asks of the server, for the gates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFlags {
    /// Flags of the command, as far as a script that it runs does not promise otherwise.
    own: u32,
    /// Those and, at EXEC, the flags of all that was queued.
    any: u32,
    /// Flags that the command or, at EXEC, one of the queued has not.
    missing: u32,
}

impl RequestFlags {
    fn of(cx: &Context<'_>, request: Request<'_>) -> Self {
        let command = cx.server.registry.row(cx.row).command;
        let own = match command.has(flag::RUNS_SCRIPTS) {
            true => scripting::commands::script_flags(cx, command, request),
            false => command.flags,
        };
        match &cx.session.transaction {
            Some(held) if command.has(flag::RUNS_QUEUED) => {
                Self { own, any: own | held.flags, missing: !own | held.missing_flags }
            }
            _ => Self { own, any: own, missing: !own },
        }
    }

    /// Whether the command, or one queued before EXEC, changes data.
    fn writes(self) -> bool {
        self.any & flag::WRITE != 0
    }

    /// Whether the command, or one queued before EXEC, waits until data is loaded.
    fn needs_data(self) -> bool {
        self.missing & flag::LOADING != 0
    }

    /// Whether the command, or one queued before EXEC, is of no use on old data.
    fn needs_fresh_data(self) -> bool {
        self.missing & flag::STALE != 0
    }

    /// Whether the command, or one queued before EXEC, takes memory.
    pub(crate) fn grows(self) -> bool {
        self.any & flag::GROWS != 0
    }
}

/// A request from a file, or from the primary, has been through the gates when it first ran.
fn handle_loaded(cx: &mut Context<'_>, request: Request<'_>) {
    let is_link = cx.session.has(session_flag::PRIMARY_LINK);
    let command = cx.server.registry.row(cx.row).command;
    if is_link && command.has(flag::ADMIN) && !command.has(flag::WRITE) {
        // A primary repeats writes. It does not administrate those who follow it.
        return reject(cx, &CommandError::text("ERR a primary may not ask for this command"));
    }
    if is_queued(cx) {
        return queue(cx, request, command.flags);
    }
    call(cx, request);
    let is_shown = cx.server.gates & server_gate::MONITORED != 0;
    if is_shown && is_link {
        commands::show_to_monitors(cx, request);
    }
}

/// Whether the request waits for EXEC.
fn is_queued(cx: &Context<'_>) -> bool {
    cx.in_multi() && !cx.server.registry.row(cx.row).command.has(flag::RUNS_IN_MULTI)
}

/// What only gated requests have to follow their run.
fn after_call(cx: &mut Context<'_>, request: Request<'_>, reply_start: usize) {
    let listens = cx.session.has(session_flag::SUBSCRIBED | session_flag::HEARS_FOR_OTHERS);
    if listens || !cx.session.aside.is_empty() {
        notifications::tell_beside_reply(cx, request, reply_start);
    }
    if cx.server.gates & server_gate::MONITORED != 0 {
        commands::show_to_monitors(cx, request);
    }
    if cx.session.has(session_flag::TRACKING) {
        tracking::commands::remember_keys(cx, request);
    }
}

/// Whether this request is held back. What replicas confirm is not: others wait for that.
fn waits_for_pause(cx: &Context<'_>, demands: RequestFlags) -> bool {
    const CHANGES: u32 = flag::WRITE | flag::MAY_REPLICATE;
    let holds_all = cx.server.pause.is_some_and(|pause| pause.all);
    (holds_all || demands.any & CHANGES != 0) && !cx.session.has(session_flag::REPLICA)
}

/// The driver keeps the request and sends it again once the session is resumed.
fn postpone(cx: &mut Context<'_>, request: Request<'_>) {
    cx.session.postponed = Some(RequestSize::of(request));
    cx.session.flags |= session_flag::BLOCKED | session_flag::POSTPONED;
    cx.server.postponed.push(cx.session.id);
}

/// Whether the user may do this at all.
fn admit_user(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let command = cx.server.registry.row(cx.row).command;
    if cx.session.has(session_flag::NEEDS_AUTH) && !command.has(flag::NO_AUTH) {
        return Err(CommandError::text("NOAUTH Authentication required."));
    }
    if cx.in_multi() && command.has(flag::NO_MULTI) {
        return Err(CommandError::text("ERR Command not allowed inside a transaction"));
    }
    if cx.session.has(session_flag::RESTRICTED) {
        acl::check(cx, request)?;
    }
    Ok(())
}

/// Whether the server may do it now.
fn admit(cx: &mut Context<'_>, demands: RequestFlags) -> CommandResult {
    let command = cx.server.registry.row(cx.row).command;
    if cx.server.gates & server_gate::BUSY_SCRIPT != 0 {
        // No key may go for memory while a script relies on it.
        scripting::commands::check_busy(cx, command)?;
    } else if cx.server.gates & server_gate::MEMORY_LIMIT != 0 {
        eviction::check(cx, command, demands)?;
    }
    let is_told = command.has(flag::TELLS_TROUBLE) || demands.writes();
    if cx.server.gates & server_gate::DISK_TROUBLE != 0 && is_told {
        return Err(cx.server.persistence.refusal());
    }
    if cx.server.gates & server_gate::FEW_REPLICAS != 0 && demands.writes() {
        return Err(CommandError::FEW_REPLICAS);
    }
    if cx.server.gates & server_gate::SAVING_FAILS != 0 && is_told {
        return Err(CommandError::SAVING_FAILS);
    }
    if cx.server.gates & server_gate::READ_ONLY != 0 && demands.writes() {
        return Err(CommandError::READ_ONLY);
    }
    if cx.server.gates & server_gate::UNKEPT != 0 && demands.writes() {
        // PING is not told: who asks that replaces primaries, and this one is well.
        return Err(CommandError::UNKEPT);
    }
    if cx.session.has(session_flag::SUBSCRIBED) && cx.session.protocol == Protocol::Resp2 {
        check_subscribed(cx)?;
    }
    if cx.server.gates & server_gate::STALE != 0 && demands.needs_fresh_data() {
        return Err(CommandError::STALE);
    }
    if cx.server.gates & server_gate::LOADING != 0 && demands.needs_data() {
        return Err(CommandError::text("LOADING Redis is loading the dataset in memory"));
    }
    let spares_loading = demands.any & flag::NO_ASYNC_LOADING != 0;
    if cx.server.gates & server_gate::LOADING_ASIDE != 0 && spares_loading {
        return Err(CommandError::text("LOADING Redis is loading the dataset in memory"));
    }
    const TOUCHES_KEYS: u32 = flag::READ | flag::WRITE | flag::MAY_REPLICATE;
    const WATCHES: u32 = session_flag::MONITOR | session_flag::REPLICA;
    if cx.session.has(WATCHES) && command.has(TOUCHES_KEYS) {
        return Err(CommandError::text("ERR Replica can't interact with the keyspace"));
    }
    Ok(())
}

/// What a script may not write: on a replica nothing, and with `min-replicas-to-write` nothing that
/// too few others would keep.
pub(crate) fn check_replicas(cx: &Context<'_>, command: &Command) -> CommandResult {
    let is_primary = cx.session.has(session_flag::PRIMARY_LINK);
    if cx.server.gates & server_gate::READ_ONLY != 0 && command.has(flag::WRITE) && !is_primary {
        return Err(CommandError::READ_ONLY);
    }
    if cx.server.gates & server_gate::FEW_REPLICAS != 0 && command.has(flag::WRITE) {
        return Err(CommandError::FEW_REPLICAS);
    }
    if cx.server.gates & server_gate::UNKEPT != 0 && command.has(flag::WRITE) && !is_primary {
        return Err(CommandError::UNKEPT);
    }
    Ok(())
}

/// In RESP2 a subscribed client cannot tell replies from messages.
fn check_subscribed(cx: &Context<'_>) -> CommandResult {
    let row = cx.server.registry.row(cx.row);
    if row.command.has(flag::ALLOW_SUBSCRIBED) {
        return Ok(());
    }
    Err(CommandError::new(format!(
        "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
         are allowed in this context",
        row.full_name
    )))
}

fn queue(cx: &mut Context<'_>, request: Request<'_>, flags: u32) {
    if cx.session.has(session_flag::MULTI_BROKEN | session_flag::WATCH_BROKEN) {
        // It will not run, so it need not be kept.
        cx.reply.simple("QUEUED");
        return;
    }
    let owned = request.to_owned();
    let row = cx.row;
    let memory_max = cx.server.config.settings().clients.query_buffer_max;
    // What a script did is one transaction in a file, however much it did.
    let is_limited = !cx.session.has(session_flag::LOADER | session_flag::PRIMARY_LINK);
    let transaction = cx.session.transaction.get_or_insert_default();
    transaction.memory += owned.memory();
    let is_over = transaction.queued.len() >= QUEUED_MAX || transaction.memory > memory_max;
    if is_limited && is_over {
        let id = cx.session.id;
        cx.session.flags |= session_flag::CLOSING;
        cx.server.effects.requests.push(ServerRequest::Close(id));
        return;
    }
    transaction.flags |= flags;
    transaction.missing_flags |= !flags;
    let arguments = request.args_from(0).map(|arg| arg.len() + size_of::<usize>());
    transaction.argument_bytes += arguments.sum::<usize>();
    transaction.queued.push((row, owned));
    cx.reply.simple("QUEUED");
}

/// Runs a command that passed the gates: the reply, the counters, and what is propagated.
#[inline]
pub(crate) fn call(cx: &mut Context<'_>, request: Request<'_>) {
    let row = cx.row;
    let command = cx.server.registry.row(row).command;
    let (reply_start, dirty_before) = (cx.reply.len(), cx.db.dirty);
    if cx.db.changes.propagating {
        cx.propagate = Propagate::Verbatim;
    }
    let result = (command.run)(cx, request);
    cx.ran = true;
    // One that waited was counted when it began to.
    if cx.caller != Caller::Resumed {
        cx.server.stats.commands += 1;
        cx.server.registry.stats_mut(row).calls += 1;
    }
    if let Err(error) = result {
        cx.reply.truncate(reply_start);
        cx.reply.error(error.as_bytes());
        cx.server.registry.stats_mut(row).failed += 1;
        cx.server.stats.count_error(error.code());
        if cx.session.has(session_flag::LOADER | session_flag::PRIMARY_LINK) {
            note_load_failure(cx, &error);
        }
    }
    if cx.db.changes.propagating && (cx.db.dirty != dirty_before || is_told_anyway(cx)) {
        propagate(cx, request);
    }
}

/// Whether what ran is propagated though it counts for no change.
#[inline]
fn is_told_anyway(cx: &Context<'_>) -> bool {
    match &cx.propagate {
        Propagate::Verbatim => false,
        Propagate::Always => true,
        Propagate::Instead(requests) => cx.caller == Caller::Resumed && !requests.is_empty(),
    }
}

/// A request from a file or of the primary failed, alone or inside of EXEC. What a script makes of
/// an error is its own business.
#[cold]
fn note_load_failure(cx: &mut Context<'_>, error: &CommandError) {
    if cx.caller == Caller::Script {
        return;
    }
    let command = cx.server.registry.row(cx.row).command;
    // A library that this server cannot run changes no key: what calls it is sent as its effects.
    let is_lost = command.has(flag::WRITE) && command.group != Group::Scripting;
    cx.server.persistence.lacks_write |= is_lost;
    let failure = match *error == CommandError::DB_INDEX {
        true => LoadFailure::Database { databases: cx.db.database_count() },
        false => {
            let name = &cx.server.registry.row(cx.row).full_name;
            LoadFailure::Refused(format!("{name}: {}", String::from_utf8_lossy(error.as_bytes())))
        }
    };
    cx.server.persistence.load_failure.get_or_insert(failure);
}

#[cold]
fn propagate(cx: &mut Context<'_>, request: Request<'_>) {
    let Some(audience) = audience_of(cx) else { return };
    let db = cx.db.selected();
    let changes = &mut cx.db.changes;
    match std::mem::take(&mut cx.propagate) {
        Propagate::Verbatim | Propagate::Always
            if cx.server.registry.row(cx.row).command.has(flag::WRITE) =>
        {
            let renamed = cx.server.registry.table_name_if_renamed(cx.row);
            let named = match renamed {
                Some(name) => named(name, request),
                None => changes.copy(request),
            };
            changes.unit.push(audience, db, named);
        }
        // EXEC and scripts: what ran inside them has been propagated.
        Propagate::Verbatim | Propagate::Always => {}
        Propagate::Instead(requests) => {
            requests.into_iter().for_each(|request| changes.unit.push(audience, db, request));
        }
    }
}

/// To whom what runs is propagated. A script can say otherwise of what it calls.
fn audience_of(cx: &Context<'_>) -> Option<Audience> {
    match cx.server.scripting.running.as_ref().filter(|_| cx.caller == Caller::Script) {
        Some(running) => running.audience,
        None => Some(Audience::All),
    }
}

/// Propagates a message, which changes no data: replicas have listeners, too.
pub(crate) fn propagate_message(cx: &mut Context<'_>, request: Request<'_>) {
    if audience_of(cx).is_some_and(|audience| audience != Audience::File) {
        propagate_to_replicas(cx, request.to_owned());
    }
}

/// Propagates what no file gets.
pub(crate) fn propagate_to_replicas(cx: &mut Context<'_>, request: OwnedRequest) {
    if cx.db.changes.feeds_stream {
        let db = cx.db.selected();
        cx.db.changes.unit.push(Audience::Stream, db, request);
    }
}

/// The request with the command's own name, which the loader knows.
fn named(name: &str, request: Request<'_>) -> OwnedRequest {
    OwnedRequest::from_args(std::iter::once(name.as_bytes()).chain(request.args_from(1)))
}

/// Runs a command on behalf of a transaction or script. Its gates are the caller's business.
pub(crate) fn call_queued(cx: &mut Context<'_>, row: RowId, request: Request<'_>, caller: Caller) {
    let outer = (cx.row, cx.caller);
    (cx.row, cx.caller) = (row, caller);
    let reply_start = cx.reply.len();
    measure::call_measured(cx, request);
    const HEARS: u32 =
        session_flag::TRACKING | session_flag::SUBSCRIBED | session_flag::HEARS_FOR_OTHERS;
    if cx.session.has(HEARS) || cx.server.gates & server_gate::MONITORED != 0 {
        after_call(cx, request, reply_start);
    }
    if cx.db.changes.notifications.is_large() {
        // The next command may cause as much again.
        notifications::tell_own(cx);
    }
    (cx.row, cx.caller) = outer;
}

/// A gate refused the request: the transaction around it, if any, is broken.
#[cold]
fn reject(cx: &mut Context<'_>, error: &CommandError) {
    cx.server.registry.stats_mut(cx.row).rejected += 1;
    refuse(cx, error);
}

/// Another node serves the request: the transaction around it, if any, is broken, and at EXEC it is
/// over. The client is to read where that is, whatever it asked for.
#[cold]
fn redirect(cx: &mut Context<'_>, error: &CommandError) {
    let row = cx.row;
    cx.server.registry.stats_mut(row).rejected += 1;
    match cx.server.registry.row(row).command.has(flag::RUNS_QUEUED) {
        true => _ = commands::end_transaction(cx.db, cx.session),
        false if cx.in_multi() => cx.session.flags |= session_flag::MULTI_BROKEN,
        false => {}
    }
    cx.server.stats.count_error(error.code());
    cx.reply.error(error.as_bytes());
}

fn refuse(cx: &mut Context<'_>, error: &CommandError) {
    if cx.in_multi() {
        cx.session.flags |= session_flag::MULTI_BROKEN;
    }
    if cx.server.registry.row(cx.row).command.has(flag::RUNS_QUEUED) {
        return abort_exec(cx, error);
    }
    cx.server.stats.count_error(error.code());
    cx.reply.error(error.as_bytes());
}

/// A refused EXEC ends its transaction.
fn abort_exec(cx: &mut Context<'_>, error: &CommandError) {
    commands::end_transaction(cx.db, cx.session);
    let reason = error.as_bytes();
    let reason = reason.strip_prefix(b"ERR ").unwrap_or(reason);
    let text = [b"EXECABORT Transaction discarded because of: ", reason].concat();
    cx.server.stats.count_error(b"EXECABORT");
    cx.reply.error(&text);
}

#[cold]
fn handle_unknown(cx: &mut Context<'_>, request: Request<'_>) {
    let name = request.arg(0);
    if cx.session.has(session_flag::LOADER) {
        let name = name[..name.len().min(ECHOED_MAX)].escape_ascii().to_string();
        cx.server.persistence.load_failure = Some(LoadFailure::UnknownCommand(name));
        return;
    }
    if is_http(name) {
        // A browser was made to talk to us: close before it sends anything worse.
        cx.session.flags |= session_flag::CLOSING;
        cx.server.effects.requests.push(ServerRequest::Close(cx.session.id));
        return;
    }
    let mut text = b"ERR unknown command '".to_vec();
    text.extend(&name[..name.len().min(ECHOED_MAX)]);
    text.extend(b"', with args beginning with: ");
    let start = text.len();
    for arg in request.args_from(1) {
        let echoed = text.len() - start;
        if echoed >= ECHOED_MAX {
            break;
        }
        text.push(b'\'');
        text.extend(&arg[..arg.len().min(ECHOED_MAX - echoed)]);
        text.extend(b"' ");
    }
    refuse_unknown(cx, &text);
}

/// Whether a line of an HTTP request begins with this word.
fn is_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"host:") || word.eq_ignore_ascii_case(b"post")
}

#[cold]
fn refuse_subcommand(cx: &mut Context<'_>, parent: RowId, request: Request<'_>) {
    let name = request.arg(1);
    let mut text = b"ERR unknown subcommand '".to_vec();
    text.extend(&name[..name.len().min(ECHOED_MAX)]);
    let container = cx.server.registry.row(parent).command.name.to_ascii_uppercase();
    text.extend(format!("'. Try {container} HELP.").into_bytes());
    refuse_unknown(cx, &text);
}

/// What is no command counts for none, and is none in CLIENT LIST.
fn refuse_unknown(cx: &mut Context<'_>, text: &[u8]) {
    if cx.in_multi() {
        cx.session.flags |= session_flag::MULTI_BROKEN;
    }
    cx.session.last_command = None;
    cx.server.stats.count_error(b"ERR");
    cx.reply.error(text);
}

/// The function of a row that only leads to subcommands: the arity gate keeps requests out.
pub(crate) fn run_container(_: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    Err(CommandError::SYNTAX)
}
