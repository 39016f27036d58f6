//! `cargo xtask bench`: the published figures, measured here and now.

use crate::command::{Command, Failure};
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "bench",
    summary: "measures the published figures",
    details: "\
  cargo xtask bench election [--quick]   the election on a real redis-server on loopback, beside the
                                         plain algorithm that polls, and the command around a program;
                                         about ten minutes. --only PART: command, outage
  cargo xtask bench store [--quick]      our server beside redis-server in turn, each on a core of its
                                         own: speed, memory, stalls, snapshots, start, idling; about ten
                                         minutes. --only PART: speed, get, stall, snapshot, append, memory
  cargo xtask bench eviction [--quick]   hit rates of every eviction policy, ours and redis-server's,
                                         asked for the same keys; two minutes

Prints a table in Markdown on stdout and progress on stderr. A figure that misses its aim is marked;
machines differ, so that is no failure. --quick runs a small part of it, to see that it works.",
    run,
};

const SUBJECTS: &str = "election, store or eviction";

fn run(words: &[String]) -> Result<(), Failure> {
    match words {
        [what, rest @ ..] if what == "election" => election(rest),
        [what, rest @ ..] if what == "store" => store(rest),
        [what, rest @ ..] if what == "eviction" => eviction(rest),
        [] => Err(Failure::Usage(format!("bench: say what: {SUBJECTS}"))),
        [other, ..] => Err(Failure::Usage(format!("bench: there is no {other:?}, try {SUBJECTS}"))),
    }
}

fn election(words: &[String]) -> Result<(), Failure> {
    // By itself, as it is shipped: built together, it would get features that only others want.
    release(&["build", "--release", "--quiet", "--package", "tenure-cli", "--bin", "tenure"], &[])?;
    // Both programs: the benchmark kills instances that are processes of their own.
    release(&["build", "--release", "--quiet", "--package", "trials", "--bins"], &[])?;
    let run =
        ["run", "--release", "--quiet", "--package", "trials", "--bin", "bench-election", "--"];
    release(&run, words)
}

fn store(words: &[String]) -> Result<(), Failure> {
    // One at a time: built together, the program would get features that only the benchmark wants.
    release(&["build", "--release", "--quiet", "--package", "tenure-cli", "--bin", "tenure"], &[])?;
    let run = ["run", "--release", "--quiet", "--package", "trials", "--bin", "bench-store", "--"];
    release(&run, words)
}

fn eviction(words: &[String]) -> Result<(), Failure> {
    let run =
        ["run", "--release", "--quiet", "--package", "trials", "--bin", "bench-eviction", "--"];
    release(&run, words)
}

fn release(words: &[&str], more: &[String]) -> Result<(), Failure> {
    let mut command = cargo();
    let status = command.args(words).args(more).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Failed("bench: see above".to_owned())),
        Err(error) => Err(Failure::Failed(format!("bench: cannot start cargo: {error}"))),
    }
}
