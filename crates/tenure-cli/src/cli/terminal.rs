//! What a terminal gives besides lines: Ctrl-C, and a password nobody sees.

use std::io::{self, BufRead, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use signal_hook::consts::SIGINT;
use tenure::Secret;

use super::error::ClientError;
use crate::run::signals;

/// Hears Ctrl-C instead of ending the program.
pub(super) struct Interrupt {
    pressed: UnixStream,
}

impl Interrupt {
    /// From now on Ctrl-C only makes [`descriptor`](Self::descriptor) readable.
    pub(super) fn listen() -> io::Result<Self> {
        let (pressed, signalled) = UnixStream::pair()?;
        pressed.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGINT, signalled)?;
        signals::somebody_listens_to(Signal::INT);
        Ok(Self { pressed })
    }

    pub(super) fn descriptor(&self) -> &impl AsFd {
        &self.pressed
    }

    /// Forgets what was pressed before.
    pub(super) fn clear(&self) {
        let mut bytes = [0; 64];
        while io::Read::read(&mut &self.pressed, &mut bytes).is_ok_and(|count| count > 0) {}
    }
}

/// Asks on the terminal, without showing what is typed.
pub(super) fn ask_password(prompt: &str) -> Result<Secret, ClientError> {
    let stdin = io::stdin();
    let hidden = Hidden::hide(&stdin);
    eprint!("{prompt}");
    // A prompt that cannot be shown is no reason not to read.
    let _ = io::stderr().flush();
    let mut line = String::new();
    stdin.lock().read_line(&mut line).map_err(ClientError::Local)?;
    drop(hidden);
    eprintln!();
    Ok(Secret::new(line.trim_end_matches(['\n', '\r'])))
}

/// A terminal that does not echo, until dropped.
struct Hidden<'a> {
    stdin: &'a io::Stdin,
    before: rustix::termios::Termios,
}

impl<'a> Hidden<'a> {
    /// `None` where standard input is no terminal.
    fn hide(stdin: &'a io::Stdin) -> Option<Self> {
        let before = tcgetattr(stdin).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin, OptionalActions::Flush, &silent).ok()?;
        Some(Self { stdin, before })
    }
}

impl Drop for Hidden<'_> {
    fn drop(&mut self) {
        // The terminal may be gone; then there is nothing to restore.
        let _ = tcsetattr(self.stdin, OptionalActions::Flush, &self.before);
    }
}
