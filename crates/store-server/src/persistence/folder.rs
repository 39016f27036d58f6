//! One server per folder: two that write the same files destroy them.
//!
//! A file `tenure.lock` in the folder is locked for as long as the server lives. The system gives
//! the lock up when the process ends, however it ends, so a lock file that is left means nothing.
//!
//! What counts is the file that is locked, not the path: somebody may move the folder away and give
//! another server one of that name.
//!
//! The folder of the append-only file is locked as well, itself and not a file in it: it needs no
//! right to make files in `dir`, nobody can clean it away while the files in it stay, and it is the
//! same by whatever link it is reached.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FlockOperation, flock};

const NAME: &str = "tenure.lock";

/// The folders that a server writes to. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct DataFolders {
    held: Arc<Mutex<Vec<Held>>>,
    /// Folders that are locked themselves.
    directories: Arc<Mutex<Vec<File>>>,
    /// Whether the disk is a simulated one, which no other process can see.
    is_simulated: bool,
}

/// A folder, with the file that is locked in it; none where no file can be made at all.
type Held = (PathBuf, Option<File>);

impl DataFolders {
    pub(crate) fn simulated() -> Self {
        Self { is_simulated: true, ..Self::default() }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.is_simulated
    }

    /// Makes sure that no other server writes to this folder. To be called before the first
    /// write there. Fails with what to tell when another one has it.
    pub(crate) fn own(&self, folder: &Path) -> Result<(), String> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let path = folder.join(NAME);
        if self.is_simulated || held.iter().flat_map(|(_, file)| file).any(|f| is_at(f, &path)) {
            return Ok(());
        }
        let file = lock(folder)?;
        // One that was moved away stays locked: files of ours may still be written there.
        held.retain(|(_, file)| file.as_ref().is_some_and(has_name));
        held.push((folder.to_owned(), file));
        Ok(())
    }

    /// Makes sure that no other server writes to the files in this folder, if it is there. To be
    /// called before they are read. Fails with what to tell when another one has it.
    pub(crate) fn own_directory(&self, folder: &Path) -> Result<(), String> {
        if self.is_simulated {
            return Ok(());
        }
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if directories.iter().any(|held| is_at(held, folder)) {
            return Ok(());
        }
        let opened = match File::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|error| format!("{}: {error}", folder.display()))?,
        };
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(refusal(folder, None)),
            // Some file systems lock no folders; there the file in `dir` has to do.
            Err(_) => return Ok(()),
        }
        directories.retain(has_name);
        directories.push(opened);
        Ok(())
    }

    /// Nothing is written any more.
    pub(crate) fn release(&self) {
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for (folder, file) in held.drain(..) {
            let path = folder.join(NAME);
            if let Some(file) = &file
                && is_at(file, &path)
            {
                // While it is locked: whoever has it open looks for another one.
                let _ = std::fs::remove_file(&path);
            }
        }
    }
}

/// `None` where no file can be made: no snapshot can be either, and whoever tries is told. The
/// append-only file may be written all the same, see [`DataFolders::own_directory`].
fn lock(folder: &Path) -> Result<Option<File>, String> {
    /// The file may be removed by its owner between opening and locking it.
    const TRIES_MAX: usize = 100;
    let path = folder.join(NAME);
    for _ in 0..TRIES_MAX {
        let mut file = match open(&path) {
            Ok(file) => file,
            Err(error) if std::fs::metadata(&path).is_ok_and(|found| found.is_file()) => {
                let path = path.display();
                return Err(format!(
                    "cannot open {path} ({error}): another user's server may use this folder"
                ));
            }
            Err(_) => return Ok(None),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, &path) => {
                // Only for people: whoever is refused reads it.
                let _ = file.set_len(0);
                let _ = writeln!(file, "{}", std::process::id());
                return Ok(Some(file));
            }
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(refusal(folder, Some(&mut file))),
            Err(error) => return Err(format!("cannot lock {}: {error}", path.display())),
        }
    }
    Err(format!("cannot lock {}: it keeps being removed", path.display()))
}

fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: &std::fs::Metadata| (found.dev(), found.ino());
    let (opened, there) = (file.metadata(), std::fs::metadata(path));
    matches!((opened, there), (Ok(opened), Ok(there)) if identity(&opened) == identity(&there))
}

/// Whether anybody can find the file, wherever it is by now.
fn has_name(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.nlink() > 0)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let made = options.read(true).write(true).create(true).truncate(false).mode(0o644).open(path);
    // One that another user made can be locked all the same.
    made.or_else(|_| File::open(path))
}

fn refusal(folder: &Path, file: Option<&mut File>) -> String {
    let owner = file.and_then(owner_in).map(|pid| format!(" (process {pid})")).unwrap_or_default();
    format!(
        "the folder {} is in use by another server{owner}: stop that one first, or give this one a \
         folder of its own with the setting dir",
        folder.display()
    )
}

/// The process that a lock file names.
fn owner_in(file: &mut File) -> Option<u32> {
    const PID_LEN_MAX: u64 = 20;
    let mut text = String::new();
    file.rewind().and_then(|()| file.take(PID_LEN_MAX).read_to_string(&mut text)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner_at_a_time() {
        let folder = testkit::TempFolder::create();
        let (first, second) = (DataFolders::default(), DataFolders::default());
        first.own(folder.path()).unwrap();
        first.own(folder.path()).unwrap();
        let error = second.own(folder.path()).unwrap_err();
        let process = format!("process {}", std::process::id());
        assert!(error.contains(&process) && error.contains("dir"), "{error}");
        first.release();
        second.own(folder.path()).unwrap();
        second.release();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        DataFolders::simulated().own(folder.path()).unwrap();
    }

    #[test]
    fn a_folder_of_files_has_one_owner_by_whatever_name() {
        let folder = testkit::TempFolder::create();
        let (files, link) = (folder.path().join("files"), folder.path().join("link"));
        std::os::unix::fs::symlink(&files, &link).unwrap();
        let (first, second) = (DataFolders::default(), DataFolders::default());
        first.own_directory(&files).unwrap();
        second.own_directory(&files).unwrap();
        std::fs::create_dir(&files).unwrap();
        first.own_directory(&files).unwrap();
        first.own_directory(&link).unwrap();
        second.own_directory(&link).unwrap_err();
        // One that was made anew under the name is another one.
        std::fs::remove_dir(&files).unwrap();
        std::fs::create_dir(&files).unwrap();
        second.own_directory(&files).unwrap();
        let error = first.own_directory(&files).unwrap_err();
        assert!(error.contains("in use by another server"), "{error}");
        second.release();
        first.own_directory(&files).unwrap();
    }

    #[test]
    fn a_folder_in_place_of_the_own_one_belongs_to_whoever_locked_it() {
        let folder = testkit::TempFolder::create();
        let (dir, old) = (folder.path().join("d"), folder.path().join("d.old"));
        let (first, second) = (DataFolders::default(), DataFolders::default());
        std::fs::create_dir(&dir).unwrap();
        first.own(&dir).unwrap();
        std::fs::rename(&dir, &old).unwrap();
        std::fs::create_dir(&dir).unwrap();
        second.own(&dir).unwrap();
        first.own(&dir).unwrap_err();
        second.own(&old).unwrap_err();
        first.own(&old).unwrap();
        first.release();
        assert!(dir.join(NAME).exists(), "it is the other one's");
        DataFolders::default().own(&dir).unwrap_err();
        second.release();
        // A lock file that was removed is made again, unless another server did so before.
        first.own(&dir).unwrap();
        std::fs::remove_file(dir.join(NAME)).unwrap();
        first.own(&dir).unwrap();
        second.own(&dir).unwrap_err();
        first.release();
    }
}
