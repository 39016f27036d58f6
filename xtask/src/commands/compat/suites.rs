//! Foreign test suites, from the source packages of their authors: every test must end on our store
//! as it does on redis-server.

mod outcomes;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::install;
use super::servers::{Server, Side};
use crate::command::Failure;
use crate::repository::root;
use outcomes::{Comparison, Outcomes};

/// Of what passes on redis-server, at least so much must have run on our store.
const RAN_PERCENT_MIN: f64 = 90.0;

/// A test suite.
struct Suite {
    /// For `--suite`.
    name: &'static str,
    /// Its source package.
    package: &'static str,
    version: &'static str,
    /// What its tests need besides.
    requirements: &'static [&'static str],
    /// What is run of it.
    tests: &'static [&'static str],
    /// What is not, and why. A file, a folder, or the beginning of a test's name.
    left_out: &'static [(&'static str, &'static str)],
    /// Further arguments of pytest, one list to a run.
    runs: &'static [(&'static str, &'static [&'static str])],
    /// Whether its tests ask port 6379 whatever they are told.
    needs_well_known_port: bool,
    /// Tells its tests where the server is.
    point: fn(&mut Command, &Server),
}

const MODULES: &str = "needs modules of Redis Stack";
const CLUSTER: &str = "needs a cluster";
const SENTINEL: &str = "needs sentinels";
const TLS: &str = "needs certificates that are not in the package";
const OTHER_PORT: &str = "connects to localhost:6379 or :6380 whatever it is told";

const REDIS_PY: Suite = Suite {
    name: "redis-py",
    package: "redis",
    version: "5.0.8",
    requirements: &["pytest==7.4.4", "pytest-asyncio==0.21.2", "mock==5.1.0", "numpy<3"],
    tests: &["tests"],
    left_out: &[
        ("tests/test_bloom.py", MODULES),
        ("tests/test_graph.py", MODULES),
        ("tests/test_graph_utils", MODULES),
        ("tests/test_json.py", MODULES),
        ("tests/test_search.py", MODULES),
        ("tests/test_timeseries.py", MODULES),
        ("tests/test_cluster.py", CLUSTER),
        ("tests/test_sentinel.py", SENTINEL),
        ("tests/test_ssl.py", TLS),
        ("tests/test_connect.py::test_tcp_ssl", TLS),
        ("tests/test_commands.py::TestRedisCommands::test_psync", OTHER_PORT),
        ("tests/test_connection.py::TestConnection::test_retry_connect_on_timeout", OTHER_PORT),
        ("tests/test_connection.py::test_create_single_connection_client_from_url", OTHER_PORT),
        ("tests/test_asyncio/test_connection_pool.py::TestConnectionPool::test_max", OTHER_PORT),
        ("tests/test_asyncio/test_connection_pool.py::TestConnectionPool::test_multi", OTHER_PORT),
        ("tests/test_asyncio/test_connection_pool.py::TestConnectionPool::test_reuse", OTHER_PORT),
        ("tests/test_asyncio/test_bloom.py", MODULES),
        ("tests/test_asyncio/test_graph.py", MODULES),
        ("tests/test_asyncio/test_json.py", MODULES),
        ("tests/test_asyncio/test_search.py", MODULES),
        ("tests/test_asyncio/test_timeseries.py", MODULES),
        ("tests/test_asyncio/test_cluster.py", CLUSTER),
        ("tests/test_asyncio/test_cwe_404.py", CLUSTER),
        ("tests/test_asyncio/test_sentinel.py", SENTINEL),
        ("tests/test_asyncio/test_sentinel_managed_connection.py", SENTINEL),
        ("tests/test_asyncio/test_connect.py::test_tcp_ssl", TLS),
    ],
    runs: &[
        ("RESP2", &["--protocol", "2", "-o", "asyncio_mode=auto"]),
        ("RESP3", &["--protocol", "3", "-o", "asyncio_mode=auto"]),
    ],
    needs_well_known_port: false,
    point: |command, server| {
        command.args(["--redis-url", &format!("redis://localhost:{}/0", server.port())]);
    },
};

const CELERY: Suite = Suite {
    name: "celery",
    package: "celery",
    version: "5.3.6",
    requirements: &[
        "redis==5.0.8",
        "kombu==5.3.7",
        "pytest==7.4.4",
        "pytest-celery==0.0.0",
        "pytest-subtests==0.11.0",
        "pytest-order==1.2.0",
        "pytest-click==1.1.0",
        "msgpack",
        "pyyaml",
    ],
    // The other tests of its units replace every server by a mock.
    tests: &["t/integration", "t/unit/backends/test_redis.py"],
    left_out: &[("t/integration/test_security.py", TLS)],
    runs: &[("", &[])],
    needs_well_known_port: true,
    point: |command, server| {
        let at = server.address;
        command.env("TEST_BROKER", format!("redis://{at}/0"));
        command.env("TEST_BACKEND", format!("redis://{at}/1"));
        command.env("REDIS_HOST", at.ip().to_string());
    },
};

const SUITES: &[Suite] = &[REDIS_PY, CELERY];

/// The names of all suites.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SUITES.iter().map(|suite| suite.name)
}

