//! `cargo xtask test --newer-than COMMIT`: the tests that a commit did not have, and their times.
//!
//! A test is newer when its name is not a word of any Rust file of that commit, so that one that
//! was only moved is not. Of a name that several tests bear (`on_redis`, by a macro), the module
//! that they are in is looked for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::steps::{SEED, places};
use crate::command::Failure;
use crate::repository::{cargo, root};

/// What the word `election` stands for: the tests of the election's crates, without those of the
/// store on one machine or many.
const ELECTION: &str = "\
    (package(tenure-core) | package(tenure-run) | package(tenure) | package(tenure-backend) \
    | package(tenure-redis) | package(tenure-sidecar) | package(tenure-cli) | package(simulator) \
    | package(trials) | package(tenure-macros) | package(testkit)) \
    - (package(tenure-cli) & test(/^(check_rdb|cli|cluster|crash|demo|failover_log|memory|replicated\
    |sentinel|serve|serve_forms)::/)) \
    - (package(trials) & test(/^(replicated::|cluster_load::|torture::.*_of_our_own_)/))";

/// How many of the longest tests are named.
const LONGEST_MAX: usize = 30;

pub(super) fn run(commit: &str, filterset: &str) -> Result<(), Failure> {
    let known = words_of(commit)?;
    let filterset = if filterset == "election" { ELECTION } else { filterset };
    let mut list = cargo();
    list.args(["nextest", "list", "--workspace", "--message-format", "oneline"]);
    let listed = output(list.args(["--filterset", filterset]))?;
    let newer = newer_tests(&listed, &known);
    if newer.is_empty() {
        println!("there is no test that {commit} did not have");
        return Ok(());
    }
    let mut command = cargo();
    command.args(["nextest", "run", "--workspace", "--color", "never", "--status-level", "pass"]);
    for filter in filters(&newer) {
        command.args(["--filterset", &filter]);
    }
    for (name, value) in [("TESTKIT_SEED", SEED), ("NEXTEST_TEST_THREADS", &places().to_string())] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    let began_at = Instant::now();
    let (times, passed) = timed(command)?;
    let wall = began_at.elapsed().as_secs_f64();
    print!("{}", longest(&times));
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

    /// `shared` are the names that say nothing by themselves.
    fn is_new(&self, known: &HashSet<String>, shared: &HashSet<&str>) -> bool {
        let mut parts = self.name.rsplit("::");
        let mut is_unknown = || parts.next().is_some_and(|name| !known.contains(name));
        is_unknown() || (shared.contains(last_part(self.name)) && is_unknown())
    }
}

fn newer_tests<'a>(listed: &'a str, known: &HashSet<String>) -> Vec<Test<'a>> {
    let tests: Vec<_> = listed.lines().filter_map(Test::parse).collect();
    let shared = shared_names(&tests);
    tests.into_iter().filter(|test| test.is_new(known, &shared)).collect()
}

/// The last parts of names that several tests of a package have in common.
fn shared_names<'a>(tests: &[Test<'a>]) -> HashSet<&'a str> {
    let mut counts = HashMap::<_, usize>::new();
    for test in tests {
        *counts.entry((test.package, last_part(test.name))).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| *count > 1).map(|((_, name), _)| name).collect()
}

