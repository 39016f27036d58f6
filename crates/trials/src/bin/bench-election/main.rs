//! The published figures of the election, measured on a real redis-server on loopback, each beside
//! the plain algorithm that polls (Honua's: SET NX, compare-and-expire, every third of the lease).
//!
//! `cargo xtask bench election [--quick]` builds and runs it.

mod calls;
mod change;
mod command;
mod many;
mod outage;
mod polling;
mod report;
mod requests;

use report::Report;

fn main() -> Result {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report::default();
    let scale = match words[..] {
        [] => WHOLE,
        ["--quick"] => QUICK,
        ["--only", part] => {
            match part {
                "command" => command::measure(&WHOLE, &mut report)?,
                "outage" => outage::measure(&runtime, &WHOLE, &mut report)?,
                _ => return Err(format!("--only {part}: command or outage").into()),
            }
            report.print();
            return Ok(());
        }
        ["many", side, count] => return many::run_side(&runtime, side, count.parse()?),
        _ => return Err(format!("unknown words {words:?}: --quick or --only PART").into()),
    };
    calls::measure(&runtime, &mut report)?;
    change::measure(&runtime, &scale, &mut report)?;
    command::measure(&scale, &mut report)?;
    outage::measure(&runtime, &scale, &mut report)?;
    many::measure(&scale, &mut report)?;
    requests::measure(&runtime, &scale, &mut report)?;
    report.print();
    Ok(())
}

const WHOLE: Scale = Scale {
    hand_overs: 300,
    take_overs: 100,
    crashes: 60,
    minutes: 3,
    elections: 10_000,
    clients: 500,
};
const QUICK: Scale = Scale {
    hand_overs: 30,
    take_overs: 10,
    crashes: 5,
    minutes: 1,
    elections: 1_000,
    clients: 100,
};

/// How much is measured.
struct Scale {
    hand_overs: usize,
    take_overs: usize,
    crashes: usize,
    minutes: u64,
    elections: usize,
    clients: usize,
}

/// Whatever went wrong ends the run.
type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
