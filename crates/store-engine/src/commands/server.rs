//! The server as a whole: its role, modules it does not have, and a drawing.

use super::prelude::*;
use crate::effects::ServerRequest;
use crate::session::TimeoutReply;

pub(super) const TABLE: &[Command] = &[
    Command::new("bgrewriteaof", Exactly(1), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING, bgrewriteaof)
        .docs(Group::Server, "1.0.0", "O(1)", "Writes the append-only file anew."),
    Command::new("failover", AtLeast(1), ADMIN | NO_SCRIPT | STALE, failover)
        .docs(Group::Server, "6.2.0", "O(1)", "Hands the part of the master to a replica.")
        .arguments(
            "?target#b=TO(host#s port#i ?force#t=FORCE) ?abort#t=ABORT \
             ?milliseconds#i=TIMEOUT",
        ),
    Command::new("lolwut", AtLeast(1), READ | FAST, lolwut)
        .docs(Group::Server, "5.0.0", "", "A drawing, and the version.")
        .arguments("?version#i=VERSION"),
    Command::container("module", MODULE_SUBCOMMANDS).docs(
        Group::Server,
        "4.0.0",
        "O(1)",
        "Modules, which this server does not take.",
    ),
    Command::new("psync", AtLeast(3), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING | NO_MULTI, no_replicas)
        .docs(Group::Server, "2.8.0", "", "Makes the connection a replica's.")
        .arguments("replicationid#s offset#i"),
    Command::new(
        "replconf",
        AtLeast(1),
        ADMIN | NO_SCRIPT | LOADING | STALE | ALLOW_BUSY | SYSTEM,
        replconf,
    )
    .docs(Group::Server, "3.0.0", "O(1)", "What replicas tell their master."),
    Command::new("replicaof", Exactly(3), ADMIN | NO_SCRIPT | STALE | NO_ASYNC_LOADING, replicaof)
        .docs(Group::Server, "5.0.0", "O(1)", "Makes the server a replica or a master.")
        .arguments("args#o(host-port#b(host#s port#i) no-one#b(no#t=NO one#t=ONE))"),
    Command::new("role", Exactly(1), NO_SCRIPT | LOADING | STALE | FAST, role)
        .categories(category::ADMIN | category::DANGEROUS)
        .docs(Group::Server, "2.8.12", "O(1)", "Whether the server is master or replica."),
    Command::new("slaveof", Exactly(3), ADMIN | NO_SCRIPT | STALE | NO_ASYNC_LOADING, replicaof)
        .docs(Group::Server, "1.0.0", "O(1)", "Makes the server a replica or a master.")
        .arguments("args#o(host-port#b(host#s port#i) no-one#b(no#t=NO one#t=ONE))")
        .deprecated("5.0.0", "`REPLICAOF`"),
    Command::new("sync", Exactly(1), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING | NO_MULTI, no_replicas)
        .docs(Group::Server, "1.0.0", "", "Makes the connection a replica's."),
    Command::new("wait", Exactly(3), NO_SCRIPT, wait)
        .categories(category::CONNECTION)
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .docs(Group::Generic, "3.0.0", "O(1)", "Waits until replicas have confirmed writes.")
        .arguments("numreplicas#i timeout#i"),
];

const MODULE_SUBCOMMANDS: &[Command] = &[
    Command::new("help", Exactly(2), LOADING | STALE, module_help).docs(
        Group::Server,
        "5.0.0",
        "O(1)",
        "What the subcommands do.",
    ),
    Command::new("list", Exactly(2), ADMIN | NO_SCRIPT, module_list)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "4.0.0", "O(N)", "Modules that are loaded: none."),
    Command::new("load", AtLeast(3), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING, no_modules)
        .docs(Group::Server, "4.0.0", "O(1)", "Loads a module: refused.")
        .arguments("path#s ?*arg#s"),
    Command::new("loadex", AtLeast(3), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING, no_modules)
        .docs(Group::Server, "7.0.0", "O(1)", "Loads a module with settings: refused.")
        .arguments("path#s ?*+configs#b=CONFIG(name#s value#s) ?*args#b=ARGS(arg#s)"),
    Command::new("unload", Exactly(3), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING, no_modules)
        .docs(Group::Server, "4.0.0", "O(1)", "Unloads a module: refused.")
        .arguments("name#s"),
];

fn bgrewriteaof(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let aof = &mut cx.server.persistence.aof;
    if aof.is_rewriting {
        let text = "ERR Background append only file rewriting already in progress";
        return Err(CommandError::text(text));
    }
    aof.is_scheduled = true;
    cx.server.effects.requests.push(ServerRequest::RewriteAof);
    let begins = if cx.server.saving.is_running() { "scheduled" } else { "started" };
    cx.reply.simple(&format!("Background append only file rewriting {begins}"));
    Ok(())
}

