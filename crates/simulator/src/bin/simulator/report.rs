//! Rows for people and for programs.

use std::time::Duration;

use simulator::{Case, Control};

use crate::sweep::Found;

pub(crate) fn cases_head(json: bool) {
    if !json {
        println!(
            "{:<17} {:<9} {:>7} {:>8} {:>10} {:>10}  broken",
            "case", "promised", "seeds", "terms", "violations", "first seed"
        );
    }
}

/// Prints a row and says whether it is as it should be.
pub(crate) fn case_row(json: bool, case: &Case, found: &Found) -> bool {
    let is_kept = case.promised == (found.violations == 0);
    let promises: Vec<String> = found
        .by_promise
        .iter()
        .map(|(promise, count, seed)| format!("{promise} {count}x from {seed}"))
        .collect();
    let first = found.first.as_ref().map(|(seed, _)| *seed);
    if json {
        println!(
            "{{\"case\":\"{}\",\"promised\":{},\"seeds\":{},\"terms\":{},\"violations\":{},\
             \"first_seed\":{},\"broken\":\"{}\",\"ok\":{is_kept}}}",
            case.name,
            case.promised,
            found.seeds,
            found.terms,
            found.violations,
            first.map_or("null".to_owned(), |seed| seed.to_string()),
            promises.join(", "),
        );
    } else {
        println!(
            "{:<17} {:<9} {:>7} {:>8} {:>10} {:>10}  {}",
            case.name,
            if case.promised { "yes" } else { "no" },
            found.seeds,
            found.terms,
            found.violations,
            first.map_or("-".to_owned(), |seed| seed.to_string()),
            promises.join(", "),
        );
    }
    match (&found.first, case.promised) {
        (Some((seed, violation)), true) => {
            let at = Duration::from_nanos(violation.at);
            eprintln!(
                "  {} is broken at {at:?}: {}\n  replay: {}",
                violation.promise,
                violation.what,
                replay_command(&format!("--case {}", case.name), *seed)
            );
        }
        (None, false) => eprintln!(
            "  {}: not promised, yet nothing was broken: the worlds are too kind",
            case.name
        ),
        _ => {}
    }
    is_kept
}

pub(crate) fn controls_head(json: bool) {
    if !json {
        println!(
            "\n{:<22} {:<15} {:>14}  {:<7} what is wrong with it",
            "control", "case", "caught at seed", "promise"
        );
    }
}

/// Prints a row and says whether the control was caught.
pub(crate) fn control_row(json: bool, control: &Control, found: &Found) -> bool {
    let seed = found.first.as_ref().map(|(seed, _)| *seed);
    let promise = found.first.as_ref().map(|(_, violation)| violation.promise.to_string());
    if json {
        println!(
            "{{\"control\":\"{}\",\"case\":\"{}\",\"caught_at_seed\":{},\"promise\":{}}}",
            control.name,
            control.case,
            seed.map_or("null".to_owned(), |seed| seed.to_string()),
            promise.map_or("null".to_owned(), |promise| format!("\"{promise}\"")),
        );
    } else {
        println!(
            "{:<22} {:<15} {:>14}  {:<7} {}",
            control.name,
            control.case,
            seed.map_or("NOT CAUGHT".to_owned(), |seed| seed.to_string()),
            promise.unwrap_or_default(),
            control.about,
        );
    }
    if seed.is_none() {
        eprintln!("  {} was not caught in {} seeds", control.name, found.seeds);
    }
    seed.is_some()
}

fn replay_command(what: &str, seed: u64) -> String {
    format!("cargo run -p simulator -- {what} --seed {seed} --trace")
}
