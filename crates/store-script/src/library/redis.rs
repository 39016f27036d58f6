//! `redis`: what a script can ask of the server.

use std::ffi::c_int;

use super::{Entry, set_all};
use crate::context::{Context, Registered};
use crate::flags::Flags;
use crate::host::{AclAnswer, LogLevel, Protocol, Replication};
use crate::lua::{Kind, Raise, Stack};
use crate::number::{ALL_DIGITS, format_general};
use crate::reply;
use crate::shebang::is_name;

/// What every script and function finds.
const COMMON: &[Entry] = &[
    (c"call", call),
    (c"pcall", pcall),
    (c"error_reply", error_reply),
    (c"status_reply", status_reply),
    (c"sha1hex", sha1hex),
    (c"log", log),
    (c"setresp", setresp),
    (c"set_repl", set_repl),
    (c"acl_check_cmd", acl_check_cmd),
];
/// What only EVAL scripts find.
const SCRIPT: &[Entry] =
    &[(c"replicate_commands", replicate_commands), (c"breakpoint", breakpoint), (c"debug", debug)];
/// What the text of a library finds while it loads.
const LOADING: &[Entry] = &[(c"register_function", register_function), (c"log", log)];

/// The version that we are compatible with, as INFO tells it.
const VERSION: (u8, u8, u8) = (7, 0, 15);

/// Pushes `redis` for EVAL scripts.
pub(crate) fn push_for_scripts(stack: &mut Stack<'_>) -> Result<(), Raise> {
    push_for_functions(stack)?;
    let table = stack.top();
    set_all(stack, table, SCRIPT);
    Ok(())
}

/// Pushes `redis` for functions.
pub(crate) fn push_for_functions(stack: &mut Stack<'_>) -> Result<(), Raise> {
    stack.push_table(0, 32)?;
    let table = stack.top();
    set_all(stack, table, COMMON);
    set_constants(stack, table)?;
    let replication = [
        (c"REPL_NONE", 0),
        (c"REPL_AOF", 1),
        (c"REPL_SLAVE", 2),
        (c"REPL_REPLICA", 2),
        (c"REPL_ALL", 3),
    ];
    for (name, value) in replication {
        stack.push_number(value.into());
        stack.set_field(table, name);
    }
    Ok(())
}

/// Pushes `redis` for libraries that load.
pub(crate) fn push_for_loading(stack: &mut Stack<'_>) -> Result<(), Raise> {
    stack.push_table(0, 16)?;
    let table = stack.top();
    set_all(stack, table, LOADING);
    set_constants(stack, table)
}

fn set_constants(stack: &mut Stack<'_>, table: c_int) -> Result<(), Raise> {
    let levels = [(c"LOG_DEBUG", 0), (c"LOG_VERBOSE", 1), (c"LOG_NOTICE", 2), (c"LOG_WARNING", 3)];
    for (name, value) in levels {
        stack.push_number(value.into());
        stack.set_field(table, name);
    }
    let (major, minor, patch) = VERSION;
    stack.push_bytes(format!("{major}.{minor}.{patch}").as_bytes())?;
    stack.set_field(table, c"REDIS_VERSION");
    let number = u32::from(major) << 16 | u32::from(minor) << 8 | u32::from(patch);
    stack.push_number(number.into());
    stack.set_field(table, c"REDIS_VERSION_NUM");
    Ok(())
}

fn call(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    match request(stack, context)? {
        Answered::Value => Ok(1),
        Answered::Error => Err(Raise::Value),
    }
}

fn pcall(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    request(stack, context)?;
    Ok(1)
}

/// What calling a command costs in units of work: what it really costs only the host knows, so a
/// few calls are enough for a tick.
const CALL: u64 = 10_000;

enum Answered {
    /// Lies on top.
    Value,
    /// A table with the error lies on top.
    Error,
}

