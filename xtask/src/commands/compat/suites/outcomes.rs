//! How tests ended on two servers.

use std::collections::BTreeMap;

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SuiteOutcome {
    Passed,
    Failed,
    Skipped,
}

/// How all tests of a run ended, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcomes(BTreeMap<String, SuiteOutcome>);

impl Outcomes {
    /// Reads what `xtask/clients/report.py` writes.
    pub(super) fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let (outcome, name) = line.split_once(' ')?;
            let outcome = match outcome {
                "passed" => SuiteOutcome::Passed,
                "skipped" => SuiteOutcome::Skipped,
                _ => SuiteOutcome::Failed,
            };
            Some((name.to_owned(), outcome))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    fn count(&self, wanted: SuiteOutcome) -> usize {
        self.0.values().filter(|outcome| **outcome == wanted).count()
    }

    fn summary(&self) -> String {
        let count = |outcome| self.count(outcome);
        let (passed, failed) = (count(SuiteOutcome::Passed), count(SuiteOutcome::Failed));
        format!("{passed} passed, {failed} failed, {} skipped", count(SuiteOutcome::Skipped))
    }
}

/// Two runs of the same tests.
pub(super) struct Comparison {
    redis: Outcomes,
    ours: Outcomes,
}

impl Comparison {
    pub(super) fn of(redis: Outcomes, ours: Outcomes) -> Self {
        Self { redis, ours }
    }

    /// Tests that ended otherwise, or are there on one side only.
    pub(super) fn differing(&self) -> Vec<String> {
        let names = self.redis.0.keys().chain(self.ours.0.keys());
        let mut names: Vec<String> = names.filter(|name| self.differs(name)).cloned().collect();
        names.sort();
        names.dedup();
        names
    }

    pub(super) fn differs(&self, name: &str) -> bool {
        self.redis.0.get(name) != self.ours.0.get(name)
    }

    /// Of the tests that pass on redis-server, how many in a hundred ran on our store.
    pub(super) fn ran_percent(&self) -> f64 {
        let passed = self.redis.0.iter().filter(|(_, outcome)| **outcome == SuiteOutcome::Passed);
        let (mut count, mut ran) = (0_u32, 0_u32);
        for (name, _) in passed {
            count += 1;
            let has_run = self.ours.0.get(name).is_some_and(|it| *it != SuiteOutcome::Skipped);
            ran += u32::from(has_run);
        }
        if count == 0 { 0.0 } else { 100.0 * f64::from(ran) / f64::from(count) }
    }

    /// Prints the counts, and each test of `differing`: those that a second run showed, too.
    pub(super) fn print(&self, title: &str, differing: &[String]) {
        let once_only = self.differing().len() - differing.len();
        println!("{title:<14} redis-server: {}", self.redis.summary());
        println!("{title:<14} our store:    {}", self.ours.summary());
        println!(
            "{title:<14} {} tests end otherwise, {once_only} did so once and not again, {:.1} % of \
             what passes there ran here",
            differing.len(),
            self.ran_percent(),
        );
        for name in differing {
            let side = |outcomes: &Outcomes| match outcomes.0.get(name) {
                Some(outcome) => format!("{outcome:?}").to_lowercase(),
                None => "absent".to_owned(),
            };
            println!(
                "{title}: {name}: redis-server {}, our store {}",
                side(&self.redis),
                side(&self.ours)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_end_otherwise_or_are_missing_differ() {
        let redis = Outcomes::parse("passed a\npassed b\nskipped c\nfailed d\npassed e[x y]\n");
        let ours = Outcomes::parse("passed a\nskipped b\nskipped c\nfailed d\nfailed f\n");
        assert_eq!(redis.summary(), "3 passed, 1 failed, 1 skipped");
        let comparison = Comparison::of(redis, ours);
        assert_eq!(comparison.differing(), ["b", "e[x y]", "f"]);
        assert!((comparison.ran_percent() - 100.0 / 3.0).abs() < 1e-9);
        assert!(comparison.differs("b") && !comparison.differs("a"));
    }

    #[test]
    fn a_suite_of_which_nothing_passes_shows_nothing() {
        let nothing = || Outcomes::parse("");
        assert!(Comparison::of(nothing(), nothing()).ran_percent() < 1.0);
    }
}
