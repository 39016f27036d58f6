//! Real clients: the same script of ours on redis-server and on our store must print the same, and
//! what clients of clusters wrote must be there.

use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::install;
use super::sentinels::Sentinels;
use super::servers::{Server, Side};
use crate::command::Failure;
use crate::commands::trial;
use crate::repository::root;

/// A client library, and the script that uses it.
struct Client {
    /// Its name in messages and for `--suite`.
    name: &'static str,
    /// What is installed.
    packages: &'static [&'static str],
    /// In `xtask/clients/`.
    script: &'static str,
    language: &'static Language,
    check: Check,
}

/// What a script talks to. Its arguments are their ports.
#[derive(Clone, Copy)]
enum Partner {
    Server,
    Sentinels,
}

/// What is asked of a client.
#[derive(Clone, Copy)]
enum Check {
    /// Its script prints the same on both sides.
    SameOn(Partner),
    /// What it writes is in the cluster of both kinds, whatever an operator does there meanwhile.
    LosesNothing,
}

/// Those that run for a script.
enum Running {
    Server(Server),
    Sentinels(Sentinels),
}

impl Running {
    fn start(partner: Partner, side: Side) -> Result<Self, Failure> {
        Ok(match partner {
            Partner::Server => Self::Server(Server::start(side)?),
            Partner::Sentinels => Self::Sentinels(Sentinels::start(side)?),
        })
    }

    fn ports(&self) -> Vec<u16> {
        match self {
            Self::Server(server) => vec![server.port()],
            Self::Sentinels(sentinels) => sentinels.ports(),
        }
    }
}

/// What runs scripts.
struct Language {
    program: &'static str,
    /// What to say when it is missing.
    advice: &'static str,
    install: fn(&Path, &[&str]) -> Result<(), String>,
    /// What runs a script, given the folder with the packages.
    runner: fn(&Path) -> Command,
}

const PYTHON: Language = Language {
    program: "python3",
    advice: "install python3 with its venv module",
    install: install::python,
    runner: |folder| Command::new(folder.join("bin/python")),
};

const NODE: Language = Language {
    program: "node",
    advice: "install node with npm",
    install: install::node,
    runner: |folder| {
        let mut command = Command::new("node");
        command.current_dir(folder);
        command
    },
};

const CLIENTS: &[Client] = &[
    Client {
        name: "redis-py",
        packages: &["redis==5.0.8"],
        script: "redis_py.py",
        language: &PYTHON,
        check: Check::SameOn(Partner::Server),
    },
    Client {
        name: "redis-py-sentinel",
        packages: &["redis==5.0.8"],
        script: "redis_py_sentinel.py",
        language: &PYTHON,
        check: Check::SameOn(Partner::Sentinels),
    },
    Client {
        name: "redis-py-cluster",
        packages: &["redis==5.0.8"],
        script: "redis_py_cluster.py",
        language: &PYTHON,
        check: Check::LosesNothing,
    },
    Client {
        name: "ioredis",
        packages: &["ioredis@5.4.1"],
        script: "ioredis.mjs",
        language: &NODE,
        check: Check::SameOn(Partner::Server),
    },
    Client {
        name: "ioredis-sentinel",
        packages: &["ioredis@5.4.1"],
        script: "ioredis_sentinel.mjs",
        language: &NODE,
        check: Check::SameOn(Partner::Sentinels),
    },
    Client {
        name: "ioredis-cluster",
        packages: &["ioredis@5.4.1"],
        script: "ioredis_cluster.mjs",
        language: &NODE,
        check: Check::LosesNothing,
    },
    Client {
        name: "bullmq",
        packages: &["bullmq@5.12.0", "ioredis@5.4.1"],
        script: "bullmq.mjs",
        language: &NODE,
        check: Check::SameOn(Partner::Server),
    },
];

/// The names of all clients.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    CLIENTS.iter().map(|client| client.name)
}

