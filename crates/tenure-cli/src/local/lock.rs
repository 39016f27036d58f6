//! The lock that whoever starts or ends the local store holds.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

/// A held lock. The system gives it up when the file is closed, and when the process dies.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Waits for the lock.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(Lock { file })
    }

    pub(super) fn try_take(path: &Path) -> Option<Self> {
        let file = open(path).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Lock { file })
    }

    /// Holds it for as long as this process lives.
    pub(super) fn keep(self) {
        std::mem::forget(self.file);
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}
