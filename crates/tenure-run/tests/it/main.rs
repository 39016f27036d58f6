//! Seeded worlds around the two machines: a kernel, programs, and whatever can go wrong.
//!
//! `RUN_SEEDS=100000 cargo test -p tenure-run` runs more of them; `cargo xtask simulate run` sets
//! that. `RUN_SEED=7` runs one, with a trace.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod forgetting;
mod kernel;
mod random;
mod world;
mod worlds;
