//! Where the files lie and how they are called.

use std::path::{Path, PathBuf};

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

    /// The one file of servers before Redis 7.0.
    pub fn single_file(&self) -> PathBuf {
        self.dir.join(&self.file_name)
    }

    /// The base while it is written.
    pub fn new_base(&self) -> PathBuf {
        self.path_of(&format!("temp-{}.base", self.file_name))
    }

    /// What changed since, while there is no base that it continues.
    pub fn new_increment(&self) -> PathBuf {
        self.path_of(&format!("temp-{}.incr", self.file_name))
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
