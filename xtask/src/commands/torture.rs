//! `cargo xtask torture`: real servers under real faults, and what became of the promises.

use crate::command::{Command, Failure};
use crate::older::older_program;
use crate::repository::cargo;

pub(crate) const COMMAND: Command = Command {
    name: "torture",
    summary: "strikes real servers and instances with faults and checks every promise",
    details: "\
Prints a table: per topology and mode, how many rounds of which faults were run, how many terms there
were, how many of them overlapped, how many writes were lost with and without a check of tokens, and
how long nobody led. Fails when a promise is broken where it is given, and when a fault under which it
is known to break goes unnoticed. Instances and servers are processes of their own, each on a host of
its own in network namespaces; where those are not permitted (they need root and `ip`), on loopback
behind proxies, as a line then says.

  --minutes N      how long, all in all; 10 unless told otherwise
  --topology NAME  only stores of this kind: single, own (one of our own stores), sentinel,
                   own-sentinel (real sentinels over our own stores), all-own-sentinel (our own
                   sentinels over our own stores), cluster, own-cluster (of our own stores),
                   mixed-cluster (of both kinds), quorum or own-quorum (three of our own stores)
  --mode NAME      only this mode: available, strict or quorum
  --row NAME       only the row of this name, for example \"isolated primary\"
  --before REV     a fleet of two versions: every other start of an instance is of the one that
                   git knows as REV, so that places are upgraded and rolled back all the time
  --seed N         repeats a run's choices; what the machine does with them is its own affair
  --jobs N         how many stores are struck at a time; 2 unless told otherwise
  --network KIND   namespaces or loopback, in place of the best there is
  --keep FOLDER    where histories with overlaps are kept; the temporary folder unless told otherwise
  --check FILE     only judges a history that was kept",
    run,
};

/// The exit code with which the program refuses its words.
const USAGE: i32 = 64;

fn run(words: &[String]) -> Result<(), Failure> {
    let lost = |error| Failure::Failed(format!("torture: cannot start cargo: {error}"));
    // All programs: instances and our own store are processes of their own.
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "trials", "--package", "tenure-cli", "--bins"]);
    if !build.status().map_err(lost)?.success() {
        return Err(Failure::Failed("torture: see above".to_owned()));
    }
    let mut words = words.to_vec();
    if let Some(at) = words.iter().position(|word| word == "--before") {
        let missing = || Failure::Usage("torture: --before needs a commit".to_owned());
        let revision = words.get(at + 1).cloned().ok_or_else(missing)?;
        let program = older_program(&revision, "trials", "trial-instance")?.display().to_string();
        words.splice(at..at + 2, ["--older-instance".to_owned(), program]);
    }
    let mut command = cargo();
    command.args(["run", "--quiet", "--package", "trials", "--bin", "torture", "--"]).args(words);
    match command.status().map_err(lost)?.code() {
        Some(0) => Ok(()),
        Some(USAGE) => Err(Failure::Usage("torture: see above".to_owned())),
        _ => Err(Failure::Failed("torture: not as promised, see above".to_owned())),
    }
}
