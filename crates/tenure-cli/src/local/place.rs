//! Where the local store lives: one data folder per account, found without the environment.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use store_types::crc64::crc64;

use super::account::Account;
use super::file_system;
use super::peer::id_of;
use crate::exit::{self, Failure};
use crate::output::{plain, plain_up_to};

/// What to do where the local store is not available.
pub(super) const NEXT: &str = "name a store with --store or TENURE_STORE, or set XDG_STATE_HOME to \
                               a folder on a disk of this machine, for all commands alike";
/// In the data folder; the store holds it for life.
pub(super) const LOCK_FILE: &str = "local.lock";
/// The variable that names the data folder's parent for those who want it elsewhere.
const VARIABLE: &str = "XDG_STATE_HOME";
/// The longest path of a socket; the system takes one more byte for its end.
const SOCKET_LEN_MAX: usize = 107;

/// The data folder of this user's store, and what lies in it. Whoever finds the same folder, by
/// whatever name and from whatever environment, finds the same store.
#[derive(Clone, Debug)]
pub(super) struct DataFolder {
    /// What the store keeps, and its lock. Nobody else may look into it.
    pub(super) state: PathBuf,
    /// FolderOwner it is, for people.
    whose: FolderOwner,
}

#[derive(Clone, Debug)]
enum FolderOwner {
    /// That of everything an account runs.
    Account(String),
    /// That of everything which has the variable.
    Variable,
}

impl DataFolder {
    /// The folder of the account's home, or that of `XDG_STATE_HOME`. Changes nothing. Fails where
    /// a store could not be told from another one: on a network, or in somebody else's folder.
    pub(super) fn of_user() -> Result<Self, Failure> {
        let (folder, whose) = match folder_in(VARIABLE) {
            Some(folder) => (folder, FolderOwner::Variable),
            None => {
                let account = Account::of_process()?;
                (account.home.join(".local/state"), FolderOwner::Account(account.name))
            }
        };
        let state = folder.join("tenure");
        let place = match fs::canonicalize(&state) {
            Ok(state) => DataFolder { state, whose },
            Err(error) if error.kind() == io::ErrorKind::NotFound => DataFolder { state, whose },
            Err(error) => return Err(unusable(&state, &error)),
        };
        place.check().map_err(|error| unusable(&place.state, &error))?;
        Ok(place)
    }

