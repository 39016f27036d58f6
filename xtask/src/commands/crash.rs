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
  [--seeds N]    histories of the append-only file's state machine (100000 unless told otherwise): all
                 settings and commands at any moment, a disk that fails at any operation, kills and
                 power losses. Mistakes of old are put back one by one and must be noticed.

TESTKIT_SEED=… repeats a run's choices.",
    run,
};

/// Kills per policy, unless told otherwise.
const ROUNDS: u64 = 30;
/// Histories, unless told otherwise.
const SEEDS: u64 = 100_000;

fn run(words: &[String]) -> Result<(), Failure> {
    let (rounds, seeds) = parse(words)?;
    for (package, filter) in [
        ("store-persist", "histories::"),
        ("tenure-cli", "crash::"),
        ("store-persist", "append_log::"),
        ("store-server", "aof::crash"),
        ("store-server", "snapshot_disk::"),
    ] {
        let mut command = cargo();
        command.args(["test", "--quiet", "--package", package, "--test", "it", "--", filter]);
        command.args(["--nocapture", "--test-threads", "1"]);
        command.env("CRASH_ROUNDS", rounds.to_string()).env("CRASH_SEEDS", seeds.to_string());
        let status = command.status();
        let status = status
            .map_err(|error| Failure::Failed(format!("crash: cannot start cargo: {error}")))?;
        if !status.success() {
            return Err(Failure::Failed("crash: something was lost, see above".to_owned()));
        }
    }
    Ok(())
}

/// Rounds and seeds.
fn parse(words: &[String]) -> Result<(u64, u64), Failure> {
    let usage = || Failure::Usage("crash: write crash [--rounds N] [--seeds N]".to_owned());
    let (mut rounds, mut seeds) = (ROUNDS, SEEDS);
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(usage()) };
        let number = value.parse().map_err(|_| usage())?;
        match name.as_str() {
            "--rounds" => rounds = number,
            "--seeds" => seeds = number,
            _ => return Err(usage()),
        }
    }
    Ok((rounds, seeds))
}
