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

  run [--seeds N] [--seed S]
                  wrapper and guard of `tenure run` instead, among simulated processes: the promise
                  that no program acts outside its term, and its rules broken one at a time. 100000
                  seeds unless told otherwise; --seed prints every step of that world.
  store [--worlds NAME] [--seeds N [--from S]] [--seed S [--trace]] [--control NAME] [--jobs N]
                  worlds of stores on many machines, each with its rules, and each rule broken on
                  purpose. 100000 seeds for a release; 2000 unless told otherwise.
                  replication: stores that follow each other, over a network that delays, cuts and
                  resets, with crashes, restarts, promotions and FAILOVER: R1 to R5.
                  sentinel: sentinels that watch such stores and replace a primary that is down,
                  with crashes, cuts, pauses and jumping clocks: S1 to S5. --trace tells every
                  failover step by step.
                  cluster: nodes that share slots, with cuts, crashes, failovers and slots that move:
                  K1 to K11 without K8.
                  moves: keys that move from store to store while both crash: K8.
  store --nodes N [--seed S]
                  the gossip of one large cluster: messages, bytes, time to heal.

The simulator is built for speed in every profile.",
    run,
};

/// The exit code with which the simulator refuses its words.
const USAGE: i32 = 64;

fn run(words: &[String]) -> Result<(), Failure> {
    if words.first().is_some_and(|word| word == "run") {
        return run_processes(&words[1..]);
    }
    match words.split_first() {
        Some((first, rest)) if first == "store" => run_worlds("store-simulator", rest),
        _ => run_worlds("simulator", words),
    }
}

/// The worlds of a simulator that is a program of its own.
fn run_worlds(package: &str, words: &[String]) -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", package, "--"]).args(words);
    let status = command
        .status()
        .map_err(|error| Failure::Failed(format!("simulate: cannot start cargo: {error}")))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(USAGE) => Err(Failure::Usage("simulate: see above".to_owned())),
        _ => Err(Failure::Failed("simulate: not as promised, see above".to_owned())),
    }
}

/// How many worlds of processes, unless told otherwise.
const PROCESS_SEEDS: &str = "100000";

/// The worlds of `tenure run`, which are tests of their crate.
fn run_processes(words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (name, value) = match words.as_slice() {
        [] => ("RUN_SEEDS", PROCESS_SEEDS),
        ["--seeds", number] if number.parse::<u64>().is_ok() => ("RUN_SEEDS", *number),
        ["--seed", number] if number.parse::<u64>().is_ok() => ("RUN_SEED", *number),
        _ => return Err(Failure::Usage("simulate: write run [--seeds N] [--seed S]".to_owned())),
    };
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "tenure-run", "--test", "it", "--"]);
    command.args(["worlds::", "--nocapture"]).env(name, value);
    let status = command
        .status()
        .map_err(|error| Failure::Failed(format!("simulate: cannot start cargo: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed("simulate: not as promised, see above".to_owned())),
    }
}
