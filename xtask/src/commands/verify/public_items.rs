//! The public items of `tenure` are those on a committed list, so that growth is seen in review.
//!
//! A line of the list is a path and what it is. Counted are modules, types, functions, constants,
//! traits with what they ask for, public methods, public fields, variants and the named fields of
//! variants, with all features on. Not counted are implementations of traits.

mod source;
mod walk;

use std::collections::BTreeSet;
use std::fs;

use self::source::{Sources, Unreadable};
use super::tree::Tree;
use super::{Check, Finding};
use crate::command::Failure;
use crate::repository;

/// The committed list.
const LIST: &str = "crates/tenure/public-items.txt";
/// The crates that are read, with their folders: those that the first may re-export from.
const CRATES: &[(&str, &str)] = &[
    ("tenure", "tenure"),
    ("tenure_core", "tenure-core"),
    ("tenure_backend", "tenure-backend"),
    ("tenure_redis", "tenure-redis"),
];
const ROOT: &str = "tenure";
/// What the second figure leaves out: the same surface once more, for plain threads.
const FACADE: &str = "tenure::blocking";
/// The line that an update leaves as it is.
const AT_THE_START: &str = "# At the start: ";
const UPDATE: &str = "cargo xtask verify --update-public-items";

pub(super) const LISTED: Check = Check { name: "public items", run: compare };

fn compare(tree: &Tree) -> Vec<Finding> {
    if tree.get("crates/tenure/src/lib.rs").is_none() {
        return Vec::new();
    }
    let items = match read(tree) {
        Ok(items) => items,
        Err(Unreadable { path, why }) => {
            let next_step = "write Rust that syn can parse";
            return vec![Finding::new(&path, 1, why, next_step)];
        }
    };
    let list = tree.get(LIST).map_or("", |file| file.text.as_str());
    let listed: BTreeSet<&str> = entries(list).map(|(_, entry)| entry).collect();
    let gone = entries(list).filter(|(_, entry)| !items.contains(*entry));
    let gone = gone.map(|(line, entry)| {
        let what = format!("{entry} is listed and no longer public");
        Finding::new(LIST, line, what, UPDATE)
    });
    let new = items.iter().filter(|item| !listed.contains(item.as_str())).map(|item| {
        let next_step = format!("is it needed? If so: {UPDATE}");
        Finding::new(LIST, 1, format!("{item} is public and not listed"), next_step)
    });
    let mut findings: Vec<Finding> = gone.chain(new).collect();
    if findings.is_empty() && list != written(list, &items) {
        findings.push(Finding::new(LIST, 1, "the counts or the order are out of date", UPDATE));
    }
    findings
}

/// Writes the list anew.
pub(super) fn update() -> Result<(), Failure> {
    let failed = |why: String| Failure::Failed(format!("{LIST}: {why}"));
    let tree = Tree::read(repository::root()).map_err(|error| failed(error.to_string()))?;
    let items = read(&tree)
        .map_err(|fault| failed(format!("cannot read {}: {}", fault.path, fault.why)))?;
    let before = tree.get(LIST).map_or("", |file| file.text.as_str());
    fs::write(repository::root().join(LIST), written(before, &items))
        .map_err(|error| failed(error.to_string()))
}

fn read(tree: &Tree) -> Result<BTreeSet<String>, Unreadable> {
    Ok(walk::public_items(&Sources::read(tree, CRATES)?, ROOT))
}

/// The list with its head. What the count was at the start is taken from the list before.
fn written(before: &str, items: &BTreeSet<String>) -> String {
    let is_facade =
        |item: &&String| item.strip_prefix(FACADE).is_some_and(|rest| rest.starts_with([':', ' ']));
    let facade = items.iter().filter(is_facade).count();
    let now = format!("{}, without {FACADE} {}.", items.len(), items.len() - facade);
    let at_the_start = before.lines().find_map(|line| line.strip_prefix(AT_THE_START));
    let at_the_start = at_the_start.unwrap_or(&now);
    let mut text = format!(
        "# The public items of the crate `tenure`. `cargo xtask verify` compares; to write it anew:\n\
         # {UPDATE}\n\
         # What counts is said in xtask/src/commands/verify/public_items.rs.\n\
         {AT_THE_START}{at_the_start}\n\
         # Now: {now}\n"
    );
    for item in items {
        text.push_str(item);
        text.push('\n');
    }
    text
}

fn entries(list: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(list.lines()).filter(|(_, line)| !line.starts_with('#'))
}
