//! `cargo xtask torture`: see its manual.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use trials::torture::history::History;
use trials::torture::verdict::judge;
use trials::torture::{
    Budget, Group, Mode, Row, Topology, TortureOutcome, groups, run_group, table,
};

/// So that a ten-minute run has many rounds; sentinels need more than a second to agree.
const TTL: Duration = Duration::from_secs(2);
/// How many stores are struck at a time, unless told otherwise: they mostly wait, and what is
/// bounded in time must not wait for a core.
const JOBS: usize = 2;
/// The exit code for words that make no sense.
const USAGE: u8 = 64;
/// What a store of some topology needs to be there, beside its rows.
const SETTING_UP: Duration = Duration::from_secs(15);

struct Arguments {
    minutes: f64,
    topology: Option<Topology>,
    mode: Option<Mode>,
    row: Option<String>,
    seed: Option<u64>,
    loopback: bool,
    older_instance: Option<PathBuf>,
    jobs: usize,
    check: Option<PathBuf>,
    keep: PathBuf,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("torture: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let outcome = match &arguments.check {
        Some(file) => check(file),
        None => torture(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        minutes: 10.0,
        topology: None,
        mode: None,
        row: None,
        seed: None,
        loopback: false,
        older_instance: None,
        jobs: JOBS,
        check: None,
        keep: std::env::temp_dir(),
    };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--minutes" => {
                let minutes = value.parse().ok().filter(|minutes| *minutes > 0.0);
                arguments.minutes = minutes.ok_or_else(|| format!("no time: {value:?}"))?;
            }
            "--topology" => arguments.topology = Some(named(Topology::ALL, &value)?),
            "--mode" => arguments.mode = Some(named(Mode::ALL, &value)?),
            "--row" => arguments.row = Some(value),
            "--seed" => {
                let seed = value.parse().map_err(|_| format!("no seed: {value:?}"))?;
                arguments.seed = Some(seed);
            }
            "--network" => {
                arguments.loopback = named(&[("namespaces", false), ("loopback", true)], &value)?;
            }
            "--older-instance" => arguments.older_instance = Some(value.into()),
            "--jobs" => {
                let jobs = value.parse().ok().filter(|jobs| *jobs > 0);
                arguments.jobs = jobs.ok_or_else(|| format!("no number of jobs: {value:?}"))?;
            }
            "--check" => arguments.check = Some(value.into()),
            "--keep" => arguments.keep = value.into(),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn named<T: Copy>(all: &[(&str, T)], name: &str) -> Result<T, String> {
    let found = all.iter().find(|(known, _)| *known == name);
    let names = || all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
    found.map(|(_, value)| *value).ok_or_else(|| format!("no {name:?}: there are {}", names()))
}

/// Judges a history that was kept. True when nothing overlaps.
fn check(file: &Path) -> Result<bool, Box<dyn Error>> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let history = History::parse(&text)?;
    history.notes.iter().for_each(|note| println!("{note}"));
    let verdict = judge(&history);
    println!("{verdict}");
    Ok(!verdict.is_broken() && !verdict.is_wrong_under_any_fault())
}

fn torture(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let chosen = chosen(arguments);
    if chosen.is_empty() {
        return Err("no row has this topology, mode and name".into());
    }
    let instance = std::env::current_exe()?.with_file_name("trial-instance");
    let jobs = arguments.jobs.clamp(1, chosen.len());
    let seed = arguments.seed.unwrap_or_else(testkit::seed);
    let budget = Budget {
        per_share: per_share(&chosen, arguments.minutes, jobs),
        rounds_max: usize::MAX,
        ttl: TTL,
        seed,
        loopback: arguments.loopback,
        older_instance: arguments.older_instance.clone(),
        own_store: instance.with_file_name("tenure"),
        instance,
    };
    let count = chosen.len();
    eprintln!("seed {seed}, {count} stores, {jobs} at a time, a lease lasts {TTL:?}");
    let outcomes = run_all(&chosen, &budget, jobs);
    let mut all_is_well = outcomes.iter().all(Option::is_some);
    let outcomes: Vec<_> = outcomes.into_iter().flatten().flatten().collect();
    println!("{}", table(&outcomes));
    for outcome in &outcomes {
        all_is_well &= report(outcome, &arguments.keep)?;
    }
    Ok(all_is_well)
}

/// How long a row strikes per share that it has, so that the whole takes so many minutes.
fn per_share(groups: &[Group], minutes: f64, jobs: usize) -> Duration {
    let shares: u32 = groups.iter().flat_map(|group| &group.rows).map(Row::shares).sum();
    let whole = Duration::from_secs_f64(minutes * 60.0) * jobs as u32;
    whole.saturating_sub(SETTING_UP * groups.len() as u32) / shares
}

/// Runs all groups, some at a time: they mostly wait.
/// `None` where one could not be set up.
fn run_all(groups: &[Group], budget: &Budget, jobs: usize) -> Vec<Option<Vec<TortureOutcome>>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(group) = groups.get(index) else { return done };
            let run = || run_group(group, budget, &|words| eprintln!("{words}"));
            // The words of a store that cannot even be set up were printed when it gave up.
            let outcomes = catch_unwind(AssertUnwindSafe(run)).ok();
            done.push((index, outcomes));
        }
    };
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let join = |worker: ScopedJoinHandle<'_, _>| worker.join().expect("panics are caught");
        workers.into_iter().flat_map(join).collect()
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, outcomes)| outcomes).collect()
}

fn chosen(arguments: &Arguments) -> Vec<Group> {
    let mut chosen = groups();
    chosen.retain(|group| {
        arguments.topology.is_none_or(|topology| topology == group.topology)
            && arguments.mode.is_none_or(|mode| mode == group.mode)
    });
    if let Some(name) = &arguments.row {
        chosen.iter_mut().for_each(|group| group.rows.retain(|row| row.name == name));
    }
    chosen.retain(|group| !group.rows.is_empty());
    chosen
}

/// Says what is wrong with a row and keeps its history if anything overlapped. True when nothing
/// is wrong.
fn report(outcome: &TortureOutcome, folder: &Path) -> Result<bool, Box<dyn Error>> {
    let TortureOutcome { topology, mode, row, .. } = outcome;
    let title = format!("{topology} {mode} {}", row.name);
    for words in &outcome.faulty {
        println!("FAILED: {title}: {words}");
    }
    if outcome.verdict.is_broken() || !outcome.faulty.is_empty() {
        let name = format!("torture-{}-{title}.history", std::process::id());
        let file = folder.join(name.replace([' ', ':'], "-"));
        std::fs::write(&file, outcome.history.to_string())?;
        println!("{title}: history kept, cargo xtask torture --check {}", file.display());
    }
    Ok(outcome.faulty.is_empty())
}
