//! Marks of unfinished work.

use super::rust::lines;
use super::tree::File;
use super::{Check, Finding};

/// Cut in two, so that this file does not find itself.
const LEFTOVERS_SPELLED: &[&str] =
    &[concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];

pub(super) const LEFTOVERS: Check = Check {
    name: "leftovers",
    run: |tree| tree.with_extension("rs").flat_map(leftovers).collect(),
};

fn leftovers(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in lines(file) {
        if let Some(spelling) = LEFTOVERS_SPELLED.iter().find(|m| line.code.contains(**m)) {
            let name = spelling.trim_end_matches('(');
            let what = format!("`{name}` was left in the code");
            findings.push(Finding::new(&file.path, line.number, what, "finish it or take it out"));
        }
    }
    findings
}