fn last_part(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// One per package: all in one would be longer than a word of a command may be.
fn filters(tests: &[Test<'_>]) -> Vec<String> {
    let mut packages = BTreeMap::<_, Vec<_>>::new();
    for test in tests {
        packages.entry(test.package).or_default().push(format!("test(={})", test.name));
    }
    let filter =
        |(package, names): (_, Vec<_>)| format!("package(={package}) & ({})", names.join(" | "));
    packages.into_iter().map(filter).collect()
}

/// A test that passed.
#[derive(Debug, PartialEq)]
struct Passed {
    package: String,
    name: String,
    seconds: f64,
}

/// Runs the tests and shows what is said; also tells whether all passed.
fn timed(mut command: Command) -> Result<(Vec<Passed>, bool), Failure> {
    let failed = |error| Failure::Failed(format!("cannot run cargo nextest: {error}"));
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(failed)?;
    let mut times = Vec::new();
    let said = child.stderr.take().expect("it is piped");
    for line in BufReader::new(said).lines() {
        let line = line.map_err(failed)?;
        eprintln!("{line}");
        times.extend(time_in(&line));
    }
    Ok((times, child.wait().map_err(failed)?.success()))
}

/// From `PASS [   0.123s] (1/9) package::program module::name`, or `TRY 2 PASS …`.
fn time_in(line: &str) -> Option<Passed> {
    let (verdict, rest) = line.split_once(" [")?;
    let (seconds, rest) = rest.split_once("s]")?;
    let (_, test) = rest.split_once(") ")?;
    if !verdict.contains("PASS") && !verdict.contains("LEAK") {
        return None;
    }
    let (test, seconds) = (Test::parse(test)?, seconds.trim().parse().ok()?);
    Some(Passed { package: test.package.to_owned(), name: test.name.to_owned(), seconds })
}

fn longest(times: &[Passed]) -> String {
    let mut times: Vec<_> = times.iter().collect();
    times.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    let line = |test: &&Passed| format!("{:>9.1} s {} {}\n", test.seconds, test.package, test.name);
    times.iter().take(LONGEST_MAX).map(line).collect()
}

/// Number and seconds of each package, and the sum of all.
fn table(times: &[Passed]) -> String {
    let mut packages = BTreeMap::<&str, (usize, f64)>::new();
    for test in times {
        let (count, seconds) = packages.entry(&test.package).or_default();
        *count += 1;
        *seconds += test.seconds;
    }
    let all = (times.len(), times.iter().map(|test| test.seconds).sum());
    let line = |(name, (count, seconds)): (&str, (usize, f64))| {
        format!("{name:<20} {count:>5} {seconds:>9.1} s\n")
    };
    packages.into_iter().chain([("sum", all)]).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_is_newer_when_its_name_was_no_word_before() {
        let known = ["an_old_claim", "on_redis", "on_our_own_store", "tests", "starts"];
        let known = HashSet::from(known.map(str::to_owned));
        let listed = "\
            tenure-cli::it moved::an_old_claim\n\
            xtask commands::a_new_claim\n\
            tenure-cli::it run::an_old_claim::on_redis\n\
            tenure-cli::it run::an_old_claim::on_our_own_store\n\
            tenure-cli::it run::another_claim::on_redis\n\
            tenure-cli::it run::another_claim::on_our_own_store\n\
            tenure one::tests::ends\n\
            tenure two::tests::ends\n\
            tenure moved::starts\n";
        let names: Vec<_> = newer_tests(listed, &known).iter().map(|test| test.name).collect();
        let expected = [
            "commands::a_new_claim",
            "run::another_claim::on_redis",
            "run::another_claim::on_our_own_store",
            "one::tests::ends",
            "two::tests::ends",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn each_package_has_a_filter_of_its_own() {
        let tests = ["b::it a::claim", "a x::claim", "b::it another"];
        let tests: Vec<_> = tests.iter().filter_map(|line| Test::parse(line)).collect();
        let expected =
            ["package(=a) & (test(=x::claim))", "package(=b) & (test(=a::claim) | test(=another))"];
        assert_eq!(filters(&tests), expected);
    }

    fn passed(package: &str, name: &str, seconds: f64) -> Passed {
        Passed { package: package.to_owned(), name: name.to_owned(), seconds }
    }

    #[test]
    fn times_are_read_from_what_is_said_of_tests_that_passed() {
        let said = "        PASS [   2.270s] (2274/2545) tenure-sidecar::it alerts::a_claim";
        assert_eq!(time_in(said), Some(passed("tenure-sidecar", "alerts::a_claim", 2.27)));
        let again = "  TRY 2 PASS [   1.5s] (3/9) xtask commands::a_claim";
        assert_eq!(time_in(again), Some(passed("xtask", "commands::a_claim", 1.5)));
        for other in [
            "  TRY 1 FAIL [   1.8s] (───) tenure-cli::it run::a_claim",
            "     Summary [ 191.3s] 473 tests run: 473 passed",
            "   FLAKY 2/3 [   1.7s] (294/473) tenure-cli::it run::a_claim",
            "        SLOW [> 60.000s] (─────────) tenure-cli::it run::a_claim",
            "",
        ] {
            assert_eq!(time_in(other), None, "{other}");
        }
    }

    #[test]
    fn the_longest_come_first_and_the_table_ends_with_the_sum() {
        let times = [passed("a", "x", 0.5), passed("b", "y", 0.5), passed("a", "z", 1.0)];
        assert!(longest(&times).starts_with("      1.0 s a z\n"));
        let table = table(&times);
        let lines: Vec<Vec<_>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["a", "2", "1.5", "s"]);
        assert_eq!(lines[2], ["sum", "3", "2.0", "s"]);
    }
}
