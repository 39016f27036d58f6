//! Rows for people and for programs.

use std::time::Duration;

use simulator::{Control, Promise};

use crate::sweep::{Found, Sweep};

pub(crate) fn cases_head(json: bool) {
    if !json {
        println!(
            "{:<17} {:<16} {:>7} {:>8} {:>10} {:>10}  broken",
            "case", "promised", "seeds", "terms", "violations", "first seed"
        );
    }
}

/// Prints a row and says whether it is as it should be.
pub(crate) fn case_row(json: bool, plan: Sweep, found: &Found) -> bool {
    let case = plan.case;
    let must_hold = case.excused == plan.ignores;
    let is_ok = match must_hold {
        true => found.violations == 0,
        false => found.by_promise.iter().any(|(promise, ..)| case.excused.contains(promise)),
    };
    let promised = match (case.is_promised(), must_hold) {
        (true, _) => "P1-P7".to_owned(),
        (false, true) => format!("all but {}", listed(case.excused)),
        (false, false) => format!("not {}", listed(case.excused)),
    };
    let first = found.first.as_ref().map(|(seed, _)| *seed);
    if json {
        println!(
            "{{\"case\":\"{}\",\"promised\":\"{promised}\",\"seeds\":{},\"terms\":{},\
             \"violations\":{},\"first_seed\":{},\"broken\":\"{}\",\"ok\":{is_ok}}}",
            case.name,
            found.seeds,
            found.terms,
            found.violations,
            first.map_or("null".to_owned(), |seed| seed.to_string()),
            broken(found),
        );
    } else {
        println!(
            "{:<17} {:<16} {:>7} {:>8} {:>10} {:>10}  {}",
            case.name,
            promised,
            found.seeds,
            found.terms,
            found.violations,
            first.map_or("-".to_owned(), |seed| seed.to_string()),
            broken(found),
        );
    }
    if !is_ok {
        explain(plan, must_hold, found);
    }
    is_ok
}

fn listed(promises: &[Promise]) -> String {
    promises.iter().map(Promise::to_string).collect::<Vec<_>>().join(", ")
}

fn broken(found: &Found) -> String {
    let rows = found.by_promise.iter();
    let texts = rows.map(|(promise, count, seed)| format!("{promise} {count}x from {seed}"));
    texts.collect::<Vec<_>>().join(", ")
}

/// What a person needs who wants to see it happen.
fn explain(plan: Sweep, must_hold: bool, found: &Found) {
    let name = plan.case.name;
    let Some((seed, violation)) = &found.first else {
        eprintln!("  {name}: not promised, yet nothing was broken: the worlds are too kind");
        return;
    };
    let at = Duration::from_nanos(violation.at);
    let rest = if must_hold && !plan.case.is_promised() { " --rest" } else { "" };
    eprintln!(
        "  {} is broken at {at:?}: {}\n  replay: cargo run -p simulator -- --case {name}{rest} \
         --seed {seed} --trace",
        violation.promise, violation.what,
    );
}

pub(crate) fn controls_head(json: bool) {
    if !json {
        println!(
            "\n{:<23} {:<16} {:>14}  {:<7} what is wrong with it",
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
            "{:<23} {:<16} {:>14}  {:<7} {}",
            control.name,
            control.case,
            seed.map_or("NOT CAUGHT".to_owned(), |seed| seed.to_string()),
            promise.unwrap_or_default(),
            control.about,
        );
    }
    if seed.is_none() {
        let Control { name, breaks, .. } = control;
        eprintln!("  {name} was not caught by {breaks} in {} seeds", found.seeds);
    }
    seed.is_some()
}
