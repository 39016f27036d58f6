//! EVAL, SCRIPT, FCALL and FUNCTION.
//!
//! ```text
//! request ─ which script, which keys ─► run ─ Host ─► gates and commands, as the caller
//! ```

mod function;
mod payload;
mod run;

use store_script::{Digest, Flags, Interpreter, LoadError, Origin};

use self::function::FUNCTION_SUBCOMMANDS;
use self::run::Access;
use crate::commands::monitor::show_request;
use crate::commands::prelude::*;
use crate::scripting::{ScriptKind, Scripting};
use crate::state::server_gate;

const ANY_KEYS: &[KeySpec] = &[KeySpec::counted(2, RW | ACCESS | UPDATE)];
const READ_KEYS: &[KeySpec] = &[KeySpec::counted(2, RO | ACCESS)];
const RUNS: u32 =
    NO_SCRIPT | STALE | SKIP_MONITOR | NO_MANDATORY_KEYS | MOVABLE_KEYS | RUNS_SCRIPTS;

pub(crate) const TABLE: &[Command] = &[
    Command::new("eval", AtLeast(3), RUNS | MAY_REPLICATE, eval)
        .script_flags_found_by(flags_of_code)
        .keys(ANY_KEYS)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "2.6.0", "O(1)", "Runs a script.")
        .arguments("script#s numkeys#i ?*key#k@0 ?*arg#s"),
    Command::new("eval_ro", AtLeast(3), READ | RUNS, eval_ro)
        .script_flags_found_by(flags_of_code)
        .keys(READ_KEYS)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "7.0.0", "O(1)", "Runs a script that must not write.")
        .arguments("script#s numkeys#i ?*key#k@0 ?*arg#s"),
    Command::new("evalsha", AtLeast(3), RUNS | MAY_REPLICATE, evalsha)
        .script_flags_found_by(flags_of_digest)
        .keys(ANY_KEYS)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "2.6.0", "O(1)", "Runs a script known by its digest.")
        .arguments("sha1#s numkeys#i ?*key#k@0 ?*arg#s"),
    Command::new("evalsha_ro", AtLeast(3), READ | RUNS, evalsha_ro)
        .script_flags_found_by(flags_of_digest)
        .keys(READ_KEYS)
        .categories(category::SCRIPTING)
        .docs(
            Group::Scripting,
            "7.0.0",
            "O(1)",
            "Runs a script known by its digest that must not write.",
        )
        .arguments("sha1#s numkeys#i ?*key#k@0 ?*arg#s"),
    Command::new("fcall", AtLeast(3), RUNS | MAY_REPLICATE, fcall)
        .script_flags_found_by(flags_of_function)
        .keys(ANY_KEYS)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "7.0.0", "O(1)", "Calls a function of a library.")
        .arguments("function#s numkeys#i ?*key#k@0 ?*arg#s"),
    Command::new("fcall_ro", AtLeast(3), READ | RUNS, fcall_ro)
        .script_flags_found_by(flags_of_function)
        .keys(READ_KEYS)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "7.0.0", "O(1)", "Calls a function that must not write.")
        .arguments("function#s numkeys#i ?*key#k@0 ?*arg#s"),
    Command::container("function", FUNCTION_SUBCOMMANDS).docs(
        Group::Scripting,
        "7.0.0",
        "O(1)",
        "Libraries of functions.",
    ),
    Command::container("script", SCRIPT_SUBCOMMANDS).docs(
        Group::Scripting,
        "2.6.0",
        "O(1)",
        "Scripts that are kept.",
    ),
];

const SCRIPT_SUBCOMMANDS: &[Command] = &[
    Command::new("debug", Exactly(3), NO_SCRIPT, script_debug)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "3.2.0", "O(1)", "Whether scripts run step by step.")
        .arguments("mode#o(yes#t=YES sync#t=SYNC no#t=NO)"),
    Command::new("exists", AtLeast(3), NO_SCRIPT, script_exists)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:agg_logical_and"])
        .docs(Group::Scripting, "2.6.0", "O(N)", "Which scripts are kept.")
        .arguments("*sha1#s"),
    Command::new("flush", AtLeast(2), NO_SCRIPT, script_flush)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "2.6.0", "O(N)", "Forgets all scripts.")
        .arguments("?async#o^6.2.0(async#t=ASYNC sync#t=SYNC)")
        .history(&[("6.2.0", "Takes ASYNC and SYNC.")]),
    Command::new("help", Exactly(2), LOADING | STALE, script_help)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "5.0.0", "O(1)", "What the subcommands do."),
    Command::new("kill", Exactly(2), NO_SCRIPT | ALLOW_BUSY, script_kill)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .docs(Group::Scripting, "2.6.0", "O(1)", "Ends the running script."),
    Command::new("load", Exactly(3), NO_SCRIPT | STALE, script_load)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "2.6.0", "O(N)", "Keeps a script for EVALSHA.")
        .arguments("script#s"),
];