/// Runs the command that the arguments are, and leaves its reply on top.
fn request(stack: &mut Stack<'_>, context: &Context) -> Result<Answered, Raise> {
    if context.is_loading() {
        let text = "redis.call/pcall can only be called inside a script invocation";
        push_error(stack, text.as_bytes())?;
        return Ok(Answered::Error);
    }
    if let Err(text) = settle_command(stack)? {
        push_error(stack, text.as_bytes())?;
        return Ok(Answered::Error);
    }
    let mut bytes = context.reply.take();
    bytes.clear();
    let arguments: Vec<&[u8]> =
        (1..=stack.top()).map(|index| stack.bytes(index).unwrap_or_default()).collect();
    let protocol = context.protocol.get();
    let asked = context.with_host(|host| host.call(&arguments, protocol, &mut bytes));
    let length: usize = arguments.iter().map(|argument| argument.len()).sum();
    context.spend(CALL)?;
    context.spend_bytes(length + bytes.len())?;
    stack.set_top(0);
    let answered = match asked {
        Some(()) => reply::push(stack, &bytes),
        None => push_error(stack, b"no server to ask").map(|()| true),
    };
    if bytes.capacity() <= reply::KEPT_MAX {
        context.reply.replace(bytes);
    }
    Ok(if answered? { Answered::Error } else { Answered::Value })
}

/// Turns every argument into a string, or tells why it cannot be a command.
fn settle_command(stack: &mut Stack<'_>) -> Result<Result<(), &'static str>, Raise> {
    let count = stack.top();
    if count == 0 {
        return Ok(Err("Please specify at least one argument for this redis lib call"));
    }
    for index in 1..=count {
        match stack.kind(index) {
            Kind::String => {}
            Kind::Number => {
                let number = stack.number(index).unwrap_or_default();
                let text = format_general(number, ALL_DIGITS);
                // There is room, however many arguments there are: every call starts with some.
                stack.push_bytes(text.as_bytes())?;
                stack.replace(index);
            }
            _ => return Ok(Err("Lua redis lib command arguments must be strings or integers")),
        }
    }
    Ok(Ok(()))
}

/// Pushes the table of an error with the general code.
fn push_error(stack: &mut Stack<'_>, text: &[u8]) -> Result<(), Raise> {
    stack.set_top(0);
    push_error_table(stack, &[b"ERR ", text].concat())
}

/// Pushes the table of an error whose text starts with its code.
pub(crate) fn push_error_table(stack: &mut Stack<'_>, text: &[u8]) -> Result<(), Raise> {
    stack.push_table(0, 2)?;
    let table = stack.top();
    stack.push_bytes(text)?;
    stack.set_field(table, c"err");
    Ok(())
}

/// Raises the table of an error with the general code.
fn refuse(stack: &mut Stack<'_>, text: &str) -> Raise {
    match push_error(stack, text.as_bytes()) {
        Ok(()) => Raise::Value,
        Err(raise) => raise,
    }
}

/// Splits an optional minus off, as clients write errors on the wire, and gives errors of one word
/// the general code. Line ends would end the reply early (CVE-2025-67733): those inside become
/// spaces, those around go.
fn error_reply(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let Some(text) = single_string(stack)? else { return Ok(1) };
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    let (code, message) = match text.iter().position(|byte| *byte == b' ') {
        Some(space) => (&text[..space], &text[space + 1..]),
        None => (&b"ERR"[..], text),
    };
    let cleaned = [code, b" ", trim_line_ends(message)].concat();
    push_error_table(stack, &without_line_ends(&cleaned))?;
    Ok(1)
}

fn status_reply(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    let Some(text) = single_string(stack)? else { return Ok(1) };
    stack.push_table(0, 1)?;
    let table = stack.top();
    stack.push_bytes(&without_line_ends(&text))?;
    stack.set_field(table, c"ok");
    Ok(1)
}

/// The one argument, up to its first zero; or an error table on top that is the answer.
fn single_string(stack: &mut Stack<'_>) -> Result<Option<Vec<u8>>, Raise> {
    match stack.bytes(1) {
        Some(bytes) if stack.top() == 1 => {
            stack.context().spend(bytes.len() as u64)?;
            Ok(Some(bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()))
        }
        _ => {
            push_error(stack, b"wrong number or type of arguments")?;
            Ok(None)
        }
    }
}

fn trim_line_ends(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b'\r' | b'\n');
    let start = text.iter().position(is_text).unwrap_or(text.len());
    let end = text.iter().rposition(is_text).map_or(start, |last| last + 1);
    &text[start..end]
}

