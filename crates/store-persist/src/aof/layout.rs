//! Where the files lie and how they are called.

use std::path::{Path, PathBuf};

use super::manifest::{FileKind, SEQUENCE_MAX};

/// Folder and names, from the settings `dir`, `appenddirname` and `appendfilename`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The setting `dir`.
    pub dir: PathBuf,
    /// The setting `appenddirname`.
    pub folder_name: String,
    /// The setting `appendfilename`.
    pub file_name: String,
}

impl Layout {
    /// The folder of all files.
    pub fn folder(&self) -> PathBuf {
        self.dir.join(&self.folder_name)
    }

    /// A file in the folder.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// The manifest.
    pub fn manifest(&self) -> PathBuf {
        self.path_of(&format!("{}.manifest", self.file_name))
    }

    /// The manifest while it is written.
    pub fn new_manifest(&self) -> PathBuf {
        self.path_of(&format!("temp-{}.manifest", self.file_name))
    }

    /// The manifest of data that a full sync replaced: it counts no more, and its files stay until
    /// the new data is in files of its own.
    pub fn superseded_manifest(&self) -> PathBuf {
        self.path_of(&self.superseded_name())
    }

    /// Its name in the folder.
    pub fn superseded_name(&self) -> String {
        format!("{}.manifest.superseded", self.file_name)
    }

    /// The one file of servers before Redis 7.0.
    pub fn single_file(&self) -> PathBuf {
        self.dir.join(&self.file_name)
    }

    /// A base while it is written. Each has a name of its own, since one that nobody wants any
    /// more may still be written to while the next one begins.
    pub fn new_base(&self, generation: u64) -> PathBuf {
        self.path_of(&format!("temp-{generation}-{}.base", self.file_name))
    }

    /// What changed since, while there is no base that it continues.
    pub fn new_increment(&self, generation: u64) -> PathBuf {
        self.path_of(&format!("temp-{generation}-{}.incr", self.file_name))
    }

    /// Whether a name is that of a file that was never listed: a process that is gone left it.
    pub fn is_leftover(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix("temp-") else { return false };
        let rest = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        let ending = rest.strip_prefix(self.file_name.as_str());
        matches!(ending, Some(".base" | ".incr"))
    }

    /// The kind and number in the name of a file, listed or not.
    pub fn parse_name(&self, name: &str) -> Option<(FileKind, u64)> {
        let rest = name.strip_prefix(self.file_name.as_str())?.strip_prefix('.')?;
        let (number, kind) = rest.split_once('.')?;
        let kind = match kind {
            "incr.aof" => FileKind::Increment,
            "base.rdb" | "base.aof" => FileKind::Base,
            _ => return None,
        };
        let number = number.parse().ok().filter(|number| *number <= SEQUENCE_MAX)?;
        Some((kind, number))
    }

    /// Name of base number `sequence`.
    pub fn base_name(&self, sequence: u64, is_rdb: bool) -> String {
        let suffix = if is_rdb { "rdb" } else { "aof" };
        format!("{}.{sequence}.base.{suffix}", self.file_name)
    }

    /// Name of increment number `sequence`.
    pub fn increment_name(&self, sequence: u64) -> String {
        format!("{}.{sequence}.incr.aof", self.file_name)
    }

    /// The layout that a manifest at `path` belongs to.
    pub fn of_manifest(path: &Path) -> Option<Self> {
        let file_name = path.file_name()?.to_str()?.strip_suffix(".manifest")?.to_owned();
        let folder = path.parent()?;
        Some(Self {
            dir: folder.parent().unwrap_or(Path::new("")).to_owned(),
            folder_name: folder.file_name().and_then(|name| name.to_str()).unwrap_or("").to_owned(),
            file_name,
        })
    }
}
