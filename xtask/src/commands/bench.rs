//! `cargo xtask bench`: the published figures, measured here and now.

use std::path::Path;
use std::process::Command as Process;
use std::time::{Duration, Instant};

use crate::command::{Command, Failure};
use crate::older;
use crate::repository::{cargo, root};

pub(crate) const COMMAND: Command = Command {
    name: "bench",
    summary: "measures the published figures",
    details: "\
  cargo xtask bench election [--quick]   the election on a real redis-server on loopback, beside the
                                         plain algorithm that polls, and the command around a program;
                                         about ten minutes. --only PART: command, outage
  cargo xtask bench store [--quick]      our server beside redis-server in turn, each on a core of its
                                         own: speed, memory, stalls, snapshots, replication, idling; about ten
                                         minutes. --only PART: speed, get, stall, snapshot, append, memory,
                                         replication, cluster;
                                         --before COMMIT measures the speed of an earlier one in the same
                                         rounds and says by how much each ratio to redis-server grew
  cargo xtask bench sentinel [--quick]   our sentinels beside redis-sentinel, over the same servers: the time
                                         of a failover, medians of 30 in turn (--failovers N for others),
                                         CPU and memory of one that watches 50 primaries; ten minutes
  cargo xtask bench eviction [--quick]   hit rates of every eviction policy, ours and redis-server's,
                                         asked for the same keys; two minutes
  cargo xtask bench parts [--quick]      what bulkheads add to a call, and what is left of the others when
                                         a dependency hangs; half a minute
  cargo xtask bench page                 how soon the page shows fifty elections, in Chromium; a minute
  cargo xtask bench build [--before COMMIT]
                                         the program built from nothing, in a folder of its own, the
                                         better of two; with --before, any number of times, beside
                                         earlier commits

Prints a table in Markdown on stdout and progress on stderr. A figure that misses its aim is marked;
machines differ, so that is no failure. --quick runs a small part of it, to see that it works.",
    run,
};

const SUBJECTS: &str = "election, store, sentinel, eviction, parts, page or build";

fn run(words: &[String]) -> Result<(), Failure> {
    match words {
        [what, rest @ ..] if what == "election" => election(rest),
        [what, rest @ ..] if what == "store" => store(rest),
        [what, rest @ ..] if what == "sentinel" => sentinel(rest),
        [what, rest @ ..] if what == "eviction" => eviction(rest),
        [what, rest @ ..] if what == "parts" => parts(rest),
        [what, rest @ ..] if what == "page" => page(rest),
        [what, rest @ ..] if what == "build" => build(rest),
        [] => Err(Failure::Usage(format!("bench: say what: {SUBJECTS}"))),
        [other, ..] => Err(Failure::Usage(format!("bench: there is no {other:?}, try {SUBJECTS}"))),
    }
}

fn election(words: &[String]) -> Result<(), Failure> {
    let mut words = words.to_vec();
    if let Some(commit) = take_before(&mut words, "election")? {
        older::older_release(&commit, "tenure-cli", "tenure")?;
        older::older_release(&commit, "trials", "trial-instance")?;
        let older = older::older_release(&commit, "trials", "bench-election")?;
        println!("## At {commit}\n");
        succeed(Process::new(older).args(&words))?;
        println!("\n## Now\n");
    }
    // By itself, as it is shipped: built together, it would get features that only others want.
    release(&["build", "--release", "--quiet", "--package", "tenure-cli", "--bin", "tenure"], &[])?;
    // Both programs: the benchmark kills instances that are processes of their own.
    release(&["build", "--release", "--quiet", "--package", "trials", "--bins"], &[])?;
    let run =
        ["run", "--release", "--quiet", "--package", "trials", "--bin", "bench-election", "--"];
    release(&run, &words)
}

/// Takes `--before COMMIT` out of the words, if it is there.
fn take_before(words: &mut Vec<String>, subject: &str) -> Result<Option<String>, Failure> {
    let Some(flag) = words.iter().position(|word| word == "--before") else { return Ok(None) };
    if flag + 1 == words.len() {
        return Err(Failure::Usage(format!("bench {subject}: --before takes a commit")));
    }
    Ok(words.drain(flag..flag + 2).nth(1))
}

