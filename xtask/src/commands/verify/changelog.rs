//! What a user can see is told in the changelog, in the change that brings it.

use super::tree::Tree;
use super::{Check, Finding};

const PATH: &str = "CHANGELOG.md";
const HEADING: &str = "## Unreleased";

pub(super) const UNRELEASED: Check =
    Check { name: "changelog", run: |tree| without_unreleased(tree).into_iter().collect() };

fn without_unreleased(tree: &Tree) -> Option<Finding> {
    let mut lines = tree.get(PATH).map(|file| file.text.lines()).into_iter().flatten();
    let is_there = lines.any(|line| line == HEADING);
    let next_step = format!("add `{HEADING}` above the newest release");
    (!is_there).then(|| Finding::new(PATH, 1, "there is no place for what is new", next_step))
}
