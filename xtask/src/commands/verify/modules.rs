//! Every file of Rust belongs to a program: one that no module names is neither built nor tested.

use super::tree::{File, Tree};
use super::{Check, Finding};

pub(super) const NAMED: Check = Check {
    name: "modules",
    run: |tree| {
        let files = tree.with_extension("rs").filter(|file| is_module(file));
        files.filter_map(|file| unnamed(tree, file)).collect()
    },
};

/// Whether a file is one only if another names it.
fn is_module(file: &File) -> bool {
    let (folder, name) = (file.folder(), file.path.rsplit('/').next().unwrap_or_default());
    let is_below = |root: &str| format!("/{folder}/").contains(root);
    let is_root = matches!(name, "lib.rs" | "main.rs") || folder.ends_with("/src/bin");
    !is_root && (is_below("/src/") || is_below("/tests/it/"))
}

fn unnamed(tree: &Tree, file: &File) -> Option<Finding> {
    let path = file.path.strip_suffix("/mod.rs").or(file.path.strip_suffix(".rs"))?;
    let (folder, name) = path.rsplit_once('/')?;
    let declared = format!("mod {name};");
    let by_path = format!("{name}.rs\"");
    let parent = format!("{folder}.rs");
    let mut near =
        tree.with_extension("rs").filter(|near| near.folder() == folder || near.path == parent);
    let names = |near: &File| {
        near.lines().any(|(_, line)| {
            line.trim_end().ends_with(&declared)
                || line.contains("path = ") && line.contains(&by_path)
        })
    };
    let next_step = format!("write `{declared}` in the file above it, or remove it");
    let is_named = near.any(names);
    (!is_named).then(|| Finding::new(&file.path, 1, "no module names this file", next_step))
}