const BUSY_SCRIPT: CommandError = CommandError::text(
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
);
const BUSY_FUNCTION: CommandError = CommandError::text(
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
);

/// The flags of a command that runs a script: what the script promises stands for what any script
/// might do. A script that promises nothing, or is not found, changes nothing about them.
pub(crate) fn script_flags(cx: &Context<'_>, command: &Command, request: Request<'_>) -> u32 {
    let promised = command
        .find_script_flags
        .and_then(|find| find(cx.server.scripting.interpreter()?, request.get(1)?));
    let Some(promised) = promised.filter(|flags| !flags.contains(Flags::COMPATIBILITY)) else {
        return command.flags;
    };
    let mut flags = command.flags & !(STALE | GROWS | WRITE | MAY_REPLICATE);
    if !promised.contains(Flags::NO_WRITES) {
        flags |= WRITE;
        if !promised.contains(Flags::ALLOW_OOM) {
            flags |= GROWS;
        }
    }
    if promised.contains(Flags::ALLOW_STALE) {
        flags |= STALE;
    }
    flags
}

fn flags_of_code(_: &Interpreter, code: &[u8]) -> Option<Flags> {
    Interpreter::promised_flags(code)
}

fn flags_of_digest(interpreter: &Interpreter, digest: &[u8]) -> Option<Flags> {
    interpreter.script_flags(&Digest::parse(digest)?)
}

fn flags_of_function(interpreter: &Interpreter, name: &[u8]) -> Option<Flags> {
    Some(interpreter.function(std::str::from_utf8(name).ok()?)?.flags)
}

/// While a script runs for too long, only commands that touch no key may run.
pub(crate) fn check_busy(cx: &Context<'_>, command: &Command) -> CommandResult {
    if command.has(ALLOW_BUSY) { Ok(()) } else { Err(busy_error(cx)) }
}

/// What is answered while a script runs for too long.
pub(crate) fn busy_error(cx: &Context<'_>) -> CommandError {
    match cx.server.scripting.running.as_ref().map(|running| running.kind) {
        Some(ScriptKind::Function) => BUSY_FUNCTION,
        _ => BUSY_SCRIPT,
    }
}

/// MONITOR shows what starts a script before what the script calls, whatever becomes of it.
fn show_before_run(cx: &mut Context<'_>, request: Request<'_>) {
    if cx.server.gates & server_gate::MONITORED != 0 {
        show_request(cx, request);
    }
}

fn eval(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    show_before_run(cx, request);
    evaluate(cx, request, load_evaluated, Access::ReadWrite)
}

fn eval_ro(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    show_before_run(cx, request);
    evaluate(cx, request, load_evaluated, Access::Read)
}

fn evalsha(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    show_before_run(cx, request);
    check_digest(request)?;
    evaluate(cx, request, find_digest, Access::ReadWrite)
}

fn evalsha_ro(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    show_before_run(cx, request);
    check_digest(request)?;
    evaluate(cx, request, find_digest, Access::Read)
}

/// What has not the length of a digest is refused before the number of keys is looked at.
fn check_digest(request: Request<'_>) -> CommandResult {
    const DIGEST_LEN: usize = 40;
    match request.arg(1).len() {
        DIGEST_LEN => Ok(()),
        _ => Err(CommandError::text(store_script::NO_SCRIPT)),
    }
}

/// How a script is found by the first argument.
type FindScript = fn(&Scripting, &mut Interpreter, &[u8]) -> Result<Digest, CommandError>;

fn load_evaluated(
    scripting: &Scripting,
    interpreter: &mut Interpreter,
    code: &[u8],
) -> Result<Digest, CommandError> {
    scripting.admit_script(code)?;
    interpreter.load_script(code, Origin::Evaluated).map_err(|error| refusal(&error))
}

fn find_digest(_: &Scripting, _: &mut Interpreter, digest: &[u8]) -> Result<Digest, CommandError> {
    Digest::parse(digest).ok_or(CommandError::text(store_script::NO_SCRIPT))
}

fn refusal(error: &LoadError) -> CommandError {
    CommandError::new(error.to_string())
}

fn evaluate(
    cx: &mut Context<'_>,
    request: Request<'_>,
    find: FindScript,
    access: Access,
) -> CommandResult {
    let key_count = key_count(request, CommandError::NOT_INTEGER)?;
    run::with_interpreter(cx, |cx, interpreter| {
        let digest = find(&cx.server.scripting, interpreter, request.arg(1))?;
        let flags =
            interpreter.script_flags(&digest).ok_or(CommandError::text(store_script::NO_SCRIPT))?;
        let start = run::Start { kind: ScriptKind::Script, flags, access, key_count };
        run::run(cx, request, start, |invocation, host, reply| {
            interpreter.run_script(&digest, invocation, host, reply)
        })
    })
}

