//! The server as a whole: modules it does not have, and a drawing.

use super::prelude::*;
use crate::effects::ServerRequest;

pub(super) const TABLE: &[Command] = &[
    Command::new("bgrewriteaof", Exactly(1), ADMIN | NO_SCRIPT | NO_ASYNC_LOADING, bgrewriteaof)
        .docs(Group::Server, "1.0.0", "O(1)", "Rewrites the append-only file in the background."),
    Command::new("lolwut", AtLeast(1), READ | FAST, lolwut)
        .docs(Group::Server, "5.0.0", "", "A drawing, and the version.")
        .arguments("?version#i=VERSION"),
    Command::container("module", MODULE_SUBCOMMANDS).docs(
        Group::Server,
        "4.0.0",
        "O(1)",
        "Modules, which this server does not take.",
    ),
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
