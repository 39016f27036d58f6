//! Lines too long to read beside another file. rustfmt keeps code short, but not comments.

use super::rust::{Line, lines};
use super::tree::File;
use super::{Check, Finding};

/// What rustfmt holds code to.
const LINE_CHARACTERS_MAX: usize = 100;

pub(super) const LINES: Check = Check {
    name: "line length",
    run: |tree| tree.with_extension("rs").flat_map(long_lines).collect(),
};

fn long_lines(file: &File) -> Vec<Finding> {
    let too_long = lines(file).filter(|line| line.text.chars().count() > LINE_CHARACTERS_MAX);
    let finding = |line: Line<'_>| {
        let what = format!("the line has more than {LINE_CHARACTERS_MAX} characters");
        Finding::new(&file.path, line.number, what, "break it")
    };
    too_long.filter(can_be_broken).map(finding).collect()
}

/// Links and the rows of a table cannot be; a text in the code need not be.
fn can_be_broken(line: &Line<'_>) -> bool {
    if line.is_comment() {
        let words = line.text.trim_start().trim_start_matches(['/', '!']).trim_start();
        !words.contains("://") && !words.starts_with('|')
    } else {
        !line.code.contains('"')
    }
}
