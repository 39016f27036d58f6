//! `cargo xtask trial`: long runs of what the tests do for a moment.

use crate::command::{Command, Failure};
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "trial",
    summary: "runs the command's trials by faults for as long as you like",
    details: "\
  run [--rounds N]   three instances of `tenure run`; wrappers, guards and the store are killed,
                     stopped and terminated at random, on redis-server and on our own store. Fails
                     when two children ever ran at a time, or tokens did not grow. 100 rounds
                     unless told otherwise: some three minutes.
  take-over [--rounds N]
                     how long nobody runs when the leader is told to end: from SIGTERM to the
                     start of the next child, p50 and p99. Built for speed.

TESTKIT_SEED=… repeats a run's choices.",
    run,
};

/// How many faults, unless told otherwise.
const ROUNDS: &str = "100";

fn run(words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (trial, rounds) = match words.as_slice() {
        [trial] => (*trial, ROUNDS),
        [trial, "--rounds", rounds] if rounds.parse::<usize>().is_ok() => (*trial, *rounds),
        _ => return Err(Failure::Usage("trial: write trial run [--rounds N]".to_owned())),
    };
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "tenure-cli", "--test", "it"]);
    match trial {
        "run" => command.args(["--", "one_child_at_a_time"]),
        // One after the other: they would measure each other.
        "take-over" => command.args(["--release", "--", "planned_take_over", "--test-threads=1"]),
        _ => return Err(Failure::Usage("trial: there are run and take-over".to_owned())),
    };
    command.arg("--nocapture").env("TRIAL_ROUNDS", rounds);
    let status = command.status();
    let status =
        status.map_err(|error| Failure::Failed(format!("trial: cannot start cargo: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed("trial: not as promised, see above".to_owned())),
    }
}
