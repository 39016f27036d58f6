//! The outcome of all rows, for people.

use std::time::Duration;

use super::row::Expected;
use super::run::{LATER_AFTER_HEALING, TortureOutcome};

/// A table in Markdown, one line per row.
pub fn table(outcomes: &[TortureOutcome]) -> String {
    let mut text = String::from(
        "| topology | mode | row | P1 | rounds | terms | overlaps | stale writes, unfenced | \
         fenced | longest leaderless | healed → leader | promoted → leader | faults |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for outcome in outcomes {
        text += &line(outcome);
        text.push('\n');
    }
    text
}

fn line(outcome: &TortureOutcome) -> String {
    let TortureOutcome { topology, mode, row, rounds, faults, verdict, bound, .. } = outcome;
    let is_caught = !verdict.overlaps.is_empty();
    let promise = match (row.expected, outcome.faulty.is_empty()) {
        (_, false) => "**FAILED**",
        (Expected::Holds, _) => "holds",
        (Expected::Breaks, _) => "breaks, caught",
        (Expected::Open, _) if is_caught => "not promised, broke",
        (Expected::Open, _) => "not promised, held",
    };
    let faults: Vec<_> = faults.iter().map(|(fault, count)| format!("{fault} {count}")).collect();
    let cells = [
        topology.to_string(),
        mode.to_string(),
        row.name.to_owned(),
        promise.to_owned(),
        rounds.to_string(),
        verdict.terms.to_string(),
        verdict.overlaps.len().to_string(),
        format!("{} of {}", verdict.plain.lost, verdict.plain.confirmed),
        format!("{} of {}", verdict.fenced.lost, verdict.fenced.confirmed),
        seconds(verdict.leaderless_longest),
        bounded(outcome.healed_to_leader, *bound + LATER_AFTER_HEALING),
        bounded(outcome.promoted_to_leader, *bound),
        faults.join(", "),
    ];
    format!("| {} |", cells.join(" | "))
}

fn bounded(gap: Option<Duration>, bound: Duration) -> String {
    match gap {
        Some(gap) => format!("{} of {}", seconds(gap), seconds(bound)),
        None => "–".to_owned(),
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