    /// The same with the folder made. Its name is whole then, without links.
    pub(super) fn prepared() -> Result<Self, Failure> {
        let mut place = DataFolder::of_user()?;
        let prepare = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&place.state)?;
            fs::canonicalize(&place.state)
        };
        place.state = prepare().map_err(|error| unusable(&place.state, &error))?;
        place.check().map_err(|error| unusable(&place.state, &error))?;
        Ok(place)
    }

    fn check(&self) -> io::Result<()> {
        // The lock and the commands tell each other paths in lines of text.
        let text = self.state.to_str().unwrap_or_default();
        if text.is_empty() || plain_up_to(text.len(), text) != text {
            return Err(io::Error::other("its path has characters that cannot be shown"));
        }
        if let Some(kind) = file_system::network_kind(&self.state)? {
            return Err(io::Error::other(format!(
                "it is on {kind}, where another machine could run a store on it, too"
            )));
        }
        match fs::metadata(&self.state) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            found => check_owner(&found?),
        }
    }

    /// Whom the store coordinates, for people.
    pub(super) fn reach(&self) -> String {
        let state = plain(&self.state.display().to_string());
        match &self.whose {
            FolderOwner::Account(name) => {
                format!("only what {} runs on this machine is coordinated ({state})", plain(name))
            }
            FolderOwner::Variable => format!(
                "only what runs on this machine with this {VARIABLE} is coordinated ({state})"
            ),
        }
    }

    /// Where the socket can be, the best place first: with the data, where nothing cleans up, and
    /// elsewhere where that path is too long or takes no sockets.
    pub(super) fn sockets(&self) -> Vec<PathBuf> {
        let user = getuid().as_raw();
        // Another folder may have this path elsewhere, as in another container.
        let (device, number) = id_of(&self.state).unwrap_or_default();
        let name = format!("store-{}-{device:x}-{number:x}.sock", self.digest());
        let mut places = vec![
            self.state.join("store.sock"),
            PathBuf::from(format!("/run/user/{user}/tenure")).join(&name),
            PathBuf::from(format!("/tmp/tenure-{user}")).join(&name),
        ];
        places.retain(|path| path.as_os_str().len() <= SOCKET_LEN_MAX);
        places
    }

    /// Whether a socket of this path can only be that of the store of this folder: it lies in the
    /// folder, whatever path leads there, or has its name.
    pub(super) fn has_socket(&self, socket: &Path) -> bool {
        let folder = socket.parent().and_then(|folder| id_of(folder).ok());
        let is_inside = folder.is_some() && folder == id_of(&self.state).ok();
        is_inside || self.sockets().iter().any(|own| own == socket)
    }

    /// A short name for the path of the folder.
    pub(super) fn digest(&self) -> String {
        format!("{:016x}", crc64(0, self.state.as_os_str().as_encoded_bytes()))
    }

    /// Held for life by the store, and says where it is.
    pub(super) fn lock(&self) -> PathBuf {
        self.state.join(LOCK_FILE)
    }

    /// Held by whoever starts or ends the store.
    pub(super) fn turn(&self) -> PathBuf {
        self.state.join("local.turn")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.state.join("store.log")
    }

    /// What a log that has become long is called.
    pub(super) fn old_log(&self) -> PathBuf {
        self.state.join("store.log.old")
    }

    /// Earlier versions make a file of this name when they start a store, and know no lock here. As
    /// long as it is a folder they fail to, and say so.
    pub(super) fn running(&self) -> PathBuf {
        self.state.join("running")
    }

    /// By this file earlier versions vouched that every store since the first one ended cleanly.
    pub(super) fn unbroken(&self) -> PathBuf {
        self.state.join("unbroken")
    }

    /// Whether anything was ever kept here, by this version or an earlier one.
    pub(super) fn has_data(&self) -> bool {
        let names = ["started", "running", "tenure.life", "appendonlydir", "local.lock"];
        names.iter().any(|name| self.state.join(name).symlink_metadata().is_ok())
    }
}

/// Makes sure that the folder of a socket is there and ours alone: in a shared place such as /tmp
/// somebody else may have made it before us.
pub(super) fn own(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check_owner(&fs::symlink_metadata(folder)?)
}

pub(super) fn check_owner(found: &fs::Metadata) -> io::Result<()> {
    if !found.is_dir() {
        return Err(io::Error::other("it is not a folder"));
    }
    if found.uid() != getuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(io::Error::other("other users can read it: run chmod 700 on it"));
    }
    Ok(())
}

/// The folder that a variable names. A relative one is no use to somebody elsewhere.
pub(super) fn folder_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// What to say about a variable that names no use.
pub(super) fn ignored_variable() -> Option<String> {
    let folder = PathBuf::from(std::env::var_os(VARIABLE)?);
    let is_ignored = !folder.as_os_str().is_empty() && !folder.is_absolute();
    let folder = plain(&folder.display().to_string());
    is_ignored.then(|| format!("{VARIABLE}={folder} is relative and ignored: write the whole path"))
}

pub(super) fn unusable(folder: &Path, error: &io::Error) -> Failure {
    let folder = plain(&folder.display().to_string());
    let why = format!("the local store cannot use {folder}: {error}: {NEXT}");
    Failure::new(exit::CONFIGURATION, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_lies_with_the_data_unless_its_path_is_too_long() {
        let place =
            |state: String| DataFolder { state: state.into(), whose: FolderOwner::Variable };
        let short = place("/home/ada/.local/state/tenure".to_owned());
        assert_eq!(short.sockets()[0], short.state.join("store.sock"));
        let long = place(format!("/{}", "x".repeat(100)));
        let sockets = long.sockets();
        assert!(!sockets.is_empty() && sockets.iter().all(|path| !path.starts_with(&long.state)));
        assert_ne!(long.digest(), short.digest());
    }
}
