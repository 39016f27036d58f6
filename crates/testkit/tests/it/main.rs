//! The kit against real programs and real sockets.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod cluster;
mod network;
mod process;
mod proxy;
mod sentinel;
mod server;
