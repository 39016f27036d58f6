//! Where a command has its keys, as the servers themselves tell it.
//!
//! `COMMAND` is asked for once, at the start: a table of our own would lack the commands of modules
//! and of newer servers, and the engine that has such a table is far larger than a client should
//! be. Where even a server's table cannot tell (`SORT … STORE`), the server is asked about the
//! command itself.

use std::collections::HashMap;

use redis::Value;

/// More commands than any server has, with all its modules.
const COMMANDS_MAX: usize = 10_000;

/// What is known about all commands.
#[derive(Debug, Default)]
pub(super) struct Commands {
    rows: HashMap<Vec<u8>, Row>,
}

/// What a client must know about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) key: KeyPlace,
    /// A replica can answer it.
    pub(super) is_read: bool,
    /// The server may hold it, and whatever is sent behind it.
    pub(super) is_blocking: bool,
}

/// Where the first key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPlace {
    /// Any node can carry it out.
    None,
    /// It is this argument; the command's name is number 0.
    At(usize),
    /// Only the server can tell.
    AskServer,
}

#[derive(Debug, Default)]
struct Row {
    is_read: bool,
    is_blocking: bool,
    /// Keys may be where no rule says.
    is_movable: bool,
    /// What servers before 7.0 tell.
    first_key: usize,
    specs: Vec<KeySpec>,
    subcommands: HashMap<Vec<u8>, Row>,
}

/// A rule by which keys are found.
#[derive(Debug)]
struct KeySpec {
    begin: Begin,
    find: Find,
}

#[derive(Debug)]
enum Begin {
    At(usize),
    /// Behind this word, looked for from this argument on; from the end if it is negative.
    Behind {
        word: Vec<u8>,
        from: i64,
    },
}

#[derive(Debug)]
enum Find {
    /// The keys begin there.
    Here,
    /// How many there are is said at one place, and they begin at another.
    Counted { count: usize, first: usize },
}

impl Commands {
    /// Reads the answer to `COMMAND`. Fails with what is wrong with it.
    pub(super) fn parse(reply: &Value) -> Result<Self, String> {
        let told = list(reply).ok_or("no list of commands")?;
        let rows: HashMap<_, _> = told.iter().take(COMMANDS_MAX).filter_map(row).collect();
        match rows.is_empty() {
            true => Err("no commands".into()),
            false => Ok(Self { rows }),
        }
    }

    /// What is known about these words. A command that is not known may have been added since, so
    /// the server is asked about it.
    pub(super) fn look_up(&self, words: &[&[u8]]) -> Known {
        let name = |at: usize| words.get(at).map(|word| word.to_ascii_lowercase());
        let row = name(0).and_then(|name| self.rows.get(&name));
        let Some(row) = row else {
            return Known { key: KeyPlace::AskServer, is_read: false, is_blocking: false };
        };
        let row = name(1).and_then(|name| row.subcommands.get(&name)).unwrap_or(row);
        Known { key: row.key(words), is_read: row.is_read, is_blocking: row.is_blocking }
    }
}

impl Row {
    fn key(&self, words: &[&[u8]]) -> KeyPlace {
        let found = self.specs.iter().find_map(|spec| spec.first_key(words));
        match found {
            Some(at) => KeyPlace::At(at),
            None if self.specs.is_empty() && self.first_key > 0 => KeyPlace::At(self.first_key),
            None if self.specs.is_empty() && self.is_movable => KeyPlace::AskServer,
            None => KeyPlace::None,
        }
    }
}

impl KeySpec {
    fn first_key(&self, words: &[&[u8]]) -> Option<usize> {
        let begin = match &self.begin {
            Begin::At(at) => *at,
            Begin::Behind { word, from } => behind(words, word, *from)?,
        };
        let at = match self.find {
            Find::Here => begin,
            Find::Counted { count, first } => {
                let count = words.get(begin.checked_add(count)?)?;
                let count: u32 = std::str::from_utf8(count).ok()?.parse().ok()?;
                if count == 0 {
                    return None;
                }
                begin.checked_add(first)?
            }
        };
        (at < words.len()).then_some(at)
    }
}

