//! `tenure check-rdb`: what is in a snapshot file, and whether it is whole.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use store_engine::{LoadOptions, check_snapshot};
use store_persist::rdb::{FileReader, Item, LoadedEntry, Mended, RdbError};
use store_types::Limits;
use store_types::dump::Value;

use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{self, OutputOptions};

/// Between two lines of progress.
const PROGRESS_BYTES: u64 = 64 * 1024 * 1024;
/// Facts and modules shown.
const SHOWN_MAX: usize = 100;

/// Check a snapshot file (RDB): it is read as at the start of a server, and nothing is changed.
///
/// The file is read twice: once to tell what is in it, and once into memory, as a server that
/// starts with it does. So this needs as much memory as that server.
///
/// Exit code: 0 when the file is intact and a server would start with it, 65 when it would not, 66
/// when it cannot be read.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:
  tenure check-rdb dump.rdb")]
pub(crate) struct Arguments {
    /// The file, such as dump.rdb.
    file: PathBuf,
    /// How many databases the server that loads it has (its setting `databases`).
    #[arg(long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    databases: u32,
    #[command(flatten)]
    output: OutputOptions,
}

/// What was found.
#[derive(Debug, Default)]
struct Found {
    version: u16,
    bytes: u64,
    facts: Vec<(String, String)>,
    modules: Vec<String>,
    keys: u64,
    volatile: u64,
    ended: u64,
    empty: u64,
    functions: u64,
    types: BTreeMap<&'static str, u64>,
    databases: BTreeMap<u64, u64>,
    mended: Mended,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let path = &arguments.file;
    let named = |code: u8, text: String| Failure::new(code, format!("{}: {text}", path.display()));
    let file = File::open(path).map_err(|error| named(exit::NO_INPUT, error.to_string()))?;
    let length = file.metadata().map(|metadata| metadata.len()).unwrap_or(0);
    let mut found = Found::default();
    let checked = check(file, clock::unix_ms(), &mut found, &mut |bytes| {
        let percent = bytes * 100 / length.max(bytes);
        output::talk(&format!("{}: {percent} %, byte {bytes}", path.display()));
    });
    let checked = checked.and_then(|()| {
        let file = File::open(path).map_err(|source| RdbError::Read { offset: 0, source })?;
        let (databases, now_us) = (arguments.databases as usize, clock::unix_ms() * 1000);
        check_snapshot(file, databases, now_us, LoadOptions::default(), &mut |_| {}).map(drop)
    });
    let json = found.to_json(path, checked.as_ref().err());
    arguments.output.print(&json, || found.to_text(path, checked.is_ok()));
    match checked {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ RdbError::Read { .. }) => Err(named(exit::NO_INPUT, error.to_string())),
        Err(error) => Err(named(exit::DAMAGED, error.to_string())),
    }
}

fn check(
    input: impl Read,
    now_ms: u64,
    found: &mut Found,
    progress: &mut dyn FnMut(u64),
) -> Result<(), RdbError> {
    let mut file = FileReader::begin(input, Limits::default())?;
    found.version = file.version();
    let mut progress_at = PROGRESS_BYTES;
    while let Some(item) = file.next_item()? {
        found.note(item, now_ms);
        found.bytes = file.offset();
        if found.bytes >= progress_at {
            progress_at = found.bytes + PROGRESS_BYTES;
            progress(found.bytes);
        }
    }
    found.bytes = file.offset();
    found.mended = file.mended().clone();
    Ok(())
}

impl Found {
    fn note(&mut self, item: Item, now_ms: u64) {
        match item {
            Item::Fact { name, value } if self.facts.len() < SHOWN_MAX => {
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                self.facts.push((text(&name), text(&value)));
            }
            Item::ModuleFact(name) if self.modules.len() < SHOWN_MAX => self.modules.push(name),
            Item::Fact { .. } | Item::ModuleFact(_) | Item::Sizes { .. } => {}
            Item::Function(_) => self.functions += 1,
            Item::EmptyKey(_) => self.empty += 1,
            Item::Entry(entry) => self.note_entry(&entry, now_ms),
        }
    }

