//! What a store keeps about one resource as text, for stores that only keep what they are given.
//!
//! One line per key and per element of it, words apart by tabs. Whatever cannot be read is an
//! error: it is not ours, and nothing is written over it.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{InstanceId, Resource};

use super::keys::{Entry, Value};
use super::members::Told;
use super::record::Record;
use super::{Life, MemoryStore, record};

/// The first line: whose text it is, and in which version.
const HEAD: &str = "tenure 1";

/// The parts that are written apart, so that a heartbeat never competes with a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The lease, its side record and the ticks.
    Lease,
    /// Who takes part.
    Members,
}

impl Part {
    fn holds(self, suffix: &str) -> bool {
        match suffix {
            "history" => false,
            "beats" | "members" => self == Part::Members,
            _ => self == Part::Lease,
        }
    }
}

impl MemoryStore {
    /// A store of this life without anything in it.
    pub(crate) fn of_life(life: Life) -> Self {
        Self::living(life)
    }

    /// One part of what is known about a resource; empty when that is nothing.
    pub(crate) fn part(&self, resource: &Resource, part: Part) -> String {
        let beside = resource.side_key("");
        let mut text = String::new();
        for (key, entry) in self.keys.all() {
            let suffix = match key.strip_prefix(&beside) {
                Some(suffix) => suffix,
                None if key == resource.key() => "",
                None => continue,
            };
            if part.holds(suffix) {
                write_entry(&mut text, suffix, entry);
            }
        }
        if text.is_empty() { text } else { format!("{HEAD}\n{text}") }
    }

    /// Puts a part back. Says what is wrong with a text that is not ours.
    pub(crate) fn put_part(&mut self, resource: &Resource, text: &str) -> Result<(), String> {
        let mut lines = text.lines();
        match lines.next() {
            None => return Ok(()),
            Some(HEAD) => {}
            Some(other) => {
                let shown = record::shortened(other, 40);
                return Err(format!("it begins with {shown:?} and not with {HEAD:?}"));
            }
        }
        let mut open: Option<(String, Entry)> = None;
        for line in lines {
            let words: Vec<String> = line.split('\t').map(unescaped).collect();
            match (&words.iter().map(String::as_str).collect::<Vec<_>>()[..], &mut open) {
                (["key", suffix, kind, ends], open) => {
                    if let Some((key, entry)) = open.take() {
                        self.keys.put(key, entry);
                    }
                    let key = match *suffix {
                        "" => resource.key().to_owned(),
                        suffix => resource.side_key(suffix),
                    };
                    *open = Some((key, empty_entry(kind, ends).ok_or("a key is unreadable")?));
                }
                (["-", name, value], Some((_, entry))) => {
                    put_element(&mut entry.value, name, value).ok_or("a line is unreadable")?;
                }
                // When it was written: for those who observe it.
                (["at", _], _) => {}
                _ => return Err("a line is unreadable".to_owned()),
            }
        }
        if let Some((key, entry)) = open {
            self.keys.put(key, entry);
        }
        Ok(())
    }

    /// The lines of history that are here, oldest first.
    pub(crate) fn history_lines(&self, resource: &Resource) -> Vec<String> {
        let found = self.keys.all().find(|(key, _)| **key == resource.side_key("history"));
        let Some((_, Entry { value: Value::Stream(entries), .. })) = found else {
            return Vec::new();
        };
        let line = |entry: &Vec<(String, String)>| {
            let words = entry.iter().flat_map(|(name, value)| [escaped(name), escaped(value)]);
            words.collect::<Vec<_>>().join("\t")
        };
        entries.iter().map(line).collect()
    }

    /// Puts lines of history back, oldest first.
    pub(crate) fn put_history(&mut self, resource: &Resource, lines: &[String]) {
        let entry = |line: &String| {
            let words: Vec<String> = line.split('\t').map(unescaped).collect();
            words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
        };
        let value = Value::Stream(lines.iter().map(entry).collect());
        self.keys.put(resource.side_key("history"), Entry { value, expires_at: None });
    }
}

fn write_entry(text: &mut String, suffix: &str, entry: &Entry) {
    let (kind, elements): (_, Vec<(String, String)>) = match &entry.value {
        Value::Text(value) => ("text", vec![(String::new(), value.to_string())]),
        Value::Record(record) => ("record", record.fields().collect()),
        Value::Hash(fields) => ("hash", fields.clone().into_iter().collect()),
        Value::Members(members) => {
            ("members", members.iter().map(|(id, told)| (id.to_string(), told.text())).collect())
        }
        Value::Beats(beats) => {
            ("beats", beats.iter().map(|(id, beat)| (id.to_string(), beat.to_string())).collect())
        }
        Value::Stream(_) | Value::Other(_) => return,
    };
    let ends = entry.expires_at.map_or("never".to_owned(), |ends| ends.to_string());
    let _ = writeln!(text, "key\t{}\t{kind}\t{ends}", escaped(suffix));
    for (name, value) in elements {
        let _ = writeln!(text, "-\t{}\t{}", escaped(&name), escaped(&value));
    }
}

fn empty_entry(kind: &str, ends: &str) -> Option<Entry> {
    let value = match kind {
        "text" => Value::Text(InstanceId::seen("")),
        "record" => Value::Record(Box::<Record>::default()),
        "hash" => Value::Hash(BTreeMap::new()),
        "members" => Value::Members(BTreeMap::new()),
        "beats" => Value::Beats(BTreeMap::new()),
        _ => return None,
    };
    let expires_at = match ends {
        "never" => None,
        ends => Some(ends.parse().ok()?),
    };
    Some(Entry { value, expires_at })
}

fn put_element(into: &mut Value, name: &str, value: &str) -> Option<()> {
    match into {
        Value::Text(text) => *text = InstanceId::seen(value),
        Value::Record(record) => record.set_named(name, value),
        Value::Hash(fields) => drop(fields.insert(name.to_owned(), value.to_owned())),
        Value::Members(members) => {
            members.insert(InstanceId::seen(name), Told::Raw(value.to_owned()));
        }
        Value::Beats(beats) => drop(beats.insert(InstanceId::seen(name), value.parse().ok()?)),
        Value::Stream(_) | Value::Other(_) => return None,
    }
    Some(())
}

fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\t', "\\t");
    text.replace('\n', "\\n").replace('\r', "\\r")
}

fn unescaped(text: &str) -> String {
    let (mut plain, mut letters) = (String::with_capacity(text.len()), text.chars());
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some('t') => plain.push('\t'),
                Some('n') => plain.push('\n'),
                Some('r') => plain.push('\r'),
                Some(other) => plain.push(other),
                None => {}
            },
            (letter, false) => plain.push(letter),
        }
    }
    plain
}
