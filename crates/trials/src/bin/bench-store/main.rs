//! The published figures of the store: our server beside redis-server, on one machine, in turn.
//!
//! `cargo xtask bench store [--quick]` builds and runs it. Servers have one core, whoever asks
//! them has another; noise only ever adds, so the least of all rounds counts.

mod embedded;
mod idle;
mod memory;
mod removal;
mod report;
mod servers;
mod speed;
mod stall;

use report::Figures;

fn main() -> Outcome {
    let scale = match std::env::args().nth(1).as_deref() {
        None => Scale::FULL,
        Some("--quick") => Scale::QUICK,
        Some(other) => {
            return Err(format!("unknown argument {other}: only --quick is known").into());
        }
    };
    let mut figures = Figures::default();
    // First, for it is measured without a core of its own.
    embedded::measure(&mut figures)?;
    servers::stay_on_the_load_core()?;
    idle::measure(&scale, &mut figures)?;
    memory::measure(&mut figures)?;
    stall::measure(&scale, &mut figures)?;
    removal::measure(&mut figures)?;
    let speeds = speed::measure(&scale)?;
    speeds.print();
    println!();
    figures.print();
    Ok(())
}

/// How much is measured.
struct Scale {
    rounds: usize,
    value_lens: &'static [usize],
    /// Requests per run at pipeline 1; longer pipelines get more.
    requests: usize,
    /// Keys inserted while the longest turn is watched.
    stall_keys: usize,
    idle_seconds: u64,
}

impl Scale {
    const FULL: Self = Self {
        rounds: 5,
        value_lens: &[3, 1024],
        requests: 50_000,
        stall_keys: 10_000_000,
        idle_seconds: 10,
    };
    const QUICK: Self = Self {
        rounds: 2,
        value_lens: &[3],
        requests: 10_000,
        stall_keys: 1_000_000,
        idle_seconds: 2,
    };
}

/// Whatever went wrong ends the run.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;
