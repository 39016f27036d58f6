//! Links between the papers must lead somewhere.

use super::tree::{File, Tree};
use super::{Check, Finding};

pub(super) const TARGETS: Check = Check {
    name: "links",
    run: |tree| tree.with_extension("md").flat_map(|file| dead_links(tree, file)).collect(),
};

/// Whoever looks for something finds every page in the index by task.
pub(super) const INDEX: Check = Check {
    name: "index",
    run: |tree| {
        let Some(index) = tree.get("docs/README.md") else { return Vec::new() };
        let linked: Vec<&str> = index.lines().flat_map(|(_, line)| targets(line)).collect();
        let pages = tree.with_extension("md").filter_map(|file| {
            Some(file.path.strip_prefix("docs/")?).filter(|name| *name != "README.md")
        });
        let missing = pages.filter(|name| !linked.contains(name));
        let told = missing.map(|name| {
            let what = format!("no task in the index leads to `{name}`");
            Finding::new(&index.path, 1, what, "say what a reader of that page wants to do")
        });
        told.collect()
    },
};

fn dead_links(tree: &Tree, file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    for (number, line) in file.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for target in targets(line) {
            let is_there = resolve(file.folder(), target).is_some_and(|path| tree.has(&path));
            if !is_there {
                let what = format!("the link to `{target}` leads nowhere");
                findings.push(Finding::new(&file.path, number, what, "mend it or take it out"));
            }
        }
    }
    findings
}

/// The files to which the links of a line lead, without the parts inside them.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    // Every second piece between backticks is code.
    let prose = line.split('`').step_by(2);
    let after_links = prose.flat_map(|text| text.split("](").skip(1));
    let target = after_links.filter_map(|text| text.split([')', ' ']).next());
    let file = target.map(|target| target.split('#').next().unwrap_or_default());
    file.filter(|file| !file.is_empty() && !file.contains(':'))
}

/// The path from the top. `None` when it leads out of the repository.
fn resolve(folder: &str, target: &str) -> Option<String> {
    let mut path: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                path.pop()?;
            }
            name => path.push(name),
        }
    }
    Some(path.join("/"))
}
