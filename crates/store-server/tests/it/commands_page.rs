//! docs/commands.md says of every command of Redis 7.0 whether the store supports it.
//!
//! Which commands there are comes from the real redis-server, what we have from our command table.
//! A command that only looks supported is in `EXCEPTIONS`. `UPDATE_DOCS=1` writes the page.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use store_engine::{Registry, Row, SETTINGS, SettingDifference};
use testkit::RedisServer;

/// How far a command is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Supported,
    Partial(&'static str),
    Absent(&'static str),
}
use Status::{Absent, Partial, Supported};

const NO_MODULES: Status = Absent("modules are compiled for redis-server itself: answers an error");
const OWN_WORDS: Status = Partial("for people, worded differently");
const OWN_SIZES: Status =
    Partial("counts the bytes of this store, which differ from those of Redis");

/// Commands that do less than their row in the table suggests. `NAME|` stands for all subcommands
/// of NAME, `|NAME` for all subcommands NAME, unless a line names them in full; the first counts.
const EXCEPTIONS: &[(&str, Status)] = &[
    ("command|docs", Partial("the same facts; summaries and histories are worded differently")),
    ("config|get", Partial("shows every setting, also those without effect")),
    (
        "config|set",
        Partial("accepts every setting; the end of this page lists those without effect"),
    ),
    ("debug", Partial("only the harmless subcommands; those that crash or restart are refused")),
    ("info", Partial("facts about the allocator are constants")),
    ("latency|doctor", OWN_WORDS),
    ("latency|graph", Partial("another drawing")),
    ("lolwut", Partial("another drawing")),
    ("memory|doctor", OWN_WORDS),
    ("memory|malloc-stats", Absent("the allocator belongs to the program around the store")),
    (
        "memory|purge",
        Partial("frees what waits to be freed, in slices; the allocator belongs to the program"),
    ),
    ("memory|stats", OWN_SIZES),
    ("memory|usage", OWN_SIZES),
    ("migrate", Partial("refused in MULTI and scripts; the server goes on serving meanwhile")),
    ("module|load", NO_MODULES),
    ("module|loadex", NO_MODULES),
    ("module|unload", NO_MODULES),
    ("script|debug", Partial("NO only; there is no debugger")),
    ("|help", OWN_WORDS),
];

/// Settings whose names stand in the code though they change nothing.
const MENTIONED_ONLY: &[(&str, &str)] = &[];

#[test]
fn the_page_of_commands_tells_what_the_table_says() {
    let (page_path, page) = (root().join("docs/commands.md"), page());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page_path, &page).expect("docs/commands.md can be written");
    }
    let there = fs::read_to_string(&page_path).unwrap_or_default();
    assert!(
        there == page,
        "docs/commands.md is stale: UPDATE_DOCS=1 cargo test -p store-server --test it commands_page"
    );
}

#[test]
fn every_exception_is_about_a_command_or_a_setting_of_redis() {
    let theirs = commands_of_redis();
    for (pattern, _) in EXCEPTIONS {
        let is_known = theirs.iter().any(|name| matches(pattern, name));
        assert!(is_known, "redis-server has no command {pattern}");
    }
    for (name, _) in MENTIONED_ONLY {
        assert!(
            SETTINGS.iter().any(|setting| setting.name == *name),
            "no setting is called {name}"
        );
    }
}

/// Nothing is called supported that was never compared.
#[test]
fn every_supported_command_stands_in_a_case_file() {
    let folder = root().join("crates/store-server/tests/it/cases");
    let mut compared: BTreeSet<String> = BTreeSet::new();
    for path in files_below(&[folder]) {
        let text = fs::read_to_string(path).unwrap();
        let is_command = |line: &&str| !line.trim().is_empty() && !line.starts_with(['#', '=']);
        for line in text.lines().filter(is_command).map(crate::script::Line::parse) {
            let word = |at: usize| line.words.get(at).map(|word| String::from_utf8_lossy(word));
            let (first, second) = (word(0).unwrap_or_default(), word(1).unwrap_or_default());
            compared.insert(format!("{first}|{second}").to_lowercase());
            compared.insert(first.to_lowercase());
        }
    }
    let (registry, mut missing) = (Registry::new(), Vec::new());
    for name in &commands_of_redis() {
        let is_supported = Line::of(name, &registry).status == Supported;
        if is_supported && !compared.contains(name) {
            missing.push(name.clone());
        }
    }
    assert!(missing.is_empty(), "no case file has {missing:?}");
}

