//! Fuzzes on the stable toolchain: seeded mutations of a corpus, in a process of their own.
//!
//! What comes in: words. What goes out: a line per target on stdout, talk on stderr, and 1 when an
//! input ended its process. Such an input is kept in `fuzz/kept/`, and replayed by every later run.

mod clock;
mod corpus;
mod supervise;
mod words;
mod worker;

use std::process::ExitCode;

use fuzz_targets::{TARGETS, Target};

use crate::corpus::Corpus;
use crate::supervise::{Ended, Job};
use crate::words::Wish;

/// The words make no sense.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Wish::parse(&words) {
        Ok(Wish::List) => {
            for target in TARGETS {
                println!("{:<10} {}", target.name, target.about);
            }
            ExitCode::SUCCESS
        }
        Ok(Wish::Work(order)) => worker::run(&order),
        Ok(Wish::Replay { target, file }) => replay(target, &file),
        Ok(Wish::Fuzz { targets, seconds, seed }) => fuzz(&targets, seconds, seed),
        Err(text) => {
            eprintln!("fuzz: {text}");
            ExitCode::from(USAGE)
        }
    }
}

fn replay(target: &'static Target, name: &str) -> ExitCode {
    let bytes = match Corpus::find(target, name) {
        Ok(bytes) => bytes,
        Err(text) => {
            eprintln!("fuzz: {text}");
            return ExitCode::from(USAGE);
        }
    };
    (target.run)(&bytes);
    println!("{} survives {name} ({} bytes)", target.name, bytes.len());
    ExitCode::SUCCESS
}

fn fuzz(targets: &[&'static Target], seconds: u64, seed: u64) -> ExitCode {
    let mut failed = 0;
    for target in targets {
        let job = Job { target, seconds, seed };
        match supervise::run(&job) {
            Ok(Ended::Fine { replayed, made }) => println!(
                "{:<10} {replayed} kept inputs and {made} new ones in {seconds} s, seed {seed}: fine",
                target.name
            ),
            Ok(Ended::Died { how, name }) => {
                failed += 1;
                println!("{:<10} DIED: {how}", target.name);
                println!("           repeat it: cargo xtask fuzz --replay {}/{name}", target.name);
            }
            Err(error) => {
                eprintln!("fuzz: {}: {error}", target.name);
                failed += 1;
            }
        }
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
