//! A disk that remembers which files this process wrote or loaded, so that at the end it can tell
//! whether those are the files that still stand there. Somebody may have put a backup in their
//! place meanwhile.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use store_persist::disk::{Disk, DiskFile, FileIdentity};

use super::DataFolders;

/// A file that this process knows.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// It is as it was when it got its name, or was read.
    Whole(FileIdentity),
    /// It grows.
    Growing(FileIdentity),
}

/// Hands everything on, and remembers.
pub(crate) struct KnownDisk {
    inner: Arc<dyn Disk>,
    folders: DataFolders,
    files: Mutex<BTreeMap<PathBuf, Known>>,
}

impl KnownDisk {
    pub(crate) fn new(inner: Arc<dyn Disk>, folders: DataFolders) -> Self {
        Self { inner, folders, files: Mutex::default() }
    }

    /// Whether what stands at `path` is what this process wrote there or loaded from there. A file
    /// that is not there, and was not, is.
    pub(crate) fn is_ours(&self, path: &Path) -> io::Result<bool> {
        let found = match self.inner.identity(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found?),
        };
        Ok(match (self.files().get(path), found) {
            (None, None) => true,
            (Some(Known::Whole(known)), Some(found)) => *known == found,
            (Some(Known::Growing(known)), Some(found)) => {
                (known.device, known.inode) == (found.device, found.inode)
            }
            _ => false,
        })
    }

    fn files(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, Known>> {
        // Each change is one insertion or removal.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What cannot be looked at is not known.
    fn learn(&self, path: &Path, how: fn(FileIdentity) -> Known) {
        match self.inner.identity(path) {
            Ok(found) => self.files().insert(path.to_owned(), how(found)),
            Err(_) => self.files().remove(path),
        };
    }

    fn learn_at_first(&self, path: &Path) {
        if !self.files().contains_key(path) {
            self.learn(path, Known::Whole);
        }
    }
}

impl Disk for KnownDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.inner.create(path)?;
        self.learn(path, Known::Growing);
        Ok(file)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = self.inner.append(path)?;
        self.learn(path, Known::Growing);
        Ok(file)
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.learn_at_first(path);
        self.inner.read(path)
    }

    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        self.inner.read_from(path, offset)
    }

    fn volatile_folder(&self) -> Option<PathBuf> {
        self.inner.volatile_folder()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)?;
        self.files().remove(from);
        self.learn(to, Known::Whole);
        Ok(())
    }

    fn rename_growing(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename_growing(from, to)?;
        self.files().remove(from);
        self.learn(to, Known::Growing);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)?;
        self.files().remove(path);
        Ok(())
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        self.inner.truncate(path, len)?;
        self.learn(path, Known::Whole);
        Ok(())
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        self.inner.size(path)
    }

    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        self.inner.identity(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.inner.make_folder(path)?;
        // What is written there must be read by no other server, and be written by none.
        self.folders.own_directory(path).map_err(io::Error::other)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_folder(path)
    }
}
