//! COMMAND DOCS: what commands take, and what became of them from version to version.
//!
//! Rows tell their arguments in a notation of its own:
//!
//! ```text
//! ?*name#type@spec=TOKEN^since!deprecated(inner inner)
//! ```
//! with `?` for optional, `*` for repeated, `+` for repeated with its token, `@` and the number of
//! the key specification, and the type as one letter.

use store_resp::ReplyWriter;

use crate::command::flag;
use crate::registry::{Registry, RowId};

/// Letters of types.
const TYPES: &[(char, &str)] = &[
    ('s', "string"),
    ('i', "integer"),
    ('d', "double"),
    ('k', "key"),
    ('p', "pattern"),
    ('u', "unix-time"),
    ('t', "pure-token"),
    ('o', "oneof"),
    ('b', "block"),
];

/// Replies with all that is known of a command and its subcommands.
pub(super) fn document(registry: &Registry, id: RowId, reply: &mut ReplyWriter) {
    let row = registry.row(id);
    let command = row.command;
    let deprecated = command.deprecated;
    let is_system = command.has(flag::SYSTEM);
    let arguments = parse(command.arguments);
    let facts = [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group.name()),
        ("complexity", command.complexity),
        ("deprecated_since", deprecated.map_or("", |it| it.since)),
        ("replaced_by", deprecated.map_or("", |it| it.instead)),
    ];
    let begun = reply.begin();
    let mut count = 0;
    for (fact, text) in facts.iter().filter(|(_, text)| !text.is_empty()) {
        reply.bulk(fact.as_bytes());
        reply.bulk(text.as_bytes());
        count += 1;
    }
    if deprecated.is_some() || is_system {
        reply.bulk(b"doc_flags");
        reply.set(1);
        reply.simple(if is_system { "syscmd" } else { "deprecated" });
        count += 1;
    }
    if !command.history.is_empty() {
        reply.bulk(b"history");
        reply.set(command.history.len());
        for (version, what) in command.history {
            reply.array(2);
            reply.bulk(version.as_bytes());
            reply.bulk(what.as_bytes());
        }
        count += 1;
    }
    if !arguments.is_empty() {
        reply.bulk(b"arguments");
        reply_arguments(reply, &arguments);
        count += 1;
    }
    if !command.subcommands.is_empty() {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        for sub in registry.subcommands(id) {
            reply.bulk(registry.row(sub).full_name.as_bytes());
            document(registry, sub, reply);
        }
        count += 1;
    }
    reply.end_map(begun, count);
}

/// One argument, as far as its text says.
#[derive(Debug, Default)]
struct Argument<'t> {
    flags: Vec<&'static str>,
    name: &'t str,
    kind: &'static str,
    key_spec: Option<i64>,
    token: Option<&'t str>,
    since: Option<&'t str>,
    deprecated_since: Option<&'t str>,
    inner: Vec<Argument<'t>>,
}

fn reply_arguments(reply: &mut ReplyWriter, arguments: &[Argument<'_>]) {
    reply.array(arguments.len());
    for argument in arguments {
        let begun = reply.begin();
        let mut count = 0;
        let texts = [
            ("name", Some(argument.name)),
            ("type", Some(argument.kind)),
            ("token", argument.token),
            ("since", argument.since),
            ("deprecated_since", argument.deprecated_since),
        ];
        for (fact, text) in texts.iter().filter_map(|(fact, text)| Some((fact, (*text)?))) {
            reply.bulk(fact.as_bytes());
            reply.bulk(text.as_bytes());
            count += 1;
        }
        if let Some(number) = argument.key_spec {
            reply.bulk(b"key_spec_index");
            reply.integer(number);
            count += 1;
        }
        if !argument.flags.is_empty() {
            reply.bulk(b"flags");
            reply.set(argument.flags.len());
            argument.flags.iter().for_each(|flag| reply.simple(flag));
            count += 1;
        }
        if !argument.inner.is_empty() {
            reply.bulk(b"arguments");
            reply_arguments(reply, &argument.inner);
            count += 1;
        }
        reply.end_map(begun, count);
    }
}

fn parse(text: &str) -> Vec<Argument<'_>> {
    let mut rest = text;
    parse_all(&mut rest)
}

/// Arguments up to the end or the bracket that closes them.
fn parse_all<'t>(rest: &mut &'t str) -> Vec<Argument<'t>> {
    let mut arguments = Vec::new();
    loop {
        *rest = rest.trim_start_matches(' ');
        if rest.is_empty() || rest.starts_with(')') {
            *rest = rest.strip_prefix(')').unwrap_or(rest);
            return arguments;
        }
        arguments.push(parse_one(rest));
    }
}

fn parse_one<'t>(rest: &mut &'t str) -> Argument<'t> {
    let mut argument = Argument::default();
    for (mark, flag) in [("?", "optional"), ("*", "multiple"), ("+", "multiple_token")] {
        if let Some(behind) = rest.strip_prefix(mark) {
            argument.flags.push(flag);
            *rest = behind;
        }
    }
    argument.name = word(rest);
    let kind = rest.strip_prefix('#').and_then(|behind| behind.chars().next());
    argument.kind = TYPES.iter().find(|(letter, _)| Some(*letter) == kind).map_or("", |it| it.1);
    *rest = rest.get(2..).unwrap_or_default();
    while let Some(mark) = rest.chars().next().filter(|mark| "@=^!(".contains(*mark)) {
        *rest = &rest[1..];
        match mark {
            '@' => argument.key_spec = word(rest).parse().ok(),
            '=' => argument.token = Some(token(rest)),
            '^' => argument.since = Some(word(rest)),
            '!' => argument.deprecated_since = Some(word(rest)),
            _ => argument.inner = parse_all(rest),
        }
    }
    argument
}

fn word<'t>(rest: &mut &'t str) -> &'t str {
    split(rest, |mark| " #@=^!()".contains(mark))
}

/// Tokens may be signs themselves, such as `=` and `*`.
fn token<'t>(rest: &mut &'t str) -> &'t str {
    split(rest, |mark| " ^!()".contains(mark))
}

fn split<'t>(rest: &mut &'t str, ends: impl Fn(char) -> bool) -> &'t str {
    let (word, behind) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
    *rest = behind;
    word
}

#[cfg(test)]
pub(crate) mod made_up;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_is_read() {
        let read = parse("key#k@0 ?*field#s=*^6.2.0 ?+get#o(a#t=GET b:c#i!5.0.0)");
        assert_eq!(read.len(), 3);
        assert_eq!((read[0].name, read[0].kind, read[0].key_spec), ("key", "key", Some(0)));
        assert_eq!((read[1].token, read[1].since), (Some("*"), Some("6.2.0")));
        assert_eq!(read[1].flags, ["optional", "multiple"]);
        assert_eq!(read[2].flags, ["optional", "multiple_token"]);
        assert_eq!(read[2].inner[1].deprecated_since, Some("5.0.0"));
    }
}
