//! Runs worlds of stores by seed and prints what was found. Exit codes: 0 as promised, 1 not, 64
//! usage.

#![expect(clippy::disallowed_methods, reason = "the library is pure, the program around it is not")]

mod args;
mod sweep;
mod worlds;

use std::process::ExitCode;

use args::{Args, USAGE};
use store_simulator::cluster::World;
use sweep::{Found, sweep};
use worlds::Worlds;

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(text) => {
            eprint!("store-simulator: {text}\n{USAGE}");
            return ExitCode::from(64);
        }
    };
    if args.help {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if let Some(nodes) = args.nodes {
        return measure(nodes, args.seed.unwrap_or(0));
    }
    let is_kept = match args.seed {
        Some(seed) => args.chosen().next().is_none_or(|worlds| replay(&args, worlds, seed)),
        // All of them, whatever the first comes to.
        None => {
            !args.chosen().map(|worlds| run_all(&args, worlds)).collect::<Vec<_>>().contains(&false)
        }
    };
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether nothing broke that must not, and every control was caught.
fn run_all(args: &Args, worlds: &Worlds) -> bool {
    let mut is_kept = true;
    if args.control.is_none() {
        let from = args.from.unwrap_or(0);
        let found = sweep(worlds, from..from + args.seeds, args.jobs, None);
        is_kept = found.first.is_none();
        print_worlds(worlds, &found);
    }
    if args.from.is_some() {
        return is_kept;
    }
    for (place, flaw) in (worlds.flaws)().iter().enumerate() {
        if args.control.is_some_and(|chosen| chosen != flaw.name) {
            continue;
        }
        let found = sweep(worlds, 0..args.control_seeds(), args.jobs, Some(place));
        match found.first {
            Some((seed, broken)) => {
                println!(
                    "caught    {:<28} {} seed {seed}: {}",
                    flaw.name, broken.rule, broken.what
                );
            }
            None => {
                is_kept = false;
                println!("NOT CAUGHT {:<27} {} in {} seeds", flaw.name, flaw.breaks, found.seeds);
            }
        }
    }
    is_kept
}

fn print_worlds(worlds: &Worlds, found: &Found) {
    let counts: Vec<String> =
        found.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    println!("{} worlds of {}: {}", found.seeds, worlds.name, counts.join(", "));
    match &found.first {
        None => println!("nothing broken"),
        Some((seed, broken)) => {
            println!("{} BROKEN in {} of them", broken.rule, found.violations);
            println!("seeds {:?}", found.seeds_broken);
            println!("seed {seed} at {} ms: {}", broken.at, broken.what);
            let name = worlds.name;
            println!("replay: cargo xtask simulate store --worlds {name} --seed {seed} --trace");
        }
    }
}

/// One world, for a person to read.
fn replay(args: &Args, worlds: &Worlds, seed: u64) -> bool {
    let flaws = (worlds.flaws)();
    let flaw = args.control.and_then(|name| flaws.iter().position(|flaw| flaw.name == name));
    let run = (worlds.run)(seed, flaw, args.trace);
    for line in &run.trace {
        println!("{line}");
    }
    let counts: Vec<String> =
        run.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
    match &run.broken {
        None => println!("seed {seed}: nothing broken, {}", counts.join(", ")),
        Some(broken) => {
            println!("seed {seed}: {} broken at {} ms: {}", broken.rule, broken.at, broken.what);
        }
    }
    run.broken.is_none()
}

/// What gossip costs in one large cluster.
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
