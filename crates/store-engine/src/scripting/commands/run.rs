//! Running a script: what it may do, and what becomes of what it calls.

use std::collections::BTreeMap;

use store_resp::{OwnedRequest, Protocol, ReplyWriter};
use store_script::{
    AclAnswer, Flags, Host, Interpreter, Invocation, LogLevel, Protocol as ScriptProtocol,
    Replication, ScriptOutcome, Tick,
};

use crate::acl;
use crate::busy::{Busy, BusyDecision};
use crate::cluster::route;
use crate::commands::prelude::*;
use crate::context::Caller;
use crate::effects::ServerRequest;
use crate::eviction;
use crate::gate;
use crate::keyspace::changes::Audience;
use crate::migration;
use crate::persistence::load::LoadFailure;
use crate::registry::RowId;
use crate::scripting::{RunningScript, ScriptKind};
use crate::session::session_flag;
use crate::state::server_gate;

/// Lines that one script may log, and bytes of each: the log is not the script's.
const LOG_LINES_MAX: usize = 1000;
const LOG_LINE_MAX: usize = 1024;
/// Ticks that all libraries of one request may take together: nobody is served meanwhile. A library
/// by itself may take half as many, as the limits of the interpreter say.
const LOADING_TICKS_MAX: u32 = 5000;

/// Whether the command that starts a script lets it write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    ReadWrite,
    Read,
}

/// What is known before a script starts.
pub(super) struct Start {
    pub(super) kind: ScriptKind,
    pub(super) flags: Flags,
    pub(super) access: Access,
    pub(super) key_count: usize,
}

