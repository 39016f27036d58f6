//! The steps of `cargo xtask test`, in their order: what is quick to fail comes first.
//!
//! A long command (simulate, compat, …) gets a row that runs a bounded slice of it.

use std::num::NonZero;
use std::process::Command;

use super::tools;
use crate::command::Failure;
use crate::commands::{fuzz, verify};
use crate::repository::{built_program, cargo};

pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) run: fn() -> Result<(), Failure>,
}

pub(super) const STEPS: &[Step] = &[
    Step { name: "tools", what: "the programs that the tests need", run: tools::ensure },
    Step { name: "format", what: "cargo fmt --all --check", run: format },
    Step { name: "verify", what: "cargo xtask verify", run: verify::verify },
    Step { name: "lint", what: "clippy, warnings are errors", run: lint },
    Step { name: "tests", what: "unit and integration tests", run: tests },
    Step { name: "own-store", what: "real processes on `tenure serve`", run: own_store },
    Step { name: "fuzz", what: "made-up bytes for every parser, briefly", run: fuzz::briefly },
    Step { name: "doctests", what: "the examples in the documentation", run: doctests },
    Step { name: "docs", what: "the documentation builds without a warning", run: docs },
];

fn format() -> Result<(), Failure> {
    cargo_run(&["fmt", "--all", "--check"])
}

fn lint() -> Result<(), Failure> {
    cargo_run(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// The same change gets the same verdict: tests that draw random numbers draw these, unless the
/// caller chose others. Fresh ones are drawn by single test runs, `simulate` and `compat`.
pub(super) const SEED: &str = "7";

fn tests() -> Result<(), Failure> {
    let words: &[&str] = match tools::is_there(&["cargo", "nextest", "--version"]) {
        true => &["nextest", "run", "--workspace"],
        // Doctests have their own step.
        false => &["test", "--workspace", "--lib", "--bins", "--tests", "--examples"],
    };
    let mut command = cargo();
    command.args(words);
    set_unless_chosen(&mut command, "TESTKIT_SEED", SEED);
    run_side_by_side(command)
}

fn run_side_by_side(mut command: Command) -> Result<(), Failure> {
    let threads = places().to_string();
    set_unless_chosen(&mut command, "NEXTEST_TEST_THREADS", &threads);
    tools::succeed(command)
}

/// Most tests wait for a lease to end rather than compute, so there are four times as many of them
/// at a time as processors, each in two places. `.config/nextest.toml` has those that compute take
/// four, and those that do little else than wait one.
pub(super) fn places() -> usize {
    8 * std::thread::available_parallelism().map_or(1, NonZero::get)
}

fn set_unless_chosen(command: &mut Command, name: &str, value: &str) {
    if std::env::var_os(name).is_none() {
        command.env(name, value);
    }
}

/// What also runs with our own store in place of redis-server: processes that die, networks that
/// fail, hand-overs, tokens, keys; primaries that are replaced by hand and by real sentinels, and
/// replicas that must confirm.
const ON_OWN_STORE: &[(&str, &[&str])] = &[
    (
        "trials",
        &[
            "processes::",
            "weather::",
            "succession::",
            "succession_faults::",
            "tokens::",
            "keys::",
            "heartbeat::",
            "replicated::",
        ],
    ),
    ("tenure", &["redis_sentinel::", "redis_strict::"]),
];

fn own_store() -> Result<(), Failure> {
    // The step before has built it.
    let program = built_program("tenure")?;
    let run = |mut command: Command| {
        command.env("TESTKIT_SERVER", format!("{} serve", program.display()));
        run_side_by_side(command)
    };
    if tools::is_there(&["cargo", "nextest", "--version"]) {
        let mut command = cargo();
        // The whole workspace is named so that what the step before has built is used again.
        command.args(["nextest", "run", "--workspace", "--filterset", &own_store_filter()]);
        return run(command);
    }
    cargo_run(&["build", "--package", "tenure-cli"])?;
    for (package, tests) in ON_OWN_STORE {
        let mut command = cargo();
        command.args(["test", "--package", package, "--test", "it", "--"]).args(*tests);
        run(command)?;
    }
    Ok(())
}

fn own_store_filter() -> String {
    let of_package = |(package, tests): &(&str, &[&str])| {
        let tests: Vec<_> = tests.iter().map(|name| format!("test(/^{name}/)")).collect();
        format!("(package({package}) and ({}))", tests.join(" or "))
    };
    ON_OWN_STORE.iter().map(of_package).collect::<Vec<_>>().join(" or ")
}

fn doctests() -> Result<(), Failure> {
    cargo_run(&["test", "--workspace", "--doc", "--quiet"])
}

fn docs() -> Result<(), Failure> {
    let mut command = cargo();
    command.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    tools::succeed(command)
}

fn cargo_run(words: &[&str]) -> Result<(), Failure> {
    let mut command = cargo();
    command.args(words);
    tools::succeed(command)
}
