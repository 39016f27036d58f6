//! `tenure demo --sentinel`: a primary with two replicas, three sentinels that watch them, and the
//! elections over all of them while one primary after the other is killed.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use store_resp::{Reply, ReplyParser};
use tenure::Tenure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use super::{INTERVAL, PATIENCE, RESOURCE, Stage, gap_before, no};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{duration, result};
use crate::own_program::own_program;

/// The name under which the sentinels watch the primary.
const NAME: &str = "main";
const STORES: usize = 3;
const SENTINELS: usize = 3;
/// How long a primary may be silent: short, so that there is something to see.
const DOWN_AFTER: Duration = Duration::from_millis(1500);
/// Between two looks at a server.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// How long after a failover somebody leads again at the latest: a lease and a little more.
const NEW_TERM_MAX: Duration = Duration::from_secs(10);

/// One server of the demo.
struct Part {
    port: u16,
    process: Child,
}

/// The stores and the sentinels.
pub(super) struct Group {
    folder: PathBuf,
    stores: Vec<Part>,
    sentinels: Vec<Part>,
}

impl Group {
    /// Starts all of them, and waits until they know each other.
    pub(super) async fn start() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("tenure-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| no(&error))?;
        let mut group = Self { folder, stores: Vec::new(), sentinels: Vec::new() };
        for _ in 0..STORES {
            let (port, primary) = (free_port()?, group.stores.first().map(|part| part.port));
            let store = group.start_store(port, primary)?;
            group.stores.push(store);
            group.await_store(port, primary.is_some()).await?;
        }
        let ports: Vec<u16> = group.stores.iter().map(|part| part.port).collect();
        for _ in 0..SENTINELS {
            let sentinel = group.start_sentinel(ports[0])?;
            group.sentinels.push(sentinel);
        }
        group.await_sentinels().await?;
        let (stores, sentinels) = (listed(&group.stores), listed(&group.sentinels));
        result(&format!("stores at ports {stores} (the first is the primary)"));
        result(&format!("sentinels at ports {sentinels}"));
        Ok(group)
    }

    /// As an election takes it.
    pub(super) fn address(&self) -> String {
        let hosts = self.sentinels.iter().map(|part| format!("127.0.0.1:{}", part.port));
        format!("redis+sentinel://{}/{NAME}", hosts.collect::<Vec<_>>().join(","))
    }

    fn start_store(&self, port: u16, primary: Option<u16>) -> Result<Part, Failure> {
        let mut words: Vec<String> = ["--bind", "127.0.0.1", "--save", "", "--loglevel", "warning"]
            .map(str::to_owned)
            .into();
        words.extend(["--repl-diskless-sync-delay", "0", "--port"].map(str::to_owned));
        words.push(port.to_string());
        if let Some(primary) = primary {
            words.extend(["--replicaof", "127.0.0.1"].map(str::to_owned));
            words.push(primary.to_string());
        }
        self.start_part(port, &words)
    }

    fn start_sentinel(&self, primary: u16) -> Result<Part, Failure> {
        let port = free_port()?;
        let path = self.folder.join(format!("sentinel-{port}.conf"));
        let text = format!(
            "port {port}\nbind 127.0.0.1\nloglevel warning\n\
             sentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
             sentinel down-after-milliseconds {NAME} {}\nsentinel failover-timeout {NAME} 6000\n",
            DOWN_AFTER.as_millis()
        );
        std::fs::write(&path, text).map_err(|error| no(&error))?;
        self.start_part(port, &["--sentinel".to_owned(), path.display().to_string()])
    }

