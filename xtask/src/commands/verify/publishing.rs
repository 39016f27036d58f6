//! What a crate needs before it can be published. A crate that stays here says `publish = false`.

use super::tree::{File, Tree};
use super::{Check, Finding};

/// What the manifest of a published crate says, itself or through the workspace.
const FIELDS: &[&str] = &[
    "description",
    "version",
    "edition",
    "rust-version",
    "license",
    "readme",
    "keywords",
    "categories",
];

/// The categories that we use. A registry takes only those that it knows.
const CATEGORIES: &[&str] = &[
    "algorithms",
    "asynchronous",
    "command-line-utilities",
    "concurrency",
    "data-structures",
    "database",
    "database-implementations",
    "development-tools",
    "encoding",
    "network-programming",
    "os",
    "parser-implementations",
    "web-programming::http-server",
];

/// What a registry allows.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_LEN_MAX: usize = 20;
const CATEGORIES_MAX: usize = 5;

pub(super) const MANIFESTS: Check = Check {
    name: "publishing",
    run: |tree| {
        let published = tree.manifests().filter(|manifest| is_published(manifest));
        let crates = published.flat_map(|manifest| unfit(tree, manifest));
        crates.chain(unversioned_crates(tree)).collect()
    },
};

/// One `name = value` of a manifest.
struct Entry<'a> {
    line: usize,
    section: &'a str,
    /// Up to the first dot: `version` of `version.workspace = true`.
    name: &'a str,
    value: &'a str,
}

impl<'a> Entry<'a> {
    /// Whether it is something that users of the crate need, too.
    fn is_dependency(&self) -> bool {
        let kind = self.section.rsplit('.').next().unwrap_or(self.section);
        matches!(kind, "dependencies" | "build-dependencies")
            && self.section != "workspace.dependencies"
    }

    /// The texts in quotation marks.
    fn texts(&self) -> Vec<&'a str> {
        self.value.split('"').skip(1).step_by(2).collect()
    }

    /// What the inline table says under `name`.
    fn inner(&self, name: &str) -> Option<&'a str> {
        let (_, rest) = self.value.split_once(&format!("{name} = \""))?;
        rest.split('"').next()
    }
}

fn entries(manifest: &File) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    manifest.lines().filter_map(move |(line, text)| {
        if let Some(head) = text.strip_prefix('[') {
            section = head.trim_end_matches(']');
            return None;
        }
        let (name, value) = text.split_once('=').filter(|_| !text.starts_with('#'))?;
        let name = name.trim().split('.').next().unwrap_or("");
        Some(Entry { line, section, name, value })
    })
}

fn package_entry<'a>(manifest: &'a File, name: &str) -> Option<Entry<'a>> {
    entries(manifest).find(|entry| entry.section == "package" && entry.name == name)
}

fn is_published(manifest: &File) -> bool {
    let says_no = |entry: Entry<'_>| entry.value.trim() == "false";
    !package_entry(manifest, "publish").is_some_and(says_no)
}

/// What keeps a crate from being published.
fn unfit(tree: &Tree, manifest: &File) -> Vec<Finding> {
    let mut findings: Vec<Finding> = FIELDS
        .iter()
        .filter(|field| package_entry(manifest, field).is_none())
        .map(|field| {
            let next_step = "add it under [package], or say `publish = false`";
            Finding::new(&manifest.path, 1, format!("no `{field}`"), next_step)
        })
        .collect();
    findings.extend(missing_readme(tree, manifest));
    findings.extend(undocumented(tree, manifest));
    findings.extend(entries(manifest).filter_map(|entry| unfit_entry(tree, manifest, &entry)));
    findings
}

fn missing_readme(tree: &Tree, manifest: &File) -> Option<Finding> {
    let entry = package_entry(manifest, "readme")?;
    let path = match entry.texts().first() {
        Some(name) => format!("{}/{name}", manifest.folder()),
        None => "README.md".to_owned(),
    };
    let what = format!("there is no {path}");
    (!tree.has(&path)).then(|| Finding::new(&manifest.path, entry.line, what, "write it"))
}

fn undocumented(tree: &Tree, manifest: &File) -> Option<Finding> {
    let is_library = tree.has(&format!("{}/src/lib.rs", manifest.folder()));
    let is_told = entries(manifest).any(|entry| entry.section == "package.metadata.docs.rs");
    let next_step = "add [package.metadata.docs.rs] with its `targets`";
    (is_library && !is_told)
        .then(|| Finding::new(&manifest.path, 1, "nothing says how its pages are built", next_step))
}

fn unfit_entry(tree: &Tree, manifest: &File, entry: &Entry<'_>) -> Option<Finding> {
    let (what, next_step) = match (entry.section, entry.name) {
        ("package", "keywords") => (unfit_keywords(&entry.texts())?, "take others"),
        ("package", "categories") => {
            let next_step = "take one that registries know, and add it to publishing.rs";
            (unfit_categories(&entry.texts())?, next_step)
        }
        _ if entry.is_dependency() => unfit_dependency(tree, entry)?,
        _ => return None,
    };
    Some(Finding::new(&manifest.path, entry.line, what, next_step))
}