fn store(words: &[String]) -> Result<(), Failure> {
    let mut words = words.to_vec();
    if let Some(commit) = take_before(&mut words, "store")? {
        let program = older::older_release(&commit, "tenure-cli", "tenure")?;
        words.extend(["--before".to_owned(), program.to_string_lossy().into_owned()]);
    }
    // One at a time: built together, the program would get features that only the benchmark wants.
    release(&["build", "--release", "--quiet", "--package", "tenure-cli", "--bin", "tenure"], &[])?;
    let run = ["run", "--release", "--quiet", "--package", "trials", "--bin", "bench-store", "--"];
    release(&run, &words)
}

/// A part of the benchmark of the store: both stand beside a real one.
fn sentinel(words: &[String]) -> Result<(), Failure> {
    let part = ["--only".to_owned(), "sentinel".to_owned()];
    store(&[&part[..], words].concat())
}

fn eviction(words: &[String]) -> Result<(), Failure> {
    let run =
        ["run", "--release", "--quiet", "--package", "trials", "--bin", "bench-eviction", "--"];
    release(&run, words)
}

fn parts(words: &[String]) -> Result<(), Failure> {
    let run = ["run", "--release", "--quiet", "--package", "trials", "--bin", "bench-parts", "--"];
    release(&run, words)
}

/// The test program drives the browser, and has the page and a real sidecar in it.
fn page(words: &[String]) -> Result<(), Failure> {
    if let Some(word) = words.first() {
        return Err(Failure::Usage(format!("bench page: takes no words, found {word:?}")));
    }
    let test =
        ["test", "--release", "--quiet", "--package", "tenure-sidecar", "--test", "it", "--"];
    let one = ["--ignored", "--exact", "--nocapture", "page::overview::first_paint"];
    release(&test, &one.map(str::to_owned))
}

/// Builds of which the quickest counts: what else a machine does only adds.
const BUILDS: usize = 2;

fn build(words: &[String]) -> Result<(), Failure> {
    let mut words = words.to_vec();
    let mut versions = Vec::new();
    while let Some(commit) = take_before(&mut words, "build")? {
        let folder = older::checked_out(&commit)?;
        versions.push((commit, folder));
    }
    if !words.is_empty() {
        return Err(Failure::Usage("bench build: takes --before COMMIT alone".to_owned()));
    }
    versions.push(("now".to_owned(), root().to_owned()));
    println!("| `cargo build --package tenure-cli`, from nothing | seconds |\n|---|---|");
    for (name, folder) in versions {
        let times = (0..BUILDS).map(|_| build_once(&folder)).collect::<Result<Vec<_>, _>>()?;
        let best = times.into_iter().min().unwrap_or_default();
        println!("| {name} | {} |", best.as_secs());
    }
    Ok(())
}

fn build_once(folder: &Path) -> Result<Duration, Failure> {
    let target = root().join("target").join("bench-build");
    let failed = |what: &str| Failure::Failed(format!("bench build: {what}"));
    // The packages are there before the time counts.
    let fetched = cargo().arg("fetch").current_dir(folder).status();
    if !fetched.is_ok_and(|status| status.success()) {
        return Err(failed("cannot fetch packages"));
    }
    let started = Instant::now();
    let built = cargo()
        .args(["build", "--quiet", "--package", "tenure-cli"])
        .current_dir(folder)
        .env("CARGO_TARGET_DIR", &target)
        .status();
    let took = started.elapsed();
    let _ = std::fs::remove_dir_all(&target);
    match built {
        Ok(status) if status.success() => Ok(took),
        _ => Err(failed("see above")),
    }
}

fn release(words: &[&str], more: &[String]) -> Result<(), Failure> {
    succeed(cargo().args(words).args(more))
}

fn succeed(command: &mut Process) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Failure::Failed("bench: see above".to_owned())),
        Err(error) => {
            let program = command.get_program().display();
            Err(Failure::Failed(format!("bench: cannot start {program}: {error}")))
        }
    }
}
