//! Small files of settings and users, replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use store_persist::disk::folder_of;

/// Such files hold passwords: one that is new belongs to its owner alone.
const NEW_MODE: u32 = 0o600;

/// Replaces the text of a file, so that whatever happens its name stands for the old text or the
/// new one. Mode and owner stay; where the name is a link, what it leads to is replaced.
///
/// Fails, and leaves nothing behind, when the system does.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_file_by(path, bytes, |_| Ok(())).map(drop)
}

/// The same with a new file that is prepared before it gets its name, and returned.
pub(crate) fn replace_file_by(
    path: &Path,
    bytes: &[u8],
    prepare: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    let target = match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        target => target?,
    };
    let temporary = TemporaryFile::create(&target)?;
    prepare(&temporary.file)?;
    (&temporary.file).write_all(bytes)?;
    if let Ok(old) = fs::metadata(&target) {
        // Who may not give a file away writes it in its own name, as an editor does.
        let _ = std::os::unix::fs::fchown(&temporary.file, Some(old.uid()), Some(old.gid()));
        temporary.file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
    }
    temporary.file.sync_all()?;
    fs::rename(&temporary.path, &target)?;
    File::open(folder_of(&target))?.sync_all()?;
    temporary.file.try_clone()
}

/// Other processes find the file locked for as long as it is open here. Fails when one has it.
pub(crate) fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::ErrorKind::WouldBlock.into()),
        // A file system without locks has none to respect.
        _ => Ok(()),
    }
}

/// Whether the name still stands for this file.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: io::Result<fs::Metadata>| found.ok().map(|it| (it.dev(), it.ino()));
    identity(file.metadata()) == identity(fs::metadata(path))
}

/// The new file while it has no name of its own. Dropped, it vanishes.
struct TemporaryFile {
    path: PathBuf,
    file: File,
}

impl TemporaryFile {
    fn create(target: &Path) -> io::Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let path = target.with_file_name(format!(".{name}.{}.tenure-new", std::process::id()));
        // A process of the same number left it, and is gone.
        let _ = fs::remove_file(&path);
        let file = OpenOptions::new().write(true).create_new(true).mode(NEW_MODE).open(&path)?;
        Ok(Self { path, file })
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // After the rename there is nothing left under this name.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn mode_and_link_stay_and_nothing_is_left_behind() {
        let folder = testkit::TempFolder::create();
        let (real, link) = (folder.path().join("real.conf"), folder.path().join("link.conf"));
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.conf", &link).unwrap();
        replace_file(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert_eq!(mode(&real), 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_new_file_belongs_to_its_owner_alone() {
        let folder = testkit::TempFolder::create();
        let path = folder.path().join("users.acl");
        replace_file(&path, b"user default on").unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = testkit::TempFolder::create();
        // A folder in the file's place: it cannot be replaced by a file.
        let path = folder.path().join("users.acl");
        fs::create_dir(&path).unwrap();
        replace_file(&path, b"user default on").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
