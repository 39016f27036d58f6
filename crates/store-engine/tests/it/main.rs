//! The engine through its one door, with a clock that the test moves.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod acl;
mod collections;
mod eviction;
mod expiry;
mod freeing;
mod held;
mod memory;
mod moving;
mod payloads;
mod propagation;
mod restore;
mod scripts;
mod streams;
mod transaction;
mod waiting;
mod world;
