//! A bounded slice of what `cargo xtask simulate store` runs.

mod cluster;
mod moves;
mod replication;
mod sentinel;
