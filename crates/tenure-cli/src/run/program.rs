//! The program to run: found before anybody contends, so that a typing error is told at once.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::libc;
use rustix::fs::{Access, AtFlags, CWD, accessat};

use crate::exit::{self, Failure};

/// How much of a file is looked at to tell a script from a program.
const LOOKED_AT_LEN: u64 = 256;

/// A program and its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    name: OsString,
    arguments: Vec<OsString>,
}

impl Program {
    /// Looks the program up as the shell does. Fails with 127 when it is not there and with 126
    /// when it cannot be executed.
    pub(crate) fn find(words: Vec<OsString>) -> Result<Self, Failure> {
        let mut words = words.into_iter();
        let Some(name) = words.next() else {
            return Err(Failure::usage(
                "no program is given: write it after --, as in -- sleep 60",
            ));
        };
        let program = Program { name, arguments: words.collect() };
        let found = program.candidates();
        let there: Vec<_> = found.iter().filter(|path| path.exists()).collect();
        if there.iter().any(|path| is_executable(path)) {
            return match missing_interpreter(&program.file()) {
                Some(_) => Err(program.failure(&io::Error::from(io::ErrorKind::NotFound))),
                None => Ok(program),
            };
        }
        Err(program.failure(&io::Error::from(match there.is_empty() {
            true => io::ErrorKind::NotFound,
            false => io::ErrorKind::PermissionDenied,
        })))
    }

    /// Where the program may be: the path itself, or its name in each folder of `PATH`.
    fn candidates(&self) -> Vec<PathBuf> {
        let name = Path::new(&self.name);
        if self.name.is_empty() || self.name.as_bytes().contains(&b'/') {
            return vec![name.to_owned()];
        }
        let folders = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
        std::env::split_paths(&folders).map(|folder| folder.join(name)).collect()
    }

    /// The file to execute now: the first that this user may, or else one that says why not.
    pub(super) fn file(&self) -> PathBuf {
        let candidates = self.candidates();
        let found = candidates.iter().find(|path| is_executable(path) && is_allowed(path));
        let found = found.or_else(|| candidates.iter().find(|path| path.exists()));
        found.cloned().unwrap_or_else(|| PathBuf::from(&self.name))
    }

    /// Its name and its arguments.
    pub(super) fn words(&self) -> impl Iterator<Item = &OsString> {
        [&self.name].into_iter().chain(&self.arguments)
    }

    /// Why it does not start, with the exit code that shells use.
    pub(super) fn failure(&self, error: &io::Error) -> Failure {
        let name = crate::output::plain(&self.name.to_string_lossy());
        let interpreter = missing_interpreter(&self.file());
        match (error.kind(), interpreter) {
            (io::ErrorKind::NotFound, Some(interpreter)) => Failure::new(
                exit::CANNOT_EXECUTE,
                format!(
                    "{name}: its interpreter {} is not there: install it, or correct the first \
                     line of the script",
                    crate::output::plain(&interpreter.to_string_lossy())
                ),
            ),
            (io::ErrorKind::NotFound, None) => Failure::new(
                exit::NOT_FOUND,
                format!("{name}: there is no such program: check its name and PATH"),
            ),
            _ if error.raw_os_error() == Some(libc::ENOEXEC) => Failure::new(
                exit::CANNOT_EXECUTE,
                format!(
                    "{name}: cannot be executed: it was not built for this machine ({}), or is \
                     damaged: install the one for it",
                    std::env::consts::ARCH
                ),
            ),
            _ => Failure::new(
                exit::CANNOT_EXECUTE,
                format!("{name}: cannot be executed ({error}): check its permissions"),
            ),
        }
    }
}

/// The program that a script names in its first line, if that is not there.
fn missing_interpreter(path: &Path) -> Option<PathBuf> {
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(LOOKED_AT_LEN).read_to_end(&mut bytes)).ok()?;
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| b" \t\r".contains(byte)).filter(|word| !word.is_empty());
    let interpreter = PathBuf::from(std::ffi::OsStr::from_bytes(words.next()?));
    (interpreter.is_absolute() && !interpreter.exists()).then_some(interpreter)
}

/// Whether a file that the system does not execute is a script that names no interpreter.
pub(super) fn is_script(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LOOKED_AT_LEN).read_to_end(&mut bytes));
    read.is_ok() && !bytes.contains(&0)
}

fn is_allowed(path: &Path) -> bool {
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}
