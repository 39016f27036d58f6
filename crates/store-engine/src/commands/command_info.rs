//! COMMAND: what the table tells clients.

use store_resp::ReplyWriter;
use store_types::glob;

use super::prelude::*;
use crate::command::{Begin, Find, access, flag};
use crate::key_finder::{self, FoundKey};
use crate::registry::{Registry, RowId};

pub(super) const TABLE: &[Command] =
    &[Command::new("command", AtLeast(1), LOADING | STALE | SENTINEL, command)
        .subcommands(COMMAND_SUBCOMMANDS)
        .categories(category::CONNECTION)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "2.8.13", "O(N)", "About the commands of the server.")];

const COMMAND_SUBCOMMANDS: &[Command] = &[
    Command::new("count", Exactly(2), LOADING | STALE, command_count)
        .categories(category::CONNECTION)
        .docs(Group::Server, "2.8.13", "O(1)", "How many commands there are."),
    Command::new("docs", AtLeast(2), LOADING | STALE, command_docs)
        .categories(category::CONNECTION)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "7.0.0", "O(N)", "What commands are for.")
        .arguments("?*command-name#s"),
    Command::new("getkeys", AtLeast(4), LOADING | STALE, command_getkeys)
        .categories(category::CONNECTION)
        .docs(Group::Server, "2.8.13", "O(N)", "The keys in a request."),
    Command::new("getkeysandflags", AtLeast(4), LOADING | STALE, command_getkeysandflags)
        .categories(category::CONNECTION)
        .docs(Group::Server, "7.0.0", "O(N)", "The keys in a request and what is done with them."),
    Command::new("help", Exactly(2), LOADING | STALE, command_help)
        .categories(category::CONNECTION)
        .docs(Group::Server, "5.0.0", "O(1)", "What the subcommands do."),
    Command::new("info", AtLeast(2), LOADING | STALE, command_info)
        .categories(category::CONNECTION)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "2.8.13", "O(N)", "What clients need to know about commands.")
        .arguments("?*command-name#s")
        .history(&[("7.0.0", "Without a name, tells of all commands.")]),
    Command::new("list", AtLeast(2), LOADING | STALE, command_list)
        .categories(category::CONNECTION)
        .tips(&["nondeterministic_output_order"])
        .docs(Group::Server, "7.0.0", "O(N)", "The names of commands.")
        .arguments(
            "?filterby#o=FILTERBY(module-name#s=MODULE category#s=ACLCAT \
             pattern#p=PATTERN)",
        ),
];

fn command(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    let registry = &cx.server.registry;
    cx.reply.array(registry.commands().count());
    for id in registry.commands() {
        describe(registry, id, &mut cx.reply);
    }
    Ok(())
}

fn command_count(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    cx.reply.count(cx.server.registry.commands().count());
    Ok(())
}

fn command_info(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    if request.len() == 2 {
        return command(cx, request);
    }
    let registry = &cx.server.registry;
    cx.reply.array(request.len() - 2);
    for name in request.args_from(2) {
        match registry.find_full(name) {
            Some(id) => describe(registry, id, &mut cx.reply),
            None => cx.reply.null(),
        }
    }
    Ok(())
}

/// Ten facts about a command, as clients expect them since Redis 7.0.
fn describe(registry: &Registry, id: RowId, reply: &mut ReplyWriter) {
    let row = registry.row(id);
    let command = row.command;
    let movable = if key_finder::is_movable(command) { flag::MOVABLE_KEYS } else { 0 };
    reply.array(10);
    reply.bulk(row.full_name.as_bytes());
    reply.integer(command.arity.code());
    names(reply, command.flags | movable, flag::NAMES, "");
    let (first, last, step) = key_finder::simple_range(command);
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    names(reply, category::of(command), category::NAMES, "@");
    reply.set(command.tips.len());
    for tip in command.tips {
        reply.bulk(tip.as_bytes());
    }
    reply.set(command.keys.len());
    for spec in command.keys {
        describe_keys(spec, reply);
    }
    // None are an empty set, some are an array: that is how Redis has it.
    match command.subcommands.len() {
        0 => reply.set(0),
        count => reply.array(count),
    }
    for sub in registry.subcommands(id) {
        describe(registry, sub, reply);
    }
}

fn names(reply: &mut ReplyWriter, bits: u32, names: &[(u32, &str)], prefix: &str) {
    let set: Vec<&str> =
        names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    reply.set(set.len());
    for name in set {
        reply.simple(&format!("{prefix}{name}"));
    }
}

fn describe_keys(spec: &KeySpec, reply: &mut ReplyWriter) {
    reply.map(3);
    reply.bulk(b"flags");
    names(reply, spec.access, access::NAMES, "");
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => typed(reply, "index", &[("index", index as i64)]),
        Begin::Keyword(word, from) => {
            reply.map(2);
            reply.bulk(b"type");
            reply.bulk(b"keyword");
            reply.bulk(b"spec");
            reply.map(2);
            reply.bulk(b"keyword");
            reply.bulk(word.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(from);
        }
        Begin::Unknown => typed(reply, "unknown", &[]),
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            let facts = [("lastkey", last), ("keystep", step as i64), ("limit", limit as i64)];
            typed(reply, "range", &facts);
        }
        Find::Counted => {
            typed(reply, "keynum", &[("keynumidx", 0), ("firstkey", 1), ("keystep", 1)]);
        }
        Find::Unknown => typed(reply, "unknown", &[]),
    }
}

