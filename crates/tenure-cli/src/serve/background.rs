//! `daemonize` and `pidfile`.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use store_server::LogLevel;

use super::log::Logger;
use crate::own_program::own_program;

/// Set for the process that was started to run in the background.
const MARK: &str = "TENURE_SERVE_BACKGROUND";

/// Whether this process is the one in the background.
pub(super) fn is_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Leaves the terminal of whoever started us.
pub(super) fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Starts the same program with the same words, to run without us and without a terminal. A
/// process that has threads cannot be split in two, and one that starts itself again need not be.
pub(super) fn start_again() -> io::Result<()> {
    let mut words = std::env::args_os();
    Command::new(own_program())
        // It may have been called by another name, which says what it is.
        .arg0(words.next().unwrap_or_default())
        .args(words)
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

/// The file that tells others our process id; gone when the server ends by itself.
pub(super) struct PidFile(Option<PathBuf>);

impl PidFile {
    /// Writes the file, if there is to be one. Failing is told and no reason to stop, as in
    /// Redis.
    pub(super) fn create(path: &str, logger: &Logger) -> Self {
        if path.is_empty() {
            return Self(None);
        }
        match fs::write(path, format!("{}\n", std::process::id())) {
            Ok(()) => Self(Some(PathBuf::from(path))),
            Err(error) => {
                logger.log(LogLevel::Warning, &format!("Cannot write pidfile {path}: {error}"));
                Self(None)
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Somebody else may have removed it already.
            let _ = fs::remove_file(path);
        }
    }
}
