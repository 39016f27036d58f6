//! Real clients: the same script on redis-server and on our store must print the same.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::servers::Server;
use crate::command::Failure;
use crate::repository::root;

/// A client library, and the script that uses it.
struct Client {
    /// Its package, and its name in messages.
    package: &'static str,
    /// In `xtask/clients/`.
    script: &'static str,
    /// Its language's program, and what to say when it is missing.
    program: &'static str,
    advice: &'static str,
    /// Puts the package into a folder of our own.
    install: fn(&Path) -> Result<(), String>,
    /// What runs the script, given that folder.
    runner: fn(&Path) -> Command,
}

const CLIENTS: &[Client] = &[
    Client {
        package: "redis-py",
        script: "redis_py.py",
        program: "python3",
        advice: "install python3 with its venv module",
        install: install_redis_py,
        runner: |folder| Command::new(folder.join("bin/python")),
    },
    Client {
        package: "ioredis",
        script: "ioredis.mjs",
        program: "node",
        advice: "install node with npm",
        install: install_ioredis,
        runner: |folder| {
            let mut command = Command::new("node");
            command.current_dir(folder);
            command
        },
    },
];

/// Runs every client whose tools are there; a line says which are not.
pub(super) fn compare() -> Result<(), Failure> {
    let redis = Server::redis()?;
    let ours = Server::ours()?;
    let mut differences = 0;
    for client in CLIENTS {
        match client.compare(&redis, &ours) {
            Ok(found) => differences += found,
            Err(reason) => println!("{:<10} skipped: {reason}", client.package),
        }
    }
    match differences {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("compat: {count} replies differ, see above"))),
    }
}

impl Client {
    /// How many lines differ. Fails when the client cannot be had.
    fn compare(&self, redis: &Server, ours: &Server) -> Result<usize, String> {
        if !is_there(self.program) {
            return Err(format!("there is no {}: {}", self.program, self.advice));
        }
        let folder = root().join("target/compat").join(self.package);
        if !folder.join("installed").exists() {
            eprintln!("installing {} into {}", self.package, folder.display());
            std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            (self.install)(&folder)?;
            std::fs::write(folder.join("installed"), "").map_err(|error| error.to_string())?;
        }
        let expected = self.run(&folder, redis)?;
        let found = self.run(&folder, ours)?;
        let differences = differences(&expected, &found);
        for (expected, found) in &differences {
            println!("{}: redis-server {expected}", self.package);
            println!("{}: our store    {found}", self.package);
        }
        let steps = expected.len();
        println!("{:<10} {steps} steps, {} differences", self.package, differences.len());
        Ok(differences.len())
    }

    fn run(&self, folder: &Path, server: &Server) -> Result<Vec<String>, String> {
        let script: PathBuf = root().join("xtask/clients").join(self.script);
        let mut command = (self.runner)(folder);
        command.arg(script).arg(server.port.to_string()).stdin(Stdio::null());
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

fn install_redis_py(folder: &Path) -> Result<(), String> {
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(folder);
    succeed(make)?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "redis"]);
    succeed(install)
}

fn install_ioredis(folder: &Path) -> Result<(), String> {
    std::fs::write(folder.join("package.json"), "{\"private\":true}\n")
        .map_err(|error| error.to_string())?;
    let mut install = Command::new("npm");
    install.args(["install", "--silent", "--no-audit", "--no-fund", "ioredis"]);
    install.current_dir(folder);
    succeed(install)
}

fn succeed(mut command: Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program} cannot install it ({status}); is there a network?")),
        Err(error) => Err(format!("cannot start {program}: {error}")),
    }
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    let quiet = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
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
        assert!(!is_there("no-such-program"));
    }
}
