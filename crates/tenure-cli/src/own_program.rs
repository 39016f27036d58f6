//! The program file of this process, though another version may have taken its place meanwhile.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What this process executes, whatever lies at that path by now.
const OWN: &str = "/proc/self/exe";
/// What the system adds to the name of a program whose file is gone or was replaced.
const DELETED: &str = " (deleted)";

/// By what this very program is started again: its path, so that process lists show its name, or
/// the system's link to it once something else, or nothing, is there.
pub(crate) fn own_program() -> PathBuf {
    let path = std::env::current_exe().ok();
    path.filter(|path| is_same_file(path, Path::new(OWN))).unwrap_or_else(|| OWN.into())
}

/// Why this very program could not be started again: by itself the system says only that something
/// is not there.
pub(crate) fn not_started_again(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound if fs::metadata(OWN).is_err() => {
            io::Error::other("/proc is not mounted, by which tenure starts itself again: mount it")
        }
        _ => error,
    }
}

/// Whether `link`, the `exe` of a process, is this program, before or after an upgrade.
pub(crate) fn is_own_program(link: &Path) -> bool {
    let name = |link: &Path| {
        let name = fs::read_link(link).ok()?.into_os_string().into_string().ok()?;
        Some(name.strip_suffix(DELETED).map_or(name.clone(), str::to_owned))
    };
    is_same_file(link, Path::new(OWN))
        || name(link).is_some_and(|there| Some(there) == name(Path::new(OWN)))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}
