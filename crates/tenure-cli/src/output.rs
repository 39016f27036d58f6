//! Results on stdout, talk on stderr.

use std::io;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use tenure::ServerTime;
use tenure_core::text::{escaped_json, is_deceptive};

use crate::exit::{self, Failure};
use crate::log_line;
use crate::log_queue::STDOUT;
use crate::logging::{self, Level};

/// As the standard macro of this name, except that a stderr that cannot be written is no reason to
/// panic, and that nobody waits for its reader once `log_queue::start` was called.
macro_rules! eprintln {
    () => { $crate::log_queue::write(b"\n") };
    ($($words:tt)*) => {
        $crate::log_queue::write(format!("{}\n", format_args!($($words)*)).as_bytes())
    };
}

/// The same without the end of a line.
macro_rules! eprint {
    ($($words:tt)*) => { $crate::log_queue::write(format!($($words)*).as_bytes()) };
}

/// As the standard macro of this name, except that a stdout that cannot be written is no reason to
/// panic: the command says so at its end.
macro_rules! println {
    ($($words:tt)*) => { $crate::output::result(&format!($($words)*)) };
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct OutputOptions {
    /// Print JSON with stable fields, for scripts.
    #[arg(long)]
    pub(crate) json: bool,
}

impl OutputOptions {
    /// Prints a result: `json` on one line, or the text for people.
    pub(crate) fn print(self, json: &Value, text: impl FnOnce() -> String) {
        match self.json {
            true => result(&escaped_json(&json.to_string())),
            false => result(&text()),
        }
    }
}

/// Why a result could not be written: the first reason counts.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes a result to stdout. A reader that has gone away is no error: `tenure members | head`.
/// Everything else is, and [`checked`] makes it the end of the command.
pub(crate) fn result(text: &str) {
    let line = format!("{}\n", shown(text.trim_end_matches('\n')));
    match STDOUT.write(line.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => drop(FAILED.set(error)),
        _ => {}
    }
}

/// The code of a command whose results may have been lost: whoever stored them must not take an
/// empty file for an answer. A code that tells more than yes or no stays.
pub(crate) fn checked(code: ExitCode) -> ExitCode {
    let is_answer = code == ExitCode::SUCCESS || code == ExitCode::from(exit::NO);
    match FAILED.get() {
        Some(error) if is_answer => unwritten(error).tell(),
        _ => code,
    }
}

/// What to say about a stdout that takes no results.
pub(crate) fn unwritten(error: &io::Error) -> Failure {
    let why = format!("cannot write to stdout: {error}: free some space, or write elsewhere");
    Failure::new(exit::CANNOT_WRITE, why)
}

/// Says something on stderr.
pub(crate) fn talk(text: &str) {
    say(Level::Info, text);
}

/// The same of something that has gone wrong.
pub(crate) fn warn(text: &str) {
    say(Level::Warn, text);
}

/// Says something on stderr, in the form of the log.
pub(crate) fn say(level: Level, text: &str) {
    eprintln!("{}", logging::line(level, &shown(text)));
}

/// Several lines as a terminal may show them. Texts from outside are made plain where they are put
/// in; this is for those that nobody thought of, such as a store's own words in an error.
fn shown(text: &str) -> String {
    let safe = |c: char| if c != '\n' && c != '\t' && is_deceptive(c) { '?' } else { c };
    text.chars().map(safe).collect()
}

/// Text from outside without control characters, which could act on the terminal.
pub(crate) fn plain(text: &str) -> String {
    const SHOWN_MAX: usize = 200;
    plain_up_to(SHOWN_MAX, text)
}

/// The same, cut elsewhere.
pub(crate) fn plain_up_to(shown_max: usize, text: &str) -> String {
    tenure_core::text::plain(text, shown_max, '?')
}

/// A moment of the store's clock: `2026-11-15T11:02:03.123Z`.
pub(crate) fn moment(at: ServerTime) -> String {
    log_line::iso_moment(at.as_millis())
}

/// A length of time for people: `250ms`, `5.4s`, `10s`, `1m30s`.
pub(crate) fn duration(length: Duration) -> String {
    let (seconds, tenth) = (length.as_secs(), length.subsec_millis() / 100);
    match (seconds, tenth) {
        (0, _) => format!("{}ms", length.as_millis()),
        (1..60, 1..) => format!("{seconds}.{tenth}s"),
        _ => tenure_core::timing::duration_text(Duration::from_secs(seconds)),
    }
}

/// Rows under their headings, in columns as wide as they need to be.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut headings.iter().copied());
    for row in rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_act_on_the_terminal() {
        assert_eq!(plain("web-1\u{1b}[2J\u{202e}\n"), "web-1?[2J??");
        assert_eq!(plain("a\u{61c}\u{2060}\u{ad}\u{e0041}"), "a????");
        assert_eq!(shown("a\tb\nc\u{1b}"), "a\tb\nc?");
        assert_eq!(plain(&"x".repeat(1_000)).len(), 200);
    }

    #[test]
    fn a_length_of_time_is_as_exact_as_people_want_it() {
        let of = |ms| duration(Duration::from_millis(ms));
        assert_eq!([of(0), of(250), of(999)], ["0ms", "250ms", "999ms"]);
        assert_eq!([of(1_000), of(5_424), of(59_999)], ["1s", "5.4s", "59.9s"]);
        assert_eq!([of(60_000), of(90_500), of(3_600_000)], ["1m", "1m30s", "1h"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = vec![vec!["ada".to_owned(), "1".to_owned()], vec!["b".to_owned(), "22".into()]];
        assert_eq!(table(&["ID", "N"], &rows), "ID   N\nada  1\nb    22\n");
    }
}
