//! `cargo xtask fuzz`: seeded mutations of a corpus against every parser.

use std::process::Command;

use crate::command::{self, Failure};
use crate::repository::{built_program, cargo, root};

pub(crate) const COMMAND: command::Command = command::Command {
    name: "fuzz",
    summary: "feeds made-up bytes to every parser",
    details: "\
Prints, per target, how many inputs it survived. Fails when one panics, hangs, overflows the stack or
takes all memory; that input is kept in fuzz/kept/ and replayed by every later run.

  --list                 list the targets
  --target NAME          only this target; may be given again
  --seconds N            seconds per target (10 when left out)
  --seed S               other inputs (7 when left out)
  --replay TARGET/NAME   one input of fuzz/kept/ or fuzz/corpus/, in this process

It works on the stable toolchain. fuzz/README.md tells of cargo-fuzz, which is guided by coverage.",
    run,
};

/// The exit code with which the driver refuses its words.
const USAGE: i32 = 64;

fn run(words: &[String]) -> Result<(), Failure> {
    drive(words.iter().map(String::as_str))
}

/// The bounded slice that CI runs. It is built with the tests of the whole workspace, which are
/// there by then: alone, the parsers would be compiled once more with the features that they need.
pub(crate) fn briefly() -> Result<(), Failure> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--tests", "--bin", "fuzz"]);
    check(build)?;
    let mut fuzz = Command::new(built_program("fuzz")?);
    fuzz.args(["--seconds", "3"]).current_dir(root());
    check(fuzz)
}

fn drive<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "fuzz-targets", "--bin", "fuzz", "--"]);
    command.args(words);
    check(command)
}

fn check(mut command: Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        Failure::Failed(format!("fuzz: cannot start {program}: {error}"))
    })?;
    match status.code() {
        Some(0) => Ok(()),
        Some(USAGE) => Err(Failure::Usage("fuzz: see above".to_owned())),
        _ => Err(Failure::Failed("fuzz: an input was too much, see above".to_owned())),
    }
}
