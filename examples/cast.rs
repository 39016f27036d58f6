//! Processes of an example's own, whose lines it reads.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::Outcome;

/// Longer than anything an example does takes on a healthy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Lines that wait to be read; the processes wait beyond that.
const LINES_MAX: usize = 64;

/// The processes, by name. They end with it.
pub struct Cast {
    players: Vec<(String, Child)>,
    sender: mpsc::Sender<(String, String)>,
    lines: mpsc::Receiver<(String, String)>,
}

impl Cast {
    /// Nobody yet.
    pub fn new() -> Self {
        let (sender, lines) = mpsc::channel(LINES_MAX);
        Self { players: Vec::new(), sender, lines }
    }

    /// Starts this same program with other words.
    pub fn start(&mut self, name: &str, words: &[&str]) -> Outcome {
        let mut child = Command::new(std::env::current_exe()?)
            .args(words)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or("no output of a child")?;
        let (sender, owner) = (self.sender.clone(), name.to_owned());
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if sender.send((owner.clone(), line)).await.is_err() {
                    return;
                }
            }
        });
        self.players.push((name.to_owned(), child));
        Ok(())
    }

    /// The next line that anybody says: who, and what. It is printed as well.
    pub async fn next(&mut self) -> Outcome<(String, String)> {
        let next = tokio::time::timeout(PATIENCE, self.lines.recv()).await;
        let (name, line) = next?.ok_or("nobody is left")?;
        println!("  {name} {line}");
        Ok((name, line))
    }

    /// Kills a process as a crash would.
    pub async fn kill(&mut self, name: &str) -> Outcome {
        let player = self.players.iter_mut().find(|(known, _)| known == name);
        let (_, child) = player.ok_or_else(|| format!("no process called {name}"))?;
        Ok(child.kill().await?)
    }
}

impl Default for Cast {
    fn default() -> Self {
        Self::new()
    }
}
