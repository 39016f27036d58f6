//! Where the local store lives: a socket for this login, and data that outlives it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::getuid;

use crate::exit::{self, Failure};

/// The folders of this user's store. Nobody else may look into them.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Socket and locks: gone after a restart of the machine.
    runtime: PathBuf,
    /// What the store keeps.
    pub(super) state: PathBuf,
}

impl Place {
    /// The folders as the environment says, created when they are not there.
    pub(super) fn of_user() -> Result<Self, Failure> {
        let user = getuid().as_raw();
        let runtime = match folder_in("XDG_RUNTIME_DIR") {
            Some(folder) => folder.join("tenure"),
            None => std::env::temp_dir().join(format!("tenure-{user}")),
        };
        let home_state = || Some(folder_in("HOME")?.join(".local/state"));
        let state = match folder_in("XDG_STATE_HOME").or_else(home_state) {
            Some(folder) => folder.join("tenure"),
            None => runtime.join("state"),
        };
        for folder in [&runtime, &state] {
            own(folder).map_err(|error| {
                let why = format!("cannot use {}: {error}", folder.display());
                let next = "set XDG_RUNTIME_DIR and XDG_STATE_HOME, or name a store by --store";
                Failure::new(exit::CONFIGURATION, format!("the local store {why}: {next}"))
            })?;
        }
        Ok(Place { runtime, state })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.runtime.join("store.sock")
    }

    /// Held by whoever starts or ends the store.
    pub(super) fn lock(&self) -> PathBuf {
        self.runtime.join("store.lock")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.state.join("store.log")
    }

    /// There from the first start on.
    pub(super) fn started(&self) -> PathBuf {
        self.state.join("started")
    }

    /// There while a store runs, and after one that did not end cleanly.
    pub(super) fn running(&self) -> PathBuf {
        self.state.join("running")
    }

    /// There for as long as every store since the first start ended cleanly: nothing was forgotten,
    /// so nobody can believe in a lease that the store does not know.
    pub(super) fn unbroken(&self) -> PathBuf {
        self.state.join("unbroken")
    }
}

/// The folder that a variable names. A relative one is no use to somebody elsewhere.
fn folder_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// Makes sure that the folder is there and that it is ours alone: in a shared place such as /tmp
/// somebody else may have made it before us.
fn own(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != getuid().as_raw() {
        return Err(io::Error::other("it belongs to somebody else"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(io::Error::other("others may look into it: chmod it to 700"));
    }
    Ok(())
}
