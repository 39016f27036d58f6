//! COMMAND DOCS tells the same facts as that of redis-server, apart from texts in our own words.
//!
//! Arguments are facts, and there are a thousand of them: where a row of ours differs, the test
//! prints what it must say.

use std::collections::BTreeMap;
use std::fmt::Write;

use store_resp::Reply;
use store_server::Server;
use testkit::RedisServer;

use crate::connection::Connection;

type Docs = BTreeMap<String, Reply>;

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        Reply::Simple(text) => text.to_string(),
        other => panic!("no text: {other:?}"),
    }
}

fn map(reply: &Reply) -> Docs {
    let Reply::Map(pairs) = reply else { panic!("no map: {reply:?}") };
    pairs.iter().map(|(name, value)| (text(name), value.clone())).collect()
}

/// All commands with their subcommands beside them.
fn docs(mut connection: Connection) -> BTreeMap<String, Docs> {
    connection.words("HELLO 3");
    let mut found = BTreeMap::new();
    let mut waiting = vec![connection.words("COMMAND DOCS")];
    while let Some(reply) = waiting.pop() {
        for (name, facts) in map(&reply) {
            let mut facts = map(&facts);
            waiting.extend(facts.remove("subcommands"));
            found.insert(name, facts);
        }
    }
    found
}

/// Everything but texts of more than a word.
fn facts(docs: &Docs) -> BTreeMap<String, String> {
    let own_words = ["summary", "complexity", "replaced_by"];
    let mut facts = BTreeMap::new();
    for (name, value) in docs {
        let fact = match (name.as_str(), value) {
            (name, _) if own_words.contains(&name) => "a text".to_owned(),
            ("history", Reply::Set(changes) | Reply::Array(changes)) => {
                let version = |change: &Reply| match change {
                    Reply::Array(pair) => text(&pair[0]),
                    other => panic!("no change: {other:?}"),
                };
                changes.iter().map(version).collect::<Vec<_>>().join(" ")
            }
            _ => crate::script::sorted(value),
        };
        facts.insert(name.clone(), fact);
    }
    facts
}

#[test]
fn commands_are_documented_with_the_facts_of_redis() {
    let theirs = RedisServer::start();
    let theirs = docs(Connection::tcp(theirs.port()));
    let server = Server::builder().any_port().start().unwrap();
    let ours = docs(Connection::tcp(server.port().unwrap()));
    let mut differences = String::new();
    for (name, docs) in &theirs {
        let Some(own) = ours.get(name) else {
            writeln!(differences, "{name} is missing").unwrap();
            continue;
        };
        let wanted = row_arguments(docs);
        let (own, docs) = (facts(own), facts(docs));
        if own.get("arguments") != docs.get("arguments") {
            writeln!(differences, "the row of {name} must have {wanted}").unwrap();
        }
        for (fact, value) in &docs {
            if own.get(fact) != Some(value) {
                let own = own.get(fact);
                writeln!(differences, "{name} {fact}\n  ours   {own:?}\n  theirs {value}").unwrap();
            }
        }
        for fact in own.keys().filter(|fact| !docs.contains_key(*fact)) {
            writeln!(differences, "{name} has no {fact}").unwrap();
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

/// What a row says of the arguments of a command.
fn row_arguments(docs: &Docs) -> String {
    match docs.get("arguments") {
        Some(Reply::Array(arguments)) => format!(".arguments({:?})", notation(arguments)),
        _ => "no arguments".to_owned(),
    }
}

fn notation(arguments: &[Reply]) -> String {
    arguments.iter().map(|argument| argument_notation(&map(argument))).collect::<Vec<_>>().join(" ")
}

fn argument_notation(argument: &Docs) -> String {
    let mut written = String::new();
    let flags = match argument.get("flags") {
        Some(Reply::Set(flags) | Reply::Array(flags)) => flags.iter().map(text).collect(),
        _ => Vec::new(),
    };
    for (mark, flag) in [('?', "optional"), ('*', "multiple"), ('+', "multiple_token")] {
        written.extend(flags.iter().any(|known| known == flag).then_some(mark));
    }
    let letter = match text(&argument["type"]).as_str() {
        "string" => 's',
        "integer" => 'i',
        "double" => 'd',
        "key" => 'k',
        "pattern" => 'p',
        "unix-time" => 'u',
        "pure-token" => 't',
        "oneof" => 'o',
        "block" => 'b',
        other => panic!("an argument of type {other}"),
    };
    write!(written, "{}#{letter}", text(&argument["name"])).unwrap();
    if let Some(Reply::Integer(number)) = argument.get("key_spec_index") {
        write!(written, "@{number}").unwrap();
    }
    for (mark, fact) in [('=', "token"), ('^', "since"), ('!', "deprecated_since")] {
        if let Some(value) = argument.get(fact) {
            write!(written, "{mark}{}", text(value)).unwrap();
        }
    }
    if let Some(Reply::Array(inner)) = argument.get("arguments") {
        write!(written, "({})", notation(inner)).unwrap();
    }
    written
}
