//! The helpers on a store inside this process and on a real redis-server.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod bulkhead;
mod channel;
mod cluster;
mod log;
mod pipeline;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use store_client::Store;
use store_client::redis::{self, FromRedisValue};
use store_server::Server;
use testkit::RedisServer;

/// Longer than anything here takes, short enough that a wait in vain ends a test.
const SOON: Duration = Duration::from_secs(20);
/// For waits that are in vain on purpose.
const BRIEFLY: Duration = Duration::from_millis(20);

/// A store, and what keeps it alive.
struct Stage {
    store: Store,
    server: Option<RedisServer>,
}

/// A store inside this process, and a real redis-server.
fn stages() -> [Stage; 2] {
    let embedded = Arc::new(Server::builder().start().unwrap());
    let store = Store::of_streams(move || embedded.connect());
    let server = RedisServer::start();
    let real = Store::open(&server.url()).unwrap();
    [Stage { store, server: None }, Stage { store: real, server: Some(server) }]
}

impl Stage {
    /// Asks the store directly.
    async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = self.store.connect().await.unwrap();
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut connection).await.unwrap()
    }

    /// Ends all connections but the asking one, as a network that breaks does.
    async fn cut_connections(&self) {
        let _: usize = self.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
        let _: usize = self.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    }
}
