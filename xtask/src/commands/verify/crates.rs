//! What every crate has: a head that says what it is for, our lints, one test program.

use super::tree::File;
use super::{Check, Finding};

pub(super) const HEADS: Check = Check {
    name: "crate heads",
    run: |tree| tree.files().filter(|file| is_crate_root(file)).filter_map(headless).collect(),
};

pub(super) const LINTS: Check =
    Check { name: "workspace lints", run: |tree| tree.manifests().filter_map(unlinted).collect() };

pub(super) const TESTS: Check = Check {
    name: "test programs",
    run: |tree| tree.with_extension("rs").filter_map(stray_test).collect(),
};

fn is_crate_root(file: &File) -> bool {
    file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs")
}

fn headless(file: &File) -> Option<Finding> {
    let mut lines = file.text.lines().skip_while(|line| line.starts_with("// tidy:"));
    let head = lines.next().and_then(|line| line.strip_prefix("//! "));
    let next_step = "say in its first line, after `//! `, what the crate is for";
    head.is_none().then(|| Finding::new(&file.path, 1, "the crate has no head", next_step))
}

fn unlinted(manifest: &File) -> Option<Finding> {
    // A manifest with a workspace of its own (fuzzing needs one) cannot inherit ours.
    let has = |text: &str| manifest.text.contains(text);
    let is_fine = has("[lints]\nworkspace = true") || has("[workspace]");
    let next_step = "add `[lints]` with `workspace = true`";
    (!is_fine).then(|| Finding::new(&manifest.path, 1, "the crate escapes our lints", next_step))
}

fn stray_test(file: &File) -> Option<Finding> {
    let folder = file.folder();
    let is_stray = folder.ends_with("/tests") && !folder.ends_with("/src/tests");
    let next_step = "move it to tests/it/ and name it in tests/it/main.rs: one program links once";
    is_stray.then(|| Finding::new(&file.path, 1, "a test program of its own", next_step))
}
