//! The small clients for other languages, against a real sidecar on a real store.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::{GENEROUS, Process, RedisServer, TempFolder};

use crate::sidecar::sidecar;

/// How long a whole scenario may take: each of its waits is bounded by itself.
const SCENARIO_MAX: Duration = Duration::from_secs(120);

fn folder(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(language)
}

/// Whether a program of the language is there. Where it is not, the test says so.
fn is_there(program: &str, package: &str) -> bool {
    let mut command = Command::new(program);
    let quiet = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_there = quiet.status().is_ok_and(|status| status.success());
    if !is_there {
        eprintln!("{program} is not installed (package {package}): not tested");
    }
    is_there
}

/// A store, and a sidecar for whoever comes.
struct Stage {
    server: RedisServer,
    sidecar: Process,
    url: String,
    _folder: TempFolder,
}

impl Stage {
    fn start(listens_on_file: bool) -> Self {
        let (server, folder) = (RedisServer::start(), TempFolder::create());
        let listen = match listens_on_file {
            true => format!("unix:{}", folder.path().join("sidecar.sock").display()),
            false => "127.0.0.1:0".to_owned(),
        };
        let mut command = sidecar(&["--empty", "--store", &server.url(), "--listen", &listen]);
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true");
        let sidecar = Process::spawn(command);
        let line = sidecar.next_line_with("serving no election yet at ", GENEROUS);
        let url = line.rsplit(' ').next().unwrap().to_owned();
        Stage { server, sidecar, url, _folder: folder }
    }

    /// Kills the sidecar, and has another one serve at the same place.
    fn replace_sidecar(&mut self) {
        self.sidecar.kill();
        self.sidecar.wait(GENEROUS);
        let words = ["--empty", "--store", &self.server.url(), "--listen", &self.url];
        let mut command = sidecar(&words);
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true");
        self.sidecar = Process::spawn(command);
        self.sidecar.next_line_with("serving no election yet at ", GENEROUS);
    }

    /// Runs a scenario, and fails with what it says.
    fn play(&self, command: Command, name: &str) {
        self.finish(self.begin(command, name), name);
    }

    fn begin(&self, mut command: Command, name: &str) -> Process {
        command.arg(name);
        command.env("TENURE_SIDECAR", &self.url);
        command.env("TENURE_SIDECAR_PID", self.sidecar.pid().to_string());
        command.env("TENURE_STORE_PORT", self.server.port().to_string());
        Process::spawn(command)
    }

    fn finish(&self, mut scenario: Process, name: &str) {
        let status = scenario.wait(SCENARIO_MAX);
        assert!(status.success(), "{name} on {}: {status}", self.url);
    }
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", folder("python").join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg("-W").arg("error").arg(folder("python").join("tests/scenarios.py"));
    command
}

fn in_python(scenarios: &[&str], listens_on_file: bool) {
    if is_there("python3", "python3") {
        for scenario in scenarios {
            Stage::start(listens_on_file).play(python(), scenario);
        }
    }
}

fn javascript() -> Command {
    let mut command = Command::new("node");
    command.arg(folder("javascript").join("test/scenarios.js"));
    command
}

fn in_javascript(scenarios: &[&str], listens_on_file: bool) {
    if is_there("node", "nodejs") {
        for scenario in scenarios {
            Stage::start(listens_on_file).play(javascript(), scenario);
        }
    }
}

#[test]
fn python_leads_locks_and_runs_ticks() {
    in_python(&["election", "locks", "ticks", "refused", "resigns", "threads"], false);
}

#[test]
fn python_speaks_through_a_socket_file() {
    in_python(&["election", "locks", "asyncio_all"], true);
}

#[test]
fn python_is_told_of_a_loss_before_the_lease_ends() {
    in_python(&["stopped", "killed", "listeners", "resumed"], false);
}

#[test]
fn python_holds_nothing_in_a_forked_child() {
    in_python(&["forked", "forked_before"], false);
}

#[test]
fn a_sidecar_that_is_replaced_is_joined_again() {
    for (program, command) in [("python3", python as fn() -> Command), ("node", javascript)] {
        if is_there(program, program) {
            let mut stage = Stage::start(true);
            let scenario = stage.begin(command(), "restarted");
            scenario.next_line_with("it leads", GENEROUS);
            stage.replace_sidecar();
            stage.finish(scenario, "restarted");
        }
    }
}

#[test]
fn asyncio_does_the_same() {
    let scenarios = ["asyncio_all", "asyncio_stopped", "asyncio_killed", "asyncio_cancelled"];
    in_python(&scenarios, false);
}

#[test]
fn javascript_leads_locks_and_runs_ticks() {
    in_javascript(&["election", "locks", "ticks", "refused", "resigns"], false);
}

#[test]
fn javascript_speaks_through_a_socket_file() {
    in_javascript(&["election", "locks", "ticks"], true);
}

#[test]
fn javascript_is_told_of_a_loss_before_the_lease_ends() {
    in_javascript(&["stopped", "killed", "blocked"], false);
}

#[test]
fn the_python_client_installs_into_an_empty_environment() {
    if !is_there("python3", "python3") {
        return;
    }
    let environment = TempFolder::create();
    let inside = |program: &str| environment.path().join("bin").join(program);
    let run = |command: &mut Command| {
        let output = command.env_remove("PYTHONPATH").output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let (made, words) = run(Command::new("python3").args(["-m", "venv"]).arg(environment.path()));
    if !made {
        eprintln!("python3 makes no environments (package python3-venv): not tested\n{words}");
        return;
    }
    // Nothing is fetched: there is nothing to fetch.
    let words = ["install", "--no-index", "--disable-pip-version-check", "--quiet"];
    let (installed, words) = run(Command::new(inside("pip")).args(words).arg(folder("python")));
    assert!(installed, "{words}");
    let look = "import importlib.resources as r, tenure_client, tenure_client.aio; \
                print((r.files('tenure_client') / 'py.typed').is_file(), tenure_client.__file__)";
    let (imported, words) = run(Command::new(inside("python")).args(["-I", "-c", look]));
    assert!(imported && words.starts_with("True"), "{words}");
    assert!(words.contains(environment.path().to_str().unwrap()), "{words}");
    let mut command = Command::new(inside("python"));
    command.arg("-I").arg(folder("python").join("tests/scenarios.py"));
    Stage::start(false).play(command, "election");
}
