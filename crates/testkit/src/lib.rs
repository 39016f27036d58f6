//! Real servers, a fault-injecting proxy and child processes for tests.
//!
//! What comes in: a wish ("a Redis server with little memory"). What goes out: something real that
//! listens on loopback and is gone when its value is dropped, when the test panics, and even when
//! the test process is killed. Nothing here imitates Redis; the tests talk to the real program.
//!
//! Every function panics with a message that names the thing and the next step, because in a test
//! there is nobody to hand an error to. Bounds are generous: they end a hung test, they measure
//! nothing.
//!
//! ```
//! let server = testkit::RedisServer::start();
//! assert_eq!(server.cli(&["SET", "greeting", "hello"]), "OK");
//! assert_eq!(server.cli(&["GET", "greeting"]), "hello");
//! ```

mod certificates;
mod child;
mod cluster;
mod folder;
mod lines;
mod monitor;
mod network;
mod port;
mod postgres;
mod process;
pub mod proxy;
mod random;
mod sentinel;
mod server;
mod wait;
mod wall_clock;

pub use certificates::Certificates;
pub use cluster::ClusterGroup;
pub use folder::TempFolder;
pub use monitor::{Monitor, MonitorLine};
pub use network::{Host, Network};
pub use postgres::{PgBouncer, PostgresCopy, PostgresServer};
pub use process::Process;
pub use proxy::Proxy;
pub use random::{Random, seed};
pub use sentinel::{Sentinel, SentinelGroup};
pub use server::{RedisServer, RedisServerBuilder, ServerProgram};
pub use wait::{GENEROUS, wait_for, wait_until};
pub use wall_clock::WallClock;