fn without_line_ends(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

fn sha1hex(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    /// Bytes that are taken in between two payments, and units that each of them costs.
    const PIECE: usize = 4096;
    const UNITS: u64 = 1;
    if stack.top() != 1 {
        return Err(refuse(stack, "wrong number of arguments"));
    }
    stack.stringify(1);
    let mut digest = sha1_smol::Sha1::new();
    for piece in stack.bytes(1).unwrap_or_default().chunks(PIECE) {
        context.spend(piece.len() as u64 * UNITS)?;
        digest.update(piece);
    }
    stack.push_bytes(digest.digest().to_string().as_bytes())?;
    Ok(1)
}

fn log(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    let count = stack.top();
    if count < 2 {
        return Err(refuse(stack, "redis.log() requires two arguments or more."));
    }
    let Some(level) = stack.number_like(1) else {
        return Err(refuse(stack, "First argument must be a number (log level)."));
    };
    let level = match level as i64 {
        0 => LogLevel::Debug,
        1 => LogLevel::Verbose,
        2 => LogLevel::Notice,
        3 => LogLevel::Warning,
        _ => return Err(refuse(stack, "Invalid debug level.")),
    };
    let mut words: Vec<Vec<u8>> = Vec::new();
    for index in 2..=count {
        if matches!(stack.kind(index), Kind::String | Kind::Number) {
            let word = stack.check_bytes(index)?.to_vec();
            context.spend(word.len() as u64 / 4)?;
            words.push(word);
        }
    }
    let text = words.join(&b' ');
    context.with_host(|host| host.log(level, &text));
    Ok(0)
}

fn setresp(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    if stack.top() != 1 {
        return Err(refuse(stack, "redis.setresp() requires one argument."));
    }
    let protocol = match stack.number_like(1) {
        Some(2.0) => Protocol::Resp2,
        Some(3.0) => Protocol::Resp3,
        _ => return Err(refuse(stack, "RESP version must be 2 or 3.")),
    };
    context.protocol.set(protocol);
    Ok(0)
}

fn set_repl(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    if stack.top() != 1 {
        return Err(refuse(stack, "redis.set_repl() requires two arguments."));
    }
    let flags = stack.number_like(1).unwrap_or_default() as i64;
    if !(0..=3).contains(&flags) {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(refuse(stack, text));
    }
    let replication = Replication { to_file: flags & 1 != 0, to_replicas: flags & 2 != 0 };
    context.with_host(|host| host.set_replication(replication));
    Ok(0)
}

fn acl_check_cmd(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    if let Err(text) = settle_command(stack)? {
        return Err(refuse(stack, text));
    }
    let arguments: Vec<&[u8]> =
        (1..=stack.top()).map(|index| stack.bytes(index).unwrap_or_default()).collect();
    let answer = context.with_host(|host| host.acl_check(&arguments));
    match answer.unwrap_or(AclAnswer::Denied) {
        AclAnswer::Allowed => stack.push_boolean(true),
        AclAnswer::Denied => stack.push_boolean(false),
        AclAnswer::UnknownCommand => {
            return Err(refuse(stack, "Invalid command passed to redis.acl_check_cmd()"));
        }
    }
    Ok(1)
}

/// Effects are all that is replicated since Redis 7.
fn replicate_commands(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    stack.push_boolean(true);
    Ok(1)
}

fn breakpoint(stack: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    stack.push_boolean(false);
    Ok(1)
}

/// There is no debugger to print to.
fn debug(_: &mut Stack<'_>, _: &Context) -> Result<c_int, Raise> {
    Ok(0)
}

fn register_function(stack: &mut Stack<'_>, context: &Context) -> Result<c_int, Raise> {
    if !context.is_loading() {
        let text = "redis.register_function can only be called on FUNCTION LOAD command";
        return Err(refuse(stack, text));
    }
    let draft = match stack.top() {
        1 => draft_by_name(stack),
        2 => draft_by_place(stack),
        _ => Err("wrong number of arguments to redis.register_function"),
    };
    match draft.and_then(|draft| check_new(context, draft)) {
        Ok(Draft { name, description, flags }) => {
            stack.push_copy(2);
            let callback = stack.keep();
            let mut loading = context.loading.borrow_mut();
            let loading = loading.get_or_insert_default();
            loading.names.insert(name.clone());
            loading.functions.push(Registered { name, description, flags, callback });
            Ok(0)
        }
        Err(text) => Err(refuse(stack, text)),
    }
}

/// A function to be registered, whose callback lies at 2.
struct Draft {
    name: String,
    description: Option<String>,
    flags: Flags,
}

/// Whether the library can have this one too.
fn check_new(context: &Context, draft: Draft) -> Result<Draft, &'static str> {
    if !is_name(draft.name.as_bytes()) {
        return Err(
            "Library names can only contain letters, numbers, or underscores(_) and must be at \
             least one character long",
        );
    }
    let loading = context.loading.borrow();
    let Some(loading) = &*loading else { return Ok(draft) };
    if loading.names.contains(&draft.name) {
        return Err("Function already exists in the library");
    }
    if loading.functions.len() >= context.limits().functions_max {
        return Err("Too many functions in the library");
    }
    Ok(draft)
}