/// The place behind a word.
fn behind(words: &[&[u8]], word: &[u8], from: i64) -> Option<usize> {
    let is_it = |at: &usize| words[*at].eq_ignore_ascii_case(word);
    let distance = usize::try_from(from.unsigned_abs()).ok()?;
    let at = match from < 0 {
        false => (distance..words.len()).find(is_it)?,
        true => (1..=words.len().checked_sub(distance)?)
            .rev()
            .filter(|at| *at < words.len())
            .find(is_it)?,
    };
    Some(at + 1)
}

/// `[name, arity, flags, first key, last key, step, categories, tips, key specs, subcommands]`; the
/// last three came with 7.0.
fn row(told: &Value) -> Option<(Vec<u8>, Row)> {
    let fields = list(told)?;
    let [name, _, flags, Value::Int(first_key), ..] = fields else { return None };
    let flags: Vec<&[u8]> = list(flags)?.iter().filter_map(text).collect();
    let has = |flag: &str| flags.contains(&flag.as_bytes());
    let specs = fields.get(8).and_then(list).unwrap_or_default();
    let subcommands = fields.get(9).and_then(list).unwrap_or_default();
    // `container|name` is said as `container name`.
    let own_name = |(name, row): (Vec<u8>, Row)| {
        let name = name.rsplit(|byte| *byte == b'|').next().map(<[u8]>::to_vec);
        name.map(|name| (name, row))
    };
    let row = Row {
        is_read: has("readonly"),
        is_blocking: has("blocking"),
        is_movable: has("movablekeys"),
        first_key: usize::try_from(*first_key).unwrap_or(0),
        specs: specs.iter().filter_map(spec).collect(),
        subcommands: subcommands.iter().filter_map(row_of_container).filter_map(own_name).collect(),
    };
    Some((text(name)?.to_ascii_lowercase(), row))
}

/// A subcommand has no subcommands of its own, so this goes one level deep only.
fn row_of_container(told: &Value) -> Option<(Vec<u8>, Row)> {
    let fields = list(told)?;
    let without_subcommands = Value::Array(fields.iter().take(9).cloned().collect());
    row(&without_subcommands)
}

/// `begin_search` and `find_keys`, each with `type` and `spec`. `None` for kinds that nobody can
/// follow.
fn spec(told: &Value) -> Option<KeySpec> {
    let begin = rule(field(told, "begin_search")?)?;
    let begin = match begin {
        ("index", spec) => Begin::At(number(spec, "index")?),
        ("keyword", spec) => Begin::Behind {
            word: text(field(spec, "keyword")?)?.to_vec(),
            from: integer(spec, "startfrom")?,
        },
        _ => return None,
    };
    let find = match rule(field(told, "find_keys")?)? {
        ("range", _) => Find::Here,
        ("keynum", spec) => {
            Find::Counted { count: number(spec, "keynumidx")?, first: number(spec, "firstkey")? }
        }
        _ => return None,
    };
    Some(KeySpec { begin, find })
}

fn rule(told: &Value) -> Option<(&str, &Value)> {
    let kind = std::str::from_utf8(text(field(told, "type")?)?).ok()?;
    Some((kind, field(told, "spec")?))
}

fn number(told: &Value, name: &str) -> Option<usize> {
    usize::try_from(integer(told, name)?).ok()
}

fn integer(told: &Value, name: &str) -> Option<i64> {
    match field(told, name)? {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// A field of a map, which RESP2 sends as a list of names and values.
fn field<'a>(told: &'a Value, name: &str) -> Option<&'a Value> {
    match told {
        Value::Map(fields) => fields
            .iter()
            .find(|(key, _)| text(key) == Some(name.as_bytes()))
            .map(|(_, value)| value),
        Value::Array(fields) => {
            let mut pairs = fields.chunks_exact(2);
            pairs.find(|pair| text(&pair[0]) == Some(name.as_bytes())).map(|pair| &pair[1])
        }
        _ => None,
    }
}