    fn note_entry(&mut self, entry: &LoadedEntry, now_ms: u64) {
        self.keys += 1;
        *self.types.entry(type_name(&entry.value)).or_default() += 1;
        *self.databases.entry(entry.db).or_default() += 1;
        if let Some(at) = entry.expires_at {
            self.volatile += 1;
            self.ended += u64::from(at < now_ms);
        }
    }

    fn to_text(&self, path: &Path, is_whole: bool) -> String {
        let state = if is_whole { "whole" } else { "damaged; found before the damage" };
        let (path, Found { version, bytes, .. }) = (path.display(), self);
        if *version == 0 {
            return format!("{path}: nothing of it could be read as an RDB file\n");
        }
        let mut text = format!("{path}: RDB version {version}, {bytes} bytes, {state}\n");
        let mut line = |name: &str, value: String| {
            writeln!(text, "{name:12} {value}").expect("writing to a string cannot fail");
        };
        line("keys", self.keys.to_string());
        for (name, count) in &self.types {
            line(&format!("  {name}"), count.to_string());
        }
        for (db, count) in &self.databases {
            line(&format!("  database {db}"), count.to_string());
        }
        line("with expiry", format!("{}, of which {} have expired", self.volatile, self.ended));
        line("functions", self.functions.to_string());
        if self.empty > 0 {
            line("empty", format!("{} keys, which are not loaded", self.empty));
        }
        if let Some(first) = &self.mended.first {
            let count = self.mended.values;
            line("made whole", format!("{count} values that contradict themselves, first {first}"));
        }
        for module in &self.modules {
            line("module", format!("{module}: its data beside the keys is not loaded"));
        }
        for (name, value) in &self.facts {
            line(name, value.clone());
        }
        text
    }

    fn to_json(&self, path: &Path, error: Option<&RdbError>) -> serde_json::Value {
        let damage = error.map(|error| {
            let offset = match error {
                RdbError::Damaged { offset, .. } | RdbError::Read { offset, .. } => Some(*offset),
                _ => None,
            };
            json!({ "offset": offset, "reason": error.to_string() })
        });
        let databases: BTreeMap<String, u64> =
            self.databases.iter().map(|(db, count)| (db.to_string(), *count)).collect();
        json!({
            "file": path.display().to_string(),
            "whole": error.is_none(),
            "damage": damage,
            "version": self.version,
            "bytes": self.bytes,
            "keys": self.keys,
            "types": self.types,
            "databases": databases,
            "volatile": self.volatile,
            "ended": self.ended,
            "empty": self.empty,
            "mended": { "values": self.mended.values, "first": self.mended.first },
            "functions": self.functions,
            "modules": self.modules,
            "facts": self.facts.iter().cloned().collect::<BTreeMap<String, String>>(),
        })
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::List(_) => "list",
        Value::Set(_) => "set",
        Value::SortedSet(_) => "zset",
        Value::Hash(_) => "hash",
        Value::Stream(_) => "stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"REDIS0004\xfa\x09redis-ver\x057.0.0\xfe\x00\
                          \xfd\x01\x00\x00\x00\x00\x01s\x05hello\x01\x01l\x01\x01a\xff";

    fn checked(bytes: &[u8]) -> (Found, Result<(), RdbError>) {
        let mut found = Found::default();
        let result = check(bytes, 5000, &mut found, &mut |_| {});
        (found, result)
    }

    #[test]
    fn what_is_in_a_file_is_counted() {
        let (found, result) = checked(FILE);
        assert!(result.is_ok(), "{result:?}");
        let json = found.to_json(Path::new("dump.rdb"), None);
        assert_eq!(json["types"], json!({ "string": 1, "list": 1 }));
        assert_eq!((json["keys"].as_u64(), json["ended"].as_u64()), (Some(2), Some(1)));
        assert_eq!((json["whole"].as_bool(), json["version"].as_u64()), (Some(true), Some(4)));
        assert_eq!(json["facts"]["redis-ver"], "7.0.0");
    }

    #[test]
    fn damage_is_told_with_its_place_and_with_what_came_before() {
        let (found, result) = checked(&FILE[..FILE.len() - 3]);
        let error = result.unwrap_err();
        let json = found.to_json(Path::new("dump.rdb"), Some(&error));
        assert_eq!(json["keys"], 1);
        assert_eq!(json["damage"]["offset"], FILE.len() as u64 - 3);
        assert!(error.to_string().contains("backup"), "{error}");
    }
}
