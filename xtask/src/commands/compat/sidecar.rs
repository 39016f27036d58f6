//! The sidecar under tools of others: a tester that reads its description, the parser of the
//! Prometheus client, the compiler of TypeScript, and the oldest Node that the client is for.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::install;
use super::servers::{Server, Side, build_program, our_program};
use crate::command::Failure;
use crate::repository::root;

/// A tool, and how it looks at a sidecar.
struct Tool {
    /// Its name in messages and for `--suite`.
    name: &'static str,
    program: &'static str,
    packages: &'static [&'static str],
    install: fn(&Path, &[&str]) -> Result<(), String>,
    /// The command, given the folder with the packages. The address and the token of the sidecar,
    /// its process and the port of its store are in its environment.
    command: fn(&Path) -> Command,
}

const TOOLS: &[Tool] = &[
    Tool {
        name: "schemathesis",
        program: "python3",
        packages: &["schemathesis==4.32.5"],
        install: install::python,
        command: |folder| {
            let mut command = Command::new(folder.join("bin/python"));
            command.arg(script("schemathesis_run.py"));
            command
        },
    },
    Tool {
        name: "prometheus-client",
        program: "python3",
        packages: &["prometheus-client==0.26.0"],
        install: install::python,
        command: |folder| {
            let mut command = Command::new(folder.join("bin/python"));
            command.arg(script("metrics.py"));
            command
        },
    },
    Tool {
        name: "typescript",
        program: "npm",
        packages: &["typescript@5.9.3", "@types/node@18.19.130"],
        install: install::node,
        command: |folder| {
            let mut command = Command::new("node");
            command.arg(folder.join("node_modules/typescript/bin/tsc"));
            command.args(["--noEmit", "--strict", "--target", "es2022", "--module", "nodenext"]);
            command.arg("--typeRoots").arg(folder.join("node_modules/@types"));
            command.args(["--types", "node"]);
            command.arg(root().join("clients/javascript/test/types.ts"));
            command
        },
    },
    Tool {
        name: "node18",
        program: "npm",
        packages: &["node@18.20.8"],
        install: install::node,
        command: |folder| {
            let mut command = Command::new(folder.join("node_modules/node/bin/node"));
            command.arg(root().join("clients/javascript/test/scenarios.js")).arg("locks");
            command
        },
    },
];

fn script(name: &str) -> PathBuf {
    root().join("xtask/clients").join(name)
}

/// The names of all tools.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name)
}

/// Has the tool `name`, if there is one, look at a sidecar; a line says when it is not there.
/// Returns 1 if it found something.
pub(super) fn check(name: &str) -> Result<usize, Failure> {
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else { return Ok(0) };
    match tool.prepare() {
        Ok(folder) => tool.check(&folder),
        Err(reason) => {
            println!("{name:<10} skipped: {reason}");
            Ok(0)
        }
    }
}

impl Tool {
    fn prepare(&self) -> Result<PathBuf, String> {
        if !install::is_there(self.program) {
            return Err(format!("there is no {}: install it", self.program));
        }
        let folder = install::folder_of(self.name);
        install::once(&folder, self.packages, || (self.install)(&folder, self.packages))?;
        Ok(folder)
    }

    fn check(&self, folder: &Path) -> Result<usize, Failure> {
        let failed = |error| Failure::Failed(format!("compat: {}: {error}", self.name));
        let sidecar = Sidecar::start()?;
        let mut command = (self.command)(folder);
        command.env("TENURE_SIDECAR", &sidecar.url).env("TENURE_SIDECAR_TOKEN", TOKEN);
        command.env("TENURE_SIDECAR_PID", sidecar.program.id().to_string());
        command.env("TENURE_STORE_PORT", sidecar.store.port().to_string());
        let status = command.current_dir(folder).stdin(Stdio::null()).status();
        let status = status.map_err(|error| failed(error.to_string()))?;
        let name = self.name;
        match status.success() {
            true => println!("{name:<10} {}: nothing to complain about", self.packages[0]),
            false => println!("{name:<10} {}: {status}, see above", self.packages[0]),
        }
        Ok(usize::from(!status.success()))
    }
}

/// The bearer token that callers of the sidecar send.
const TOKEN: &str = "0123456789abcdef";

/// A sidecar that leads `report` and observes `mailer`; it ends with its value.
struct Sidecar {
    program: Child,
    url: String,
    store: Server,
}

impl Sidecar {
    fn start() -> Result<Self, Failure> {
        let failed = |error: String| Failure::Failed(format!("compat: the sidecar: {error}"));
        let store = Server::start(Side::Redis)?;
        build_program()?;
        let mut command = our_program();
        command.args(["sidecar", "report", "--observe", "mailer", "--listen", "127.0.0.1:0"]);
        command.arg("--store").arg(format!("redis://{}", store.address));
        command.env("TENURE_DEFAULTS__FRESH_STORE", "true").env("TENURE_SIDECAR__TOKEN", TOKEN);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut line = String::new();
        let stdout = program.stdout.take().expect("it is piped");
        let read = BufReader::new(stdout).read_line(&mut line);
        let url = line.trim_end().rsplit(' ').next().unwrap_or_default().to_owned();
        // It ends with this value, whatever it has said.
        let sidecar = Sidecar { program, url, store };
        match read {
            Ok(1..) if sidecar.url.starts_with("http://") => Ok(sidecar),
            _ => Err(failed("it does not say where it serves".to_owned())),
        }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        // It has ended already when this fails.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_its_script() {
        for tool in TOOLS {
            let command = (tool.command)(Path::new("/packages"));
            let paths = command.get_args().map(Path::new);
            let ours: Vec<&Path> = paths.filter(|path| path.starts_with(root())).collect();
            assert!(!ours.is_empty(), "{}", tool.name);
            assert!(ours.iter().all(|path| path.exists()), "{ours:?}");
        }
    }
}
