//! Only files named `clock.rs` read a clock: all else is told the time, so that tests can move it.

use super::rust::lines_outside_tests;
use super::tree::File;
use super::{Check, Finding};

/// Whatever reads a clock, by its spelling.
const SPELLINGS: &[&str] = &["Instant::now", "SystemTime::now", "clock_gettime", ".elapsed()"];

/// Code that is not part of the product, or shows it to people.
const EXEMPT_FOLDERS: &[&str] = &["xtask/", "crates/testkit/", "examples/"];

pub(super) const READS: Check = Check {
    name: "clock",
    run: |tree| tree.with_extension("rs").filter(|file| !may_read(file)).flat_map(reads).collect(),
};

fn may_read(file: &File) -> bool {
    let is_exempt =
        |folder: &&str| file.path.starts_with(*folder) || file.path.contains(&format!("/{folder}"));
    file.path.ends_with("/clock.rs") || EXEMPT_FOLDERS.iter().any(is_exempt)
}

fn reads(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in lines_outside_tests(file) {
        if let Some(spelling) = SPELLINGS.iter().find(|spelling| line.code.contains(**spelling)) {
            let what = format!("`{spelling}` reads a clock outside of a clock.rs");
            let next_step = "take the time as an argument, or read it in the crate's clock.rs";
            findings.push(Finding::new(&file.path, line.number, what, next_step));
        }
    }
    findings
}
