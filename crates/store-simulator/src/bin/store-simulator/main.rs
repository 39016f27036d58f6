//! Runs worlds of stores by seed and prints what was found. Exit codes: 0 as promised, 1 not, 64
//! usage.

#![expect(clippy::disallowed_methods, reason = "the library is pure, the program around it is not")]

mod args;
mod cluster;
mod sweep;

use std::process::ExitCode;

use store_simulator::replication::{CONTROLS, Control, World};

use args::{Args, USAGE};
use sweep::{Found, sweep};

fn main() -> ExitCode {
    if std::env::args().nth(1).is_some_and(|word| word == "cluster") {
        return cluster::main(std::env::args().skip(2));
    }
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
    let is_kept = match args.seed {
        Some(seed) => replay(&args, seed),
        None => run_all(&args),
    };
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether nothing broke that must not, and every control was caught.
fn run_all(args: &Args) -> bool {
    let mut is_kept = true;
    if args.control.is_none() {
        let found = sweep(args.seeds, args.jobs, None);
        is_kept = found.first.is_none();
        print_worlds(&found);
    }
    let is_chosen = |control: &&Control| args.control.is_none_or(|chosen| chosen == control.name);
    for control in CONTROLS.iter().filter(is_chosen) {
        let found = sweep(args.control_seeds(), args.jobs, Some(control));
        match found.first {
            Some((seed, violation)) => println!(
                "caught    {:<28} {} seed {seed}: {}",
                control.name, violation.rule, violation.what
            ),
            None => {
                is_kept = false;
                println!(
                    "NOT CAUGHT {:<27} {} in {} seeds",
                    control.name, control.breaks, found.seeds
                );
            }
        }
    }
    is_kept
}

fn print_worlds(found: &Found) {
    println!(
        "{} worlds: {} writes, {} full syncs, {} partial syncs, {} waits that counted somebody",
        found.seeds, found.writes, found.full_syncs, found.partial_syncs, found.waits
    );
    match &found.first {
        None => println!("nothing broken"),
        Some((seed, violation)) => {
            println!("{} BROKEN in {} of them", violation.rule, found.violations);
            println!("seed {seed} at {} ms: {}", violation.at, violation.what);
            println!("replay: cargo xtask simulate store --seed {seed} --trace");
        }
    }
}

/// One world, for a person to read.
fn replay(args: &Args, seed: u64) -> bool {
    let control = args.control.and_then(|name| CONTROLS.iter().find(|c| c.name == name));
    let mut world = match control {
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
        None => println!("seed {seed}: nothing broken, {} writes", outcome.writes),
        Some(violation) => println!(
            "seed {seed}: {} broken at {} ms: {}",
            violation.rule, violation.at, violation.what
        ),
    }
    outcome.violation.is_none()
}
