//! A Redis-compatible server that runs on a thread of its own inside any program.
//!
//! ```text
//! read ► parse ► Engine::execute ► (all clients that were ready) ► files ► write ► timers ► sleep
//! ```
//! The loop decides nothing about data: it moves bytes between sockets and the engine, tells it
//! the time, and does what the engine asks for.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! let server = store_server::Server::builder().start()?;
//! let mut connection = server.connect()?;
//! connection.write_all(b"PING\r\n")?;
//! let mut reply = [0; 7];
//! connection.read_exact(&mut reply)?;
//! assert_eq!(&reply, b"+PONG\r\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Dropping the server stops it. It uses no global state and no signal handler. After much was
//! freed, it tells the allocator to return memory to the system; see [`Allocator`].

mod acceptor;
mod allocator;
mod busy;
mod client;
mod clients;
mod clock;
mod cluster;
mod event_loop;
mod freeing;
mod listen;
mod migration;
mod oom_score;
mod peers;
mod persistence;
mod process;
mod replace_file;
mod replication;
mod sentinel;
mod server;
mod sockets;
mod stream;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod unauthenticated;

pub use allocator::Allocator;
pub use listen::ListenError;
pub use persistence::volatile_folder;
pub use server::{Liveness, Server, ServerBuilder, StartError, StopSignal, Stopper};
pub use store_engine::{Config, LogLevel};
pub use store_persist::disk::{Disk, DiskFile, Fault, SimulatedDisk, SyncFile};
pub use tls::TlsError;