/// `register_function(name, callback)`
fn draft_by_place(stack: &mut Stack<'_>) -> Result<Draft, &'static str> {
    let name =
        text_at(stack, 1).ok_or("first argument to redis.register_function must be a string")?;
    if stack.kind(2) != Kind::Function {
        return Err("second argument to redis.register_function must be a function");
    }
    Ok(Draft { name, description: None, flags: Flags::default() })
}

/// `register_function{function_name=…, callback=…, flags=…, description=…}`
fn draft_by_name(stack: &mut Stack<'_>) -> Result<Draft, &'static str> {
    if stack.kind(1) != Kind::Table {
        return Err(
            "calling redis.register_function with a single argument is only applicable to Lua \
             table (representing named arguments).",
        );
    }
    let (mut name, mut description, mut flags) = (None, None, Flags::default());
    stack.set_top(2);
    stack.push_nil();
    while stack.next(1) {
        let value = stack.top();
        let key = stack.bytes(value - 1).map(<[u8]>::to_ascii_lowercase);
        match key.as_deref() {
            Some(b"function_name") => {
                let text =
                    "function_name argument given to redis.register_function must be a string";
                name = Some(text_at(stack, value).ok_or(text)?);
            }
            Some(b"description") => {
                let text = "description argument given to redis.register_function must be a string";
                description = Some(text_at(stack, value).ok_or(text)?);
            }
            Some(b"callback") => {
                if stack.kind(value) != Kind::Function {
                    return Err(
                        "callback argument given to redis.register_function must be a function",
                    );
                }
                stack.push_copy(value);
                stack.replace(2);
            }
            Some(b"flags") => flags = flags_at(stack, value)?,
            _ => return Err("unknown argument given to redis.register_function"),
        }
        stack.pop(1);
    }
    let name = name.ok_or("redis.register_function must get a function name argument")?;
    if stack.is_absent(2) {
        return Err("redis.register_function must get a callback argument");
    }
    Ok(Draft { name, description, flags })
}

/// The string at `index`, or the text of the number there.
fn text_at(stack: &mut Stack<'_>, index: c_int) -> Option<String> {
    if !matches!(stack.kind(index), Kind::String | Kind::Number) {
        return None;
    }
    stack.push_copy(index);
    stack.stringify(-1);
    let text = stack.bytes(-1).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    stack.pop(1);
    text
}

fn flags_at(stack: &mut Stack<'_>, table: c_int) -> Result<Flags, &'static str> {
    if stack.kind(table) != Kind::Table {
        return Err(
            "flags argument to redis.register_function must be a table representing function flags",
        );
    }
    let mut flags = Flags::default();
    for position in 1..=c_int::MAX {
        stack.get_item(table, position);
        if stack.kind(-1) == Kind::Nil {
            stack.pop(1);
            break;
        }
        let flag = stack.bytes(-1).and_then(Flags::from_name);
        stack.pop(1);
        flags = flags.with(flag.ok_or("unknown flag given")?);
    }
    Ok(flags)
}
