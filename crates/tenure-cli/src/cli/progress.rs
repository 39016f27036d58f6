//! How far bulk input has come, on standard error.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::clock::Stopwatch;

/// Often enough to look alive, seldom enough to cost nothing.
const ON_TERMINAL_EVERY: Duration = Duration::from_millis(200);
/// In a log, a line now and then.
const IN_LOG_EVERY: Duration = Duration::from_secs(5);
const BAR_WIDTH: u64 = 20;

/// What has been done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) bytes: u64,
    pub(super) commands: u64,
    pub(super) replies: u64,
    pub(super) errors: u64,
}

/// Tells about it from time to time: a bar on a terminal, lines elsewhere.
pub(super) struct Progress {
    watch: Stopwatch,
    told_at: Duration,
    on_terminal: bool,
    /// Bytes of the whole input, where it is a file.
    total: Option<u64>,
}

impl Progress {
    pub(super) fn new(total: Option<u64>) -> Self {
        let watch = Stopwatch::start();
        let on_terminal = io::stderr().is_terminal();
        Self { watch, told_at: Duration::ZERO, on_terminal, total: total.filter(|t| *t > 0) }
    }

    /// Tells if it is time to.
    pub(super) fn tell(&mut self, done: &Done) {
        let now = self.watch.reading();
        let every = if self.on_terminal { ON_TERMINAL_EVERY } else { IN_LOG_EVERY };
        if now - self.told_at < every {
            return;
        }
        self.told_at = now;
        let line = line(done, now, self.total);
        match self.on_terminal {
            true => eprint!("\r{}{line}", bar(done.bytes, self.total)),
            false => eprintln!("{line}"),
        }
        // Talk that cannot be shown must not stop the work.
        let _ = io::stderr().flush();
    }

    /// The last word.
    pub(super) fn finish(&self, done: &Done) {
        let line = line(done, self.watch.reading(), self.total);
        let start = if self.on_terminal { "\r\x1b[K" } else { "" };
        eprintln!("{start}{line}");
    }

    /// Clears the bar, so that a line of text can stand where it was.
    pub(super) fn make_room(&self) {
        if self.on_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(done: &Done, elapsed: Duration, total: Option<u64>) -> String {
    let Done { bytes, commands, errors, .. } = done;
    let share = total.map_or(String::new(), |total| format!(" ({}%)", percent(*bytes, total)));
    let seconds = elapsed.as_secs_f64();
    let rate = *commands as f64 / seconds.max(0.001);
    format!("{bytes} bytes{share}, {commands} commands, {errors} errors, {rate:.0} commands/s")
}

fn bar(bytes: u64, total: Option<u64>) -> String {
    let Some(total) = total else { return String::new() };
    let full = percent(bytes, total) * BAR_WIDTH / 100;
    let (full, empty) = ("#".repeat(full as usize), " ".repeat((BAR_WIDTH - full) as usize));
    format!("[{full}{empty}] ")
}

fn percent(bytes: u64, total: u64) -> u64 {
    (u128::from(bytes) * 100 / u128::from(total.max(1))).min(100) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let done = Done { bytes: 512, commands: 30, replies: 20, errors: 2 };
        assert_eq!(
            line(&done, Duration::from_secs(3), Some(1024)),
            "512 bytes (50%), 30 commands, 2 errors, 10 commands/s"
        );
        assert_eq!(bar(512, Some(1024)), "[##########          ] ");
        assert_eq!(bar(4096, Some(1024)), "[####################] ");
        assert_eq!(bar(1, None), "");
    }
}
