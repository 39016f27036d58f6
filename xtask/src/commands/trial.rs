//! `cargo xtask trial`: long runs of what the tests do for a moment.

use std::path::Path;

use crate::command::{Command, Failure};
use crate::older::older_program;
use crate::repository::{cargo, root};

pub(crate) const COMMAND: Command = Command {
    name: "trial",
    summary: "runs the command's trials by faults for as long as you like",
    details: "\
  run [--rounds N | --minutes M] [--before REV]
                     four instances of `tenure run`, with programs that daemonise, ignore the stop
                     signal or fork for ever, logs that are full, closed or not read, some as the
                     first process of a pid namespace; wrappers, guards and the store are killed,
                     stopped and terminated at random, on redis-server and on our own store at the
                     same time. Fails when two programs ever ran at a time, tokens did not grow, an
                     orphan stayed, an instance ended by itself, or a zombie became older than a
                     second in which its owner did not wait for a processor. 100 rounds unless told
                     otherwise. An overlap is excused, and counted, only where the guard that had to
                     kill has said in its log that the system ran it too late. With --before, about
                     half of the starts are those of the version that git knows as REV, so that
                     instances are upgraded and rolled back.
  take-over [--rounds N]
                     how long nobody runs when the leader is told to end: from SIGTERM to the
                     start of the next child, p50 and p99. Built for speed.

  cluster [--rounds N] [--clients N]
                     fifty clients (ours) count keys up and append to lists in a cluster of three nodes
                     of ours and three of redis-server, while replicas take over, slots move by
                     `redis-cli --cluster` and a replica migrates; then primaries are killed and taken
                     over; then every node of a cluster of ours is restarted. Fails when a write
                     that was acknowledged is lost or done twice, except behind the offset up to which a
                     replica had heard its killed primary: those are counted. One round unless told
                     otherwise. `cargo xtask compat --suite redis-py-cluster` does the first part with
                     redis-py's clients, ioredis-cluster with those of ioredis.

TESTKIT_SEED=… repeats a run's choices.",
    run,
};

/// The exit code with which the program refuses its words.
const USAGE: i32 = 64;
/// How many faults, unless told otherwise.
const ROUNDS: &str = "100";

fn run(words: &[String]) -> Result<(), Failure> {
    if let [trial, words @ ..] = words
        && trial == "cluster"
    {
        return load_cluster(words, None);
    }
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut older = None;
    if let ["run", .., "--before", revision] = words[..] {
        older = Some(older_program(revision, "tenure-cli", "tenure")?);
        words.truncate(words.len() - 2);
    }
    let (trial, length, value) = match words.as_slice() {
        [trial] => (*trial, "TRIAL_ROUNDS", ROUNDS),
        [trial, "--rounds", rounds] if is_number(rounds) => (*trial, "TRIAL_ROUNDS", *rounds),
        ["run", "--minutes", minutes] if is_number(minutes) => ("run", "TRIAL_MINUTES", *minutes),
        _ => {
            let usage = "trial: write trial run [--rounds N | --minutes M] [--before REV]";
            return Err(Failure::Usage(usage.to_owned()));
        }
    };
    let mut command = cargo();
    command.args(["test", "--quiet", "--package", "tenure-cli", "--test", "it"]);
    match trial {
        "run" => command.args(["--", "one_child_at_a_time"]),
        // One after the other: they would measure each other.
        "take-over" => command.args(["--release", "--", "planned_take_over", "--test-threads=1"]),
        _ => return Err(Failure::Usage("trial: there are run, take-over and cluster".to_owned())),
    };
    command.arg("--nocapture").env(length, value);
    if let Some(older) = older {
        command.env("TRIAL_OLDER", older);
    }
    let status = command.status();
    let status =
        status.map_err(|error| Failure::Failed(format!("trial: cannot start cargo: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::Failed("trial: not as promised, see above".to_owned())),
    }
}

/// Runs `cluster-load` with these words, in `folder` if the program that they name needs it.
pub(crate) fn load_cluster(words: &[String], folder: Option<&Path>) -> Result<(), Failure> {
    let lost = |error| Failure::Failed(format!("trial: cannot start cargo: {error}"));
    // Our own nodes are processes of their own.
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "trials", "--package", "tenure-cli", "--bins"]);
    if !build.status().map_err(lost)?.success() {
        return Err(Failure::Failed("trial: see above".to_owned()));
    }
    let mut command = cargo();
    command.arg("run").arg("--manifest-path").arg(root().join("Cargo.toml"));
    command.args(["--quiet", "--package", "trials", "--bin", "cluster-load", "--"]).args(words);
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    match command.status().map_err(lost)?.code() {
        Some(0) => Ok(()),
        Some(USAGE) => Err(Failure::Usage("trial: see above".to_owned())),
        _ => Err(Failure::Failed("trial: not as promised, see above".to_owned())),
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}
