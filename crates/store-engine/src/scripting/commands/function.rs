//! FUNCTION: libraries come, are looked at, and go.

use store_script::{Existing, Interpreter, Library, LibraryError};
use store_types::glob;

use super::run::{ScriptHost, with_interpreter};
use super::{ScriptKind, kill, payload};
use crate::commands::prelude::*;

const LOADS: u32 = WRITE | GROWS | NO_SCRIPT | RUNS_SCRIPTS;

pub(super) const FUNCTION_SUBCOMMANDS: &[Command] = &[
    Command::new("delete", Exactly(3), WRITE | NO_SCRIPT, function_delete)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(1)", "Removes a library.")
        .arguments("library-name#s"),
    Command::new("dump", Exactly(2), NO_SCRIPT, function_dump)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "7.0.0", "O(N)", "All libraries as one payload."),
    Command::new("flush", AtLeast(2), WRITE | NO_SCRIPT, function_flush)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(N)", "Removes all libraries.")
        .arguments("?async#o(async#t=ASYNC sync#t=SYNC)"),
    Command::new("help", Exactly(2), LOADING | STALE, function_help)
        .categories(category::SCRIPTING)
        .docs(Group::Scripting, "7.0.0", "O(1)", "What the subcommands do."),
    Command::new("kill", Exactly(2), NO_SCRIPT | ALLOW_BUSY, function_kill)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(1)", "Ends the running function."),
    Command::new("list", AtLeast(2), NO_SCRIPT, function_list)
        .categories(category::SCRIPTING)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Scripting, "7.0.0", "O(N)", "Libraries and their functions.")
        .arguments("?library-name-pattern#s=LIBRARYNAME ?withcode#t=WITHCODE"),
    Command::new("load", AtLeast(3), LOADS, function_load)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(1)", "Adds a library.")
        .arguments("?replace#t=REPLACE function-code#s"),
    Command::new("restore", AtLeast(3), LOADS, function_restore)
        .categories(category::SCRIPTING)
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .docs(Group::Scripting, "7.0.0", "O(N)", "Adds the libraries of a payload.")
        .arguments(
            "serialized-value#s ?policy#o(flush#t=FLUSH append#t=APPEND \
             replace#t=REPLACE)",
        ),
    Command::new("stats", Exactly(2), NO_SCRIPT | ALLOW_BUSY, function_stats)
        .categories(category::SCRIPTING)
        .tips(&["nondeterministic_output", "request_policy:all_shards", "response_policy:special"])
        .docs(Group::Scripting, "7.0.0", "O(1)", "What runs, and how many functions there are."),
];

impl From<LibraryError> for CommandError {
    fn from(error: LibraryError) -> Self {
        Self::new(error.to_string())
    }
}

/// Names the subcommand as the client wrote it.
fn wrong_subcommand(request: Request<'_>) -> CommandError {
    let text = b"ERR unknown subcommand or wrong number of arguments for '";
    CommandError::new([text, request.arg(1), b"'. Try FUNCTION HELP."].concat())
}

fn function_load(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let mut existing = Existing::Refuse;
    for option in request.args_from(2).take(request.len() - 3) {
        if !is_word(option, "REPLACE") {
            let text = [b"ERR Unknown option given: ", option].concat();
            return Err(CommandError::new(text));
        }
        existing = Existing::Replace;
    }
    cx.server.scripting.admit_libraries()?;
    let code = request.arg(request.len() - 1);
    let name = with_interpreter(cx, |cx, interpreter| {
        let loaded = interpreter.load_library(code, existing, &mut ScriptHost::loading(cx));
        loaded.map_err(CommandError::from)
    })?;
    cx.db.dirty += 1;
    cx.reply.bulk(name.as_bytes());
    Ok(())
}

fn function_delete(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let name = std::str::from_utf8(request.arg(2)).unwrap_or_default();
    let is_gone = with_interpreter(cx, |_, interpreter| Ok(interpreter.delete_library(name)))?;
    if !is_gone {
        return Err(CommandError::text("ERR Library not found"));
    }
    cx.db.dirty += 1;
    cx.reply.ok();
    Ok(())
}

fn function_flush(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.len() > 3 {
        return Err(wrong_subcommand(request));
    }
    let is_known = |word| is_word(word, "SYNC") || is_word(word, "ASYNC");
    if request.get(2).is_some_and(|word| !is_known(word)) {
        return Err(CommandError::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }
    with_interpreter(cx, |_, interpreter| {
        interpreter.flush_libraries();
        Ok(())
    })?;
    cx.db.dirty += 1;
    cx.reply.ok();
    Ok(())
}

fn function_dump(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let compresses = cx.server.config.settings().snapshot.compresses;
    let libraries = cx.server.scripting.interpreter().into_iter();
    let codes = libraries.flat_map(|interpreter| interpreter.libraries().map(Library::code));
    cx.reply.bulk(&payload::save(codes, compresses));
    Ok(())
}

/// What FUNCTION RESTORE does with what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Append,
    Replace,
    Flush,
}

