//! Settings of the store are read as values, by field: texts are for CONFIG GET and REWRITE.

use super::rust::lines_outside_tests;
use super::tree::File;
use super::{Check, Finding};

/// Where texts are at home, and what speaks of them.
const EXEMPT: &[&str] = &["crates/store-engine/src/config/", "xtask/"];

pub(super) const TEXTS: Check = Check {
    name: "settings by text",
    run: |tree| tree.with_extension("rs").filter(|file| !may_read(file)).flat_map(reads).collect(),
};

fn may_read(file: &File) -> bool {
    EXEMPT.iter().any(|place| file.path.starts_with(place))
}

fn reads(file: &File) -> Vec<Finding> {
    let lines = lines_outside_tests(file).filter(|line| line.code.contains(".text_of("));
    lines
        .map(|line| {
            let what = "a setting of the store is read by its text";
            let next_step = "read a field of `Config::settings()`; add one in config/settings";
            Finding::new(&file.path, line.number, what, next_step)
        })
        .collect()
}
