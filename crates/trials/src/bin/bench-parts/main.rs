//! What the parts of an application add to a call: bulkheads beside the plain call.
//!
//! `cargo xtask bench parts [--quick]` builds and runs it.

mod added;
mod stuck;

use std::process::ExitCode;

/// How much is measured.
#[derive(Clone, Copy)]
struct Plan {
    /// Calls of each caller per row.
    calls: usize,
    /// Calls of each of the hundred callers beside a stuck dependency.
    paced_calls: usize,
}

const FULL: Plan = Plan { calls: 20_000, paced_calls: 300 };
const QUICK: Plan = Plan { calls: 500, paced_calls: 20 };

type Error = Box<dyn std::error::Error>;

fn main() -> Result<ExitCode, Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => FULL,
        ["--quick"] => QUICK,
        _ => return Err(format!("unknown arguments {words:?}: only --quick is known").into()),
    };
    let mut misses = added::measure(plan)?;
    println!();
    misses += stuck::measure(plan)?;
    if misses > 0 {
        eprintln!("{misses} figures miss what they must reach");
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a verdict, and counts a miss.
fn verdict(is_met: bool, misses: &mut usize) -> &'static str {
    *misses += usize::from(!is_met);
    if is_met { "yes" } else { "**no**" }
}