    fn start_part(&self, port: u16, words: &[String]) -> Result<Part, Failure> {
        let process = Command::new(own_program())
            .args(["demo", "--parent", &std::process::id().to_string(), "--serve"])
            .args(words)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| no(&error))?;
        Ok(Part { port, process })
    }

    async fn await_store(&self, port: u16, is_replica: bool) -> Result<(), Failure> {
        wait("a store did not start", async || {
            let info = text(ask(port, "INFO replication").await?);
            (!is_replica || info.contains("master_link_status:up")).then_some(())
        })
        .await
    }

    async fn await_sentinels(&self) -> Result<(), Failure> {
        let known = [(SENTINELS - 1).to_string(), (STORES - 1).to_string()];
        wait("the sentinels did not find each other", async || {
            for part in &self.sentinels {
                let Reply::Array(all) = ask(part.port, "SENTINEL MASTERS").await? else {
                    return None;
                };
                let state = fields(all.into_iter().next()?);
                let field = |name: &str| state.iter().position(|field| field == name);
                let value = |name: &str| state.get(field(name)? + 1);
                let found = [value("num-other-sentinels")?, value("num-slaves")?];
                if found != [&known[0], &known[1]] {
                    return None;
                }
            }
            Some(())
        })
        .await
    }

    /// Where a sentinel says that the primary is.
    async fn primary(&self) -> Option<u16> {
        let words = format!("SENTINEL GET-MASTER-ADDR-BY-NAME {NAME}");
        fields(ask(self.sentinels.first()?.port, &words).await?).get(1)?.parse().ok()
    }

    /// Waits until the sentinels have put another store in the place of `old`.
    async fn next_primary(&self, old: u16) -> Result<u16, Failure> {
        wait("the sentinels did not replace the primary", async || {
            let new = self.primary().await.filter(|port| *port != old)?;
            let role = fields(ask(new, "ROLE").await?);
            (role.first().map(String::as_str) == Some("master")).then_some(new)
        })
        .await
    }

    async fn kill(&mut self, port: u16) {
        if let Some(part) = self.stores.iter_mut().find(|part| part.port == port) {
            // It may have ended by itself.
            let _ = part.process.kill().await;
        }
    }

    fn start_again(&mut self, port: u16) -> Result<(), Failure> {
        let store = self.start_store(port, None)?;
        self.stores.retain(|part| part.port != port);
        self.stores.push(store);
        Ok(())
    }

    /// Nobody and nothing stays behind.
    pub(super) async fn clear(mut self) {
        for part in self.stores.iter_mut().chain(&mut self.sentinels) {
            let _ = part.process.kill().await;
        }
        // What cannot be removed is in the folder for such things.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Stage {
    /// The plot: one primary after the other is killed, and comes back as a replica.
    pub(super) async fn play_failovers(
        &mut self,
        group: &mut Group,
        operator: &Tenure,
    ) -> Result<(), Failure> {
        self.next_leader(operator, "the start", self.began_at).await?;
        loop {
            self.linger(INTERVAL).await;
            let Some(old) = group.primary().await else {
                return Err(Failure::new(exit::NO, "no sentinel answers"));
            };
            self.say(&format!("the primary at port {old} is killed (SIGKILL)"));
            let killed_at = clock::now();
            group.kill(old).await;
            let new = self.hear_until(group.next_primary(old)).await?;
            let took = duration(clock::now().saturating_duration_since(killed_at));
            self.say(&format!("the sentinels made port {new} the primary, {took} after the kill"));
            self.new_term(operator, killed_at).await?;
            self.linger(INTERVAL / 2).await;
            self.say(&format!("port {old} is started again: the sentinels make it a replica"));
            group.start_again(old)?;
            self.linger(INTERVAL).await;
        }
    }

    /// Shows what is said until something is done.
    async fn hear_until<T>(&mut self, done: impl Future<Output = T>) -> T {
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

    /// Shows who leads on the new primary, and for how long nobody did.
    async fn new_term(
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

fn listed(parts: &[Part]) -> String {
    parts.iter().map(|part| part.port.to_string()).collect::<Vec<_>>().join(", ")
}

/// A port that nobody listens on right now.
fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| no(&error))?;
    Ok(listener.local_addr().map_err(|error| no(&error))?.port())
}

/// Looks again and again until there is something to see.
async fn wait<T>(problem: &str, look: impl AsyncFn() -> Option<T>) -> Result<T, Failure> {
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

/// What a server answers to a line; `None` when it does not.
async fn ask(port: u16, line: &str) -> Option<Reply> {
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
    timeout(ANSWER_MAX, asking).await.ok()?
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => String::new(),
    }
}

/// The strings of an array.
fn fields(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) => items.into_iter().map(text).collect(),
        _ => Vec::new(),
    }
}