/// Lends the interpreter to `work`. What `work` runs finds none: scripts start no scripts.
pub(super) fn with_interpreter<T>(
    cx: &mut Context<'_>,
    work: impl FnOnce(&mut Context<'_>, &mut Interpreter) -> Result<T, CommandError>,
) -> Result<T, CommandError> {
    let Some(mut interpreter) = cx.server.scripting.interpreter.take() else {
        return Err(CommandError::text("ERR This Redis command is not allowed from script"));
    };
    let result = work(cx, &mut interpreter);
    cx.server.scripting.interpreter = Some(interpreter);
    result
}

/// Runs a script by `work` and counts how it went.
pub(super) fn run(
    cx: &mut Context<'_>,
    request: Request<'_>,
    start: Start,
    work: impl FnOnce(Invocation<'_>, &mut dyn Host, &mut Vec<u8>) -> Option<ScriptOutcome>,
) -> CommandResult {
    let memory_refusal = check_start(cx, &start)?;
    let all: Vec<&[u8]> = request.args_from(3).collect();
    let (keys, arguments) = all.split_at(start.key_count);
    let client = cx.reply.protocol();
    let protocol = match client {
        Protocol::Resp2 => ScriptProtocol::Resp2,
        Protocol::Resp3 => ScriptProtocol::Resp3,
    };
    let invocation = Invocation { keys, arguments, protocol };
    let db = cx.session.db;
    let tracked_keys = match cx.session.has(session_flag::TRACKING) {
        true => keys.iter().copied().map(Box::from).collect(),
        false => Vec::new(),
    };
    let running = RunningScript {
        tracked_keys,
        slot: keys.first().map(|key| store_resp::slot::slot_of(key)),
        may_cross_slots: start.flags.contains(Flags::ALLOW_CROSS_SLOT_KEYS)
            || start.flags.contains(Flags::COMPATIBILITY),
        ..begin(cx, request, start.kind)
    };
    cx.server.scripting.running = Some(running);
    let mut reply = std::mem::replace(&mut cx.reply, ReplyWriter::new(client)).into_output();
    let reply_start = reply.position();
    let mut host = ScriptHost::new(cx, &start, memory_refusal);
    host.cx.db.changes.in_script = true;
    let outcome = work(invocation, &mut host, reply.bytes_mut());
    host.cx.db.changes.in_script = false;
    let failures = u64::from(host.has_new_errors) + host.old_errors;
    cx.server.registry.stats_mut(cx.row).failed += failures;
    cx.server.scripting.running = None;
    cx.server.gates &= !server_gate::BUSY_SCRIPT;
    // SELECT in a script is the script's own.
    cx.select(db);
    if let Some(ScriptOutcome::Failed { .. } | ScriptOutcome::Killed) = outcome {
        cx.server.registry.stats_mut(cx.row).failed += 1;
        if cx.session.has(session_flag::PRIMARY_LINK) {
            let line = String::from_utf8_lossy(&reply.bytes()[reply_start..]);
            let failure = LoadFailure::Refused(line.trim().to_owned());
            cx.server.persistence.load_failure.get_or_insert(failure);
        }
    }
    if let Some(ScriptOutcome::Failed { counted: false } | ScriptOutcome::Killed) = outcome {
        let line = reply.bytes()[reply_start..].strip_prefix(b"-").unwrap_or_default();
        cx.server.stats.count_error(error_code(line));
    }
    cx.reply = ReplyWriter::onto_output(reply, client);
    Ok(())
}

fn begin(cx: &mut Context<'_>, request: Request<'_>, kind: ScriptKind) -> RunningScript {
    /// Arguments of the request that FUNCTION STATS shows at most, and bytes of each.
    const SHOWN_ARGS_MAX: usize = 32;
    const SHOWN_BYTES_MAX: usize = 128;
    let started_at_us = cx.busy_handler.now_us();
    let shown = |arg: &[u8]| arg[..arg.len().min(SHOWN_BYTES_MAX)].to_vec();
    RunningScript {
        kind,
        name: match kind {
            ScriptKind::Function => shown(request.arg(1)),
            ScriptKind::Script => b"eval".to_vec(),
        },
        request: request.args_from(0).take(SHOWN_ARGS_MAX).map(shown).collect(),
        started_at_us,
        seen_at_us: started_at_us.unwrap_or_default(),
        has_written: false,
        is_of_primary: cx.session.has(session_flag::PRIMARY_LINK),
        is_killed: false,
        audience: Some(Audience::All),
        protocol: cx.session.protocol,
        tracked_keys: Vec::new(),
        slot: None,
        served: BTreeMap::new(),
        may_cross_slots: false,
    }
}

/// The code of an error's text: its first word, or ERR where there is none.
fn error_code(text: &[u8]) -> &[u8] {
    /// A longer word is no code.
    const CODE_MAX: usize = 30;
    match text.iter().take(CODE_MAX + 1).position(|byte| *byte == b' ') {
        Some(end) => &text[..end],
        None => b"ERR",
    }
}

/// What a script promised decides whether it starts. Answers why its writes will be refused,
/// if there is no memory for them: no key may go for memory once it runs.
fn check_start(cx: &mut Context<'_>, start: &Start) -> Result<Option<CommandError>, CommandError> {
    const WRITING: &Command = &Command::new("eval", AtLeast(3), WRITE, super::eval);
    let flags = start.flags;
    let promises = !flags.contains(Flags::COMPATIBILITY);
    if flags.contains(Flags::NO_CLUSTER) && cx.server.cluster.is_some() {
        let text = "ERR Can not run script on cluster, 'no-cluster' flag is set.";
        return Err(CommandError::text(text));
    }
    let only_reads = flags.contains(Flags::NO_WRITES);
    if start.access == Access::Read && promises && !only_reads {
        let text = "ERR Can not execute a script with write flag using *_ro command.";
        return Err(CommandError::text(text));
    }
    if promises && !only_reads {
        gate::check_replicas(cx, WRITING)?;
    }
    if cx.server.gates & server_gate::MEMORY_LIMIT == 0 || flags.contains(Flags::ALLOW_OOM) {
        return Ok(None);
    }
    match eviction::refusal(cx.server) {
        Some(refusal) if promises && !only_reads => Err(refusal),
        refusal => Ok(refusal),
    }
}

/// The server, for one run of one script. It acts as the session that asked for the script.
pub(super) struct ScriptHost<'a, 'c> {
    cx: &'a mut Context<'c>,
    only_reads: bool,
    /// What commands that need memory are answered with.
    memory_refusal: Option<CommandError>,
    lines_left: usize,
    /// It returns errors of its own making, and so many that commands answered with.
    has_new_errors: bool,
    old_errors: u64,
    /// How often libraries may still tick.
    ticks_left: u32,
    /// Scratch for the request that is called.
    request: OwnedRequest,
}

impl<'a, 'c> ScriptHost<'a, 'c> {
    fn new(cx: &'a mut Context<'c>, start: &Start, memory_refusal: Option<CommandError>) -> Self {
        let only_reads = start.access == Access::Read || start.flags.contains(Flags::NO_WRITES);
        Self { only_reads, memory_refusal, ..Self::loading(cx) }
    }

    /// For libraries that are loaded, which call nothing.
    pub(super) fn loading(cx: &'a mut Context<'c>) -> Self {
        Self {
            cx,
            only_reads: true,
            memory_refusal: None,
            lines_left: LOG_LINES_MAX,
            has_new_errors: false,
            old_errors: 0,
            ticks_left: LOADING_TICKS_MAX,
            request: OwnedRequest::from_args([]),
        }
    }

    fn find(&self, request: Request<'_>) -> Option<RowId> {
        let registry = &self.cx.server.registry;
        let row = registry.find(request.arg(0))?;
        match request.get(1) {
            Some(name) if !registry.row(row).command.subcommands.is_empty() => {
                registry.find_subcommand(row, name)
            }
            _ => Some(row),
        }
    }

    fn call_request(&mut self, request: Request<'_>) {
        let Some(row) = self.find(request) else {
            let error = CommandError::text("ERR Unknown Redis command called from script");
            return self.refuse(None, &error);
        };
        if let Err(error) = self.admit(row, request) {
            return self.refuse(Some(row), &error);
        }
        gate::call_queued(self.cx, row, request, Caller::Script);
    }

    /// The gates of commands that scripts call.
    fn admit(&mut self, row: RowId, request: Request<'_>) -> CommandResult {
        let command = self.cx.server.registry.row(row).command;
        if !command.arity.admits(request.len()) {
            let text = "ERR Wrong number of args calling Redis command from script";
            return Err(CommandError::text(text));
        }
        // Only what acts on the whole server: a script has no connection of its own to change.
        let administrates = command.has(ADMIN) && !command.has(NO_MULTI);
        let is_let = administrates && self.cx.server.debug.scripts_administrate;
        if command.has(NO_SCRIPT) && !is_let {
            return Err(CommandError::text("ERR This Redis command is not allowed from script"));
        }
        if self.cx.server.gates & server_gate::STALE != 0 && !command.has(STALE) {
            return Err(CommandError::text("ERR Can not execute the command on a stale replica"));
        }
        if self.cx.session.has(session_flag::RESTRICTED) {
            self.as_script(row, |cx| acl::check_scripted(cx, request))?;
        }
        let running = self.cx.server.scripting.running.as_ref();
        let has_written = running.is_some_and(|running| running.has_written);
        if self.only_reads && command.has(WRITE | MAY_REPLICATE) {
            let text = "ERR Write commands are not allowed from read-only scripts.";
            return Err(CommandError::text(text));
        }
        if self.cx.server.gates & server_gate::LEAVING != 0
            && migration::changes_leaving(self.cx.server, self.cx.db.selected(), command, request)
        {
            // Whoever reads TRYAGAIN tries again, which must not do anything twice.
            return Err(if has_written { migration::LEAVING_LATE } else { migration::LEAVING });
        }
        if command.has(WRITE) {
            if self.cx.server.gates & server_gate::DISK_TROUBLE != 0 {
                return Err(self.cx.server.persistence.refusal());
            }
            gate::check_replicas(self.cx, command)?;
            if self.cx.server.gates & server_gate::SAVING_FAILS != 0 {
                return Err(CommandError::SAVING_FAILS);
            }
        }
        match &self.memory_refusal {
            // What has begun to write may finish.
            Some(refusal) if command.has(GROWS) && !has_written => return Err(refusal.clone()),
            _ => {}
        }
        // Where keys are is asked last: a write on a replica is refused because it is one.
        if self.cx.server.gates & server_gate::CLUSTER != 0 {
            route::check_scripted(self.cx, command, request)?;
        }
        if let Some(running) = self.cx.server.scripting.running.as_mut() {
            running.has_written |= command.has(WRITE);
        }
        Ok(())
    }

    fn tick_of_loading(&mut self) -> Tick {
        self.ticks_left = self.ticks_left.saturating_sub(1);
        if self.ticks_left == 0 { Tick::Kill } else { Tick::Continue }
    }

    fn as_script<T>(&mut self, row: RowId, work: impl FnOnce(&mut Context<'c>) -> T) -> T {
        let outer = (self.cx.row, self.cx.caller);
        (self.cx.row, self.cx.caller) = (row, Caller::Script);
        let result = work(self.cx);
        (self.cx.row, self.cx.caller) = outer;
        result
    }

    fn refuse(&mut self, row: Option<RowId>, error: &CommandError) {
        if let Some(row) = row {
            self.cx.server.registry.stats_mut(row).rejected += 1;
        }
        self.cx.server.stats.count_error(error.code());
        self.cx.reply.error(error.as_bytes());
    }

    fn with_request<T>(
        &mut self,
        arguments: &[&[u8]],
        work: impl FnOnce(&mut Self, Request<'_>) -> T,
    ) -> T {
        let mut request = std::mem::take(&mut self.request);
        request.clear();
        for argument in arguments {
            request.push(argument);
        }
        let result = work(self, request.as_request());
        self.request = request;
        result
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(&mut self, arguments: &[&[u8]], protocol: ScriptProtocol, reply: &mut Vec<u8>) {
        let protocol = match protocol {
            ScriptProtocol::Resp2 => Protocol::Resp2,
            ScriptProtocol::Resp3 => Protocol::Resp3,
        };
        let writer = ReplyWriter::onto(std::mem::take(reply), protocol);
        let outer_reply = std::mem::replace(&mut self.cx.reply, writer);
        let outer_protocol = std::mem::replace(&mut self.cx.session.protocol, protocol);
        self.with_request(arguments, |host, request| host.call_request(request));
        self.cx.session.protocol = outer_protocol;
        *reply = std::mem::replace(&mut self.cx.reply, outer_reply).into_bytes();
    }

    fn acl_check(&mut self, arguments: &[&[u8]]) -> AclAnswer {
        self.with_request(arguments, |host, request| {
            let Some(row) = host.find(request) else { return AclAnswer::UnknownCommand };
            match host.as_script(row, |cx| acl::verdict_of(cx, request)) {
                Ok(()) => AclAnswer::Allowed,
                Err(_) => AclAnswer::Denied,
            }
        })
    }

    fn log(&mut self, level: LogLevel, text: &[u8]) {
        if level < self.cx.server.config.settings().logs.level || self.lines_left == 0 {
            return;
        }
        self.lines_left -= 1;
        let text = text[..text.len().min(LOG_LINE_MAX)].escape_ascii().to_string();
        self.cx.server.effects.requests.push(ServerRequest::Log(text));
    }

    fn set_replication(&mut self, replication: Replication) {
        if let Some(running) = self.cx.server.scripting.running.as_mut() {
            running.audience = match (replication.to_file, replication.to_replicas) {
                (true, true) => Some(Audience::All),
                (true, false) => Some(Audience::File),
                (false, true) => Some(Audience::Stream),
                (false, false) => None,
            };
        }
    }

    fn returned_error(&mut self, text: &[u8], is_counted: bool) {
        if is_counted {
            self.old_errors += 1;
            return;
        }
        self.has_new_errors = true;
        self.cx.server.stats.count_error(error_code(text));
    }

    fn tick(&mut self) -> Tick {
        let threshold_ms = self.cx.server.config.settings().busy_after_ms;
        if self.cx.server.scripting.running.is_none() {
            return self.tick_of_loading();
        }
        let Some(now_us) = self.cx.busy_handler.now_us() else { return Tick::Continue };
        let Some(running) = self.cx.server.scripting.running.as_mut() else {
            return Tick::Continue;
        };
        running.seen_at_us = now_us;
        let elapsed_us = now_us.saturating_sub(running.started_at_us.unwrap_or(now_us));
        if threshold_ms == 0 || elapsed_us / 1000 < threshold_ms {
            return Tick::Continue;
        }
        self.cx.server.gates |= server_gate::BUSY_SCRIPT;
        let mut busy = Busy { db: self.cx.db, server: self.cx.server };
        let attended = self.cx.busy_handler.handle_busy(&mut busy);
        let running = self.cx.server.scripting.running.as_ref();
        let is_killed = running.is_some_and(|running| running.is_killed);
        let has_written = running.is_some_and(|running| running.has_written);
        let is_stopped = match attended {
            BusyDecision::Continue => false,
            BusyDecision::Stop => !has_written,
            BusyDecision::StopNow => true,
        };
        if is_stopped && has_written {
            self.cx.server.gates |= server_gate::TORN;
        }
        if is_killed || is_stopped { Tick::Kill } else { Tick::Continue }
    }
}
