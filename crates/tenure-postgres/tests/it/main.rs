//! Elections on real PostgreSQL servers.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod conformance;
mod encrypted;
mod fence;
mod player;
mod restored;
mod trouble;
