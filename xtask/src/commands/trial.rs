//! `cargo xtask trial`: long runs of what the tests do for a moment.

use crate::command::{Command, Failure};
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "trial",
    summary: "runs the command's trials by faults for as long as you like",
    details: "\
  run [--rounds N] [--minutes M]
                     three instances of `tenure run`, with programs that daemonise, ignore the stop
                     signal or fork for ever, and logs that are full or not read; wrappers, guards
                     and the store are killed, stopped and terminated at random, on redis-server and
                     on our own store. Fails when two programs ever ran at a time, tokens did not
                     grow, or an orphan or a zombie stayed. 100 rounds unless told otherwise.
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
    let (trial, length, value) = match words.as_slice() {
        [trial] => (*trial, "TRIAL_ROUNDS", ROUNDS),
        [trial, "--rounds", rounds] if is_number(rounds) => (*trial, "TRIAL_ROUNDS", *rounds),
        ["run", "--minutes", minutes] if is_number(minutes) => ("run", "TRIAL_MINUTES", *minutes),
        _ => {
            let usage = "trial: write trial run [--rounds N] [--minutes M]";
            return Err(Failure::Usage(usage.to_owned()));
        }
    };
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "tenure-cli", "--test", "it"]);
    match trial {
        "run" => command.args(["--", "one_child_at_a_time"]),
        // One after the other: they would measure each other.
        "take-over" => command.args(["--release", "--", "planned_take_over", "--test-threads=1"]),
        _ => return Err(Failure::Usage("trial: there are run and take-over".to_owned())),
    };
    command.arg("--nocapture").env(length, value);
    let status = command.status();
    let status =
        status.map_err(|error| Failure::Failed(format!("trial: cannot start cargo: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed("trial: not as promised, see above".to_owned())),
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}
