//! Who listens at a socket, and whether that is the store of a data folder.
//!
//! A lock can be copied and a path can lead elsewhere, so neither says whose store answers. What
//! counts is the place of the socket, which only this user can fill, and the lock that the process
//! behind it has open.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::libc;
use rustix::process::getuid;

use super::place::{DataFolder, check_owner};

/// Fails unless whoever listens at `socket`, to which `stream` is connected, is the store of the
/// folder.
pub(super) fn prove(place: &DataFolder, socket: &Path, stream: &UnixStream) -> io::Result<()> {
    is_of_user(stream)?;
    let peer = Peer::of(stream)?;
    let lock = place.lock();
    let is_proven = match (place.has_socket(socket), peer.process()) {
        // What cannot be looked at, as in another namespace, is known by its place.
        (true, Some(process)) => has_open(&process, &lock).unwrap_or(true),
        (true, None) => true,
        // An earlier version may have it where this one would not look.
        (false, Some(process)) => has_locked(&process, &lock).unwrap_or(false),
        (false, None) => false,
    };
    match is_proven {
        true => Ok(()),
        false => Err(io::Error::other("it is not the store of this data folder")),
    }
}

/// Fails if whoever listens there is another user.
pub(super) fn is_of_user(stream: &UnixStream) -> io::Result<()> {
    match Peer::of(stream)?.uid == getuid().as_raw() {
        true => Ok(()),
        false => Err(io::Error::other("it belongs to another user")),
    }
}

/// Fails where others could have put a socket.
pub(super) fn check_socket_folder(place: &DataFolder, socket: &Path) -> io::Result<()> {
    let folder = socket.parent().unwrap_or(socket);
    match id_of(folder).is_ok_and(|found| id_of(&place.state).is_ok_and(|state| state == found)) {
        true => Ok(()),
        false => check_owner(&fs::symlink_metadata(folder)?),
    }
}

/// The process that listens at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// 0 where it cannot be seen from here: in another namespace of processes.
    pid: libc::pid_t,
    pub(super) uid: u32,
}

impl Peer {
    // The wrappers of this call have a process number that is never 0.
    #[expect(unsafe_code, reason = "the call is not offered with a number that may be 0")]
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        let to = std::ptr::from_mut(&mut found).cast();
        // SAFETY: `to` is a `ucred` of `len` bytes, for which every value is valid.
        match unsafe { libc::getsockopt(stream.as_raw_fd(), level, name, to, &raw mut len) } {
            0 => Ok(Peer { pid: found.pid, uid: found.uid }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        u32::try_from(self.pid).ok().filter(|pid| *pid > 0)
    }

    /// Its folder in `/proc`, if that is the one of our own namespace.
    pub(super) fn process(&self) -> Option<PathBuf> {
        let own = fs::read_link("/proc/self").ok()?;
        let is_ours = own.as_os_str() == std::process::id().to_string().as_str();
        let process = PathBuf::from(format!("/proc/{}", self.pid()?));
        (is_ours && process.is_dir()).then_some(process)
    }
}

/// Whether the process of this folder in `/proc` has that very file open.
pub(super) fn has_open(process: &Path, file: &Path) -> io::Result<bool> {
    Ok(!descriptors_of(process, file)?.is_empty())
}

/// Whether it has locked that very file, as far as the system tells.
pub(super) fn has_locked(process: &Path, file: &Path) -> io::Result<bool> {
    let is_locked = |number: String| {
        let told = fs::read_to_string(process.join("fdinfo").join(number)).unwrap_or_default();
        told.lines().any(|line| {
            line.starts_with("lock:") && line.contains(" FLOCK ") && line.contains(" WRITE ")
        })
    };
    Ok(descriptors_of(process, file)?.into_iter().any(is_locked))
}

/// The numbers under which a process has a file open. Fails where that cannot be told: in another
/// user namespace the numbers are listed, but not what they stand for.
fn descriptors_of(process: &Path, file: &Path) -> io::Result<Vec<String>> {
    let file = id_of(file)?;
    let mut hidden = None;
    let mut numbers = Vec::new();
    for entry in fs::read_dir(process.join("fd"))?.flatten() {
        match id_of(&entry.path()) {
            Ok(found) if found == file => {
                numbers.push(entry.file_name().to_string_lossy().into_owned());
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => hidden = Some(error),
            Ok(_) | Err(_) => {}
        }
    }
    match hidden {
        Some(error) if numbers.is_empty() => Err(error),
        _ => Ok(numbers),
    }
}

/// What a file or folder is to the system, whatever path leads to it.
pub(super) fn id_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{FlockOperation, flock};

    #[test]
    fn a_lock_is_told_from_a_file_that_is_only_open() {
        let path = std::env::temp_dir().join(format!("tenure-peer-{}", std::process::id()));
        let own = Path::new("/proc/self");
        let file = fs::File::create(&path).unwrap();
        assert!(has_open(own, &path).unwrap() && !has_locked(own, &path).unwrap());
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(has_locked(own, &path).unwrap());
        drop(file);
        assert!(!has_open(own, &path).unwrap());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_other_end_of_a_socket_is_known() {
        let path = std::env::temp_dir().join(format!("tenure-peer-{}.sock", std::process::id()));
        let _listener = UnixListener::bind(&path).unwrap();
        let peer = Peer::of(&UnixStream::connect(&path).unwrap()).unwrap();
        assert_eq!((peer.pid(), peer.uid), (Some(std::process::id()), getuid().as_raw()));
        assert!(peer.process().is_some());
        fs::remove_file(&path).unwrap();
    }
}
