//! A value in Redis behind a fence.

use std::time::Duration;

use tenure_core::{NameError, Resource, StoreError, Token};
pub use tenure_redis::FencedWrite;
use tenure_redis::{FenceReply, RedisBackend, fence_command, fence_reply};

use super::StaleToken;

/// A Redis string that earlier leaders cannot overwrite. Its fence is a second key without expiry;
/// the server must neither evict keys (`maxmemory-policy noeviction`) nor lose them. A failover
/// loses what no replica had: on a store with replicas, use [`write_through`](Self::write_through)
/// with a backend in mode `strict`, which returns only when the replicas have the fence. Other
/// connections do not wait for replicas by themselves.
///
/// ```no_run
/// # use tenure::{Token, fence::FencedValue};
/// # async fn example(token: Token) -> Result<(), Box<dyn std::error::Error>> {
/// let mut connection = redis::Client::open("redis://127.0.0.1")?
///     .get_multiplexed_async_connection()
///     .await?;
/// let report = FencedValue::new("report:latest")?;
/// report.set(&mut connection, token, b"all is well", None).await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedValue {
    key: String,
    fence_key: String,
}

/// Why a fenced write did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FencedError {
    /// A newer leader has written: stop working, do not retry.
    #[error(transparent)]
    Stale(#[from] StaleToken),
    /// No answer: the write may have happened. Repeating it with the same token is safe.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FencedValue {
    /// The value at `key`. Fails for keys whose fence could not be in the same cluster slot.
    pub fn new(key: &str) -> Result<Self, NameError> {
        let fence_key = Resource::with_key(key, key)?.side_key("fence");
        Ok(FencedValue { key: key.to_owned(), fence_key })
    }

    /// The key of the fence: a plain number, readable with redis-cli.
    pub fn fence_key(&self) -> &str {
        &self.fence_key
    }

    /// Writes the value over a connection of the `redis` crate. With `ttl` it expires.
    pub async fn set(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
        token: Token,
        value: &[u8],
        ttl: Option<Duration>,
    ) -> Result<(), FencedError> {
        self.run(connection, token, FencedWrite::Set { value, ttl }).await
    }

    /// Deletes the value; its fence stays.
    pub async fn delete(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
        token: Token,
    ) -> Result<(), FencedError> {
        self.run(connection, token, FencedWrite::Delete).await
    }

    /// Writes or deletes the value over the connection of a backend, so that no second connection
    /// is needed. In mode `strict`, a write that the replicas did not confirm is an error: it may
    /// have happened. Repeating it with the same token is safe.
    pub async fn write_through(
        &self,
        backend: &RedisBackend,
        token: Token,
        write: FencedWrite<'_>,
        timeout: Duration,
    ) -> Result<(), FencedError> {
        let reply = backend.fenced(&self.key, &self.fence_key, token, &write, timeout).await?;
        settle(token, reply)
    }

    /// The command of a write, for connections of any other kind; [`outcome`](Self::outcome) reads
    /// the reply.
    pub fn command(&self, token: Token, write: &FencedWrite<'_>) -> redis::Cmd {
        fence_command(&self.key, &self.fence_key, token, write)
    }

    /// Reads the reply to [`command`](Self::command).
    pub fn outcome(token: Token, reply: &redis::Value) -> Result<(), FencedError> {
        settle(token, fence_reply(reply)?)
    }

    async fn run(
        &self,
        connection: &mut impl redis::aio::ConnectionLike,
        token: Token,
        write: FencedWrite<'_>,
    ) -> Result<(), FencedError> {
        let command = self.command(token, &write);
        let reply = connection.req_packed_command(&command).await;
        let reply = reply.map_err(|error| tenure_redis::connection_error(&error))?;
        Self::outcome(token, &reply)
    }
}

fn settle(given: Token, reply: FenceReply) -> Result<(), FencedError> {
    match reply {
        FenceReply::Written => Ok(()),
        FenceReply::Stale { highest } => Err(StaleToken { given, highest }.into()),
    }
}