/// Runs the script of `name`, if there is one and its tools are there; a line says when they are
/// not. Returns how many lines differ.
pub(super) fn compare(name: &str) -> Result<usize, Failure> {
    let Some(client) = CLIENTS.iter().find(|client| client.name == name) else { return Ok(0) };
    match (client.prepare(), client.check) {
        (Ok(folder), Check::SameOn(partner)) => client.compare(&folder, partner),
        (Ok(folder), Check::LosesNothing) => client.load_cluster(&folder),
        (Err(reason), _) => {
            println!("{name:<10} skipped: {reason}");
            Ok(0)
        }
    }
}

impl Client {
    /// The folder with its packages. Fails when they cannot be installed.
    fn prepare(&self) -> Result<PathBuf, String> {
        let Language { program, advice, install, .. } = self.language;
        if !install::is_there(program) {
            return Err(format!("there is no {program}: {advice}"));
        }
        let folder = install::folder_of(self.name);
        install::once(&folder, self.packages, || install(&folder, self.packages))?;
        Ok(folder)
    }

    fn compare(&self, folder: &Path, partner: Partner) -> Result<usize, Failure> {
        let failed = |error| Failure::Failed(format!("compat: {}: {error}", self.name));
        let run = |side| {
            let running = Running::start(partner, side)?;
            self.run(folder, &running.ports()).map_err(failed)
        };
        let (expected, found) = (run(Side::Redis)?, run(Side::Ours)?);
        let differences = differences(&expected, &found);
        for (expected, found) in &differences {
            println!("{}: redis-server {expected}", self.name);
            println!("{}: our store    {found}", self.name);
        }
        let (name, steps) = (self.name, expected.len());
        println!("{name:<10} {steps} steps of our script, {} differences", differences.len());
        Ok(differences.len())
    }

    /// The script's command, for the arguments that it takes.
    fn command(&self, folder: &Path) -> Command {
        let mut command = (self.language.runner)(folder);
        command.arg(root().join("xtask/clients").join(self.script));
        command
    }

    /// Has many of it write to a cluster that is operated meanwhile. Returns how many runs lost
    /// something: none or one.
    fn load_cluster(&self, folder: &Path) -> Result<usize, Failure> {
        let script = self.command(folder);
        let words = script.get_args().map(|word| word.to_string_lossy().into_owned());
        let program = script.get_program().to_string_lossy().into_owned();
        let words: Vec<String> = iter::once(program).chain(words).collect();
        let words = [&["--program".to_owned()], &words[..]].concat();
        match trial::load_cluster(&words, script.get_current_dir()) {
            Ok(()) => {
                println!("{:<10} nothing lost, nothing done twice", self.name);
                Ok(0)
            }
            Err(Failure::Failed(text)) => {
                println!("{:<10} {text}", self.name);
                Ok(1)
            }
            Err(other) => Err(other),
        }
    }

    fn run(&self, folder: &Path, ports: &[u16]) -> Result<Vec<String>, String> {
        let mut command = self.command(folder);
        command.args(ports.iter().map(u16::to_string)).stdin(Stdio::null());
        let output =
            command.stderr(Stdio::inherit()).output().map_err(|error| error.to_string())?;
        let mut lines: Vec<String> =
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
        // A script that ends early is a difference, not a reason to skip.
        if !output.status.success() {
            lines.push(format!("the script failed: {}", output.status));
        }
        Ok(lines)
    }
}

/// Pairs of lines that are not equal; the end of the shorter side is empty.
fn differences(expected: &[String], found: &[String]) -> Vec<(String, String)> {
    let line = |lines: &[String], at: usize| lines.get(at).cloned().unwrap_or_default();
    let count = expected.len().max(found.len());
    let pairs = (0..count).map(|at| (line(expected, at), line(found, at)));
    pairs.filter(|(expected, found)| expected != found).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_differ_or_are_missing_are_told() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(differences(&lines("a b"), &lines("a b")).is_empty());
        let found = differences(&lines("a b c"), &lines("a x"));
        let expected = [("b", "x"), ("c", "")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn every_client_has_its_script() {
        for client in CLIENTS {
            assert!(root().join("xtask/clients").join(client.script).exists());
        }
    }
}
