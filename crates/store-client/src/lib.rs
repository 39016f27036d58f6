//! Uses of a store besides electing a leader: notifications, queues, shared logs, pipelines.
//!
//! Each helper is a short module over the `redis` crate, and works on our store, Redis and Valkey:
//! - [`Store`]: how to reach one, by address or inside this process;
//! - [`Channel`]: messages to whoever listens now; nobody keeps them;
//! - [`Queue`]: jobs that survive the crash of whoever works on them;
//! - [`Log`]: a stream that many write and groups of workers share;
//! - [`pipelined`]: many commands in few round trips, each with its own outcome;
//! - [`ClusterClient`]: any command to the node of a cluster that has its keys;
//! - [`bulkhead`]: at most so many calls of a dependency at a time, by permits or by threads.
//!
//! ```
//! use std::time::Duration;
//! use store_client::{Queue, Store};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> redis::RedisResult<()> {
//! # let server = std::sync::Arc::new(store_server::Server::builder().start().unwrap());
//! # let store = Store::of_streams(move || server.connect());
//! let queue = Queue::new("mail");                         // let store = Store::open("redis://…")?;
//! queue.sender(&store).push("to ada").await?;
//! let mut worker = queue.worker(&store, "worker-1");
//! let job = worker.take(Duration::from_secs(1)).await?.expect("one was pushed");
//! assert_eq!(job.bytes(), b"to ada");
//! worker.done(job).await?;
//! # Ok(()) }
//! ```

pub mod bulkhead;
mod channel;
mod clock;
pub mod cluster;
mod connect;
mod line;
mod log;
mod pipeline;
mod queue;
mod store;

pub use channel::{Channel, Heard, Listener};
pub use cluster::{ClusterClient, ClusterError};
pub use connect::connect_tcp;
pub use log::{Entry, Log, LogWorker, LogWriter};
pub use pipeline::{Pipelined, WINDOW_MAX, pipelined};
pub use queue::{Finished, Job, Pushed, Queue, Recovered, Sender, Worker};
pub use redis;
pub use store::Store;