fn unfit_keywords(words: &[&str]) -> Option<String> {
    if !(1..=KEYWORDS_MAX).contains(&words.len()) {
        return Some(format!("{} keywords, not 1 to {KEYWORDS_MAX}", words.len()));
    }
    let is_fit = |word: &str| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        word.len() <= KEYWORD_LEN_MAX
            && word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(is_plain)
    };
    let word = words.iter().find(|word| !is_fit(word))?;
    Some(format!("no registry takes the keyword {word:?}"))
}

fn unfit_categories(words: &[&str]) -> Option<String> {
    if !(1..=CATEGORIES_MAX).contains(&words.len()) {
        return Some(format!("{} categories, not 1 to {CATEGORIES_MAX}", words.len()));
    }
    let word = words.iter().find(|word| !CATEGORIES.contains(word))?;
    Some(format!("the category {word:?} is not in our list"))
}

fn unfit_dependency(tree: &Tree, entry: &Entry<'_>) -> Option<(String, &'static str)> {
    let is_ours = |manifest: &&File| {
        package_entry(manifest, "name").is_some_and(|name| name.texts() == [entry.name])
    };
    let name = entry.name;
    if tree.manifests().find(is_ours).is_some_and(|manifest| !is_published(manifest)) {
        let what = format!("depends on {name}, which is not published");
        return Some((what, "publish that crate, or do without it"));
    }
    let lacks_version = entry.inner("path").is_some() && entry.inner("version").is_none();
    let what = format!("{name} has a path and no version");
    lacks_version.then_some((what, "take it with `workspace = true`"))
}

/// In the list of the workspace: our published crates with another version than they have.
fn unversioned_crates(tree: &Tree) -> Vec<Finding> {
    let Some(top) = tree.get("Cargo.toml") else { return Vec::new() };
    let ours = entries(top)
        .find(|entry| entry.section == "workspace.package" && entry.name == "version")
        .and_then(|entry| entry.texts().first().copied());
    let is_right = |entry: &Entry<'_>| {
        let Some(path) = entry.inner("path") else { return true };
        let manifest = tree.get(&format!("{path}/Cargo.toml"));
        !manifest.is_some_and(is_published) || entry.inner("version") == ours
    };
    entries(top)
        .filter(|entry| entry.section == "workspace.dependencies" && !is_right(entry))
        .map(|entry| {
            let what = format!("{} is not listed with the version that it has", entry.name);
            Finding::new(&top.path, entry.line, what, "write the version of [workspace.package]")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::repository;

    /// Cargo itself makes the packages, without building them.
    #[test]
    fn cargo_packages_every_published_crate() {
        let tree = Tree::read(repository::root()).unwrap();
        let published = tree.manifests().filter(|manifest| is_published(manifest));
        let names: Vec<&str> = published
            .filter_map(|manifest| package_entry(manifest, "name"))
            .filter_map(|entry| entry.texts().first().copied())
            .collect();
        assert!(names.contains(&"tenure") && names.contains(&"tenure-cli"), "{names:?}");
        assert!(!names.contains(&"xtask") && !names.contains(&"testkit"), "{names:?}");

        let folder = std::env::temp_dir().join(format!("tenure-packages-{}", std::process::id()));
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["package", "--no-verify", "--offline", "--allow-dirty", "--target-dir"]);
        cargo.arg(&folder).current_dir(repository::root());
        names.iter().for_each(|name| {
            cargo.args(["--package", name]);
        });
        let output = cargo.output().unwrap();
        let missing: Vec<_> = names
            .iter()
            .map(|name| folder.join(format!("package/{name}-{}.crate", version(&tree))))
            .filter(|package| !package.exists())
            .collect();
        let _ = std::fs::remove_dir_all(&folder);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(missing.is_empty(), "cargo made no {missing:?}");
    }

    #[test]
    fn every_published_crate_has_the_texts_of_its_licences() {
        let tree = Tree::read(repository::root()).unwrap();
        for manifest in tree.manifests().filter(|manifest| is_published(manifest)) {
            for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
                let link = repository::root().join(manifest.folder()).join(name);
                let is_ours =
                    std::fs::read(&link).ok() == std::fs::read(repository::root().join(name)).ok();
                assert!(
                    is_ours,
                    "{} is not the licence: link it to the one at the top",
                    link.display()
                );
            }
        }
    }

    fn version(tree: &Tree) -> &str {
        let top = tree.get("Cargo.toml").unwrap();
        let entry = entries(top).find(|entry| entry.name == "version").unwrap();
        entry.texts()[0]
    }
}
