//! The published figures of the store: our server beside redis-server, on one machine, in turn.
//!
//! `cargo xtask bench store [--quick]` builds and runs it. Servers have one core, whoever asks
//! them has another; noise only ever adds, so the least of all rounds counts.

mod append;
mod cluster;
mod embedded;
mod footprint;
mod idle;
mod memory;
mod removal;
mod replication;
mod report;
mod sentinel;
mod servers;
mod snapshot;
mod speed;
mod stall;

use std::path::PathBuf;

use report::Figures;

fn main() -> Result {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Options { scale, only } = options(&words)?;
    let mut figures = Figures::default();
    if let Some(only) = only {
        servers::stay_on_the_load_core()?;
        only(&scale, &mut figures)?;
        figures.print();
        return Ok(());
    }
    // First, for it is measured without a core of its own.
    embedded::measure(&mut figures)?;
    servers::stay_on_the_load_core()?;
    idle::measure(&scale, &mut figures)?;
    memory::measure(&mut figures)?;
    footprint::measure(&scale, &mut figures)?;
    stall::measure(&scale, &mut figures)?;
    removal::measure(&mut figures)?;
    snapshot::measure(&scale, &mut figures)?;
    append::measure(&scale, &mut figures)?;
    replication::measure(&scale, &mut figures)?;
    cluster::measure(&scale, &mut figures)?;
    let speeds = speed::measure(&scale)?;
    speeds.print();
    println!();
    figures.print();
    Ok(())
}

const USAGE: &str = "known are --quick, --failovers N, --before PROGRAM and --only speed, get, \
                     stall, snapshot, append, memory, replication, sentinel or cluster";

/// What the caller wants measured.
struct Options {
    scale: Scale,
    only: Option<Measure>,
}

fn options(mut words: &[&str]) -> Result<Options> {
    let mut options = Options { scale: Scale::FULL, only: None };
    let (mut before, mut failovers) = (None, None);
    loop {
        match words {
            [] => break,
            ["--quick", ..] => options.scale = Scale::QUICK,
            ["--only", what, ..] => options.only = Some(only(what)?),
            ["--failovers", count, ..] => failovers = Some(count.parse()?),
            ["--before", program, ..] => before = Some(PathBuf::from(program)),
            _ => return Err(format!("unknown arguments {words:?}: {USAGE}").into()),
        }
        words = &words[if words[0] == "--quick" { 1 } else { 2 }..];
    }
    options.scale.before = before;
    options.scale.failovers = failovers.unwrap_or(options.scale.failovers);
    Ok(options)
}

fn speed_alone(scale: &Scale, _: &mut Figures) -> Result {
    speed::measure(scale)?.print();
    Ok(())
}

/// One command, in half a minute.
fn get_alone(scale: &Scale, _: &mut Figures) -> Result {
    speed::measure_one(scale, "get")?.print();
    Ok(())
}

type Measure = fn(&Scale, &mut Figures) -> Result;

/// What is measured by itself.
fn only(what: &str) -> Result<Measure> {
    match what {
        "speed" => Ok(speed_alone),
        "get" => Ok(get_alone),
        "stall" => Ok(stall::measure),
        "snapshot" => Ok(snapshot::measure),
        "append" => Ok(append::measure),
        "memory" => Ok(footprint::measure),
        "replication" => Ok(replication::measure),
        "sentinel" => Ok(sentinel::measure),
        "cluster" => Ok(cluster::measure),
        _ => Err(format!("there is no {what:?} by itself: {USAGE}").into()),
    }
}

/// How much is measured.
struct Scale {
    rounds: usize,
    value_lens: &'static [usize],
    /// Requests per run at pipeline 1; longer pipelines get more.
    requests: usize,
    /// Keys inserted while the longest turn is watched.
    stall_keys: usize,
    /// Keys, and members of two large values, of which a snapshot is taken.
    snapshot_keys: usize,
    snapshot_members: usize,
    /// Keys of a full sync; a tenth of it where they are large.
    sync_keys: usize,
    /// How often files are loaded and full syncs are made.
    loads: usize,
    idle_seconds: u64,
    /// Failovers of sentinels, and of clusters, on either side.
    failovers: usize,
    /// An earlier `tenure`, whose speed is measured in the same rounds.
    before: Option<PathBuf>,
}

impl Scale {
    const FULL: Self = Self {
        rounds: 5,
        value_lens: &[3, 1024],
        requests: 50_000,
        stall_keys: 10_000_000,
        snapshot_keys: 5_000_000,
        snapshot_members: 1_000_000,
        sync_keys: 1_000_000,
        loads: 2,
        idle_seconds: 10,
        failovers: 30,
        before: None,
    };
    const QUICK: Self = Self {
        rounds: 2,
        value_lens: &[3],
        requests: 10_000,
        stall_keys: 1_000_000,
        snapshot_keys: 500_000,
        snapshot_members: 100_000,
        sync_keys: 100_000,
        loads: 1,
        idle_seconds: 2,
        failovers: 2,
        before: None,
    };
}

/// Whatever went wrong ends the run.
type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
