//! `cargo xtask crash`: the store is killed and its disk crashes, for longer than the tests do.

use crate::command::{Command, Failure};
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "crash",
    summary: "kills the store, and crashes a simulated disk, for longer than the tests do",
    details: "\
  [--rounds N]   kills per policy of the real process, with and without a rewrite or a snapshot in
                 progress (30 unless told otherwise), and N times the usual number of crashes of a
                 simulated disk. Fails when anything is lost that its policy promises to keep.

TESTKIT_SEED=… repeats a run's choices.",
    run,
};

/// Kills per policy, unless told otherwise.
const ROUNDS: &str = "30";

fn run(words: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let rounds = match words.as_slice() {
        [] => ROUNDS,
        ["--rounds", rounds] if rounds.parse::<usize>().is_ok() => rounds,
        _ => return Err(Failure::Usage("crash: write crash [--rounds N]".to_owned())),
    };
    for (package, filter) in [
        ("tenure-cli", "crash::"),
        ("store-persist", "append_log::"),
        ("store-server", "aof::crash"),
        ("store-server", "snapshot_disk::"),
    ] {
        let mut command = cargo();
        command.args(["test", "--quiet", "--package", package, "--test", "it", "--", filter]);
        command.args(["--nocapture", "--test-threads", "1"]).env("CRASH_ROUNDS", rounds);
        let status = command.status();
        let status = status
            .map_err(|error| Failure::Failed(format!("crash: cannot start cargo: {error}")))?;
        if !status.success() {
            return Err(Failure::Failed("crash: something was lost, see above".to_owned()));
        }
    }
    Ok(())
}
