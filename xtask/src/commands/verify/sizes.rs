//! Files and functions that have grown too long.

use super::rust::{functions, lines_outside_tests};
use super::tree::File;
use super::{Check, Finding};

/// Where a file stops being one idea.
const FILE_LINES_MAX: usize = 1_000;

/// Where a function stops being one thought.
const FUNCTION_LINES_MAX: usize = 70;

/// The first line of a file that is one long table.
const TABLE_MARK: &str = "// tidy: table";

pub(super) const FILES: Check = Check {
    name: "file length",
    run: |tree| tree.with_extension("rs").filter_map(long_file).collect(),
};

pub(super) const FUNCTIONS: Check = Check {
    name: "function length",
    run: |tree| tree.with_extension("rs").flat_map(long_functions).collect(),
};

fn is_table(file: &File) -> bool {
    file.text.lines().next().is_some_and(|line| line.starts_with(TABLE_MARK))
}

fn long_file(file: &File) -> Option<Finding> {
    let length = lines_outside_tests(file).count();
    (length > FILE_LINES_MAX && !is_table(file)).then(|| {
        Finding::new(
            &file.path,
            FILE_LINES_MAX + 1,
            format!("{length} lines without its tests, more than {FILE_LINES_MAX}"),
            format!("cut it by idea, or mark a table with `{TABLE_MARK}` in its first line"),
        )
    })
}

fn long_functions(file: &File) -> Vec<Finding> {
    let too_long = functions(file)
        .into_iter()
        .filter(|function| function.length > FUNCTION_LINES_MAX && !is_table(file));
    let finding = |function: super::rust::Function<'_>| {
        Finding::new(
            &file.path,
            function.line,
            format!("`{}` has {} lines", function.name, function.length),
            format!("give a part of it a name of its own ({FUNCTION_LINES_MAX} lines at most)"),
        )
    };
    too_long.map(finding).collect()
}
