//! Words and phrases that we do not use, and names that we do not give to types: the lists are
//! sections of docs/glossary.md, with what to write instead.

use super::prose::{self, Word};
use super::rust::lines_outside_tests;
use super::tree::File;
use super::{Check, Finding};

const PAGE: &str = "docs/glossary.md";
/// Has what is refused in its texts.
const PLANTED: &str = "xtask/src/commands/verify/planted.rs";
const PHRASES_HEAD: &str = "## Words that we do not use";
const NAMES_HEAD: &str = "## Names that we do not give to types";
/// What the list says beside names that are still in use.
const TO_BE_RENAMED: &str = "to be renamed";

pub(super) const PHRASES: Check = Check {
    name: "words",
    run: |tree| {
        let Some(page) = tree.get(PAGE) else { return Vec::new() };
        let (phrases, mut findings) = listed(page);
        let read = tree.files().filter(|file| is_read(file));
        findings.extend(read.flat_map(|file| used(file, &phrases)));
        findings
    },
};

pub(super) const NAMES: Check = Check {
    name: "names of types",
    run: |tree| {
        let Some(page) = tree.get(PAGE) else { return Vec::new() };
        let refused = |(.., remark): &(usize, &str, &str, &str)| *remark != TO_BE_RENAMED;
        let names: Vec<_> = rows(page, NAMES_HEAD).filter(refused).collect();
        let is_read = |file: &&File| !file.is_test() && file.path != PLANTED;
        let code = tree.with_extension("rs").filter(is_read);
        code.flat_map(|file| declared(file, &names)).collect()
    },
};

/// A row of the list that is read here.
struct Phrase {
    words: Vec<String>,
    /// Longer phrases in which it is allowed.
    exceptions: Vec<Vec<String>>,
    instead: String,
    scope: Scope,
}

/// Where a phrase is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everywhere,
    /// Not where the store itself is concerned: there it may mean something else.
    Elections,
    /// On the page of the sidecar alone, where one word is a label.
    Page,
}

impl Scope {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "everywhere" => Some(Self::Everywhere),
            "elections" => Some(Self::Elections),
            "page" => Some(Self::Page),
            _ => None,
        }
    }

    fn has(self, file: &File) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Elections => !is_about_the_store(file),
            Self::Page => is_page(file),
        }
    }
}

fn is_page(file: &File) -> bool {
    file.path.starts_with("crates/tenure-sidecar/page/")
}

/// What people read: documents, the page, deployment files, and what programs and rustdoc say.
fn is_read(file: &File) -> bool {
    let path = file.path.as_str();
    let is_exempt = path == "CHANGELOG.md"
        || path.starts_with("xtask/src/commands/verify/")
        || path.starts_with("crates/store-simulator/");
    let is_code = ["crates/tenure", "crates/store-", "examples/", "xtask/"]
        .iter()
        .any(|place| path.starts_with(place));
    let is_shown = is_page(file) || path.starts_with("deploy/") || path.ends_with("/openapi.json");
    let is_prose = path.ends_with(".md") || (path.ends_with(".rs") && is_code) || is_shown;
    is_prose && !is_exempt && !file.is_test()
}

fn is_about_the_store(file: &File) -> bool {
    let pages = ["docs/store.md", "docs/commands.md", "docs/client.md", "docs/benchmarks.md"];
    file.path.starts_with("crates/store-") || pages.contains(&file.path.as_str())
}

/// The rows of a table of the page: line, first cell, second cell, third cell.
fn rows<'a>(
    page: &'a File,
    head: &'a str,
) -> impl Iterator<Item = (usize, &'a str, &'a str, &'a str)> {
    let section = page.lines().skip_while(move |(_, line)| *line != head).skip(1);
    let section = section.take_while(|(_, line)| !line.starts_with("## "));
    section.filter(|(_, line)| line.starts_with("| `")).map(|(number, line)| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let mut cell = || cells.next().unwrap_or_default();
        (number, cell(), cell(), cell())
    })
}