fn list(told: &Value) -> Option<&[Value]> {
    match told {
        Value::Array(values) | Value::Set(values) => Some(values),
        _ => None,
    }
}

fn text(told: &Value) -> Option<&[u8]> {
    match told {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn map(fields: &[(&str, Value)]) -> Value {
        Value::Array(fields.iter().flat_map(|(name, value)| [bulk(name), value.clone()]).collect())
    }

    fn told(name: &str, flags: &[&str], first_key: i64, specs: Vec<Value>) -> Value {
        let flags = flags.iter().map(|flag| Value::SimpleString((*flag).into())).collect();
        Value::Array(vec![
            bulk(name),
            Value::Int(-1),
            Value::Array(flags),
            Value::Int(first_key),
            Value::Int(0),
            Value::Int(0),
            Value::Array(vec![]),
            Value::Array(vec![]),
            Value::Array(specs),
            Value::Array(vec![]),
        ])
    }

    fn keys(begin: (&str, Value), find: (&str, Value)) -> Value {
        let rule = |(kind, spec): (&str, Value)| map(&[("type", bulk(kind)), ("spec", spec)]);
        map(&[("begin_search", rule(begin)), ("find_keys", rule(find))])
    }

    fn table() -> Commands {
        let at = |index| ("index", map(&[("index", Value::Int(index))]));
        let range = || ("range", map(&[("lastkey", Value::Int(0))]));
        let counted = map(&[("keynumidx", Value::Int(0)), ("firstkey", Value::Int(1))]);
        let behind = |word: &str, from| {
            ("keyword", map(&[("keyword", bulk(word)), ("startfrom", Value::Int(from))]))
        };
        let unknown = || ("unknown", map(&[]));
        Commands::parse(&Value::Array(vec![
            told("get", &["readonly", "fast"], 1, vec![keys(at(1), range())]),
            told("ping", &["fast"], 0, vec![]),
            told("eval", &["movablekeys"], 0, vec![keys(at(2), ("keynum", counted))]),
            told("xread", &["readonly", "blocking"], 0, vec![keys(behind("STREAMS", 1), range())]),
            told("migrate", &["movablekeys"], 0, vec![keys(behind("KEYS", -2), range())]),
            told("sort", &["movablekeys"], 1, vec![keys(unknown(), unknown())]),
            told("old.eval", &["movablekeys"], 0, vec![]),
        ]))
        .unwrap()
    }

    fn place(line: &str) -> KeyPlace {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        table().look_up(&words).key
    }

    #[test]
    fn the_first_key_is_found_by_the_rule_that_the_server_told() {
        assert_eq!(place("GET k"), KeyPlace::At(1));
        assert_eq!(place("GET"), KeyPlace::None, "the server will say what is missing");
        assert_eq!(place("PING"), KeyPlace::None);
        assert_eq!(place("EVAL code 1 k a"), KeyPlace::At(3));
        assert_eq!(place("EVAL code 0 a"), KeyPlace::None);
        assert_eq!(place("EVAL code x a"), KeyPlace::None);
        assert_eq!(place("xread COUNT 1 streams k 0"), KeyPlace::At(4));
        assert_eq!(place("MIGRATE h 1 a 0 1 KEYS k l"), KeyPlace::At(7));
        assert_eq!(place("MIGRATE h 1 KEYS"), KeyPlace::None);
        assert_eq!(place("SORT k"), KeyPlace::At(1));
        assert_eq!(place("OLD.EVAL code 1 k"), KeyPlace::AskServer);
        assert_eq!(place("NEW.COMMAND k"), KeyPlace::AskServer);
    }

    #[test]
    fn reads_and_commands_that_block_are_known() {
        let known = |word: &str| table().look_up(&[word.as_bytes()]);
        assert!(known("get").is_read && !known("get").is_blocking);
        assert!(known("XREAD").is_read && known("XREAD").is_blocking);
        assert!(!known("EVAL").is_read && !known("nonsense").is_read);
    }

    #[test]
    fn nonsense_is_no_table() {
        for reply in [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Int(1)])] {
            assert!(Commands::parse(&reply).is_err(), "{reply:?}");
        }
    }
}
