//! What is known of commands: names, subcommands, arguments, and what they are for.
//!
//! All of it is what COMMAND DOCS says: at first our own store's, whose engine is asked without a
//! server, then that of the server at the other end, if it documents its commands (since 7.0), so
//! that those of a newer Redis or Valkey are known as well.

use std::collections::BTreeMap;

use crate::output;
use store_engine::{Config, Engine, Identity, NoPlatform, Origin};
use store_resp::{OwnedRequest, Reply, ReplyParser};

/// All that is known of one command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) syntax: String,
    pub(super) summary: String,
    pub(super) since: String,
    pub(super) group: String,
}

/// Commands by name, in capitals; the two words of a subcommand with one space between.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandDocs {
    entries: BTreeMap<String, Entry>,
}

impl CommandDocs {
    /// The commands of our own store.
    pub(super) fn built_in() -> Self {
        let mut engine =
            Engine::new(Config::default(), Identity::default(), 0, Box::new(NoPlatform));
        let session = engine.open_session(0, Origin { is_local: true, ..Origin::default() });
        let request = OwnedRequest::from_args([&b"COMMAND"[..], b"DOCS"]);
        engine.execute(0, session, request.as_request());
        let output = engine.session_mut(session).map(|session| std::mem::take(&mut session.output));
        let parsed = ReplyParser.parse(&output.unwrap_or_default().to_vec());
        let mut docs = Self::default();
        if let Ok(Some((reply, _))) = parsed {
            docs.learn(&reply);
        }
        docs
    }

    /// Takes over what a server says of its commands. Does nothing when it says nothing.
    pub(super) fn learn(&mut self, docs: &Reply) {
        let mut told = BTreeMap::new();
        for (name, facts) in pairs(docs) {
            self.learn_one(&mut told, &text(name), facts);
        }
        if !told.is_empty() {
            self.entries = told;
        }
    }

    fn learn_one(&self, told: &mut BTreeMap<String, Entry>, name: &str, facts: &Reply) {
        let name = name_of(name);
        let mut entry = self.entries.get(&name).cloned().unwrap_or_default();
        for (fact, value) in pairs(facts) {
            match text(fact).as_str() {
                "summary" => entry.summary = text(value),
                "since" => entry.since = text(value),
                "group" => entry.group = text(value),
                "arguments" => entry.syntax = arguments(value),
                "subcommands" => {
                    for (subcommand, facts) in pairs(value) {
                        self.learn_one(told, &text(subcommand), facts);
                    }
                }
                _ => {}
            }
        }
        told.insert(name, entry);
    }

    /// The entry of a command, or of a command and its subcommand.
    pub(super) fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.get(&name.to_ascii_uppercase())
    }

    /// The entry that the first words of a line mean, and how many words name it.
    pub(super) fn find_words(&self, words: &[&str]) -> Option<(&Entry, usize)> {
        let two = words.get(..2).map(|words| words.join(" "));
        if let Some(entry) = two.and_then(|name| self.find(&name)) {
            return Some((entry, 2));
        }
        self.find(words.first()?).map(|entry| (entry, 1))
    }

    /// Commands whose name begins with `prefix`, in any case.
    pub(super) fn commands<'a>(&'a self, prefix: &str) -> impl Iterator<Item = &'a str> {
        let prefix = prefix.to_ascii_uppercase();
        let names = self.entries.keys().map(String::as_str);
        names.filter(move |name| !name.contains(' ') && name.starts_with(&prefix))
    }

    /// Subcommands of `command` whose name begins with `prefix`, without the command's.
    pub(super) fn subcommands<'a>(
        &'a self,
        command: &str,
        prefix: &str,
    ) -> impl Iterator<Item = &'a str> {
        let start = format!("{} ", command.to_ascii_uppercase());
        let prefix = prefix.to_ascii_uppercase();
        self.entries
            .keys()
            .filter_map(move |name| name.strip_prefix(&start))
            .filter(move |name| name.starts_with(&prefix))
    }

    /// Names of groups, each once.
    pub(super) fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> =
            self.entries.values().map(|entry| entry.group.as_str()).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Commands and subcommands of a group.
    pub(super) fn of_group<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        let entries = self.entries.iter().map(|(name, entry)| (name.as_str(), entry));
        entries.filter(move |(_, entry)| entry.group.eq_ignore_ascii_case(group))
    }
}

/// `config|get` as people write it.
fn name_of(full_name: &str) -> String {
    full_name.replace('|', " ").to_ascii_uppercase()
}

/// The pairs of a map, which is a flat array in RESP2.
fn pairs(reply: &Reply) -> Vec<(&Reply, &Reply)> {
    match reply {
        Reply::Map(pairs) => pairs.iter().map(|(key, value)| (key, value)).collect(),
        Reply::Array(items) => items.as_chunks::<2>().0.iter().map(|[k, v]| (k, v)).collect(),
        _ => Vec::new(),
    }
}

/// Text for a line on the screen; what could do more than that is left out.
fn text(reply: &Reply) -> String {
    let text = match reply {
        Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => String::from_utf8_lossy(bytes),
        Reply::Simple(text) => text.into(),
        _ => return String::new(),
    };
    output::plain(&text)
}

