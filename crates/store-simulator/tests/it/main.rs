//! A bounded slice of what `cargo xtask simulate store` runs.

mod cluster;
mod replication;
mod sentinel;