fn page() -> String {
    let registry = Registry::new();
    let theirs = commands_of_redis();
    let lines: Vec<Line<'_>> = theirs.iter().map(|name| Line::of(name, &registry)).collect();
    let count = |is: fn(Status) -> bool| lines.iter().filter(|line| is(line.status)).count();
    let mut page = format!(
        "# Commands\n\n\
         Every command of Redis 7.0, subcommands included, and whether the store supports it. A test \
         writes this page from the\ncommand table and from `COMMAND LIST` of a real redis-server; it \
         fails when the page is out of date.\n\n\
         Supported means: same arguments, same replies, same errors, in RESP2 and RESP3, as far as \
         tests compare them: each\nsupported command is in a case file under \
         `crates/store-server/tests/it/cases`.\n\n\
         {} supported, {} partial, {} absent.\n\n",
        count(|status| status == Supported),
        count(|status| matches!(status, Partial(_))),
        count(|status| matches!(status, Absent(_))),
    );
    let groups: BTreeSet<&str> = lines.iter().map(|line| line.group).collect();
    for group in groups {
        write_group(&mut page, group, lines.iter().filter(|line| line.group == group));
    }
    write_settings(&mut page);
    page
}

fn write_group<'a>(page: &mut String, group: &str, lines: impl Iterator<Item = &'a Line<'a>>) {
    writeln!(page, "## {group}\n\n| command | | what it does | remarks |\n|---|---|---|---|")
        .unwrap();
    for Line { name, summary, status, .. } in lines {
        let name = name.to_uppercase().replace('|', " ");
        let (status, remark) = match status {
            Supported => ("supported", ""),
            Partial(how) => ("**partial**", *how),
            Absent(why) => ("**absent**", *why),
        };
        writeln!(page, "| {name} | {status} | {summary} | {remark} |").unwrap();
    }
    page.push('\n');
}

/// One command of the page.
struct Line<'a> {
    name: &'a str,
    group: &'static str,
    summary: &'static str,
    status: Status,
}

impl<'a> Line<'a> {
    fn of(name: &'a str, registry: &Registry) -> Self {
        let exact = EXCEPTIONS.iter().find(|(pattern, _)| *pattern == name);
        let exception =
            exact.or_else(|| EXCEPTIONS.iter().find(|(pattern, _)| matches(pattern, name)));
        let exception = exception.map(|(_, status)| *status);
        match registry.rows().iter().find(|row: &&Row| row.full_name == name) {
            Some(Row { command, .. }) => {
                let (group, summary) = (command.group.name(), command.summary);
                Self { name, group, summary, status: exception.unwrap_or(Supported) }
            }
            None => {
                let status = exception.unwrap_or(Absent("not there yet"));
                assert!(matches!(status, Absent(_)), "{name} has no row in the table");
                Self { name, group: "others", summary: "", status }
            }
        }
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern {
        _ if pattern.starts_with('|') => name.ends_with(pattern),
        _ if pattern.ends_with('|') => name.starts_with(pattern),
        _ => name == pattern,
    }
}

/// In order of their names.
fn commands_of_redis() -> BTreeSet<String> {
    let server = RedisServer::start();
    server.cli(&["COMMAND", "LIST"]).lines().map(|line| line.trim().to_owned()).collect()
}

/// A setting has an effect if its row names no difference and its name stands somewhere outside of
/// the table of settings.
fn write_settings(page: &mut String) {
    page.push_str(
        "## Settings without effect\n\n\
         Every setting of Redis 7.0 is known, checked, kept and shown by CONFIG GET. These have no \
         other effect:\n\n",
    );
    let mut refused = String::new();
    let code = code();
    for setting in SETTINGS {
        let mentioned = MENTIONED_ONLY.iter().find(|(name, _)| *name == setting.name);
        match mentioned {
            None if setting.difference.is_some() => match setting.difference {
                Some(SettingDifference::Inert(why)) => {
                    writeln!(page, "- `{}`: {why}", setting.name).unwrap()
                }
                Some(SettingDifference::OnlyDefault(why)) => {
                    writeln!(refused, "- `{}`: {why}", setting.name).unwrap();
                }
                None => {}
            },
            Some((name, "")) => writeln!(page, "- `{name}`").unwrap(),
            Some((name, remark)) => writeln!(page, "- `{name}`: {remark}").unwrap(),
            None if !code.contains(&format!("\"{}\"", setting.name)) => {
                writeln!(page, "- `{}`", setting.name).unwrap();
            }
            None => {}
        }
    }
    page.push_str(
        "\n## Settings of which only the default is taken\n\n\
         Any other value is refused with the reason; at the start also with the line:\n\n",
    );
    page.push_str(&refused);
}

/// What the store's crates do, without their tests and without the table of settings.
fn code() -> String {
    let folders = ["store-engine", "store-server", "tenure-cli"]
        .map(|name| root().join("crates").join(name).join("src"));
    let paths = files_below(&folders).into_iter().filter(|path| !path.ends_with("config/table.rs"));
    let texts = paths.map(|path| fs::read_to_string(path).unwrap());
    texts
        .map(|text| text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned())
        .collect()
}

fn files_below(folders: &[PathBuf]) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), folders.to_vec());
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|item| item.unwrap().path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates lie in the workspace")
}
