//! What persistence needs of a disk, so that a test can give it one that crashes.
//!
//! In: whole paths and bytes. Out: what the system says. The real disk lives in the server; the
//! [`SimulatedDisk`] here forgets or tears on a crash whatever was not synced, by a seed.

mod simulated;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use simulated::{Fault, IgnoredError, SimulatedDisk, SingleFault};

/// A disk. Names are durable only after [`sync_folder`](Disk::sync_folder), bytes only after
/// [`DiskFile::sync`].
pub trait Disk: Send + Sync {
    /// A new empty file to write to, in place of one that had the name.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// A file to write to at its end, made when it is not there.
    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// A file to read from its beginning.
    fn read(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;

    /// A file to read from `offset` on. A disk that can go there need not read what is before.
    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut source = self.read(path)?;
        io::copy(&mut source.by_ref().take(offset), &mut io::sink())?;
        Ok(source)
    }

    /// A folder whose files are not on this disk, so that no copy or backup of the disk brings them
    /// back, and that a restart of the machine empties. `None` where there is none.
    fn volatile_folder(&self) -> Option<PathBuf> {
        None
    }

    /// Gives a file another name, in place of one that had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// The same for a file that is written to further on.
    fn rename_growing(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.rename(from, to)
    }

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Cuts a file to `len` bytes, and makes that durable.
    fn truncate(&self, path: &Path, len: u64) -> io::Result<()>;

    /// Length of a file in bytes. Fails with `NotFound` when there is none.
    fn size(&self, path: &Path) -> io::Result<u64>;

    /// Which file stands at `path` now.
    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        Ok(FileIdentity { len: self.size(path)?, ..FileIdentity::default() })
    }

    /// Makes a folder, unless it is there.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Names in a folder, in no order. Empty when there is no such folder.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// What tells a file from every other one that has stood, or will stand, under its name. Zero where
/// a disk does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileIdentity {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
    /// When the system last changed anything about it, in nanoseconds: nobody can set that back.
    pub changed_at_ns: i128,
    /// Its length in bytes.
    pub len: u64,
}

/// A file being written.
pub trait DiskFile: Write + Send {
    /// Makes all bytes written so far durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Something that syncs the file from another thread.
    fn syncer(&self) -> io::Result<Arc<dyn SyncFile>>;

    /// Cuts the file to `len` bytes; the next write continues there.
    fn set_len(&mut self, len: u64) -> io::Result<()>;

    /// Whether the file still has this name: somebody may have removed or replaced it. A disk that
    /// cannot tell says yes.
    fn is_at(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }
}

/// The one thing about a file that is done from another thread.
pub trait SyncFile: Send + Sync {
    /// Makes all bytes written so far durable.
    fn sync(&self) -> io::Result<()>;
}

/// Whether a file has this name. An error counts as there: whoever asks is about to read it, and
/// will hear of the error.
pub fn exists(disk: &dyn Disk, path: &Path) -> bool {
    !disk.size(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Whether an error says that there is no such file: it has no name, or its folder is none.
pub fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Reads a small file as a whole. Fails when it is longer than `len_max`.
pub fn read_small(disk: &dyn Disk, path: &Path, len_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    disk.read(path)?.take(len_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > len_max {
        let text = format!("{} is longer than {len_max} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(bytes)
}

/// Writes a file anew: under another name, synced, renamed, folder synced, so that whatever
/// happens the name stands for the old bytes or the new ones.
pub fn replace(disk: &dyn Disk, path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = disk.create(beside)?;
    file.write_all(bytes)?;
    file.sync()?;
    drop(file);
    disk.rename(beside, path)?;
    disk.sync_folder(folder_of(path))
}

/// The folder a path lies in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