fn role(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.array(3);
    cx.reply.bulk(b"master");
    cx.reply.integer(0);
    cx.reply.array(0);
    Ok(())
}

fn replicaof(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if is_word(request.arg(1), "NO") && is_word(request.arg(2), "ONE") {
        cx.reply.ok();
        return Ok(());
    }
    integer_within(request.arg(2), 0, 65_535)
        .map_err(|_| CommandError::text("ERR Invalid master port"))?;
    Err(CommandError::text("ERR This server cannot be a replica"))
}

fn replconf(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.len().is_multiple_of(2) {
        return Err(CommandError::SYNTAX);
    }
    for at in (1..request.len()).step_by(2) {
        let known = ["listening-port", "ip-address", "capa", "rdb-only", "rdb-filter-only"];
        if !known.iter().any(|name| is_word(request.arg(at), name)) {
            let name = String::from_utf8_lossy(request.arg(at));
            let text = format!("ERR Unrecognized REPLCONF option: {name}");
            return Err(CommandError::new(text));
        }
    }
    cx.reply.ok();
    Ok(())
}

fn no_replicas(_: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    Err(CommandError::text("ERR This server has no replicas"))
}

fn failover(_: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.len() == 2 && is_word(request.arg(1), "ABORT") {
        return Err(CommandError::text("ERR No failover in progress."));
    }
    let mut at = 1;
    while let Some(word) = request.get(at) {
        let width = match () {
            () if is_word(word, "TO") => 3,
            () if is_word(word, "TIMEOUT") => 2,
            () if is_word(word, "FORCE") => 1,
            () => return Err(CommandError::SYNTAX),
        };
        if at + width > request.len() {
            return Err(CommandError::SYNTAX);
        }
        if width == 2 && integer(request.arg(at + 1))? <= 0 {
            return Err(CommandError::text("ERR FAILOVER timeout must be greater than 0"));
        }
        at += width;
    }
    Err(CommandError::text("ERR FAILOVER requires connected replicas."))
}

fn wait(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let replicas = integer(request.arg(1))?;
    let not_integer = CommandError::text("ERR timeout is not an integer or out of range");
    let timeout = store_resp::parse_integer(request.arg(2)).ok_or(not_integer)?;
    if timeout < 0 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    if replicas <= 0 {
        cx.reply.integer(0);
        return Ok(());
    }
    cx.block(request, std::iter::empty(), timeout as u64, TimeoutReply::Zero)
}

fn module_list(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.array(0);
    Ok(())
}

fn no_modules(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if !crate::config::commands::allows(cx, cx.server.config.settings().clients.module_command) {
        return Err(CommandError::text(
            "ERR MODULE command not allowed. If the enable-module-command option is set to \
             \"local\", you can run it from a local connection, otherwise you need to set this \
             option in the configuration file, and then restart the server.",
        ));
    }
    let line = "Modules are compiled for redis-server itself and cannot be loaded".to_owned();
    cx.server.effects.requests.push(ServerRequest::Log(line));
    Err(match is_word(request.arg(1), "UNLOAD") {
        true => CommandError::text("ERR Error unloading module: no such module with that name"),
        false => {
            CommandError::text("ERR Error loading the extension. Please check the server logs.")
        }
    })
}

fn module_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    super::help::reply(cx, "MODULE", &[("LIST", "Modules that are loaded: none.")]);
    Ok(())
}

/// Squares in rows that lean more the further down they are, for the fun of it.
fn lolwut(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    const COLUMNS_MAX: i64 = 80;
    const ROWS_MAX: i64 = 40;
    let mut text = String::new();
    if let Some(word) = request.get(1)
        && is_word(word, "VERSION")
        && let Some(version) = request.get(2)
    {
        integer(version)?;
        let size = |at: usize, default: i64, max: i64| match request.get(at) {
            Some(arg) => integer(arg).map(|size| size.clamp(1, max)),
            None => Ok(default),
        };
        let (columns, rows) = (size(3, 24, COLUMNS_MAX)?, size(4, 8, ROWS_MAX)?);
        for row in 0..rows {
            for _ in 0..columns {
                let leans = (cx.db.random.below(rows as usize) as i64) < row;
                let shape = if leans { ['◇', '◆', '◈'] } else { ['□', '▫', '◻'] };
                text.push(shape[cx.db.random.below(shape.len())]);
            }
            text.push('\n');
        }
        text.push_str("\nOrder above, chance below. ");
    }
    text.push_str(&format!("Redis ver. {}\n", crate::REDIS_VERSION));
    cx.reply.verbatim("txt", text.as_bytes());
    Ok(())
}
