//! Lines too long to read beside another file. rustfmt keeps code short, but not comments.

use super::rust::{Line, lines};
use super::tree::File;
use super::{Check, Finding};

/// What rustfmt holds code to.
const LINE_CHARACTERS_MAX: usize = 100;

pub(super) const LINES: Check = Check {
    name: "comment length",
    run: |tree| tree.with_extension("rs").flat_map(long_lines).collect(),
};

fn long_lines(file: &File) -> Vec<Finding> {
    let comments = lines(file).filter(Line::is_comment);
    let too_long = comments.filter(|line| line.text.chars().count() > LINE_CHARACTERS_MAX);
    let finding = |line: Line<'_>| {
        let what = format!("the comment has more than {LINE_CHARACTERS_MAX} characters");
        Finding::new(&file.path, line.number, what, "break it")
    };
    too_long.filter(can_be_broken).map(finding).collect()
}

/// Links and the rows of a table cannot be.
fn can_be_broken(line: &Line<'_>) -> bool {
    let words = line.text.trim_start().trim_start_matches(['/', '!']).trim_start();
    !words.contains("://") && !words.starts_with('|')
}
