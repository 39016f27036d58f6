//! `cargo xtask simulate`: many seeded worlds, and what they did to the promises.

use crate::command::{Command, Failure};
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "simulate",
    summary: "runs seeded worlds and checks every promise in them",
    details: "\
Prints a table: per case what is promised, how many worlds ran and what broke; per control at which
seed the promise that it breaks caught it. Fails when a promise is broken where it is given, or when
something that must break does not. A broken promise comes with the one command that replays it with
a trace.

  --seeds N       worlds per case (20000 for a release; a minute or more)
  --case NAME     only this case
  --control NAME  only this control
  --seed S        only the world of this seed; with --trace, every event on a line
  --jobs N        threads
  --json          one JSON object per row

The simulator is built for speed in every profile.",
    run,
};

/// The exit code with which the simulator refuses its words.
const USAGE: i32 = 64;

fn run(words: &[String]) -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "simulator", "--"]).args(words);
    let status = command
        .status()
        .map_err(|error| Failure::Failed(format!("simulate: cannot start cargo: {error}")))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(USAGE) => Err(Failure::Usage("simulate: see above".to_owned())),
        _ => Err(Failure::Failed("simulate: not as promised, see above".to_owned())),
    }
}
