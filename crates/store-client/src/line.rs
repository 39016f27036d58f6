//! A connection that is made when needed, and made again after it broke.

use std::io;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisResult};

use crate::store::Store;

/// An answer that takes this much longer than the command may block means a dead connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// One helper's own connection.
#[derive(Debug)]
pub(crate) struct Line {
    store: Store,
    connection: Option<MultiplexedConnection>,
}

impl Line {
    pub(crate) fn new(store: &Store) -> Self {
        Self { store: store.clone(), connection: None }
    }

    /// Whether the next call makes a connection first.
    pub(crate) fn is_new(&self) -> bool {
        self.connection.is_none()
    }

    /// The connection, made when there is none.
    pub(crate) async fn connection(&mut self) -> RedisResult<&mut MultiplexedConnection> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.store.connect().await?,
        };
        Ok(self.connection.insert(connection))
    }

    /// Sends a command that does not block.
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &redis::Cmd) -> RedisResult<T> {
        self.ask_blocking(command, Duration::ZERO).await
    }

    /// Sends a command that the store may hold for `wait`. After a failure of the connection the
    /// next call makes a new one; the command is not repeated, since it may have been carried out.
    pub(crate) async fn ask_blocking<T: FromRedisValue>(
        &mut self,
        command: &redis::Cmd,
        wait: Duration,
    ) -> RedisResult<T> {
        let connection = self.connection().await?;
        let answer = tokio::time::timeout(
            wait.saturating_add(ANSWER_WITHIN),
            command.query_async(connection),
        );
        let outcome = answer.await.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the store does not answer").into())
        });
        if outcome
            .as_ref()
            .is_err_and(|error| error.is_io_error() || error.is_unrecoverable_error())
        {
            self.connection = None;
        }
        outcome
    }
}