fn function_restore(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.len() > 4 {
        return Err(wrong_subcommand(request));
    }
    let policy = match request.get(3) {
        None => Policy::Append,
        Some(word) if is_word(word, "APPEND") => Policy::Append,
        Some(word) if is_word(word, "REPLACE") => Policy::Replace,
        Some(word) if is_word(word, "FLUSH") => Policy::Flush,
        Some(_) => {
            return Err(CommandError::text(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    cx.server.scripting.admit_libraries()?;
    let codes = payload::codes(request.arg(2), cx.server.debug.skips_checksums)?;
    let existing = match policy {
        Policy::Append => Some(Existing::Refuse),
        Policy::Replace => Some(Existing::Replace),
        Policy::Flush => None,
    };
    with_interpreter(cx, |cx, interpreter| {
        interpreter.load_libraries(codes, existing, &mut ScriptHost::loading(cx))
    })?;
    cx.db.dirty += 1;
    cx.reply.ok();
    Ok(())
}

fn function_list(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let (mut pattern, mut with_code, mut at) = (None, false, 2);
    while let Some(word) = request.get(at) {
        at += 1;
        if is_word(word, "WITHCODE") && !with_code {
            with_code = true;
        } else if is_word(word, "LIBRARYNAME") && pattern.is_none() {
            let missing = || CommandError::text("ERR library name argument was not given");
            pattern = Some(request.get(at).ok_or_else(missing)?);
            at += 1;
        } else {
            return Err(CommandError::new([b"ERR Unknown argument ", word].concat()));
        }
    }
    let libraries = cx.server.scripting.interpreter().into_iter().flat_map(Interpreter::libraries);
    let is_wanted = |library: &&Library| {
        let matches =
            |pattern| glob::matches(pattern, library.name().as_bytes(), glob::Case::Insensitive);
        pattern.is_none_or(matches)
    };
    let listed: Vec<&Library> = libraries.filter(is_wanted).collect();
    cx.reply.array(listed.len());
    for library in listed {
        write_library(&mut cx.reply, library, with_code);
    }
    Ok(())
}

fn write_library(reply: &mut store_resp::ReplyWriter, library: &Library, with_code: bool) {
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(library.name().as_bytes());
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions().count());
    for function in library.functions() {
        reply.map(3);
        reply.bulk(b"name");
        reply.bulk(function.name.as_bytes());
        reply.bulk(b"description");
        reply.bulk_or_null(function.description.map(str::as_bytes));
        reply.bulk(b"flags");
        reply.set(function.flags.names().count());
        for name in function.flags.names() {
            reply.simple(name);
        }
    }
    if with_code {
        reply.bulk(b"library_code");
        reply.bulk(library.code());
    }
}

fn function_kill(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    kill(cx, ScriptKind::Function)
}

fn function_stats(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let scripting = &cx.server.scripting;
    cx.reply.map(2);
    cx.reply.bulk(b"running_script");
    match &scripting.running {
        None => cx.reply.null(),
        Some(running) => {
            let started_at_us = running.started_at_us.unwrap_or(running.seen_at_us);
            cx.reply.map(3);
            cx.reply.bulk(b"name");
            cx.reply.bulk(&running.name);
            cx.reply.bulk(b"command");
            cx.reply.array(running.request.len());
            for argument in &running.request {
                cx.reply.bulk(argument);
            }
            cx.reply.bulk(b"duration_ms");
            cx.reply.integer((running.seen_at_us.saturating_sub(started_at_us) / 1000) as i64);
        }
    }
    cx.reply.bulk(b"engines");
    cx.reply.map(1);
    cx.reply.bulk(b"LUA");
    cx.reply.map(2);
    let interpreter = scripting.interpreter();
    cx.reply.bulk(b"libraries_count");
    cx.reply.count(interpreter.map_or(0, |interpreter| interpreter.libraries().count()));
    cx.reply.bulk(b"functions_count");
    cx.reply.count(interpreter.map_or(0, Interpreter::function_count));
    Ok(())
}

fn function_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    crate::commands::help::reply(
        cx,
        "FUNCTION",
        &[
            ("DELETE <library>", "Removes a library."),
            ("DUMP", "All libraries as one payload for RESTORE."),
            ("FLUSH [ASYNC|SYNC]", "Removes all libraries."),
            ("KILL", "Ends the running function, unless it has written."),
            ("LIST [LIBRARYNAME <pattern>] [WITHCODE]", "Libraries and their functions."),
            ("LOAD [REPLACE] <code>", "Adds a library."),
            ("RESTORE <payload> [FLUSH|APPEND|REPLACE]", "Adds the libraries of a payload."),
            ("STATS", "What runs, and how many functions there are."),
        ],
    );
    Ok(())
}
