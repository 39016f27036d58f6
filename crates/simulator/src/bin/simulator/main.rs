//! Runs worlds by seed and prints what was found. Exit codes: 0 as promised, 1 not, 64 usage.

#![expect(clippy::disallowed_methods, reason = "the library is pure, the program around it is not")]

mod args;
mod report;
mod sweep;

use std::process::ExitCode;

use simulator::{CASES, CONTROLS, Case, Control, Mode, Subject, World};

use args::{Args, USAGE};
use sweep::{Sweep, Until, sweep};

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(args) if args.help => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(args) => args,
        Err(error) => return usage_error(&error.to_string()),
    };
    let cases = match chosen(CASES, args.case.as_deref(), |case| case.name) {
        Ok(cases) => cases,
        Err(text) => return usage_error(&text),
    };
    let controls = match chosen(CONTROLS, args.control.as_deref(), |control| control.name) {
        Ok(controls) => controls,
        Err(text) => return usage_error(&text),
    };
    if let Some(seed) = args.seed {
        return replay(&args, &cases, &controls, seed);
    }
    let is_kept = match (args.control.is_some(), args.case.is_some()) {
        (true, false) => run_controls(&args, &controls),
        (false, true) => run_cases(&args, &cases),
        _ => {
            let cases_kept = run_cases(&args, &cases);
            run_controls(&args, &controls) && cases_kept
        }
    };
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage_error(text: &str) -> ExitCode {
    eprint!("simulator: {text}\n{USAGE}");
    ExitCode::from(64)
}

fn chosen<T>(
    all: &'static [T],
    name: Option<&str>,
    name_of: fn(&T) -> &'static str,
) -> Result<Vec<&'static T>, String> {
    let Some(name) = name else { return Ok(all.iter().collect()) };
    match all.iter().find(|item| name_of(item) == name) {
        Some(item) => Ok(vec![item]),
        None => {
            let names: Vec<_> = all.iter().map(name_of).collect();
            Err(format!("{name:?} is none of {}", names.join(", ")))
        }
    }
}

/// Whether every promise held where it is given, and one was broken where it is not.
fn run_cases(args: &Args, cases: &[&'static Case]) -> bool {
    report::cases_head(args.json);
    let mut is_kept = true;
    for &case in cases {
        let plan = Sweep {
            case,
            subject: Subject::Ours,
            ignores: &[],
            only: None,
            seeds: args.seeds,
            until: Until::Done,
        };
        if !case.is_promised() {
            // That it breaks is seen soon; how often does not matter.
            let breaks = Sweep { seeds: args.control_seeds(), until: Until::Broken, ..plan };
            is_kept &= report::case_row(args.json, breaks, &sweep(breaks, args.jobs));
        }
        let promised = Sweep { ignores: case.excused, ..plan };
        is_kept &= report::case_row(args.json, promised, &sweep(promised, args.jobs));
    }
    is_kept
}

/// Whether every control was caught.
fn run_controls(args: &Args, controls: &[&'static Control]) -> bool {
    report::controls_head(args.json);
    let mut all_caught = true;
    for control in controls {
        let plan = Sweep {
            case: Case::named(control.case).expect("controls name cases that exist"),
            subject: control.subject,
            ignores: &[],
            only: Some(control.breaks),
            seeds: args.control_seeds(),
            until: Until::Broken,
        };
        all_caught &= report::control_row(args.json, control, &sweep(plan, args.jobs));
    }
    all_caught
}

/// One world by its seed, for a person to read.
fn replay(args: &Args, cases: &[&Case], controls: &[&Control], seed: u64) -> ExitCode {
    let control = args.control.as_ref().map(|_| controls[0]);
    let case = match (control, &args.case) {
        (Some(control), None) => Case::named(control.case).expect("controls name cases that exist"),
        (_, Some(_)) => cases[0],
        (None, None) => return usage_error("--seed needs --case or --control"),
    };
    let subject = control.map_or(Subject::Ours, |control| control.subject);
    let ignores = if args.rest { case.excused } else { &[] };
    let mut world = World::new(case, subject, seed, Mode::of_seed(seed)).ignoring(ignores);
    if let Some(control) = control {
        world = world.judging_only(control.breaks);
    }
    if args.trace {
        world = world.traced();
    }
    let outcome = world.run();
    for line in &outcome.trace {
        println!("{line}");
    }
    match outcome.violation {
        None => {
            println!("seed {seed}: no promise broken, {} terms", outcome.terms);
            ExitCode::SUCCESS
        }
        Some(violation) => {
            let at = std::time::Duration::from_nanos(violation.at);
            println!("seed {seed}: {} broken at {at:?}: {}", violation.promise, violation.what);
            ExitCode::FAILURE
        }
    }
}
