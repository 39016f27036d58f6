//! `tenure demo --sentinel`: a primary with two replicas, three sentinels that watch them, and the
//! elections over all of them while one primary after the other is killed.

use std::path::PathBuf;
use std::time::Duration;

use store_resp::Reply;
use tenure::Tenure;

use super::servers::{Part, ask, fields, free_port, listed, make_folder, text, wait};
use super::{INTERVAL, Stage, no};
use crate::clock;
use crate::exit::{self, Failure};
use crate::output::{duration, result};

/// The name under which the sentinels watch the primary.
const NAME: &str = "main";
const STORES: usize = 3;
const SENTINELS: usize = 3;
/// How long a primary may be silent: short, so that there is something to see.
const DOWN_AFTER: Duration = Duration::from_millis(1500);

/// The stores and the sentinels.
pub(super) struct Group {
    folder: PathBuf,
    stores: Vec<Part>,
    sentinels: Vec<Part>,
}

impl Group {
    /// Starts all of them, and waits until they know each other.
    pub(super) async fn start() -> Result<Self, Failure> {
        let folder = make_folder()?;
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
        Part::start(&self.folder, port, &words)
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
        let words = ["--sentinel".to_owned(), path.display().to_string()];
        Part::start(&self.folder, port, &words)
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
}