fn arguments(reply: &Reply) -> String {
    let Reply::Array(items) = reply else { return String::new() };
    let words: Vec<String> = items.iter().map(|item| Argument::read(item).show()).collect();
    words.join(" ")
}

/// One argument as COMMAND DOCS describes it.
#[derive(Debug, Default)]
struct Argument {
    name: String,
    kind: String,
    token: Option<String>,
    is_optional: bool,
    is_repeated: bool,
    token_is_repeated: bool,
    parts: Vec<Argument>,
}

impl Argument {
    fn read(reply: &Reply) -> Self {
        let mut argument = Self::default();
        for (fact, value) in pairs(reply) {
            match text(fact).as_str() {
                // Newer servers give the name to show apart from the name to refer to.
                "name" if argument.name.is_empty() => argument.name = text(value),
                "display_text" => argument.name = text(value),
                "type" => argument.kind = text(value),
                "token" => argument.token = Some(text(value)),
                "flags" => argument.read_flags(value),
                "arguments" => {
                    if let Reply::Array(items) = value {
                        argument.parts = items.iter().map(Self::read).collect();
                    }
                }
                _ => {}
            }
        }
        argument
    }

    fn read_flags(&mut self, reply: &Reply) {
        let (Reply::Array(flags) | Reply::Set(flags)) = reply else { return };
        for flag in flags {
            match text(flag).as_str() {
                "optional" => self.is_optional = true,
                "multiple" => self.is_repeated = true,
                "multiple_token" => (self.is_repeated, self.token_is_repeated) = (true, true),
                _ => {}
            }
        }
    }

    /// `[EX seconds|PX milliseconds]`, `key [key ...]`, `[WEIGHTS weight [weight ...]]`
    fn show(&self) -> String {
        let parts = || self.parts.iter().map(Self::show);
        let mut shown = match self.kind.as_str() {
            "pure-token" => self.token.clone().unwrap_or_default(),
            "oneof" => parts().collect::<Vec<_>>().join("|"),
            "block" => parts().collect::<Vec<_>>().join(" "),
            _ => self.name.clone(),
        };
        let token = self.token.as_deref().filter(|_| self.kind != "pure-token");
        let with_token = |shown: &str| match token {
            Some(token) => format!("{token} {shown}"),
            None => shown.to_owned(),
        };
        if self.is_repeated {
            let again = if self.token_is_repeated { with_token(&shown) } else { shown.clone() };
            shown = format!("{shown} [{again} ...]");
        }
        shown = with_token(&shown);
        if self.is_optional { format!("[{shown}]") } else { shown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::connection::Connection;
    use crate::cli::target::Target;

    /// What a real server documents.
    fn told_by_redis() -> CommandDocs {
        let server = testkit::RedisServer::start();
        let url = tenure::backend::redis::RedisUrl::parse(&server.url()).unwrap();
        let target = Target {
            place: url.place,
            login: url.login,
            protocol: store_resp::Protocol::Resp3,
            connect_within: testkit::GENEROUS,
            answer_within: None,
        };
        let reply = Connection::open(&target).unwrap().ask(&["COMMAND", "DOCS"]).unwrap();
        let mut docs = CommandDocs::default();
        docs.learn(&reply);
        docs
    }

    #[test]
    fn the_arguments_are_those_that_redis_documents() {
        let (ours, told) = (CommandDocs::built_in(), told_by_redis());
        if told.find("get").is_none_or(|get| get.syntax.is_empty()) {
            eprintln!("skipped: this server documents no arguments");
            return;
        }
        for (name, entry) in &ours.entries {
            let Some(theirs) = told.find(name) else {
                // A server that is no sentinel does not tell of its commands.
                assert_eq!(entry.group, "sentinel", "{name} is documented by us alone");
                continue;
            };
            assert_eq!(theirs.syntax, entry.syntax, "{name}");
        }
    }

    #[test]
    fn every_command_of_the_table_is_in_the_docs_with_its_arguments() {
        let docs = CommandDocs::built_in();
        for row in store_engine::Registry::new().rows() {
            let entry = docs.find(&name_of(&row.full_name)).expect(&row.full_name);
            assert_eq!(entry.summary, row.command.summary, "{}", row.full_name);
            assert_eq!(entry.group, row.command.group.name(), "{}", row.full_name);
        }
        let set = docs.find("set").unwrap();
        assert!(set.syntax.starts_with("key value [NX|XX] [GET] [EX seconds|"), "{}", set.syntax);
        assert_eq!(docs.find("zunion").unwrap().syntax.split(' ').next(), Some("numkeys"));
    }

    #[test]
    fn words_lead_to_the_longest_name() {
        let docs = CommandDocs::built_in();
        assert_eq!(docs.find_words(&["config", "get", "x"]).unwrap().1, 2);
        assert_eq!(docs.find_words(&["get", "get"]).unwrap().1, 1);
        assert!(docs.find_words(&["nosuch"]).is_none());
        assert_eq!(docs.subcommands("CLIENT", "no-").collect::<Vec<_>>(), ["NO-EVICT"]);
        assert!(docs.commands("zran").any(|name| name == "ZRANGE"));
        assert!(docs.groups().contains(&"sorted-set"));
    }
}
