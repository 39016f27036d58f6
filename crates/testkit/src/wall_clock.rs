//! A wall clock that a test moves, for one child program.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::TempFolder;

const SHIM: &str = include_str!("wall_clock.c");
/// What a C compiler is called, in the order of preference.
const COMPILERS: [&str; 3] = ["cc", "gcc", "clang"];

/// The wall clock of child programs: right at first, moved by the test. Their other clocks stay as
/// they are.
///
/// It works by a small library that is put in front of the C library of the child, so it reaches
/// whatever asks that library for the time, as Rust's `SystemTime` does.
#[derive(Debug)]
pub struct WallClock {
    folder: TempFolder,
    library: PathBuf,
}

impl WallClock {
    /// Builds the library. `None`, with a line that says why, where there is no C compiler or the
    /// system has no such way.
    #[must_use]
    pub fn build() -> Option<Self> {
        if !cfg!(target_os = "linux") {
            println!("skipped: only on Linux can a child's wall clock be moved");
            return None;
        }
        let folder = TempFolder::create();
        let source = folder.write("wall_clock.c", SHIM);
        let library = folder.path().join("wall_clock.so");
        for compiler in COMPILERS {
            let mut command = Command::new(compiler);
            command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
            let Ok(output) = command.output() else { continue };
            let words = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{compiler} does not build the wall clock:\n{words}");
            let clock = WallClock { folder, library };
            clock.move_by(0);
            return Some(clock);
        }
        println!("skipped: no C compiler ({}) to build a wall clock with", COMPILERS.join(", "));
        None
    }

    /// Puts the program that `command` will start under this clock.
    pub fn govern(&self, command: &mut Command) {
        command.envs(self.environment());
    }

    /// The variables that put a program under this clock.
    pub(crate) fn environment(&self) -> [(OsString, OsString); 2] {
        [
            ("LD_PRELOAD".into(), self.library.clone().into()),
            ("TESTKIT_WALL_CLOCK".into(), self.offset_file().into()),
        ]
    }

    /// Moves the clock to so many seconds after, or before, the host's.
    ///
    /// # Panics
    /// When the temporary folder cannot be written to.
    pub fn move_by(&self, seconds: i64) {
        // Written over, never cut: the children have the file in their memory.
        let mut options = OpenOptions::new();
        let opened = options.create(true).write(true).truncate(false).open(self.offset_file());
        let written = opened.and_then(|mut file| file.write_all(&seconds.to_ne_bytes()));
        written.unwrap_or_else(|error| panic!("cannot move a wall clock: {error}"));
    }

    fn offset_file(&self) -> PathBuf {
        self.folder.path().join("moved_by")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn year_told_by_a_child(clock: &WallClock) -> u32 {
        let mut command = Command::new("date");
        command.arg("+%Y");
        clock.govern(&mut command);
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_child_reads_the_time_that_the_test_chose() {
        let Some(clock) = WallClock::build() else { return };
        let before = year_told_by_a_child(&clock);
        clock.move_by(-30 * 366 * 24 * 60 * 60);
        let moved = before - year_told_by_a_child(&clock);
        assert!((29..=31).contains(&moved), "moved by {moved} years");
    }
}
