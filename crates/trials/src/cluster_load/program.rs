//! Clients that are programs: they write until they are told to stop, and say what was
//! acknowledged.

use std::process::Command;
use std::time::Duration;

use testkit::{ClusterGroup, GENEROUS, Process};

use super::model::{Tally, Written};

/// Longer than fifty clients in a slow language take to connect, or to tell of all keys.
const PATIENCE: Duration = GENEROUS.saturating_mul(4);
/// What it says when all its clients write.
const READY: &str = "ready";
/// What it says when it has told of all keys.
const DONE: &str = "done";

/// A running program. It is given the number of clients and the ports of all nodes.
pub struct ProgramWriters {
    process: Process,
}

impl ProgramWriters {
    /// Starts it and returns once all of its clients write.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(mut command: Command, group: &ClusterGroup, clients: usize) -> Self {
        command.arg(clients.to_string());
        command.args((0..group.len()).map(|place| group.server(place).port().to_string()));
        let process = Process::spawn(command);
        let _ = process.next_line_with(READY, PATIENCE);
        Self { process }
    }

    /// Tells it to stop and reads `key acknowledged unknown`, a line for each key.
    ///
    /// # Errors
    /// What it said instead.
    ///
    /// # Panics
    /// When it ends without a word.
    pub fn finish(mut self) -> Result<Written, String> {
        self.process.terminate();
        let mut written = Written::default();
        loop {
            let line = self.process.next_line(PATIENCE);
            if line == DONE {
                return Ok(written);
            }
            let tally = parse(&line).ok_or_else(|| format!("the client says: {line}"))?;
            written.keys.push(tally);
        }
    }
}

fn parse(line: &str) -> Option<Tally> {
    let words: Vec<&str> = line.split(' ').collect();
    let [key, acknowledged, unknown] = words[..] else { return None };
    let (acknowledged, unknown) = (acknowledged.parse().ok()?, unknown.parse().ok()?);
    Some(Tally { key: key.to_owned(), acknowledged, unknown })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key_with_its_counts() {
        let tally = parse("list:1:2 30 0").unwrap();
        assert_eq!((tally.key.as_str(), tally.acknowledged, tally.unknown), ("list:1:2", 30, 0));
        assert_eq!(parse("Traceback (most recent call last):"), None);
    }
}
