//! The algorithm to compare with: everyone polls, every third of the lease.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tenure::Moment;
use trials::clock;

use crate::Result;

const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                     return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) end return 0";

/// One poller's connection and identity.
#[derive(Clone)]
pub(crate) struct Poller {
    connection: MultiplexedConnection,
    key: String,
    id: String,
    pub(crate) ttl: Duration,
}

impl Poller {
    pub(crate) async fn connect(url: &str, key: &str, id: &str, ttl: Duration) -> Result<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Poller { connection, key: key.into(), id: id.into(), ttl })
    }

    /// Another poller on the same connection.
    pub(crate) fn beside(&self, key: String) -> Self {
        Poller { key, ..self.clone() }
    }

    pub(crate) fn interval(&self) -> Duration {
        self.ttl / 3
    }

    pub(crate) async fn acquire(&mut self) -> Result<bool> {
        let mut command = redis::cmd("SET");
        command.arg(&self.key).arg(&self.id).arg("NX").arg("PX").arg(self.millis());
        let reply: Option<String> = command.query_async(&mut self.connection).await?;
        Ok(reply.is_some())
    }

    pub(crate) async fn renew(&mut self) -> Result<bool> {
        self.script(RENEW).await
    }

    pub(crate) async fn release(&mut self) -> Result<bool> {
        self.script(RELEASE).await
    }

    async fn script(&mut self, text: &str) -> Result<bool> {
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(1).arg(&self.key).arg(&self.id).arg(self.millis());
        let reply: i64 = command.query_async(&mut self.connection).await?;
        Ok(reply == 1)
    }

    fn millis(&self) -> u64 {
        self.ttl.as_millis() as u64
    }

    /// Takes part until `until`: renews while it leads, tries while it does not.
    pub(crate) async fn take_part(mut self, phase: Duration, until: Moment) -> Result {
        let mut leads = false;
        tokio::time::sleep(phase).await;
        while clock::now() < until {
            leads = if leads { self.renew().await? } else { self.acquire().await? };
            tokio::time::sleep(self.interval()).await;
        }
        Ok(())
    }
}
