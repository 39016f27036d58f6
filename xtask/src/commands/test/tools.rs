//! The programs that the tests need, and how to get them.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use crate::command::Failure;
use crate::repository::cargo;

/// Something that must be there before the tests, or another command, can run.
pub(crate) struct Tool {
    /// The words that show it is there by succeeding.
    probe: &'static [&'static str],
    source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// A package of Debian, Ubuntu and their kin.
    Package(&'static str),
    /// A component of the Rust toolchain.
    Component(&'static str),
}

impl Tool {
    /// One that these words show, in this package of Debian.
    pub(crate) const fn packaged(probe: &'static [&'static str], package: &'static str) -> Self {
        Tool { probe, source: Source::Package(package) }
    }
}

const TOOLS: &[Tool] = &[
    Tool { probe: &["cargo", "fmt", "--version"], source: Source::Component("rustfmt") },
    Tool { probe: &["cargo", "clippy", "--version"], source: Source::Component("clippy") },
    Tool { probe: &["redis-server", "--version"], source: Source::Package("redis-server") },
    Tool { probe: &["redis-cli", "--version"], source: Source::Package("redis-tools") },
    Tool { probe: &["chromium", "--version"], source: Source::Package("chromium") },
    Tool { probe: &["chromedriver", "--version"], source: Source::Package("chromium-driver") },
    Tool { probe: &["promtool", "--version"], source: Source::Package("prometheus") },
    Tool { probe: &["systemd-analyze", "--version"], source: Source::Package("systemd") },
    Tool {
        probe: &["kubectl", "version", "--client"],
        source: Source::Package("kubernetes-client"),
    },
    Tool { probe: &["python3", "--version"], source: Source::Package("python3") },
    Tool { probe: &["python3", "-c", "import ensurepip"], source: Source::Package("python3-venv") },
    Tool { probe: &["node", "--version"], source: Source::Package("nodejs") },
    // The server's own programs are not in PATH there.
    Tool { probe: &["pg_lsclusters", "--help"], source: Source::Package("postgresql") },
    Tool { probe: &["pgbouncer", "--version"], source: Source::Package("pgbouncer") },
];

/// Makes sure that all tools of the tests are there.
pub(super) fn ensure() -> Result<(), Failure> {
    ensure_all(TOOLS)
}

/// Makes sure that these tools are there, installing packages where that is allowed.
pub(crate) fn ensure_all(tools: &[Tool]) -> Result<(), Failure> {
    let packages = packages(&missing(tools));
    if !packages.is_empty()
        && let Some(apt_get) = AptGet::usable()
    {
        apt_get.install(&packages)?;
    }
    let missing = missing(tools);
    if missing.is_empty() { Ok(()) } else { Err(Failure::Failed(advice(&missing))) }
}

/// Whether a program is there: whether these words, which ask for its version, succeed.
pub(crate) fn is_there(words: &[&str]) -> bool {
    let mut command = match words {
        ["cargo", rest @ ..] => {
            let mut command = cargo();
            command.args(rest);
            command
        }
        [program, rest @ ..] => {
            let mut command = Command::new(program);
            command.args(rest);
            command
        }
        [] => return false,
    };
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a command with our own output, and fails when it fails.
pub(crate) fn succeed(mut command: Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("see above ({status})"))),
        Err(error) => Err(Failure::Failed(format!("cannot start {program}: {error}"))),
    }
}

fn missing(tools: &[Tool]) -> Vec<&Tool> {
    tools.iter().filter(|tool| !is_there(tool.probe)).collect()
}

fn packages(tools: &[&Tool]) -> Vec<&'static str> {
    let package = |tool: &&Tool| match tool.source {
        Source::Package(name) => Some(name),
        Source::Component(_) => None,
    };
    tools.iter().filter_map(package).collect()
}

fn advice(missing: &[&Tool]) -> String {
    let mut text = String::from("something that is needed is missing:\n");
    for tool in missing {
        let program = tool.probe.strip_suffix(&["--version"]).unwrap_or(tool.probe).join(" ");
        let next_step = match tool.source {
            Source::Package(name) => format!(
                "install it with `apt-get install {name}`, or your system's package of that program"
            ),
            Source::Component(name) => format!("add it with `rustup component add {name}`"),
        };
        writeln!(text, "  {program}: {next_step}").expect("a string takes all text");
    }
    text
}

/// The package manager of Debian and its kin.
struct AptGet {
    /// The words before its own: none as root.
    prefix: &'static [&'static str],
}

impl AptGet {
    /// `None` where it does not exist or we may not use it without asking for a password.
    fn usable() -> Option<Self> {
        if !is_there(&["apt-get", "--version"]) {
            return None;
        }
        let user = Command::new("id").arg("-u").output().ok()?.stdout;
        if user.trim_ascii() == b"0" {
            return Some(Self { prefix: &[] });
        }
        is_there(&["sudo", "-n", "true"]).then_some(Self { prefix: &["sudo", "-n"] })
    }

    fn install(&self, packages: &[&str]) -> Result<(), Failure> {
        eprintln!("installing {}", packages.join(" "));
        succeed(self.command(&["update"]))?;
        let words = ["install", "--yes", "--no-install-recommends"];
        succeed(self.command(&[&words[..], packages].concat()))
    }

    fn command(&self, words: &[&str]) -> Command {
        // `env`, because sudo does not hand the environment on.
        let start = [self.prefix, &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]].concat();
        let mut command = Command::new(start[0]);
        command.args(&start[1..]).args(words);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_to_do_about_it() {
        let missing: Vec<_> = TOOLS.iter().collect();
        let text = advice(&missing);
        assert!(text.contains("cargo clippy: add it with `rustup component add clippy`"), "{text}");
        assert!(
            text.contains("redis-cli: install it with `apt-get install redis-tools`"),
            "{text}"
        );
        let expected = [
            "redis-server",
            "redis-tools",
            "chromium",
            "chromium-driver",
            "prometheus",
            "systemd",
            "kubernetes-client",
            "python3",
            "python3-venv",
            "nodejs",
            "postgresql",
            "pgbouncer",
        ];
        assert_eq!(packages(&missing), expected);
    }

    #[test]
    fn programs_are_found_by_asking_for_their_version() {
        assert!(is_there(&["cargo", "--version"]));
        assert!(!is_there(&["no-such-program", "--version"]));
        assert!(!is_there(&["cargo", "no-such-command"]));
    }

    #[test]
    fn a_failing_program_is_a_failure() {
        assert!(succeed(Command::new("true")).is_ok());
        assert!(succeed(Command::new("false")).is_err());
        let failure = succeed(Command::new("no-such-program")).unwrap_err();
        assert!(failure.to_string().contains("no-such-program"));
    }

    #[test]
    fn packages_are_installed_without_a_question() {
        let apt_get = AptGet { prefix: &["sudo", "-n"] };
        let command = format!("{:?}", apt_get.command(&["install", "--yes", "x"])).replace('"', "");
        let expected = "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install --yes x";
        assert_eq!(command, expected);
    }
}
