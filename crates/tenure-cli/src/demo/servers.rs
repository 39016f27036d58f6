//! The servers of a demo, each a process of its own, and what to ask them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use store_resp::{Reply, ReplyParser};
use tenure::Tenure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::{PATIENCE, RESOURCE, Stage, gap_before, no};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::duration;
use crate::own_program::{not_started_again, own_program};

/// Between two looks at a server.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a server may take to answer before it is asked again, or another one is.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How long after a failover somebody leads again at the latest: a lease and a little more.
const NEW_TERM_MAX: Duration = Duration::from_secs(10);

/// One server of the demo.
pub(super) struct Part {
    pub(super) port: u16,
    pub(super) process: Child,
}

impl Part {
    /// Starts `tenure serve` with these words. It ends with the demo.
    pub(super) fn start(folder: &Path, port: u16, words: &[String]) -> Result<Self, Failure> {
        let process = Command::new(own_program())
            .args(["demo", "--parent", &std::process::id().to_string(), "--serve"])
            .args(words)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| no(&not_started_again(error)))?;
        Ok(Part { port, process })
    }
}

/// The folder of this demo's files.
pub(super) fn make_folder() -> Result<PathBuf, Failure> {
    let folder = std::env::temp_dir().join(format!("tenure-demo-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| no(&error))?;
    Ok(folder)
}

impl Stage {
    /// Shows what is said until something is done.
    pub(super) async fn hear_until<T>(&mut self, done: impl Future<Output = T>) -> T {
        let mut done = std::pin::pin!(done);
        loop {
            tokio::select! {
                outcome = &mut done => return outcome,
                Some(line) = self.said.recv() => {
                    if self.hear(&line).is_some() {
                        self.say(&format!("{} leads", line.name));
                    }
                }
            }
        }
    }

    /// Shows who leads after a failover, and for how long nobody did.
    pub(super) async fn new_term(
        &mut self,
        operator: &Tenure,
        since: std::time::Instant,
    ) -> Result<(), Failure> {
        let ends_at = clock::now() + NEW_TERM_MAX;
        loop {
            let left = ends_at.saturating_duration_since(clock::now());
            let Ok(Some(line)) = timeout(left, self.said.recv()).await else {
                let leader = self.leader_name();
                self.say(&format!("{leader} leads on: its lease outlasted the failover"));
                return Ok(());
            };
            let Some(token) = self.hear(&line) else { continue };
            let took = duration(clock::now().saturating_duration_since(since));
            let gap = gap_before(&operator.observe(RESOURCE)?.history(8).await?, token)
                .unwrap_or_default();
            self.say(&format!("{} leads, {took} after the kill{gap} (token {token})", line.name));
            return Ok(());
        }
    }
}

pub(super) fn listed(parts: &[Part]) -> String {
    parts.iter().map(|part| part.port.to_string()).collect::<Vec<_>>().join(", ")
}

/// A port that nobody listens on right now.
pub(super) fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| no(&error))?;
    Ok(listener.local_addr().map_err(|error| no(&error))?.port())
}

/// Looks again and again until there is something to see.
pub(super) async fn wait<T>(
    problem: &str,
    look: impl AsyncFn() -> Option<T>,
) -> Result<T, Failure> {
    let ends_at = clock::now() + PATIENCE;
    loop {
        if let Some(seen) = look().await {
            return Ok(seen);
        }
        if clock::now() > ends_at {
            return Err(Failure::new(exit::TIMED_OUT, format!("{problem} in {PATIENCE:?}")));
        }
        sleep(LOOK_EVERY).await;
    }
}

/// What a server answers to a line; `None` when it does not, or not soon.
pub(super) async fn ask(port: u16, line: &str) -> Option<Reply> {
    ask_within(ANSWER_MAX, port, line).await
}

/// The same for what must not be said twice: a busy machine gets all the time that it needs.
pub(super) async fn ask_once(port: u16, line: &str) -> Option<Reply> {
    ask_within(PATIENCE, port, line).await
}

async fn ask_within(limit: Duration, port: u16, line: &str) -> Option<Reply> {
    let asking = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        stream.write_all(format!("{line}\r\n").as_bytes()).await.ok()?;
        let mut bytes = Vec::new();
        loop {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
            if let Some((reply, _)) = ReplyParser.parse(&bytes).ok()? {
                return Some(reply);
            }
        }
    };
    timeout(limit, asking).await.ok()?
}

pub(super) fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    }
}

/// The strings of an array.
pub(super) fn fields(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) => items.into_iter().map(text).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    /// A busy machine is slow, and what changes a cluster must not be said twice.
    #[tokio::test]
    async fn a_server_that_answers_late_is_waited_for() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut line = [0; 64];
            let len = stream.read(&mut line).unwrap();
            std::thread::sleep(ANSWER_MAX + ANSWER_MAX / 4);
            stream.write_all(b"+OK\r\n").unwrap();
            line[..len].to_vec()
        });
        let reply = ask_once(port, "CLUSTER SAVECONFIG").await;
        assert!(matches!(reply, Some(Reply::Simple(_))), "{reply:?}");
        assert_eq!(server.join().unwrap(), b"CLUSTER SAVECONFIG\r\n");
    }
}