/// Runs the tests of `name`, if there are some and they can be installed; a line says when they
/// cannot. Returns how many end otherwise on our store.
pub(super) fn compare(name: &str) -> Result<usize, Failure> {
    let Some(suite) = SUITES.iter().find(|suite| suite.name == name) else { return Ok(0) };
    if !install::is_there("python3") {
        println!("{name:<10} skipped: there is no python3: install it with its venv module");
        return Ok(0);
    }
    let sources = match suite.prepare() {
        Ok(sources) => sources,
        Err(reason) => {
            println!("{name:<10} skipped: {reason}");
            return Ok(0);
        }
    };
    println!("{name:<10} {} {}, left out:", suite.package, suite.version);
    for (test, reason) in suite.left_out {
        println!("{:<10}   {test}: {reason}", "");
    }
    let mut differences = 0;
    for (label, options) in suite.runs {
        differences += suite.compare(&sources, label, options)?;
    }
    Ok(differences)
}

impl Suite {
    fn folder(&self) -> PathBuf {
        install::folder_of(&format!("{}-tests", self.name))
    }

    /// Where its tests are, with what they need. Fails when that cannot be installed.
    fn prepare(&self) -> Result<PathBuf, String> {
        let folder = self.folder();
        let release = format!("{}=={}", self.package, self.version);
        let mut packages = vec!["setuptools==75.1.0", "wheel==0.44.0", "pytest-timeout==2.3.1"];
        packages.push(&release);
        packages.extend(self.requirements);
        let sources = folder.join(format!("{}-{}", self.package, self.version));
        install::once(&folder, &packages, || {
            install::python(&folder, &packages)?;
            install::python_sources(&folder, self.package, self.version)?;
            // The installed package is the one to use.
            let beside = sources.join(self.package);
            fs::remove_dir_all(beside).map_err(|error| error.to_string())
        })?;
        Ok(sources)
    }

    fn compare(&self, sources: &Path, label: &str, options: &[&str]) -> Result<usize, Failure> {
        let run = |tests: &[String]| self.run_on_both(sources, label, options, tests);
        let all: Vec<String> = self.tests.iter().map(|&test| test.to_owned()).collect();
        let comparison = run(&all)?;
        let mut differing = comparison.differing();
        if !differing.is_empty() {
            // A test that waits for time may fail on a busy machine, on either server.
            let again = run(&differing)?;
            differing.retain(|test| again.differs(test));
        }
        let title = format!("{} {label}", self.name);
        comparison.print(title.trim_end(), &differing);
        let ran = comparison.ran_percent();
        if ran < RAN_PERCENT_MIN {
            let text = format!("compat: {title}: only {ran:.1} % of what passes there ran here");
            return Err(Failure::Failed(text));
        }
        Ok(differing.len())
    }

    /// Runs tests on both servers at once: most of the time they wait.
    fn run_on_both(
        &self,
        sources: &Path,
        label: &str,
        options: &[&str],
        tests: &[String],
    ) -> Result<Comparison, Failure> {
        // One after the other, so that only one builds.
        let [redis, ours] = [self.start(Side::Redis)?, self.start(Side::Ours)?];
        let run = |side, server| self.run(sources, (side, server), label, options, tests);
        let (redis, ours) = std::thread::scope(|scope| {
            let redis = scope.spawn(|| run(Side::Redis, &redis));
            let ours = run(Side::Ours, &ours);
            (redis.join(), ours)
        });
        let redis = redis.map_err(|_| Failure::Failed("compat: a thread panicked".to_owned()))?;
        Ok(Comparison::of(redis?, ours?))
    }

    fn start(&self, side: Side) -> Result<Server, Failure> {
        match self.needs_well_known_port {
            true => Server::start_on_well_known_port(side),
            false => Server::start(side),
        }
    }

    /// Runs tests on a server.
    fn run(
        &self,
        sources: &Path,
        (side, server): (Side, &Server),
        label: &str,
        options: &[&str],
        tests: &[String],
    ) -> Result<Outcomes, Failure> {
        let folder = self.folder();
        let name = format!("{} {label}", side.name()).trim_end().replace(' ', "-");
        let report = folder.join(format!("{name}.txt"));
        let _ = fs::remove_file(&report);
        let failed = |error: std::io::Error| {
            Failure::Failed(format!("compat: {}: cannot run its tests: {error}", self.name))
        };
        let output = folder.join(format!("{name}.log"));
        eprintln!("{} on {}: {}", self.name, side.name(), output.display());
        let log = File::create(&output).map_err(failed)?;
        let mut command = Command::new(folder.join("bin/python"));
        command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "report"]);
        command.args(["--timeout", "120"]).args(options);
        for (test, _) in self.left_out {
            let is_test = test.contains("::");
            command.arg(if is_test { "--deselect" } else { "--ignore" }).arg(test);
        }
        command.args(tests).current_dir(sources);
        command.env("PYTHONPATH", root().join("xtask/clients")).env("COMPAT_REPORT", &report);
        // Some tests start the programs of their package.
        let others = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{others}", folder.join("bin").display()));
        (self.point)(&mut command, server);
        command.stdin(Stdio::null()).stderr(log.try_clone().map_err(failed)?).stdout(log);
        // Tests that fail on both are no failure of ours, so the exit code says nothing.
        command.status().map_err(failed)?;
        let text = fs::read_to_string(&report).map_err(|_| {
            let text = format!("no test has run: see {}", output.display());
            Failure::Failed(format!("compat: {}: {text}", self.name))
        })?;
        Ok(Outcomes::parse(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_left_out_has_a_reason() {
        for suite in SUITES {
            assert!(!suite.tests.is_empty() && !suite.runs.is_empty());
            for (test, reason) in suite.left_out {
                assert!(!reason.is_empty(), "{test}");
                let is_within = suite.tests.iter().any(|known| test.starts_with(known));
                assert!(is_within, "{test} would not run anyway");
            }
        }
        assert!(root().join("xtask/clients/report.py").exists());
    }
}
