//! The server from outside.
//!
//! `compare` sends the same words to our server and to a real redis-server and wants equal
//! replies. To add a family: a file `cases/<family>.txt`, a line in `CASES` of `compare.rs`, and
//! a row in `FAMILIES` of `generate.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod admin;
mod allocated;
mod aof;
mod busy;
mod cluster;
mod command_docs;
mod commands_page;
mod compare;
mod connection;
mod crowd;
mod exchange;
mod freeing;
mod generate;
mod hostile;
mod known_scripts;
mod large;
mod limits;
mod migrate;
mod owner;
mod replay;
mod replication;
mod reshard;
mod script;
mod server;
mod snapshot_disk;
mod snapshots;
mod statistics;
mod tls;
