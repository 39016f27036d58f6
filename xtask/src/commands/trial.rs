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
                     unless told otherwise: some six minutes.

TESTKIT_SEED=… repeats a run's choices.",
    run,
};

/// How many faults, unless told otherwise.
const ROUNDS: &str = "100";

fn run(words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let rounds = match words.as_slice() {
        ["run"] => ROUNDS,
        ["run", "--rounds", rounds] if rounds.parse::<usize>().is_ok() => rounds,
        _ => return Err(Failure::Usage("trial: write trial run [--rounds N]".to_owned())),
    };
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "tenure-cli", "--test", "it", "--"]);
    command.args(["one_child_at_a_time", "--nocapture"]).env("TRIAL_ROUNDS", rounds);
    let status = command.status();
    let status =
        status.map_err(|error| Failure::Failed(format!("trial: cannot start cargo: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed("trial: not as promised, see above".to_owned())),
    }
}
