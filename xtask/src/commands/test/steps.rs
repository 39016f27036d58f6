//! The steps of `cargo xtask test`, in their order: what is quick to fail comes first.
//!
//! A long command (simulate, compat, …) gets a row that runs a bounded slice of it.

use super::tools;
use crate::command::Failure;
use crate::commands::verify;
use crate::repository::cargo;

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
    Step { name: "doctests", what: "the examples in the documentation", run: doctests },
    Step { name: "docs", what: "the documentation builds without a warning", run: docs },
];

fn format() -> Result<(), Failure> {
    cargo_run(&["fmt", "--all", "--check"])
}

fn lint() -> Result<(), Failure> {
    cargo_run(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

fn tests() -> Result<(), Failure> {
    if tools::is_there(&["cargo", "nextest", "--version"]) {
        return cargo_run(&["nextest", "run", "--workspace"]);
    }
    // Doctests have their own step.
    cargo_run(&["test", "--workspace", "--lib", "--bins", "--tests", "--examples"])
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