/// The list, and what is wrong with it.
fn listed(page: &File) -> (Vec<Phrase>, Vec<Finding>) {
    let (mut phrases, mut findings, mut has_rows) = (Vec::new(), Vec::new(), false);
    for (line, not, instead, place) in rows(page, PHRASES_HEAD) {
        let Some(scope) = Scope::parse(place) else {
            let what = format!("{place:?} is not a place of the list");
            let next_step = "write `everywhere`, `elections` or `page`";
            findings.push(Finding::new(PAGE, line, what, next_step));
            continue;
        };
        has_rows = true;
        let (not, exceptions) = not.split_once("(not ").unwrap_or((not, ""));
        let exceptions: Vec<Vec<String>> = quoted(exceptions).collect();
        phrases.extend(quoted(not).map(|words| Phrase {
            words,
            exceptions: exceptions.clone(),
            instead: instead.to_owned(),
            scope,
        }));
    }
    if !has_rows && findings.is_empty() {
        let what = format!("there is no list below {PHRASES_HEAD:?}");
        findings.push(Finding::new(PAGE, 1, what, "put it back"));
    }
    (phrases, findings)
}

/// The phrases between backticks, as words.
fn quoted(cell: &str) -> impl Iterator<Item = Vec<String>> {
    let phrases = cell.split('`').skip(1).step_by(2);
    phrases.map(|phrase| phrase.to_lowercase().split_whitespace().map(bare).collect())
}

fn bare(word: &str) -> String {
    word.trim_end_matches(',').to_owned()
}

fn used(file: &File, phrases: &[Phrase]) -> Vec<Finding> {
    let mut words = prose::words(file);
    if file.path == PAGE {
        // Its tables have the words that are refused.
        let is_row = |line: usize| file.text.lines().nth(line - 1).unwrap_or("").starts_with('|');
        words.retain(|word| !is_row(word.line));
    }
    let mut findings = Vec::new();
    for phrase in phrases.iter().filter(|phrase| phrase.scope.has(file)) {
        let places = (0..words.len()).filter(|at| is_used(&words, *at, phrase));
        findings.extend(places.map(|at| {
            let what = format!("we do not write `{}`", phrase.words.join(" "));
            let next_step = format!("write: {} ({PAGE})", phrase.instead);
            Finding::new(&file.path, words[at].line, what, next_step)
        }));
    }
    findings.sort_by_key(|finding| finding.line);
    findings
}

fn is_used(words: &[Word], at: usize, phrase: &Phrase) -> bool {
    let is_at = |at: usize, phrase: &[String]| {
        let there = words.get(at..at + phrase.len());
        there.is_some_and(|there| there.iter().zip(phrase).all(|(word, want)| word.text == *want))
    };
    let is_excepted = |longer: &Vec<String>| {
        let first = (at + phrase.words.len()).saturating_sub(longer.len());
        (first..=at).any(|start| is_at(start, longer))
    };
    is_at(at, &phrase.words) && !phrase.exceptions.iter().any(is_excepted)
}

/// Types of this file with a name of the list.
fn declared(file: &File, names: &[(usize, &str, &str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in lines_outside_tests(file) {
        let mut words = line.code.split(|c: char| !c.is_alphanumeric() && c != '_');
        let is_kind = |word: &&str| matches!(*word, "struct" | "enum" | "trait" | "type" | "union");
        let name = words.find(is_kind).and_then(|_| words.next()).unwrap_or_default();
        let is_listed = |not: &str| not.split('`').skip(1).step_by(2).any(|listed| listed == name);
        let row = names.iter().find(|(_, not, ..)| is_listed(not));
        if let Some((_, _, instead, _)) = row {
            let what = format!("a type is called `{name}`");
            let next_step = format!("call it as others would: {instead} ({PAGE})");
            findings.push(Finding::new(&file.path, line.number, what, next_step));
        }
    }
    findings
}
