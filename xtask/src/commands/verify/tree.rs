//! The files of the repository.

use std::fs;
use std::io;
use std::path::Path;

/// Folders that hold nothing of ours, by name.
const PASSED_OVER: &[&str] = &[".git", "target", "node_modules"];

/// All text files, read into memory. Paths are relative and use `/`.
pub(super) struct Tree {
    files: Vec<File>,
}

pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
}

impl Tree {
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        collect(root, "", &mut files)?;
        files.sort_by(|a: &File, b: &File| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// A tree that exists only here.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File { path: path.into(), text: text.into() };
        Self { files: files.iter().map(file).collect() }
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &File> {
        self.files.iter()
    }

    pub(super) fn with_extension(&self, extension: &str) -> impl Iterator<Item = &File> {
        self.files()
            .filter(move |file| file.path.rsplit_once('.').is_some_and(|(_, e)| e == extension))
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files().find(|file| file.path == path)
    }

    /// Whether there is such a file, or a folder with files in it.
    pub(super) fn has(&self, path: &str) -> bool {
        let is_in_folder = |file: &File| {
            file.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        path.is_empty() || self.files().any(is_in_folder)
    }

    /// The manifests of the workspace's crates.
    pub(super) fn manifests(&self) -> impl Iterator<Item = &File> {
        self.files().filter(|file| file.path.ends_with("/Cargo.toml"))
    }
}

impl File {
    /// The lines with their numbers.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// Whether the whole file is test code, by its place.
    pub(super) fn is_test(&self) -> bool {
        let mut folders = self.path.split('/');
        folders.any(|name| matches!(name, "tests" | "benches" | "fuzz" | "tests.rs"))
    }

    /// The folder, without a slash at its end; empty at the top.
    pub(super) fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if PASSED_OVER.contains(&name.as_str()) {
            continue;
        }
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let kind = entry.file_type()?;
        if kind.is_dir() {
            collect(&entry.path(), &path, files)?;
        } else if kind.is_file() {
            // What is no text has no lines to check, but links may point to it.
            let text = String::from_utf8(fs::read(entry.path())?).unwrap_or_default();
            files.push(File { path, text });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_read_without_its_build_folder() {
        let tree = Tree::read(crate::repository::root()).unwrap();
        assert!(tree.has("xtask/src/main.rs"));
        assert!(tree.has("xtask/src"));
        assert!(!tree.has("xtask/sr"));
        assert!(!tree.has("target"));
        assert!(tree.get("xtask/src/main.rs").unwrap().text.starts_with("//!"));
    }

    #[test]
    fn test_code_is_known_by_its_place() {
        let tree = Tree::of(&[("a/tests/it/main.rs", ""), ("a/src/contests.rs", "")]);
        let is_test: Vec<_> = tree.files().map(File::is_test).collect();
        assert_eq!(is_test, [true, false]);
    }
}
