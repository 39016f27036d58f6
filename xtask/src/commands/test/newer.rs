//! `cargo xtask test --newer-than COMMIT`: the tests that a commit did not have, and their times.
//!
//! A test is newer when its name is not a word of any Rust file of that commit, so that one that
//! was only moved is not.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::steps::{SEED, tests_at_a_time};
use crate::command::Failure;
use crate::repository::{cargo, root};

pub(super) fn run(commit: &str, filterset: &str) -> Result<(), Failure> {
    let known = words_of(commit)?;
    let listed =
        output(cargo().args(["nextest", "list", "--workspace", "--message-format"]).args([
            "oneline",
            "--filterset",
            filterset,
        ]))?;
    let newer: Vec<_> =
        listed.lines().filter_map(Test::parse).filter(|t| t.is_new(&known)).collect();
    if newer.is_empty() {
        println!("there is no test that {commit} did not have");
        return Ok(());
    }
    let chosen: Vec<_> = newer.iter().map(Test::filter).collect();
    let mut command = cargo();
    command.args(["nextest", "run", "--workspace", "--color", "never", "--status-level", "pass"]);
    command.args(["--filterset", &chosen.join(" | ")]);
    for (name, value) in
        [("TESTKIT_SEED", SEED), ("NEXTEST_TEST_THREADS", &tests_at_a_time().to_string())]
    {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let began_at = Instant::now();
    let (times, passed) = timed(command)?;
    let wall = began_at.elapsed().as_secs_f64();
    print!("{}", table(&times));
    println!("{:<20} {:>5} {wall:>9.1} s from begin to end", "wall", "");
    passed.then_some(()).ok_or_else(|| Failure::Failed("a test failed: see above".to_owned()))
}

/// Each word of each Rust file that `commit` has.
fn words_of(commit: &str) -> Result<HashSet<String>, Failure> {
    let mut grep = Command::new("git");
    grep.args(["grep", "-hoE", r"\w+", commit, "--", "*.rs"]).current_dir(root());
    Ok(output(&mut grep)?.lines().map(str::to_owned).collect())
}

fn output(command: &mut Command) -> Result<String, Failure> {
    let outcome = command.stderr(Stdio::inherit()).output();
    let failed = |why: String| Failure::Failed(format!("{command:?}: {why}"));
    match outcome {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into()),
        Ok(output) => Err(failed(format!("see above ({})", output.status))),
        Err(error) => Err(failed(error.to_string())),
    }
}

#[derive(Debug, PartialEq)]
struct Test<'a> {
    package: &'a str,
    name: &'a str,
}

impl<'a> Test<'a> {
    /// From `package::program module::name`; the program is left out where it is the library.
    fn parse(line: &'a str) -> Option<Self> {
        let (program, name) = line.trim().split_once(' ')?;
        Some(Self { package: program.split("::").next()?, name })
    }

    fn is_new(&self, known: &HashSet<String>) -> bool {
        self.name.rsplit("::").next().is_some_and(|name| !known.contains(name))
    }

    fn filter(&self) -> String {
        format!("(package(={}) & test(={}))", self.package, self.name)
    }
}

/// Number of tests and seconds, per package.
type Times = BTreeMap<String, (usize, f64)>;

/// Runs the tests and shows what is said; also tells whether all passed.
fn timed(mut command: Command) -> Result<(Times, bool), Failure> {
    let failed = |error| Failure::Failed(format!("cannot run cargo nextest: {error}"));
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut times = Times::new();
    let said = child.stderr.take().expect("it is piped");
    for line in BufReader::new(said).lines() {
        let line = line.map_err(failed)?;
        eprintln!("{line}");
        if let Some((package, seconds)) = time_in(&line) {
            let (count, sum) = times.entry(package.to_owned()).or_default();
            *count += 1;
            *sum += seconds;
        }
    }
    Ok((times, child.wait().map_err(failed)?.success()))
}

/// From `PASS [   0.123s] (1/9) package::program module::name`, or `TRY 2 PASS …`.
fn time_in(line: &str) -> Option<(&str, f64)> {
    let (verdict, rest) = line.split_once(" [")?;
    let (seconds, rest) = rest.split_once("s]")?;
    let (_, test) = rest.split_once(") ")?;
    if !verdict.contains("PASS") && !verdict.contains("LEAK") {
        return None;
    }
    Some((Test::parse(test)?.package, seconds.trim().parse().ok()?))
}

fn table(times: &Times) -> String {
    let mut text = String::new();
    for (package, (count, seconds)) in times {
        text.push_str(&format!("{package:<20} {count:>5} {seconds:>9.1} s\n"));
    }
    let count: usize = times.values().map(|(count, _)| count).sum();
    let seconds: f64 = times.values().map(|(_, seconds)| seconds).sum();
    text.push_str(&format!("{:<20} {count:>5} {seconds:>9.1} s\n", "sum"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_newer_when_its_name_was_no_word_before() {
        let known = HashSet::from(["an_old_claim".to_owned()]);
        let old = Test::parse("tenure-cli::it moved::an_old_claim").unwrap();
        let new = Test::parse("xtask commands::a_new_claim").unwrap();
        assert!(!old.is_new(&known) && new.is_new(&known));
        assert_eq!(new.filter(), "(package(=xtask) & test(=commands::a_new_claim))");
    }

    #[test]
    fn times_are_read_from_what_is_said_of_tests_that_passed() {
        let said = "        PASS [   2.270s] (2274/2545) tenure-sidecar::it alerts::a_claim";
        assert_eq!(time_in(said), Some(("tenure-sidecar", 2.27)));
        let again = "  TRY 2 PASS [   1.5s] (3/9) xtask commands::a_claim";
        assert_eq!(time_in(again), Some(("xtask", 1.5)));
        for other in [
            "  TRY 1 FAIL [   1.8s] (───) tenure-cli::it run::a_claim",
            "     Summary [ 191.3s] 473 tests run: 473 passed",
            "   FLAKY 2/3 [   1.7s] (294/473) tenure-cli::it run::a_claim",
            "",
        ] {
            assert_eq!(time_in(other), None, "{other}");
        }
    }

    #[test]
    fn the_table_ends_with_the_sum() {
        let times = Times::from([("a".to_owned(), (2, 1.5)), ("b".to_owned(), (1, 0.5))]);
        let table = table(&times);
        assert_eq!(
            table.lines().last().unwrap().split_whitespace().collect::<Vec<_>>(),
            ["sum", "3", "2.0", "s"]
        );
    }
}
