//! The process that runs the inputs. It may panic, overflow its stack, run out of memory or hang:
//! the number of the input in hand stands in a file, from which the input can be made again.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use fuzz_targets::{Mutator, Target};

use crate::clock::Deadline;
use crate::corpus::Corpus;

/// Memory that a process may take: no target needs a tenth of it.
const MEMORY_MAX: u64 = 4 << 30;
/// Inputs between two looks at the clock.
const INPUTS_PER_LOOK: u64 = 16;

/// What to do.
pub(crate) struct Order {
    pub(crate) target: &'static Target,
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    /// Gets the number of the input in hand.
    pub(crate) progress: PathBuf,
}

/// Input `number` of a run: first those of the corpus as they are, then changed ones.
pub(crate) fn input(corpus: &Corpus, target: &Target, seed: u64, number: u64) -> Vec<u8> {
    match corpus.inputs.get(number as usize) {
        Some(input) => input.clone(),
        None => Mutator::new(&corpus.inputs, target.words, seed).input(number),
    }
}

pub(crate) fn run(order: &Order) -> ExitCode {
    match work(order) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work(order: &Order) -> std::io::Result<()> {
    let limit = rustix::process::Rlimit { current: Some(MEMORY_MAX), maximum: Some(MEMORY_MAX) };
    rustix::process::setrlimit(rustix::process::Resource::As, limit)?;
    let progress = File::options().write(true).open(&order.progress)?;
    let corpus = Corpus::read(order.target)?;
    let kept = corpus.inputs.len() as u64;
    let dies_at = dies_at();
    let deadline = Deadline::after(Duration::from_secs(order.seconds));
    for number in 0_u64.. {
        let is_time = number >= kept && number % INPUTS_PER_LOOK == 0;
        if is_time && deadline.has_passed() {
            progress.write_all_at(&number.to_le_bytes(), 0)?;
            return Ok(());
        }
        progress.write_all_at(&number.to_le_bytes(), 0)?;
        assert!(Some(number) != dies_at, "told to die at input {number}");
        (order.target.run)(&input(&corpus, order.target, order.seed, number));
    }
    Ok(())
}

/// The number of an input at which to die, so that a test sees what happens then.
fn dies_at() -> Option<u64> {
    std::env::var("FUZZ_DIE_AT").ok()?.parse().ok()
}
