//! The other screen of a terminal, so that the one before comes back as it was.

use std::io::{self, Read};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{
    LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::mpsc;

use super::view::{Line, Look};
use crate::log_queue::STDOUT;

/// What a terminal has that does not say.
const USUAL_SIZE: (usize, usize) = (24, 80);
/// Keys that wait to be read: more were pressed by accident.
const KEYS_MAX: usize = 8;
/// How long a terminal may take to be as it was before.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The last line.
const LEGEND: &str = "q or Ctrl-C: leave";

/// A view that has the whole terminal, until dropped.
pub(super) struct Screen {
    /// How the terminal was.
    before: Option<Termios>,
    keys: mpsc::Receiver<u8>,
    /// Ctrl-Z.
    stops: unix::Signal,
    has_colours: bool,
}

impl Screen {
    pub(super) fn enter() -> io::Result<Self> {
        let stops = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
        // As most programs do: NO_COLOR is for people, `dumb` for terminals that have none.
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let has_colours = !is_set("NO_COLOR") && std::env::var_os("TERM") != Some("dumb".into());
        let before = tcgetattr(io::stdin()).ok();
        let screen = Screen { before, keys: keys(), stops, has_colours };
        screen.open();
        Ok(screen)
    }

    /// Shows what `view` says for so many columns, from the top, as far as it fits. A terminal that
    /// was halted (Ctrl-S) shows the next one.
    pub(super) fn draw(&self, view: impl FnOnce(usize) -> Vec<Line>) {
        if STDOUT.is_busy() {
            return;
        }
        let (rows, columns) = size();
        let mut lines = view(columns);
        let room = rows - 1;
        if lines.len() > room {
            let hidden = lines.len() - room.saturating_sub(1);
            lines.truncate(room.saturating_sub(1));
            let text = format!("… {hidden} more lines: enlarge the window");
            lines.push(Line { look: Look::Faint, text });
        }
        let mut lines: Vec<String> = lines.iter().map(|line| self.painted(line, columns)).collect();
        lines.resize(room, String::new());
        lines.push(LEGEND.chars().take(columns).collect());
        // Each line is cleared to its end, so that nothing of the last view shines through.
        let body = lines.join("\x1b[K\r\n");
        print(&format!("\x1b[H{body}\x1b[K"));
    }

    fn painted(&self, line: &Line, columns: usize) -> String {
        let text: String = line.text.chars().take(columns).collect();
        let code = match line.look {
            Look::Plain => return text,
            Look::Good => "32",
            Look::Warn => "33",
            Look::Bad => "1;31",
            Look::Faint => "2",
        };
        if self.has_colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text }
    }

    /// Waits until somebody wants to leave. Ctrl-Z is obeyed meanwhile.
    pub(super) async fn until_left(&mut self) {
        loop {
            tokio::select! {
                key = self.keys.recv() => match key {
                    Some(b'q' | b'Q') => return,
                    Some(_) => {}
                    // No keyboard: Ctrl-C is left.
                    None => std::future::pending().await,
                },
                _ = self.stops.recv() => {
                    self.close();
                    // Whoever continues us finds the view again.
                    let _ = kill_process(getpid(), Signal::STOP);
                    self.open();
                }
            }
        }
    }

    fn open(&self) {
        if let Some(mut silent) = self.before.clone() {
            // Keys are for us and not to be seen; those that send signals still do.
            silent.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON);
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &silent);
        }
        print("\x1b[?1049h\x1b[?25l\x1b[2J");
    }

    fn close(&self) {
        print("\x1b[?25h\x1b[?1049l");
        STDOUT.flush(CLOSE_TIMEOUT);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.close();
    }
}

/// A terminal that has gone away needs no view.
fn print(text: &str) {
    let _ = STDOUT.write(text.as_bytes());
}

/// Rows and columns, at least one line of text.
fn size() -> (usize, usize) {
    let size = tcgetwinsize(io::stdout()).map(|size| (size.ws_row.into(), size.ws_col.into()));
    match size {
        Ok((rows @ 2.., columns @ 1..)) => (rows, columns),
        _ => USUAL_SIZE,
    }
}

/// What is pressed, read by a thread of its own: reading a terminal cannot be cancelled.
fn keys() -> mpsc::Receiver<u8> {
    let (pressed, keys) = mpsc::channel(KEYS_MAX);
    if isatty(io::stdin()) {
        std::thread::spawn(move || {
            let mut key = [0];
            while let Ok(1) = io::stdin().read(&mut key) {
                if let Err(mpsc::error::TrySendError::Closed(_)) = pressed.try_send(key[0]) {
                    return;
                }
            }
        });
    }
    keys
}
