//! `cargo xtask verify`: the tidy rules of CONTRIBUTING.md that a program can check.

mod changelog;
mod clock;
mod command_names;
mod comments;
mod crates;
mod hosts;
mod links;
mod macros;
mod modules;
#[cfg(test)]
mod planted;
mod prose;
mod protocol;
mod public_items;
mod publishing;
mod purity;
mod rust;
mod settings;
mod sizes;
mod tree;
mod walks;
mod words;

use std::fmt;

use crate::command::{Command, Failure};
use crate::repository;
use tree::Tree;

pub(crate) const COMMAND: Command = Command {
    name: "verify",
    summary: "checks the tidy rules of CONTRIBUTING.md",
    details: "\
Reads all files of the repository and prints one line per finding:

  path:line: what is wrong — what to do

  --list                   list the rules
  --update-public-items    update the list of the public items of `tenure`

It builds nothing and takes less than a second. Its rules stand in CONTRIBUTING.md.",
    run,
};

fn run(words: &[String]) -> Result<(), Failure> {
    match words.first().map(String::as_str) {
        None => verify(),
        Some("--list") => {
            CHECKS.iter().for_each(|check| println!("{}", check.name));
            Ok(())
        }
        Some("--update-public-items") => public_items::update(),
        Some(word) => Err(Failure::Usage(format!("verify: unknown word {word:?}"))),
    }
}

/// One rule. A new one is a constant in a file beside the others, a line below, and a row in
/// planted.rs that shows what it finds.
struct Check {
    name: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    sizes::FILES,
    sizes::FUNCTIONS,
    comments::LINES,
    clock::READS,
    settings::TEXTS,
    command_names::MATCHED,
    purity::LINTS,
    purity::DEPENDENCIES,
    hosts::NAMES,
    macros::LEFTOVERS,
    crates::HEADS,
    crates::LINTS,
    crates::TESTS,
    modules::NAMED,
    public_items::LISTED,
    publishing::MANIFESTS,
    links::TARGETS,
    links::INDEX,
    protocol::NAMES,
    protocol::CITATIONS,
    changelog::UNRELEASED,
    walks::STEPS,
    words::PHRASES,
    words::NAMES,
];

/// Checks all rules, printing what breaks them.
pub(crate) fn verify() -> Result<(), Failure> {
    let tree = Tree::read(repository::root())
        .map_err(|error| Failure::Failed(format!("cannot read the repository: {error}")))?;
    let findings = findings(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("places that break a rule: {count}"))),
    }
}

fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| (check.run)(tree)).collect();
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}

/// A place that breaks a rule.
#[derive(Debug)]
struct Finding {
    path: String,
    line: usize,
    what: String,
    next_step: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into(), next_step: next_step.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, next_step } = self;
        write!(formatter, "{path}:{line}: {what} — {next_step}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_tells_place_fault_and_next_step() {
        let finding = Finding::new("src/lib.rs", 7, "too long", "cut it");
        assert_eq!(finding.to_string(), "src/lib.rs:7: too long — cut it");
    }

    #[test]
    fn findings_of_all_checks_come_in_order_of_their_place() {
        let tree = Tree::of(&[
            ("b/src/lib.rs", "fn f() {\n    Instant::now();\n}\n"),
            ("a/src/lib.rs", "// no head\n"),
        ]);
        let places: Vec<_> = findings(&tree).iter().map(|f| (f.path.clone(), f.line)).collect();
        assert!(places.is_sorted(), "{places:?}");
        assert!(places.contains(&("b/src/lib.rs".into(), 2)));
        assert!(places.contains(&("a/src/lib.rs".into(), 1)));
    }
}
