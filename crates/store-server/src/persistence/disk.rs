//! The disk of the machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::geteuid;
use store_persist::disk::{Disk, DiskFile, FileIdentity, SyncFile, is_gone};

/// Read at once while data is loaded.
const READ_LEN: usize = 1024 * 1024;

/// Files of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileDisk;

struct RealFile {
    file: Arc<File>,
}

impl RealFile {
    fn boxed(file: File) -> Box<dyn DiskFile> {
        Box::new(Self { file: Arc::new(file) })
    }
}

impl Write for RealFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for RealFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn syncer(&self) -> io::Result<Arc<dyn SyncFile>> {
        Ok(Arc::new(Syncer { file: Arc::clone(&self.file) }))
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        // Opened to append, so the next write goes to the new end.
        self.file.set_len(len)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let found = match fs::metadata(path) {
            Err(error) if is_gone(&error) => return Ok(false),
            found => found?,
        };
        let own = self.file.metadata()?;
        Ok((own.dev(), own.ino()) == (found.dev(), found.ino()))
    }
}

struct Syncer {
    file: Arc<File>,
}

impl SyncFile for Syncer {
    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl Disk for FileDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        // Emptied through a handle of its own: one that appends writes where the end is.
        File::create(path)?;
        self.append(path)
    }

    fn append(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(RealFile::boxed(file))
    }

    fn read(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(BufReader::with_capacity(READ_LEN, File::open(path)?)))
    }

    fn read_from(&self, path: &Path, offset: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(Box::new(BufReader::new(file)))
    }

    fn volatile_folder(&self) -> Option<PathBuf> {
        volatile_folder()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn truncate(&self, path: &Path, len: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(len)?;
        file.sync_all()
    }

    fn size(&self, path: &Path) -> io::Result<u64> {
        Ok(fs::metadata(path)?.len())
    }

    fn identity(&self, path: &Path) -> io::Result<FileIdentity> {
        let found = fs::metadata(path)?;
        let changed_at_ns =
            i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec());
        Ok(FileIdentity {
            device: found.dev(),
            inode: found.ino(),
            changed_at_ns,
            len: found.len(),
        })
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        File::open(path)?.sync_all()
    }
}

/// Memory that lasts as long as the machine runs, and is no part of any data folder.
const SHARED_MEMORY: &str = "/dev/shm";

/// A folder in shared memory that belongs to this user; created if it does not exist. Everybody may
/// create names in /dev/shm, so a folder that belongs to another user, or that others may write to,
/// is not used.
pub fn volatile_folder() -> Option<PathBuf> {
    let user = geteuid().as_raw();
    let folder = Path::new(SHARED_MEMORY).join(format!("tenure-{user}"));
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return None,
        _ => {}
    }
    let found = fs::symlink_metadata(&folder).ok()?;
    let is_ours = found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0;
    is_ours.then_some(folder)
}
