//! Whether a store was here since the machine started, even if its folder is gone since.
//!
//! A store in an empty folder would be taken for the first one, which has forgotten nobody. Two
//! things outlast the folder: a name in memory that the process holds for life, and a trace in
//! `/dev/shm`.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::getuid;

use super::peer::{Peer, id_of};
use super::place::DataFolder;

/// How long a trace counts: longer than any lease. A store that runs renews its own.
const KEPT: Duration = Duration::from_secs(2 * 24 * 60 * 60);

/// The trace of the stores of one folder.
#[derive(Debug)]
pub(super) struct Trace {
    /// `None` where there is no such memory.
    file: Option<PathBuf>,
}

impl Trace {
    pub(super) fn of(place: &DataFolder) -> Self {
        let folder = store_server::volatile_folder();
        Trace { file: folder.map(|folder| folder.join(format!("local-{}", place.digest()))) }
    }

    /// Whether surely no store was here since the machine started.
    pub(super) fn is_absent(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.exists())
    }

    /// Leaves it, and clears away those that no longer say anything.
    pub(super) fn leave(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        fs::write(file, format!("{}\n", std::process::id()))?;
        let folder = file.parent().unwrap_or(file);
        for entry in fs::read_dir(folder)?.flatten() {
            let is_trace = entry.file_name().to_string_lossy().starts_with("local-");
            let age = entry.metadata().and_then(|found| found.modified()).map(crate::clock::age_of);
            if is_trace && age.is_ok_and(|age| age > KEPT) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(())
    }
}

/// A name that one process of the machine can have, wherever its folder is.
#[derive(Debug)]
pub(super) struct Name {
    _held: Option<UnixListener>,
}

impl Name {
    /// Takes the name. `Err` has the process that has it, if it is one of this user's that serves a
    /// folder which somebody moved away or removed.
    pub(super) fn take(place: &DataFolder) -> Result<Self, u32> {
        let user = getuid().as_raw();
        let name = format!("tenure-local-{user}-{}", place.digest());
        // Without such names, as on other systems, the lock has to do.
        let Ok(address) = SocketAddr::from_abstract_name(name) else {
            return Ok(Name { _held: None });
        };
        match UnixListener::bind_addr(&address) {
            Ok(listener) => Ok(Name { _held: Some(listener) }),
            Err(_) => {
                let holder = UnixStream::connect_addr(&address).ok();
                let holder = holder.and_then(|stream| Peer::of(&stream).ok());
                let holder = holder.filter(|holder| holder.uid == user && !is_apart(holder, place));
                // Anybody can take any name; somebody else's says nothing.
                holder.and_then(|holder| holder.pid()).map_or(Ok(Name { _held: None }), Err)
            }
        }
    }
}

/// Whether a store serves another folder, which has the same path where it runs: in another
/// container on the same network, say. It is so of one that cannot be seen from here.
fn is_apart(holder: &Peer, place: &DataFolder) -> bool {
    let Some(process) = holder.process() else { return true };
    let path = place.state.strip_prefix("/").unwrap_or(&place.state);
    let (served, there) = (id_of(&process.join("cwd")), id_of(&process.join("root").join(path)));
    match (served, there, id_of(&place.state)) {
        (Ok(served), Ok(there), Ok(ours)) => served == there && served != ours,
        _ => false,
    }
}