fn typed(reply: &mut ReplyWriter, kind: &str, facts: &[(&str, i64)]) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(facts.len());
    for (name, value) in facts {
        reply.bulk(name.as_bytes());
        reply.integer(*value);
    }
}

fn command_docs(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let registry = &cx.server.registry;
    let ids: Vec<RowId> = match request.len() {
        2 => registry.commands().collect(),
        _ => request.args_from(2).filter_map(|name| registry.find_full(name)).collect(),
    };
    cx.reply.map(ids.len());
    for id in ids {
        cx.reply.bulk(registry.row(id).full_name.as_bytes());
        super::docs::document(registry, id, &mut cx.reply);
    }
    Ok(())
}

/// What COMMAND LIST keeps.
enum Filter<'a> {
    Category(u32),
    Pattern(&'a [u8]),
    Nothing,
}

fn command_list(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let registry = &cx.server.registry;
    let filter = match request.len() {
        2 => None,
        5 if is_word(request.arg(2), "FILTERBY") => Some(parse_filter(request)?),
        _ => return Err(CommandError::SYNTAX),
    };
    let begun = cx.reply.begin();
    let mut count = 0;
    for row in registry.rows() {
        let kept = match &filter {
            None => true,
            Some(Filter::Category(bit)) => category::of(row.command) & bit != 0,
            Some(Filter::Pattern(pattern)) => {
                glob::matches(pattern, row.full_name.as_bytes(), glob::Case::Insensitive)
            }
            Some(Filter::Nothing) => false,
        };
        if kept {
            cx.reply.bulk(row.full_name.as_bytes());
            count += 1;
        }
    }
    cx.reply.end_array(begun, count);
    Ok(())
}

fn parse_filter(request: Request<'_>) -> Result<Filter<'_>, CommandError> {
    let (kind, word) = (request.arg(3), request.arg(4));
    if is_word(kind, "MODULE") {
        return Ok(Filter::Nothing);
    }
    if is_word(kind, "PATTERN") {
        return Ok(Filter::Pattern(word));
    }
    if is_word(kind, "ACLCAT") {
        let found = category::NAMES.iter().find(|(_, name)| is_word(word, name));
        return Ok(found.map_or(Filter::Nothing, |(bit, _)| Filter::Category(*bit)));
    }
    Err(CommandError::SYNTAX)
}

fn command_getkeys(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let inner = request.skip(2);
    let keys = find_keys(cx, inner)?;
    cx.reply.array(keys.len());
    for key in keys {
        cx.reply.bulk(inner.arg(key.arg));
    }
    Ok(())
}

fn command_getkeysandflags(cx: &mut Context<'_>, request: Request<'_>) -> CommandResult {
    let inner = request.skip(2);
    let keys = find_keys(cx, inner)?;
    cx.reply.array(keys.len());
    for key in keys {
        cx.reply.array(2);
        cx.reply.bulk(inner.arg(key.arg));
        names(&mut cx.reply, key.access, access::NAMES, "");
    }
    Ok(())
}

fn find_keys(cx: &Context<'_>, inner: Request<'_>) -> Result<Vec<FoundKey>, CommandError> {
    let registry = &cx.server.registry;
    let invalid = || CommandError::text("ERR Invalid command specified");
    let mut id = registry.find(inner.arg(0)).ok_or_else(invalid)?;
    if let Some(word) = inner.get(1)
        && !registry.row(id).command.subcommands.is_empty()
    {
        id = registry.find_subcommand(id, word).ok_or_else(invalid)?;
    }
    let command = registry.row(id).command;
    if command.keys.is_empty() {
        return Err(CommandError::text("ERR The command has no key arguments"));
    }
    if !command.arity.admits(inner.len()) {
        let text = "ERR Invalid number of arguments specified for command";
        return Err(CommandError::text(text));
    }
    let keys = key_finder::keys_of(command, inner)
        .ok_or(CommandError::text("ERR Invalid arguments specified for command"))?;
    if keys.is_empty() && !command.has(flag::NO_MANDATORY_KEYS) {
        return Err(CommandError::text("ERR Invalid arguments specified for command"));
    }
    Ok(keys)
}

fn command_help(cx: &mut Context<'_>, _: Request<'_>) -> CommandResult {
    super::help::reply(
        cx,
        "COMMAND",
        &[
            ("(no subcommand)", "Return details about all commands."),
            ("COUNT", "Return the total number of commands."),
            ("LIST [FILTERBY (MODULE|ACLCAT|PATTERN) <filter>]", "Return the names of commands."),
            ("INFO [<command-name> ...]", "Return details about commands."),
            ("DOCS [<command-name> ...]", "Return documentation of commands."),
            ("GETKEYS <full-command>", "Return the keys in a full command."),
            ("GETKEYSANDFLAGS <full-command>", "Return the keys in a full command, with flags."),
        ],
    );
    Ok(())
}
