//! The walks through the code in ARCHITECTURE.md: each file that they name exists, and is called by
//! one before it.
//!
//! A walk is a table below a heading that begins with [`HEAD`]. A row is a file, the name by which
//! it is entered, and what happens there. The name is declared in this file and used in an earlier
//! one of the walk: the previous one, or one to which the call has returned.

use super::tree::{File, Tree};
use super::{Check, Finding};

const PAGE: &str = "ARCHITECTURE.md";
const HEAD: &str = "### Walk: ";
/// How many files the way of a grant may cross.
const GRANT_FILES_MAX: usize = 12;

pub(super) const STEPS: Check = Check {
    name: "walks",
    run: |tree| {
        let walks = tree.get(PAGE).map_or(Vec::new(), walks);
        walks.iter().flat_map(|walk| walk.findings(tree)).collect()
    },
};

struct Walk<'a> {
    title: &'a str,
    line: usize,
    steps: Vec<Step<'a>>,
}

struct Step<'a> {
    line: usize,
    path: &'a str,
    /// By what it is entered; the first step needs none.
    name: Option<&'a str>,
}

fn walks(page: &File) -> Vec<Walk<'_>> {
    let mut walks: Vec<Walk<'_>> = Vec::new();
    let mut in_walk = false;
    for (line, text) in page.lines() {
        if let Some(title) = text.strip_prefix(HEAD) {
            walks.push(Walk { title, line, steps: Vec::new() });
            in_walk = true;
        } else if text.starts_with('#') {
            in_walk = false;
        }
        let Some(row) = text.strip_prefix("| `").filter(|_| in_walk) else { continue };
        let mut cells = row.split('|');
        let path = cells.next().unwrap_or_default().trim().trim_matches('`');
        let name = cells.next().unwrap_or_default().split('`').nth(1);
        if let Some(walk) = walks.last_mut() {
            walk.steps.push(Step { line, path, name });
        }
    }
    walks
}

impl Walk<'_> {
    fn findings(&self, tree: &Tree) -> Vec<Finding> {
        let numbered = self.steps.iter().enumerate();
        let faults = numbered.filter_map(|(index, step)| {
            let what = fault_of(tree, step, &self.steps[..index])?;
            let next_step = format!(
                "the code has moved: follow the walk of {} through the code, and write each file \
                 that it enters with the name by which it is called",
                self.title
            );
            Some(Finding::new(PAGE, step.line, what, next_step))
        });
        let mut findings: Vec<Finding> = faults.collect();
        if self.steps.len() < 2 {
            let what = format!("the walk of {} has no files", self.title);
            findings.push(Finding::new(PAGE, self.line, what, "name them, one per row"));
        }
        let mut files: Vec<&str> = self.steps.iter().map(|step| step.path).collect();
        files.sort_unstable();
        files.dedup();
        if self.title == "a grant" && files.len() > GRANT_FILES_MAX {
            let what = format!("a grant crosses {} files, at most {GRANT_FILES_MAX}", files.len());
            let next_step = "join files that only pass it on";
            findings.push(Finding::new(PAGE, self.line, what, next_step));
        }
        findings
    }
}

fn fault_of(tree: &Tree, step: &Step<'_>, before: &[Step<'_>]) -> Option<String> {
    let path = step.path;
    let Some(file) = tree.get(path) else { return Some(format!("there is no file {path}")) };
    if before.is_empty() {
        return None;
    }
    let Some(name) = step.name else { return Some(format!("what calls {path} is missing")) };
    if !declares(file, name) {
        return Some(format!("{path} does not declare `{name}`"));
    }
    let files = before.iter().filter(|step| step.path != path);
    let is_used = |file: &File| names(&file.text).any(|word| word == name);
    let mut files = files.filter_map(|step| tree.get(step.path));
    (!files.any(is_used)).then(|| format!("no file before {path} uses `{name}`"))
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Whether a function, type or constant of this name begins in the file.
fn declares(file: &File, name: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static"];
    let is_declared = |line: &str| {
        let words: Vec<&str> = names(line).filter(|word| !word.is_empty()).collect();
        words.windows(2).any(|pair| kinds.contains(&pair[0]) && pair[1] == name)
    };
    file.text.lines().any(is_declared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository;

    #[test]
    fn the_ways_that_people_ask_for_are_there() {
        let tree = Tree::read(repository::root()).unwrap();
        let walks = walks(tree.get(PAGE).unwrap());
        let titles: Vec<&str> = walks.iter().map(|walk| walk.title).collect();
        let store = ["GET", "SET", "a sentinel votes"];
        let election = ["a grant", "`tenure run`", "a sidecar request"];
        assert_eq!(titles, [store, election].concat());
    }
}
