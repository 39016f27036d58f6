//! What the log of a fail-over says: one line per change, each with a true next step.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{GENEROUS, Process, SentinelGroup, TempFolder, wait_until};

use crate::stage::{NAME, plain_command};

/// A candidate whose log is kept in a file.
struct Candidate {
    _process: Process,
    log: PathBuf,
}

impl Candidate {
    fn start(store: &str, id: &str, folder: &Path) -> Self {
        // So short that the lease is over before the sentinels give a master up.
        let words = ["run", NAME, "--id", id, "--ttl", "2s", "--", "sleep", "1000"];
        let mut command: Command = plain_command(&words);
        command.env("TENURE_STORE", store).env("TENURE_DEFAULTS__FRESH_STORE", "true");
        let log = folder.join(id);
        command.stderr(Stdio::from(std::fs::File::create(&log).unwrap()));
        Candidate { _process: Process::spawn(command), log }
    }

    /// Its lines without the time, which comes first.
    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let lines = text.lines().map(|line| line.split_once("Z ").map_or(line, |(_, rest)| rest));
        lines.map(|line| line.trim().to_owned()).collect()
    }

    fn has_acquired(&self, times: usize) -> bool {
        self.lines().iter().filter(|line| line.contains("leader: acquired")).count() >= times
    }
}

/// The lines that hold `text`.
fn with<'a>(lines: &'a [String], text: &str) -> Vec<&'a String> {
    lines.iter().filter(|line| line.contains(text)).collect()
}

#[test]
fn a_fail_over_is_told_in_a_few_lines_that_say_what_to_do() {
    let (mut group, folder) = (SentinelGroup::start(1), TempFolder::create());
    let url = group.url();
    let old = Candidate::start(&url, "web-1", folder.path());
    wait_until("web-1 to lead", GENEROUS, || old.has_acquired(1));
    let standby = Candidate::start(&url, "web-2", folder.path());
    wait_until("web-2 to take part", GENEROUS, || {
        let members = format!("{{tenure:{NAME}}}:members");
        group.servers[0].cli(&["HLEN", &members]).trim() == "2"
    });
    group.servers[0].kill();
    wait_until("somebody to lead", GENEROUS, || old.has_acquired(2) || standby.has_acquired(1));
    let logs = [old.lines(), standby.lines()];
    for lines in &logs {
        let shown = lines.join("\n");
        let trouble: Vec<_> = lines
            .iter()
            .filter(|line| line.starts_with("WARN") || line.starts_with("ERROR"))
            .collect();
        assert!(trouble.len() <= 2, "too many words about one outage:\n{shown}");
        for line in trouble {
            assert!(line.contains("sentinels"), "what is to be done?\n{line}\n\n{shown}");
            assert!(!line.contains("correct host and port"), "{line}");
            assert!(!line.contains("\\\""), "{line}");
        }
        for end in ["the store answers", " waits "] {
            assert!(with(lines, end).len() <= 1, "{end} twice:\n{shown}");
        }
        assert!(with(lines, "detail=renewal-late").is_empty(), "{shown}");
    }
    let [leader, _] = &logs;
    assert_eq!(with(leader, "leader: renewal fails").len(), 1, "{}", leader.join("\n"));
    assert_eq!(with(leader, "leader: lost").len(), 1, "{}", leader.join("\n"));
}
