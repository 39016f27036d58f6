//! A folder of one's own that goes away with its value.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

/// An empty folder below the system's temporary folder, removed on drop.
///
/// Its path is short: a unix socket's path may have no more than about a hundred bytes.
#[derive(Debug)]
pub struct TempFolder {
    path: PathBuf,
}

impl TempFolder {
    /// Creates the folder.
    ///
    /// # Panics
    /// When the system's temporary folder cannot be written to.
    #[must_use]
    pub fn create() -> Self {
        static CREATED: AtomicU64 = AtomicU64::new(0);
        // A killed process leaves its folders behind and a later one may get its process id, so
        // an existing name means "take the next", not "fail".
        loop {
            let number = CREATED.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("testkit-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Self { path },
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot create {}: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into the folder and returns its path.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[must_use]
    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path.join(name);
        if let Err(error) = fs::write(&path, content) {
            panic!("cannot write {}: {error}", path.display());
        }
        path
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // A folder left behind in the temporary folder is no reason to fail a test.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_away_with_its_value_and_takes_its_files_along() {
        let folder = TempFolder::create();
        let file = folder.write("note", "text");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");

        drop(folder);

        assert!(!file.exists());
    }

    #[test]
    fn two_folders_never_share_a_path() {
        assert_ne!(TempFolder::create().path(), TempFolder::create().path());
        let (one, other) = (TempFolder::create(), TempFolder::create());
        assert_ne!(one.path(), other.path());
    }
}