fn fcall(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    call_function(cx, request, Access::ReadWrite)
}

fn fcall_ro(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    call_function(cx, request, Access::Read)
}

fn call_function(cx: &mut Context<'_>, request: Request<'_>, access: Access) -> CommandResult {
    show_before_run(cx, request);
    run::with_interpreter(cx, |cx, interpreter| {
        let unknown = || CommandError::text(store_script::NO_FUNCTION);
        let name = std::str::from_utf8(request.arg(1)).map_err(|_| unknown())?;
        let flags: Flags = interpreter.function(name).ok_or_else(unknown)?.flags;
        let not_a_number = CommandError::text("ERR Bad number of keys provided");
        let key_count = key_count(request, not_a_number)?;
        let start = run::Start { kind: ScriptKind::Function, flags, access, key_count };
        run::run(cx, request, start, |invocation, host, reply| {
            interpreter.call_function(name, invocation, host, reply)
        })
    })
}

/// How many of the arguments behind the number are keys.
fn key_count(request: Request<'_>, not_a_number: CommandError) -> Result<usize, CommandError> {
    let count = integer(request.arg(2)).map_err(|_| not_a_number)?;
    if count > request.len() as i64 - 3 {
        return Err(CommandError::text("ERR Number of keys can't be greater than number of args"));
    }
    usize::try_from(count).map_err(|_| CommandError::text("ERR Number of keys can't be negative"))
}

fn script_load(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    cx.server.scripting.admit_script(request.arg(2))?;
    let digest = run::with_interpreter(cx, |_, interpreter| {
        let loaded = interpreter.load_script(request.arg(2), Origin::Loaded);
        loaded.map_err(|error| refusal(&error))
    })?;
    cx.reply.bulk(digest.to_string().as_bytes());
    Ok(())
}

fn script_exists(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let interpreter = cx.server.scripting.interpreter();
    let digests = request.args_from(2);
    cx.reply.array(digests.len());
    for digest in digests {
        let is_kept = Digest::parse(digest).is_some_and(|digest| {
            interpreter.is_some_and(|scripts| scripts.script_flags(&digest).is_some())
        });
        cx.reply.integer(i64::from(is_kept));
    }
    Ok(())
}

fn script_flush(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let is_known = |word| is_word(word, "SYNC") || is_word(word, "ASYNC");
    if request.len() > 3 || request.get(2).is_some_and(|word| !is_known(word)) {
        return Err(CommandError::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    run::with_interpreter(cx, |_, interpreter| {
        interpreter.flush_scripts();
        Ok(())
    })?;
    cx.reply.ok();
    Ok(())
}

fn script_kill(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    kill(cx, ScriptKind::Script)
}

/// Marks the running script; its next tick ends it.
fn kill(cx: &mut Context<'_>, kind: ScriptKind) -> CommandResult {
    let Some(running) = cx.server.scripting.running.as_mut() else {
        return Err(CommandError::text("NOTBUSY No scripts in execution right now."));
    };
    if running.is_of_primary {
        return Err(CommandError::text(
            "UNKILLABLE The busy script was sent by a master instance in the context of \
             replication and cannot be killed.",
        ));
    }
    if running.has_written {
        return Err(CommandError::text(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You \
             can either wait the script termination or kill the server in a hard way using the \
             SHUTDOWN NOSAVE command.",
        ));
    }
    match (kind, running.kind) {
        (ScriptKind::Script, ScriptKind::Function) => return Err(BUSY_FUNCTION),
        (ScriptKind::Function, ScriptKind::Script) => return Err(BUSY_SCRIPT),
        _ => running.is_killed = true,
    }
    cx.reply.ok();
    Ok(())
}

fn script_debug(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let mode = request.arg(2);
    if is_word(mode, "NO") {
        cx.reply.ok();
        return Ok(());
    }
    if is_word(mode, "YES") || is_word(mode, "SYNC") {
        return Err(CommandError::text("ERR This server has no debugger for scripts"));
    }
    Err(CommandError::text("ERR Use SCRIPT DEBUG YES/SYNC/NO"))
}

fn script_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    crate::commands::help::reply(
        cx,
        "SCRIPT",
        &[
            ("DEBUG NO", "Scripts run at once; there is no debugger."),
            ("EXISTS <sha1> [<sha1> ...]", "Tells which scripts are kept."),
            ("FLUSH [ASYNC|SYNC]", "Forgets all scripts."),
            ("KILL", "Ends the running script, unless it has written."),
            ("LOAD <script>", "Keeps a script without running it."),
        ],
    );
    Ok(())
}
