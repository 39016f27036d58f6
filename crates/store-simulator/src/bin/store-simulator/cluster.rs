//! `store-simulator cluster`: worlds of cluster nodes.

use std::panic;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use store_simulator::cluster::{CONTROLS, Control, Outcome, Rule, Violation, World};

/// How many seeds a control gets to be caught.
const CONTROL_SEEDS_MAX: u64 = 10_000;
/// Seeds taken at once by a thread.
const CHUNK: u64 = 16;

const USAGE: &str = "\
usage: store-simulator cluster [--seeds N] [--control NAME|none] [--seed S [--trace]] [--jobs N]
       store-simulator cluster --nodes N [--seed S]

  --seeds N       worlds (default 2000); controls get at most 10000
  --control NAME  only this control; none: only the worlds without one
  --seed S        only the world of this seed
  --trace         print every event of that world, one per line
  --jobs N        threads (default 2)
  --nodes N       one cluster of so many nodes, half of them masters: what gossip costs, and how long
                  it takes to heal when a master dies
";

#[derive(Debug)]
struct Args {
    seeds: u64,
    control: Option<String>,
    seed: Option<u64>,
    trace: bool,
    jobs: usize,
    nodes: Option<usize>,
}

pub(crate) fn main(words: impl Iterator<Item = String>) -> ExitCode {
    let args = match parse(words) {
        Ok(args) => args,
        Err(text) => {
            eprint!("store-simulator: {text}\n{USAGE}");
            return ExitCode::from(64);
        }
    };
    if let Some(nodes) = args.nodes {
        return measure(nodes, args.seed.unwrap_or(0));
    }
    let is_kept = match args.seed {
        Some(seed) => replay(&args, seed),
        None => run_all(&args),
    };
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args =
        Args { seeds: 2_000, control: None, seed: None, trace: false, jobs: 2, nodes: None };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--seeds" => args.seeds = number(&word, &value()?)?,
            "--seed" => args.seed = Some(number(&word, &value()?)?),
            "--jobs" => args.jobs = number(&word, &value()?)?.clamp(1, 64) as usize,
            "--control" => args.control = Some(control_name(value()?)?),
            "--nodes" => args.nodes = Some(number(&word, &value()?)?.clamp(6, 2_000) as usize),
            "--trace" => args.trace = true,
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok(args)
}

fn measure(nodes: usize, seed: u64) -> ExitCode {
    let scale = World::measure(seed, nodes);
    let seconds = nodes as f64 * scale.quiet_ms as f64 / 1000.0;
    println!(
        "{nodes} nodes: {:.1} messages and {:.0} bytes sent per node and second, {} false \
         suspicions; failed after {} to {} ms, healed after {:?} ms",
        scale.messages as f64 / seconds,
        scale.bytes as f64 / seconds,
        scale.false_suspicions,
        scale.failed_first_ms,
        scale.failed_last_ms,
        scale.healed_ms
    );
    if scale.healed_ms.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn number(what: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{what} needs a whole number, not {text:?}"))
}

fn control_name(name: String) -> Result<String, String> {
    let names: Vec<_> = CONTROLS.iter().map(|control| control.name).collect();
    match name == "none" || names.contains(&name.as_str()) {
        true => Ok(name),
        false => Err(format!("{name:?} is none of none, {}", names.join(", "))),
    }
}

/// Whether nothing broke that must not, and every control was caught.
fn run_all(args: &Args) -> bool {
    let mut is_kept = true;
    let chosen = args.control.as_deref();
    if chosen.is_none_or(|name| name == "none") {
        let found = sweep(args.seeds, args.jobs, None);
        is_kept = found.first.is_none();
        print_worlds(&found);
    }
    let seeds = args.seeds.clamp(1, CONTROL_SEEDS_MAX);
    for control in CONTROLS.iter().filter(|c| chosen.is_none_or(|name| name == c.name)) {
        let found = sweep(seeds, args.jobs, Some(control));
        let name = control.name;
        match found.first {
            Some((seed, violation)) => {
                println!("caught    {name:<28} {} seed {seed}: {}", violation.rule, violation.what);
            }
            None => {
                is_kept = false;
                println!("NOT CAUGHT {name:<27} {} in {} seeds", control.breaks, found.seeds);
            }
        }
    }
    is_kept
}

fn print_worlds(found: &Found) {
    let sum = &found.sum;
    println!(
        "{} worlds: {} messages, {} failures found, {} elections won, {} replicas moved, {} slots \
         moved",
        found.seeds, sum.messages, sum.failures, sum.elections, sum.moves, sum.slots_moved
    );
    match &found.first {
        None => println!("nothing broken"),
        Some((seed, violation)) => {
            println!("{} BROKEN, {} worlds in all", violation.rule, found.violations);
            println!("seed {seed} at {} ms: {}", violation.at, violation.what);
            println!("replay: cargo xtask simulate store cluster --seed {seed} --trace");
        }
    }
}

/// One world, for a person to read.
fn replay(args: &Args, seed: u64) -> bool {
    let name = args.control.as_deref();
    let mut world = match CONTROLS.iter().find(|control| Some(control.name) == name) {
        Some(control) => World::flawed(seed, control.flaw, control.breaks),
        None => World::new(seed),
    };
    if args.trace {
        world = world.traced();
    }
    let outcome = world.run();
    for line in &outcome.trace {
        println!("{line}");
    }
    match &outcome.violation {
        None => println!("seed {seed}: nothing broken, {} messages", outcome.messages),
        Some(violation) => println!(
            "seed {seed}: {} broken at {} ms: {}",
            violation.rule, violation.at, violation.what
        ),
    }
    outcome.violation.is_none()
}

/// What the worlds have shown.
#[derive(Debug, Default)]
struct Found {
    seeds: u64,
    sum: Outcome,
    violations: u64,
    first: Option<(u64, Violation)>,
}

impl Found {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.sum.messages += outcome.messages;
        self.sum.elections += outcome.elections;
        self.sum.failures += outcome.failures;
        self.sum.moves += outcome.moves;
        self.sum.slots_moved += outcome.slots_moved;
        let Some(violation) = outcome.violation else { return };
        self.violations += 1;
        if self.first.as_ref().is_none_or(|(first, _)| seed < *first) {
            self.first = Some((seed, violation));
        }
    }
}

/// All seeds below `seeds`; with a control, until it is caught.
fn sweep(seeds: u64, jobs: usize, control: Option<&Control>) -> Found {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Found::default());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let start = next.fetch_add(CHUNK, Ordering::Relaxed);
                    let is_caught = |found: &Found| control.is_some() && found.first.is_some();
                    let is_over = is_caught(&found.lock().expect("no thread panics with this"));
                    if start >= seeds || is_over {
                        return;
                    }
                    for seed in start..(start + CHUNK).min(seeds) {
                        let outcome = run(seed, control);
                        found.lock().expect("no thread panics with this").add(seed, outcome);
                    }
                }
            });
        }
    });
    found.into_inner().expect("no thread panics with this")
}

/// A panic is a finding like any other: its seed must come out.
fn run(seed: u64, control: Option<&Control>) -> Outcome {
    let world = || match control {
        Some(control) => World::flawed(seed, control.flaw, control.breaks).run(),
        None => World::new(seed).run(),
    };
    panic::catch_unwind(world).unwrap_or_else(|_| {
        let what = "it panicked, see above".to_owned();
        let violation = control.is_none().then_some(Violation { rule: Rule::K5, at: 0, what });
        Outcome { violation, ..Outcome::default() }
    })
}
